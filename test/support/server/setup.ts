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

/** One server for the whole run, with one migrated database that every test file clones, and one with tables for its first schools too. */
export default async function setup(): Promise<void> {
  prepareConsole();
  const folder = await scratchFolder();
  const server = await startScratch(folder);
  globalThis.testServer = server;
  try {
    await ensureDatabase(server, 'template_school');
    await migrate({ ownerUrl: server.url('template_school') });
    // On a disk it costs half of making them to copy them: no more than nearly every file needs.
    await makeReadySchools(server, folder ? 12 : 2);
  } catch (error) {
    // Jest runs no teardown after a setup that failed.
    await server.stop();
    throw error;
  }
  process.env['TEST_SERVER_URL'] = server.url('DATABASE');
  // To copy files means to write to the disk first what all other databases have changed.
  process.env['TEST_CLONE_STRATEGY'] = folder ? 'file_copy' : 'wal_log';
  // The programs and threads that tests start by the dozen compile the same modules: once is enough.
  globalThis.testCompileCache = await mkdtemp(join(tmpdir(), 'school-compiled-'));
  process.env['TEST_COMPILE_CACHE'] = globalThis.testCompileCache;
}
