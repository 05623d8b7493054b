import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** Stops the Postgres server of the run and removes its files. */
export default async function teardown(): Promise<void> {
  const { server, dataDir } = globalThis.testServer ?? {};
  await globalThis.testPooler?.stop();
  await server?.stop();
  // Node would take seconds for the 18,000 files of a cluster.
  for (const folder of [dataDir, globalThis.testCompileCache])
    if (folder) await promisify(execFile)('rm', ['-rf', folder]);
}
