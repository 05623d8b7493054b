import { TestEnvironment } from 'jest-environment-node';
import * as shared from './shared.ts';

declare global {
  var shared: typeof import('./shared.ts');
}

/** Where a file of tests runs: a sandbox of its own, with what all files share. */
export default class extends TestEnvironment {
  override async setup(): Promise<void> {
    await super.setup();
    // Frozen: Jest clears what it can of a sandbox that is done with.
    this.global.shared = Object.freeze({ ...shared });
  }
}
