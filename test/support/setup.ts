import { type EmbeddedServer, ensureDatabase, startScratch } from '../../src/database/embedded.ts';
import { migrate } from '../../src/database/migrate.ts';

declare global {
  var testServer: EmbeddedServer | undefined;
}

/** One server for the whole run, with one migrated database that every test file clones. */
export default async function setup(): Promise<void> {
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
}
