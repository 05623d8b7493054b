import { TestEnvironment } from 'jest-environment-node';
import * as shared from './shared.ts';

declare global {
  var shared: typeof import('./shared.ts');
}

// Only for threads and child processes, which start by the dozen. This process must not have had it at its own start:
// node would then write the cache at exit, and Jest would report that a test left something open.
const cache = process.env['TEST_COMPILE_CACHE'];
if (cache !== undefined) process.env['NODE_COMPILE_CACHE'] = cache;

/** The sandbox of a test file, with the modules that all files share as the global `shared`. */
export default class extends TestEnvironment {
  override async setup(): Promise<void> {
    await super.setup();
    // Frozen, since Jest clears the objects of a finished sandbox.
    this.global.shared = Object.freeze({ ...shared });
  }
}
