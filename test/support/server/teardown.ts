import { rm } from 'node:fs/promises';

/** Stops the Postgres server of the run and removes its files. */
export default async function teardown(): Promise<void> {
  const { server, dataDir } = globalThis.testServer ?? {};
  await server?.stop();
  for (const folder of [dataDir, globalThis.testCompileCache])
    if (folder) await rm(folder, { recursive: true, force: true });
}
