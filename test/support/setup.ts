import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EmbeddedServer, ensureDatabase, startScratch } from '../../src/database/embedded.ts';
import { migrate } from '../../src/database/migrate.ts';
import { prepareConsole } from './browser-found.ts';

declare global {
  var testServer: EmbeddedServer | undefined;
  var testCompileCache: string | undefined;
}

/** One server for the whole run, with one migrated database that every test file clones. */
export default async function setup(): Promise<void> {
  prepareConsole();
  const server = await startScratch();
  globalThis.testServer = server;
  try {
    await ensureDatabase(server, 'template_school');
    await migrate({ ownerUrl: server.url('template_school') });
  } catch (error) {
    // Jest runs no teardown after a setup that failed.
    await server.stop();
    throw error;
  }
  process.env['TEST_SERVER_URL'] = server.url('DATABASE');
  // The programs and threads that tests start by the dozen compile the same modules: once is enough.
  globalThis.testCompileCache = await mkdtemp(join(tmpdir(), 'school-compiled-'));
  process.env['NODE_COMPILE_CACHE'] = globalThis.testCompileCache;
}
