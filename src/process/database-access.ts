import pg from 'pg';
import type { Config } from './config.ts';
import {
  lockDataDir,
  type EmbeddedServer,
  ensureDatabase,
  findCluster,
  findRunning,
  resetCommand,
  startEmbedded,
  startScratch,
} from '../database/embedded.ts';
import { withOwner } from '../database/pool/pool.ts';

/** The name of the database on the embedded server. */
export const databaseName = 'school';

/** Formats a time as `2026-09-01 08:45 UTC`. */
export const formatMinute = (time: Date): string => `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`;

/**
 * A client for a database URL, not yet connected, and `host:port` for messages.
 * @param setting  the name of the setting that has the URL
 * @throws when the URL is malformed
 */
function clientFor(url: string, setting: string): { client: pg.Client; address: string } {
  try {
    const client = new pg.Client({
      connectionString: url,
      application_name: 'school_owner',
      connectionTimeoutMillis: 10_000,
    });
    return { client, address: `${client.host}:${String(client.port)}` };
  } catch (cause) {
    const { code, path } = cause as NodeJS.ErrnoException;
    // A certificate (sslrootcert, sslcert, sslkey).
    if (path !== undefined) throw new Error(`${setting} names the file ${path}, which cannot be read (${code ?? ''}).`);
    throw new Error(
      `${setting} is not a valid URL. Write special characters of the password in percent-encoding: ` +
        '@ as %40, : as %3A, / as %2F, # as %23, % as %25.',
      { cause },
    );
  }
}

/** The location of a database, without user and password. */
export function describeDatabase(url: string): string {
  const { client, address } = clientFor(url, 'DATABASE_URL');
  return `${address}, database ${client.database ?? ''}`;
}

/** Explains in one line why the connection failed and which part of the setting to check. */
function explainFailure(error: unknown, client: pg.Client, address: string, setting: string): string {
  const { code = '', message } = error as { code?: string; message: string };
  if (code === '3D000')
    return `The server at ${address} has no database ${client.database ?? ''}. Create it, or check ${setting}.`;
  if (code === '28000' && message.includes('pg_hba.conf'))
    return (
      `The database at ${address} does not let the user ${client.user ?? ''} in from here (${message}). ` +
      'Add a line to its pg_hba.conf and reload it. If the line begins with hostssl, ' +
      `${setting} needs sslmode=verify-full and sslrootcert.`
    );
  if (code.startsWith('28'))
    return (
      `The database at ${address} rejected the user ${client.user ?? ''} (${message}). ` +
      `Check the user and the password in ${setting}.`
    );
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return `The host ${client.host} was not found (${code}). Check the host in ${setting}.`;
  if (/^(E[A-Z]+|57.*|08.*|)$/.test(code))
    return (
      `The database at ${address} does not respond (${code || message}). ` +
      `Check that Postgres is running there, and the host and the port in ${setting}.`
    );
  return `The database at ${address} cannot be used: ${message}`;
}

/**
 * Connects once, and runs `work` with the connection.
 * @param setting  the name of the setting that has the URL
 * @throws an error with one line that says what to check, when the connection or `work` fails
 */
export async function checkReachable(
  url: string,
  setting = 'DATABASE_URL',
  work: (client: pg.Client) => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  const { client, address } = clientFor(url, setting);
  client.on('error', () => undefined);
  try {
    await client.connect();
    await work(client);
  } catch (error) {
    throw new Error(explainFailure(error, client, address, setting), { cause: error });
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** @throws an error that says what to run, when the database has no tables of the service */
export const checkMigrated = (ownerUrl: string): Promise<void> =>
  withOwner(ownerUrl, async (client) => {
    const { rows } = await client.query<{ is_migrated: boolean }>(
      "select to_regclass('platform.installation') is not null and to_regnamespace('core') is not null as is_migrated",
    );
    if (!rows[0]?.is_migrated)
      throw new Error(
        `The database ${describeDatabase(ownerUrl)} has not been migrated. Run this first: npm run migrate`,
      );
  });

/** The message for a new data directory that was linked to older data; undefined when it was not. */
export function olderDataNotice({ cluster, olderDataFrom }: EmbeddedServer, dataDir: string): string | undefined {
  return (
    olderDataFrom &&
    `Found a database created on ${formatMinute(olderDataFrom)} in ${cluster}. ` +
      `To start with a new database, stop the service and run: ${resetCommand(dataDir)}`
  );
}

/**
 * Runs `work` with a server, and stops the server afterwards, or before a signal or a closed pipe ends this process:
 * Postgres would keep running. A command that handles signals itself ends `work`.
 */
async function withServer<Server extends EmbeddedServer, T>(
  opening: Promise<Server>,
  work: (server: Server) => Promise<T>,
): Promise<T> {
  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= opening.then((server) => server.stop()));
  const signals = (['SIGINT', 'SIGTERM', 'SIGHUP'] as const).filter((name) => process.listenerCount(name) === 0);
  let isEnding = false;
  const stopListening = () => {
    for (const name of signals) process.off(name, onSignal);
    process.stdout.off('error', onClosedPipe);
  };
  function onSignal(signal: NodeJS.Signals): void {
    // On Ctrl-C the terminal signals npm and this process, and npm forwards its signal: ignore the second one.
    if (isEnding) return;
    isEnding = true;
    const end = () => {
      stopListening();
      process.kill(process.pid, signal);
    };
    stop().then(end, end);
  }
  /** The reader of a pipe, such as `head`, may exit first. */
  const onClosedPipe = () => onSignal('SIGTERM');
  for (const name of signals) process.on(name, onSignal);
  process.stdout.on('error', onClosedPipe);
  try {
    return await work(await opening);
  } finally {
    await stop().finally(stopListening);
  }
}

/** Starts the embedded server of a data directory, which is locked until the server stops. */
async function openEmbedded(dataDir: string): Promise<EmbeddedServer> {
  const release = await lockDataDir(dataDir);
  try {
    const server = await startEmbedded(dataDir);
    return {
      ...server,
      async stop(mode) {
        try {
          await server.stop(mode);
        } finally {
          await release();
        }
      },
    };
  } catch (error) {
    await release();
    throw error;
  }
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
  return withServer(openEmbedded(config.DATA_DIR), async (server) => {
    const notice = olderDataNotice(server, config.DATA_DIR);
    if (notice) process.stderr.write(`${notice}\n`);
    await ensureDatabase(server, databaseName);
    return work(server.url(databaseName));
  });
}

/**
 * `withDatabase` for commands that create no database.
 * @throws when the data directory has none, and then leaves it as it is: DATA_DIR may be wrong
 */
export async function withExistingDatabase<T>(config: Config, work: (ownerUrl: string) => Promise<T>): Promise<T> {
  if (!config.DATABASE_URL && !(await findCluster(config.DATA_DIR)))
    throw new Error(
      `There is no database in ${config.DATA_DIR}. Check DATA_DIR and DATABASE_URL, or run this first: npm run migrate`,
    );
  return withDatabase(config, work);
}

/** For commands that need the tables of the service. @throws when the database has not been migrated */
export const withMigratedDatabase = <T>(config: Config, work: (ownerUrl: string) => Promise<T>): Promise<T> =>
  withExistingDatabase(config, async (ownerUrl) => {
    await checkMigrated(ownerUrl);
    return work(ownerUrl);
  });

/** `withMigratedDatabase` with a connection of the owner. */
export const withClient = <T>(config: Config, work: (client: pg.Client, ownerUrl: string) => Promise<T>): Promise<T> =>
  withMigratedDatabase(config, (ownerUrl) => withOwner(ownerUrl, (client) => work(client, ownerUrl)));

/** Runs `work` with a temporary server, which is deleted afterwards. */
export const withScratchServer = <T>(work: (server: EmbeddedServer) => Promise<T>): Promise<T> =>
  withServer(startScratch(), work);
