import type { ServerResponse } from 'node:http';
import type { SchoolPool } from '../../database/pool/school-pool.ts';
import type { Logger } from 'pino';
import { z } from 'zod';
import { countRefusal } from '../../concurrency/refusals.ts';
import { listener } from '../../database/pool/listener.ts';
import { ApiError } from '../../domain/errors.ts';
import { createStreamReader } from './reader.ts';
import { platform, type Stream, type StreamOwner, StreamRegistry } from './registry.ts';
import { createSystemReader } from './system-reader.ts';

/** The open streams of this process. */
export interface Streams {
  /**
   * Sends the notifications after `lastId`, or to an operator the state of the installation. The stream stays open
   * until the session, the client or the process ends it. If the process has too many streams, the newest one of the
   * school with the most streams ends: its client reconnects and continues after its last id.
   * @throws ApiError `rate_limited` when the user has too many streams open, `unavailable` when the process is
   *   stopping, or has too many streams and no school has more than this one
   */
  open(res: ServerResponse, owner: StreamOwner, lastId: number): void;
  count(): number;
  /** Ends all streams. */
  close(): Promise<void>;
}

export interface StreamsOptions {
  pool: Pick<SchoolPool, 'query'>;
  /** The URL of a direct connection: LISTEN does not work through a pooler in transaction mode. */
  /** With several servers, one for each of them. */
  listenUrls: string[];
  listenRole: string | undefined;
  /** Between two heartbeats of a stream. Sessions are checked as often. */
  heartbeatMs: number;
  /** The state of the installation is read this often while operators have streams. */
  systemIntervalMs: number;
  maxStreams: number;
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

/** Creates the streams of one process. One connection to each server listens for all of them. */
export function openStreams(options: StreamsOptions): Streams {
  const { pool, listenUrls, listenRole, heartbeatMs, systemIntervalMs, maxStreams, logger } = options;
  const registry = new StreamRegistry();
  const notifications = createStreamReader(pool, registry, logger);
  const system = createSystemReader({ pool, registry, intervalMs: systemIntervalMs, endSessions, logger });
  const listeners = listenUrls.map((url) =>
    listener({
      url,
      role: listenRole,
      channel: 'school_events',
      onPayload,
      onListening() {
        registry.all().forEach(read);
        checkSessions();
      },
      logger,
    }),
  );
  let isClosed = false;
  let ticker: NodeJS.Timeout | undefined;
  let ticks = 0;
  let opened = 0;

  function end(stream: Stream): void {
    if (registry.remove(stream)) endResponse(stream);
  }

  function endSessions(sessionIds: readonly number[]): void {
    for (const sessionId of sessionIds) registry.ofSession(sessionId).forEach(end);
  }

  /** Looks for new messages of a stream soon. */
  function read(stream: Stream): void {
    (stream.tenantId === platform ? system : notifications).request(stream);
  }

  function onPayload(payload: string): void {
    const { tenant, users, ended } = parsePayload(payload);
    if (tenant !== undefined) {
      const streams = users ? users.flatMap((user) => registry.ofUser(tenant, user)) : registry.ofTenant(tenant);
      streams.forEach(read);
    }
    if (ended?.session !== undefined) endSessions([ended.session]);
    if (ended?.tenant !== undefined) registry.ofTenant(ended.tenant).forEach(end);
  }

  /** Ends the streams of sessions that have expired, and of those whose end this process has missed. */
  function checkSessions(): void {
    if (registry.size === 0) return;
    // After a failure, the next check follows with the next heartbeat.
    findEndedSessions(pool, registry.sessionIds()).then(endSessions, () => undefined);
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
    void Promise.all(listeners.map((each) => each.check())).then((areListening) => {
      // Without notifications from a server, streams are read at each heartbeat.
      if (areListening.includes(false)) registry.all().forEach(read);
    });
  }

  /** Ends a stream of another school if there are too many. @throws ApiError if no school has more than this one */
  function makeRoom({ tenantId }: StreamOwner): void {
    if (registry.size < maxStreams) return;
    const surplus = registry.newestOfBusiestTenant();
    countRefusal('streams', 'limit');
    if (surplus && registry.countOfTenant(surplus.tenantId) > registry.countOfTenant(tenantId) + 1) end(surplus);
    else
      throw new ApiError('unavailable', 'Too many streams are open. Try again in a moment.', {
        retryAfter: 30,
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
    makeRoom(owner);
    const number = opened++;
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
      number,
      slot: number % heartbeatSlots,
    };
    registry.add(stream);
    res.once('close', () => registry.remove(stream));
    beginResponse(stream);
    for (const each of listeners) each.start();
    ticker ??= setInterval(onTick, heartbeatMs / heartbeatSlots);
    // A NOTIFY since `lastId` was looked up did not reach this stream.
    read(stream);
  }

  return {
    open,
    count: () => registry.size,
    async close() {
      isClosed = true;
      clearInterval(ticker);
      notifications.close();
      system.close();
      registry.all().forEach(end);
      await Promise.all(listeners.map((each) => each.stop()));
    },
  };
}
