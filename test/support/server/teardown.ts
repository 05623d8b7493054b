import { rm } from 'node:fs/promises';

/** Stops the server of the run and removes all it kept. */
export default async function teardown(): Promise<void> {
  await globalThis.testServer?.stop();
  if (globalThis.testCompileCache) await rm(globalThis.testCompileCache, { recursive: true, force: true });
}
