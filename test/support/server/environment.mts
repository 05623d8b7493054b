import { TestEnvironment } from 'jest-environment-node';
import * as shared from './shared.ts';

declare global {
  var shared: typeof import('./shared.ts');
}

// For threads and programs alone. Were it there when this process began, it would write at its end what all its modules compiled to, for
// which Jest does not wait: it says that tests leave something open.
process.env['NODE_COMPILE_CACHE'] = process.env['TEST_COMPILE_CACHE'];

/** Where a file of tests runs: a sandbox of its own, with what all files share. */
export default class extends TestEnvironment {
  override async setup(): Promise<void> {
    await super.setup();
    // Frozen: Jest clears what it can of a sandbox that is done with.
    this.global.shared = Object.freeze({ ...shared });
  }
}
