import { setTimeout as pause } from 'node:timers/promises';
import type { Logger } from 'pino';
import pg from 'pg';

/** A connection that hears what the database tells, for as long as it is wanted. */
export interface Listener {
  /** Connects, unless that was done before. */
  start(): void;
  /** Looks whether the connection lives; one that does not is replaced. @returns whether it does, so that what is told is heard */
  check(): Promise<boolean>;
  stop(): Promise<void>;
}

export interface ListenerOptions {
  url: string;
  /** The role to become; undefined where the user of the address is that role already. */
  role: string | undefined;
  channel: string;
  /** Takes what is told. */
  onPayload: (payload: string) => void;
  /** It hears from now on; what was told before may have been missed. */
  onListening: () => void;
  logger: Logger;
}

/** Milliseconds: of a first attempt to connect again, the longest between two, and until a connection that says nothing is given up. */
const shortest = 100;
const longest = 5_000;
const patience = 10_000;

/** Ends a connection that may be half dead, and would not end by words. */
const cut = (client: pg.Client) =>
  (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();

/** Keeps one connection with LISTEN; a lost one is made again, with growing pauses. */
export function listener({ url, role, channel, onPayload, onListening, logger }: ListenerOptions): Listener {
  let client: pg.Client | undefined;
  let isListening = false;
  let isStopped = false;
  let failures = 0;
  let timer: NodeJS.Timeout | undefined;

  function lost(of: pg.Client, cause: unknown): void {
    if (client !== of) return;
    client = undefined;
    if (!isStopped) {
      const message = cause instanceof Error ? cause.message : String(cause);
      // Once for each time that the database is away.
      if (failures === 0)
        logger.warn({ channel, cause: message }, 'The connection that listens is gone, and made again.');
      const wait = Math.min(shortest * 2 ** failures, longest) * (0.5 + Math.random() / 2);
      failures++;
      timer = setTimeout(connect, wait);
    }
    isListening = false;
    of.end().catch(() => undefined);
    cut(of);
  }

  function connect(): void {
    const mine = new pg.Client({
      connectionString: url,
      application_name: 'school_listen',
      connectionTimeoutMillis: patience,
      query_timeout: patience,
      keepAlive: true,
      ...(role ? { options: `-c role=${role}` } : {}),
    });
    client = mine;
    mine.on('error', (error) => lost(mine, error));
    mine.on('end', () => lost(mine, 'It was closed.'));
    mine.on('notification', ({ payload }) => {
      if (payload) onPayload(payload);
    });
    mine
      .connect()
      .then(() => mine.query(`listen ${mine.escapeIdentifier(channel)}`))
      .then(() => {
        if (client !== mine) return;
        isListening = true;
        failures = 0;
        onListening();
      })
      .catch((error: unknown) => lost(mine, error));
  }

  return {
    start() {
      if (!client && !timer && !isStopped) connect();
    },
    async check() {
      const mine = client;
      if (!mine || !isListening) return false;
      try {
        const { rows } = await mine.query<{ channel: string }>('select pg_listening_channels() as channel');
        if (rows.some((row) => row.channel === channel)) return true;
        logger.error(
          { channel },
          'The connection does not listen: LISTEN_DATABASE_URL must lead to Postgres itself, not to a pooler of transactions.',
        );
        return false;
      } catch (error) {
        lost(mine, error);
        return false;
      }
    },
    async stop() {
      isStopped = true;
      clearTimeout(timer);
      const mine = client;
      client = undefined;
      if (!mine) return;
      // One that is on its way to nowhere is not waited for.
      await Promise.race([mine.end(), pause(1_000, undefined, { ref: false })]).catch(() => undefined);
      cut(mine);
    },
  };
}
