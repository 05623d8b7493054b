import { setTimeout as pause } from 'node:timers/promises';
import type { Logger } from 'pino';
import pg from 'pg';
import { destroySocket } from './client-socket.ts';

/** A connection that receives notifications of a channel, and is replaced when it breaks. */
export interface Listener {
  /** Connects, unless already connected. */
  start(): void;
  /** Checks the connection, and replaces a broken one. @returns whether it receives notifications */
  check(): Promise<boolean>;
  stop(): Promise<void>;
}

export interface ListenerOptions {
  url: string;
  /** The role to switch to; undefined when the URL logs in as that role. */
  role: string | undefined;
  channel: string;
  onPayload: (payload: string) => void;
  /** Called after each (re)connect: earlier notifications may have been missed. */
  onListening: () => void;
  logger: Logger;
}

const minRetryDelayMs = 100;
const maxRetryDelayMs = 5_000;
/** For connecting and for each query. */
const timeoutMs = 10_000;

/** Keeps one connection that LISTENs; reconnects with exponential backoff. */
export function listener({ url, role, channel, onPayload, onListening, logger }: ListenerOptions): Listener {
  let client: pg.Client | undefined;
  let isListening = false;
  let isStopped = false;
  let failures = 0;
  let timer: NodeJS.Timeout | undefined;

  function onLost(lost: pg.Client, cause: unknown): void {
    if (client !== lost) return;
    client = undefined;
    if (!isStopped) {
      const message = cause instanceof Error ? cause.message : String(cause);
      // Log once per outage.
      if (failures === 0) logger.warn({ channel, cause: message }, 'The listening connection was lost. Reconnecting.');
      const delayMs = Math.min(minRetryDelayMs * 2 ** failures, maxRetryDelayMs) * (0.5 + Math.random() / 2);
      failures++;
      timer = setTimeout(connect, delayMs);
    }
    isListening = false;
    lost.end().catch(() => undefined);
    destroySocket(lost);
  }

  function connect(): void {
    const connection = new pg.Client({
      connectionString: url,
      application_name: 'school_listen',
      connectionTimeoutMillis: timeoutMs,
      query_timeout: timeoutMs,
      keepAlive: true,
      ...(role ? { options: `-c role=${role}` } : {}),
    });
    client = connection;
    connection.on('error', (error) => onLost(connection, error));
    connection.on('end', () => onLost(connection, 'The connection was closed.'));
    connection.on('notification', ({ payload }) => {
      if (payload) onPayload(payload);
    });
    connection
      .connect()
      .then(() => connection.query(`listen ${connection.escapeIdentifier(channel)}`))
      .then(() => {
        if (client !== connection) return;
        isListening = true;
        failures = 0;
        onListening();
      })
      .catch((error: unknown) => onLost(connection, error));
  }

  return {
    start() {
      if (!client && !timer && !isStopped) connect();
    },
    async check() {
      const connection = client;
      if (!connection || !isListening) return false;
      try {
        const { rows } = await connection.query<{ channel: string }>('select pg_listening_channels() as channel');
        if (rows.some((row) => row.channel === channel)) return true;
        logger.error(
          { channel },
          'No notifications arrive. LISTEN_DATABASE_URL must point to Postgres, not to a transaction pooler.',
        );
        return false;
      } catch (error) {
        onLost(connection, error);
        return false;
      }
    },
    async stop() {
      isStopped = true;
      clearTimeout(timer);
      const connection = client;
      client = undefined;
      if (!connection) return;
      // Do not wait for a server that does not respond.
      await Promise.race([connection.end(), pause(1_000, undefined, { ref: false })]).catch(() => undefined);
      destroySocket(connection);
    },
  };
}
