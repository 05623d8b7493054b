import type { ServerResponse } from 'node:http';
import type { SchoolPool } from '../database/school-pool.ts';
import type { Logger } from 'pino';
import { z } from 'zod';
import { listener } from '../database/listener.ts';
import { ApiError } from '../domain/errors.ts';
import { createStreamReader } from './stream-reader.ts';
import { type Stream, type StreamOwner, StreamRegistry } from './stream-registry.ts';

export type { StreamOwner };

/** The open streams of notifications of this process. */
export interface Streams {
  /**
   * Sends the notifications after `lastId`. The stream stays open until the session, the client or the process ends it.
   * @throws ApiError `rate_limited` when the user has too many streams open, `unavailable` when the process is stopping
   */
  open(res: ServerResponse, owner: StreamOwner, lastId: number): void;
  count(): number;
  /** Ends all streams. */
  close(): Promise<void>;
}

export interface StreamsOptions {
  pool: Pick<SchoolPool, 'query'>;
  /** The URL of a direct connection: LISTEN does not work through a pooler in transaction mode. */
  listenUrl: string;
  listenRole: string | undefined;
  /** Between two heartbeats of a stream. Sessions are checked as often. */
  heartbeatMs: number;
  logger: Logger;
}

/** Per process. */
const maxStreamsPerUser = 5;

/** Heartbeats are spread over this many moments: writing to thousands of streams at once would delay requests. */
const heartbeatSlots = 10;

/** Some proxies hold back the first 2 kB of a response. */
const padding = `:${' '.repeat(2_048)}\n`;
const heartbeatComment = Buffer.from(':\n\n');

export const streamHeaders = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  // no-transform: a proxy that compresses would hold events back.
  'Cache-Control': 'private, no-store, no-transform',
  'X-Accel-Buffering': 'no',
  // The connection is not used again after a stream.
  Connection: 'close',
};

/** The payload of NOTIFY: who has new notifications, or which sessions have ended. */
const Payload = z.object({
  tenant: z.int().optional(),
  /** Without it, all users of the school. */
  users: z.array(z.int()).optional(),
  ended: z.object({ session: z.int().optional(), tenant: z.int().optional() }).optional(),
});

/** Any client of the database may send a NOTIFY. What is not in our format is ignored. */
function parsePayload(payload: string): z.infer<typeof Payload> {
  try {
    return Payload.safeParse(JSON.parse(payload)).data ?? {};
  } catch {
    return {};
  }
}

/** Ends a stream. The client reconnects with its last id, and gets an error then if its session has ended. */
function endResponse({ res, isWriting }: Stream): void {
  // A client that does not read would not receive the end either.
  if (isWriting) res.destroy();
  else res.end();
}

/** Sends the headers, the reconnect delay for the client, and an id to resume from before the first notification. */
function beginResponse({ res, lastId }: Stream): void {
  // Random, so that the clients of a process that stops do not all reconnect at once.
  const retryMs = 2_000 + Math.floor(Math.random() * 3_000);
  res.on('error', () => undefined);
  res.writeHead(200, streamHeaders);
  res.write(`${padding}retry: ${String(retryMs)}\nid: ${String(lastId)}\n\n`);
}

/** Which of these sessions may no longer have a stream. */
async function findEndedSessions(pool: Pick<SchoolPool, 'query'>, sessionIds: number[]): Promise<number[]> {
  const { rows } = await pool.query<{ ended: string[] }>({
    name: 'core.stream_check',
    text: 'select core.stream_check($1) as ended',
    values: [sessionIds],
  });
  return (rows[0]?.ended ?? []).map(Number);
}

/** Creates the streams of one process. One database connection listens for all of them. */
export function openStreams({ pool, listenUrl, listenRole, heartbeatMs, logger }: StreamsOptions): Streams {
  const registry = new StreamRegistry();
  const reader = createStreamReader(pool, registry, logger);
  const listening = listener({
    url: listenUrl,
    role: listenRole,
    channel: 'school_events',
    onPayload,
    onListening() {
      registry.all().forEach(reader.request);
      checkSessions();
    },
    logger,
  });
  let isClosed = false;
  let ticker: NodeJS.Timeout | undefined;
  let ticks = 0;
  let opened = 0;

  function end(stream: Stream): void {
    if (registry.remove(stream)) endResponse(stream);
  }

  function onPayload(payload: string): void {
    const { tenant, users, ended } = parsePayload(payload);
    if (tenant !== undefined) {
      const streams = users ? users.flatMap((user) => registry.ofUser(tenant, user)) : registry.ofTenant(tenant);
      streams.forEach(reader.request);
    }
    if (ended?.session !== undefined) registry.ofSession(ended.session).forEach(end);
    if (ended?.tenant !== undefined) registry.ofTenant(ended.tenant).forEach(end);
  }

  /** Ends the streams of sessions that have expired, and of those whose end this process has missed. */
  function checkSessions(): void {
    if (registry.size === 0) return;
    findEndedSessions(pool, registry.sessionIds()).then(
      (ended) => {
        for (const sessionId of ended) registry.ofSession(sessionId).forEach(end);
      },
      // The next check follows with the next heartbeat.
      () => undefined,
    );
  }

  function onTick(): void {
    const slot = ++ticks % heartbeatSlots;
    for (const stream of registry.all()) {
      if (stream.slot !== slot) continue;
      if (!stream.isWriting) stream.res.write(heartbeatComment);
      else if (stream.isLate) end(stream);
      else stream.isLate = true;
    }
    if (slot > 0 || registry.size === 0) return;
    checkSessions();
    void listening.check().then((isListening) => {
      // Without notifications from the database, streams are read at each heartbeat.
      if (!isListening) registry.all().forEach(reader.request);
    });
  }

  function open(res: ServerResponse, owner: StreamOwner, lastId: number): void {
    if (isClosed)
      throw new ApiError('unavailable', 'The service is stopping. Try again in a moment.', { retryAfter: 1 });
    if (registry.ofUser(owner.tenantId, owner.userId).length >= maxStreamsPerUser)
      throw new ApiError(
        'rate_limited',
        `You already have ${String(maxStreamsPerUser)} open streams, the maximum for a user. Close one first.`,
        { retryAfter: 30 },
      );
    if (res.closed) return;
    const stream: Stream = {
      tenantId: owner.tenantId,
      userId: owner.userId,
      sessionId: owner.sessionId,
      res,
      lastId,
      isBusy: false,
      isReadPending: false,
      isWriting: false,
      isLate: false,
      slot: opened++ % heartbeatSlots,
    };
    registry.add(stream);
    res.once('close', () => registry.remove(stream));
    beginResponse(stream);
    listening.start();
    ticker ??= setInterval(onTick, heartbeatMs / heartbeatSlots);
    // A NOTIFY since `lastId` was looked up did not reach this stream.
    reader.request(stream);
  }

  return {
    open,
    count: () => registry.size,
    async close() {
      isClosed = true;
      clearInterval(ticker);
      reader.close();
      registry.all().forEach(end);
      await listening.stop();
    },
  };
}
