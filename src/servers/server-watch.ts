import { setTimeout as pause } from 'node:timers/promises';
import type { Logger } from 'pino';
import pg from 'pg';
import { destroySocket } from '../database/pool/client-socket.ts';
import type { SchoolPool } from '../database/pool/school-pool.ts';

/** How often each server is asked, and how long it may take to answer. */
const intervalMs = 1_000;
const timeoutMs = 2_000;
/** How long the forwarder refuses requests to a server that did not answer. Longer than the next check takes. */
const refusalSeconds = 6;

/**
 * Operators, statements that ask all servers, and requests that name no school: only some of them wait for the silent
 * one, those that take long.
 */
const othersWhoWait: ReadonlySet<string> = new Set(['platform', 'service', 'rate limits', '']);

export interface ServerWatchOptions {
  /** A direct connection to each server: those of LISTEN_DATABASE_URL. */
  urls: string[];
  /** The connections to the forwarder. */
  pool: Pick<SchoolPool, 'query' | 'abandon'>;
  logger: Logger;
}

/** Whether an error means that a server is silent. If one refuses connections, the forwarder notices by itself. */
const isSilence = (error: unknown) =>
  Error.isError(error) && /timeout|timed out/i.test(error.message) && !('severity' in error);

/**
 * Asks each server every second whether it answers. PL/Proxy waits without end for a server that is silent. So this
 * function makes the forwarder refuse requests to that server, and closes the connections whose requests wait for it.
 * @returns a function that ends the watch
 */
export function watchServers({ urls, pool, logger }: ServerWatchOptions): () => Promise<void> {
  const stopping = new AbortController();

  async function report(server: string): Promise<void> {
    // First, because these may have all connections that the statement below could use.
    pool.abandon(othersWhoWait, timeoutMs);
    const { rows } = await pool.query<{ name: string }>(
      {
        text: 'select name from core.refuse_server($1, $2) name',
        values: [server, refusalSeconds],
      },
      { school: 'service', isVerified: true, server: 'forwarder', planKey: 'refuse_server' },
    );
    pool.abandon(new Set(rows.map(({ name }) => name)), 0);
  }

  async function watch(url: string): Promise<void> {
    let client: pg.Client | undefined;
    /** Its name in the forwarder; undefined until it has answered once. A server that never did is not refused. */
    let server: string | undefined;
    /** Checks in a row that got no answer. One alone may be a delay in this process. */
    let silences = 0;
    while (!stopping.signal.aborted) {
      try {
        if (!client) {
          client = new pg.Client({
            connectionString: url,
            application_name: 'school_watch',
            connectionTimeoutMillis: timeoutMs,
            query_timeout: timeoutMs,
          });
          client.on('error', () => undefined);
          await client.connect();
        }
        const { rows } = await client.query<{ server: string }>('select core.server_id() as server');
        server = rows[0]?.server;
        if (silences > 1) logger.info({ message: 'A server answers again.', server });
        silences = 0;
      } catch (error) {
        // The socket is destroyed: a silent server would not answer the end of the connection.
        destroySocket(client);
        client = undefined;
        if (server === undefined || !isSilence(error)) silences = 0;
        else if (++silences === 1) continue;
        else {
          if (silences === 2)
            logger.error({ message: 'A server does not answer. Requests of its schools get 503.', server });
          await report(server).catch((cause: unknown) => {
            logger.warn({ message: 'The forwarder could not be told that a server is silent.', cause: String(cause) });
          });
        }
      }
      await pause(intervalMs, undefined, { signal: stopping.signal, ref: false }).catch(() => undefined);
    }
    await client?.end().catch(() => undefined);
  }

  const watches = urls.map(watch);
  return async () => {
    stopping.abort();
    await Promise.all(watches);
  };
}
