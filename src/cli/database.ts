import type { Config } from '../config.ts';
import { claim, type EmbeddedServer, ensureDatabase, findRunning, startEmbedded, startScratch } from '../database/embedded.ts';

/** The database of the embedded server. */
export const databaseName = 'school';

/**
 * Runs `work` with the owner's address of the database: DATABASE_URL, else the embedded server of a service that is
 * running on this data directory, else that server, started for the purpose.
 */
export async function withDatabase<T>(config: Config, work: (ownerUrl: string) => Promise<T>): Promise<T> {
  if (config.DATABASE_URL) return work(config.DATABASE_URL);
  const running = await findRunning(config.DATA_DIR);
  if (running) return work(running(databaseName));
  const release = await claim(config.DATA_DIR);
  try {
    const server = await startEmbedded(config.DATA_DIR);
    try {
      await ensureDatabase(server, databaseName);
      return await work(server.url(databaseName));
    } finally {
      await server.stop();
    }
  } finally {
    await release();
  }
}

/** Runs `work` with a server that is thrown away afterwards. */
export async function withScratchServer<T>(work: (server: EmbeddedServer) => Promise<T>): Promise<T> {
  const server = await startScratch();
  try {
    return await work(server);
  } finally {
    await server.stop();
  }
}
