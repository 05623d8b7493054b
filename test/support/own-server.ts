import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EmbeddedServer, ensureDatabase, startEmbedded } from '../../src/database/embedded.ts';

/** A Postgres server of one test file, where the one that all share can't be used. */
export interface OwnServer {
  /** Where its cluster lies: startEmbedded(folder) starts it again. */
  folder: string;
  server: EmbeddedServer;
  url(database: string): string;
  remove(): Promise<void>;
}

/** Starts a server with an empty database `school`. */
export async function ownServer(settings: string[] = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off']): Promise<OwnServer> {
  const folder = await mkdtemp(join(tmpdir(), 'school-own-'));
  const own: OwnServer = {
    folder,
    server: await startEmbedded(folder, settings),
    url: (database) => own.server.url(database),
    async remove() {
      await own.server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
  await ensureDatabase(own.server, 'school');
  return own;
}
