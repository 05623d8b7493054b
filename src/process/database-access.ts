import pg from 'pg';
import type { Config } from './config.ts';
import {
  lockDataDir,
  type EmbeddedServer,
  ensureDatabase,
  findRunning,
  resetCommand,
  startEmbedded,
  startScratch,
} from '../database/embedded.ts';

/** The name of the database on the embedded server. */
export const databaseName = 'school';

/** Formats a time as `2026-09-01 08:45 UTC`. */
export const formatMinute = (time: Date): string => `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`;

/** A client for a database URL, not yet connected, and `host:port` for messages. @throws when the URL is malformed */
function clientFor(url: string): { client: pg.Client; address: string } {
  try {
    const client = new pg.Client({
      connectionString: url,
      application_name: 'school_owner',
      connectionTimeoutMillis: 10_000,
    });
    return { client, address: `${client.host}:${String(client.port)}` };
  } catch (cause) {
    throw new Error(
      'DATABASE_URL is not a valid URL. Write special characters of the password in percent-encoding: ' +
        '@ as %40, : as %3A, / as %2F, # as %23, % as %25.',
      { cause },
    );
  }
}

/** The location of a database, without user and password. */
export function describeDatabase(url: string): string {
  const { client, address } = clientFor(url);
  return `${address}, database ${client.database ?? ''}`;
}

/** Explains in one line why the connection failed and which part of DATABASE_URL to check. */
function explainFailure(error: unknown, client: pg.Client, address: string): string {
  const { code = '', message } = error as { code?: string; message: string };
  if (code === '3D000')
    return `The server at ${address} has no database ${client.database ?? ''}. Create it, or check DATABASE_URL.`;
  if (code.startsWith('28'))
    return (
      `The database at ${address} rejected the user ${client.user ?? ''} (${message}). ` +
      'Check the user and the password in DATABASE_URL.'
    );
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return `The host ${client.host} was not found (${code}). Check the host in DATABASE_URL.`;
  if (/^(E[A-Z]+|57.*|08.*|)$/.test(code))
    return (
      `The database at ${address} does not respond (${code || message}). ` +
      'Check that Postgres is running there, and the host and the port in DATABASE_URL.'
    );
  return `The database at ${address} cannot be used: ${message}`;
}

/** Connects once. @throws an error with one line that says what to check, when the connection fails */
export async function checkReachable(url: string): Promise<void> {
  const { client, address } = clientFor(url);
  client.on('error', () => undefined);
  try {
    await client.connect();
  } catch (error) {
    throw new Error(explainFailure(error, client, address), { cause: error });
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** The message for a new data directory that was linked to older data; undefined when it was not. */
export function olderDataNotice({ cluster, olderDataFrom }: EmbeddedServer, dataDir: string): string | undefined {
  return (
    olderDataFrom &&
    `Found a database created on ${formatMinute(olderDataFrom)} in ${cluster}. ` +
      `To start with a new database, stop the service and run: ${resetCommand(dataDir)}`
  );
}

/**
 * Runs `work` with the owner's URL of the database: DATABASE_URL, else the embedded server of a service that is running
 * on this data directory, else that server, started for the duration of `work`.
 */
export async function withDatabase<T>(config: Config, work: (ownerUrl: string) => Promise<T>): Promise<T> {
  if (config.DATABASE_URL) {
    await checkReachable(config.DATABASE_URL);
    return work(config.DATABASE_URL);
  }
  const running = await findRunning(config.DATA_DIR);
  if (running) return work(running(databaseName));
  const release = await lockDataDir(config.DATA_DIR);
  try {
    const server = await startEmbedded(config.DATA_DIR);
    try {
      const notice = olderDataNotice(server, config.DATA_DIR);
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

/** Runs `work` with a temporary server, which is deleted afterwards. */
export async function withScratchServer<T>(work: (server: EmbeddedServer) => Promise<T>): Promise<T> {
  const server = await startScratch();
  try {
    return await work(server);
  } finally {
    await server.stop();
  }
}
