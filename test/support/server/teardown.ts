import { rm } from 'node:fs/promises';

/** Stops the Postgres server of the run and removes its files. */
export default async function teardown(): Promise<void> {
  await globalThis.testServer?.stop();
  if (globalThis.testCompileCache) await rm(globalThis.testCompileCache, { recursive: true, force: true });
}
