import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EmbeddedServer, ensureDatabase, startScratch } from '../../../src/database/embedded.ts';
import { migrate } from '../../../src/database/migrate.ts';
import { makeReadySchools, scratchFolder } from './ready-schools.ts';
import { prepareConsole } from './chromium.ts';

declare global {
  var testServer: EmbeddedServer | undefined;
  var testCompileCache: string | undefined;
}

/**
 * Starts one Postgres server for the whole run, with three databases that test files clone: `template_school` is
 * migrated; `template_ready` and `template_many_ready` also have the tables of the first schools.
 */
export default async function setup(): Promise<void> {
  prepareConsole();
  const folder = await scratchFolder();
  const server = await startScratch(folder);
  globalThis.testServer = server;
  try {
    await ensureDatabase(server, 'template_school');
    await migrate({ ownerUrl: server.url('template_school') });
    // On a disk, copying a school costs half as much as creating it: only as many as nearly every file needs.
    await (folder ? makeReadySchools(server, 3, 14) : makeReadySchools(server, 2, 2));
  } catch (error) {
    // Jest runs no teardown after a setup that failed.
    await server.stop();
    throw error;
  }
  process.env['TEST_SERVER_URL'] = server.url('DATABASE');
  // file_copy first writes the changes of all databases to the disk, which is cheap only in memory.
  process.env['TEST_CLONE_STRATEGY'] = folder ? 'file_copy' : 'wal_log';
  // Child processes and threads share their compiled modules.
  globalThis.testCompileCache = await mkdtemp(join(tmpdir(), 'school-compiled-'));
  process.env['TEST_COMPILE_CACHE'] = globalThis.testCompileCache;
}
