import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EmbeddedServer, ensureDatabase, scratchSettings, startEmbedded } from '../../../src/database/embedded.ts';
import { migrate } from '../../../src/database/migrate.ts';
import { withOwner } from '../../../src/database/pool.ts';
import { makeReadySchools, scratchFolder } from './ready-schools.ts';
import { keepCopy, ownFolder } from './own-server.ts';
import { prepareConsole } from './chromium.ts';

declare global {
  var testServer: { server: EmbeddedServer; dataDir: string } | undefined;
  var testCompileCache: string | undefined;
}

/**
 * Starts one Postgres server for the whole run, with three databases that test files clone: `template_school` is
 * migrated; `template_ready` and `template_many_ready` also have the tables of the first schools. Also keeps a copy of
 * the server's files with only the migrated database, for tests that need a server of their own.
 */
export default async function setup(): Promise<void> {
  prepareConsole();
  const folder = await scratchFolder();
  const dataDir = await ownFolder(`school-scratch-${String(process.pid)}-`, folder);
  let server = await startEmbedded(dataDir, scratchSettings);
  try {
    await ensureDatabase(server, 'school');
    await migrate({ ownerUrl: server.url('school') });
    await server.stop();
    process.env['TEST_CLUSTER'] = await keepCopy(server.cluster);
    server = await startEmbedded(dataDir, scratchSettings);
    await withOwner(server.url('postgres'), (owner) => owner.query('alter database school rename to template_school'));
    // On a disk, copying a school costs half as much as creating it: only as many as nearly every file needs.
    await (folder ? makeReadySchools(server, 3, 14) : makeReadySchools(server, 2, 2));
  } catch (error) {
    // Jest runs no teardown after a setup that failed.
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
    throw error;
  }
  globalThis.testServer = { server, dataDir };
  process.env['TEST_SERVER_URL'] = server.url('DATABASE');
  // file_copy first writes the changes of all databases to the disk, which is cheap only in memory.
  process.env['TEST_CLONE_STRATEGY'] = folder ? 'file_copy' : 'wal_log';
  // Child processes and threads share their compiled modules.
  globalThis.testCompileCache = await mkdtemp(join(tmpdir(), 'school-compiled-'));
  process.env['TEST_COMPILE_CACHE'] = globalThis.testCompileCache;
}
