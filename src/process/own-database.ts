import pg from 'pg';
import type { Config } from './config.ts';
import {
  claim,
  type EmbeddedServer,
  ensureDatabase,
  findRunning,
  startEmbedded,
  startScratch,
} from '../database/embedded.ts';

/** The database of the embedded server. */
export const databaseName = 'school';

/** A moment as people read it, to the minute, in UTC. */
export const minute = (moment: Date): string => `${moment.toISOString().slice(0, 16).replace('T', ' ')} UTC`;

/** What stands in an address of a database, but for the password. */
function parts(url: string): { client: pg.Client; where: string } {
  try {
    const client = new pg.Client({
      connectionString: url,
      application_name: 'school_owner',
      connectionTimeoutMillis: 10_000,
    });
    return { client, where: `${client.host}:${String(client.port)}` };
  } catch (cause) {
    throw new Error(
      'DATABASE_URL can not be read as an address. Is a character of the password like @ : / # % not written as %40 %3A %2F %23 %25?',
      { cause },
    );
  }
}

/** Where a database is, without user and password. */
export function placeOf(url: string): string {
  const { client, where } = parts(url);
  return `${where}, database ${client.database ?? ''}`;
}

/** Why there is no connection, in one line that says what to check. */
function explain(error: unknown, client: pg.Client, where: string): string {
  const { code = '', message } = error as { code?: string; message: string };
  if (code === '3D000')
    return `The server at ${where} has no database ${client.database ?? ''}. Create it, or check the name in DATABASE_URL.`;
  if (code.startsWith('28'))
    return `The database at ${where} refuses the user ${client.user ?? ''} (${message}). Check user and password in DATABASE_URL.`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return `There is no host ${client.host} (${code}). Check the host in DATABASE_URL.`;
  if (/^(E[A-Z]+|57.*|08.*|)$/.test(code))
    return `The database at ${where} does not answer (${code || message}). Is Postgres running there? Check host and port in DATABASE_URL.`;
  return `The database at ${where} can not be used: ${message}`;
}

/** @throws one line that says what to check when the database at DATABASE_URL does not take a connection */
export async function checkReachable(url: string): Promise<void> {
  const { client, where } = parts(url);
  client.on('error', () => undefined);
  try {
    await client.connect();
  } catch (error) {
    throw new Error(explain(error, client, where), { cause: error });
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** What to say when a new data directory was led to older data; undefined when it was not. */
export function foundNotice({ cluster, foundFrom }: EmbeddedServer): string | undefined {
  return (
    foundFrom &&
    `Found older data, begun on ${minute(foundFrom)}, in ${cluster}. To begin anew, stop and run: npm run school -- database reset`
  );
}

/**
 * Runs `work` with the owner's address of the database: DATABASE_URL, else the embedded server of a service that is
 * running on this data directory, else that server, started for the purpose.
 */
export async function withDatabase<T>(config: Config, work: (ownerUrl: string) => Promise<T>): Promise<T> {
  if (config.DATABASE_URL) {
    await checkReachable(config.DATABASE_URL);
    return work(config.DATABASE_URL);
  }
  const running = await findRunning(config.DATA_DIR);
  if (running) return work(running(databaseName));
  const release = await claim(config.DATA_DIR);
  try {
    const server = await startEmbedded(config.DATA_DIR);
    try {
      const notice = foundNotice(server);
      if (notice) process.stderr.write(`${notice}\n`);
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
