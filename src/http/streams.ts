import type { ServerResponse } from 'node:http';
import type pg from 'pg';
import type { Logger } from 'pino';
import { z } from 'zod';
import { listener } from '../database/listener.ts';
import { ApiError } from '../domain/errors.ts';

/** Whose a stream is. */
export interface StreamOwner {
  tenantId: number;
  userId: number;
  sessionId: number;
}

/** The open streams of notifications of this process. */
export interface Streams {
  /**
   * Answers with a stream of what comes after a notification, and keeps it until its session, its client or the process ends.
   * @throws ApiError rate_limited when the user has as many as one may have, unavailable when the process is stopping
   */
  open(res: ServerResponse, owner: StreamOwner, after: number): void;
  /** How many are open. */
  count(): number;
  /** Ends all of them at once. */
  close(): Promise<void>;
}

export interface StreamsOptions {
  pool: pg.Pool;
  /** Of a direct connection: a pooler of transactions hears nothing. */
  listenUrl: string;
  listenRole: string | undefined;
  /** Milliseconds between two signs of life; as often sessions are checked. */
  heartbeat: number;
  logger: Logger;
}

/** Streams of one user in one process. */
const maxOfUser = 5;

/** What one read brings for one stream at most. One batch at a time is on its way to a client, so that a stream buffers less than 64 kB (an event has 34 kB at most). */
const batchRows = 50;
const batchBytes = 24_576;
/** Streams of one statement, and statements at a time. */
const maxAtOnce = 500;
const maxReaders = 2;

/** Milliseconds that a read waits for more to read for, and for another attempt after one that failed. */
const debounce = 4;
const retryRead = 1_000;

/** Heartbeats are spread over so many moments: writing to thousands at once would hold up requests. */
const slots = 10;

interface Stream extends StreamOwner {
  res: ServerResponse;
  /** The last notification that was written. */
  after: number;
  /** Being read for, or a batch is on its way. */
  isBusy: boolean;
  /** More may have come since it became busy. */
  isWanted: boolean;
  /** The batch on its way was written before the last heartbeat. */
  isLate: boolean;
  isWriting: boolean;
  slot: number;
}

/** Proxies keep back the first bytes of an answer, some of them 2 kB. */
const padding = `:${' '.repeat(2_048)}\n`;
const beat = Buffer.from(':\n\n');

export const streamHeaders = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  // no-transform: what compresses on the way would keep events back.
  'Cache-Control': 'private, no-store, no-transform',
  'X-Accel-Buffering': 'no',
  // Nothing comes after a stream.
  Connection: 'close',
};

/** What is told on the channel: whom to read for, or what has ended. */
const Payload = z.object({
  tenant: z.int().optional(),
  users: z.array(z.int()).optional(),
  ended: z.object({ session: z.int().optional(), tenant: z.int().optional() }).optional(),
});

/** Whoever may connect to the database may tell something: what is not ours is nothing. */
function readPayload(payload: string): z.infer<typeof Payload> | undefined {
  try {
    return Payload.safeParse(JSON.parse(payload)).data;
  } catch {
    return undefined;
  }
}

/** The streams of one process: one connection listens for all of them, and reads are shared. */
export function openStreams({ pool, listenUrl, listenRole, heartbeat, logger }: StreamsOptions): Streams {
  const bySession = new Map<number, Set<Stream>>();
  const byTenant = new Map<number, Map<number, Set<Stream>>>();
  /** Whom to read for, by school. */
  const due = new Map<number, Set<Stream>>();
  const timers = new Set<NodeJS.Timeout>();
  let open = 0;
  let serial = 0;
  let readers = 0;
  let isScheduled = false;
  let isClosed = false;
  let ticker: NodeJS.Timeout | undefined;
  let tick = 1;

  const all = () => [...bySession.values()].flatMap((streams) => [...streams]);
  const ofTenant = (tenantId: number) =>
    [...(byTenant.get(tenantId)?.values() ?? [])].flatMap((streams) => [...streams]);

  function later(work: () => void, milliseconds: number): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      work();
    }, milliseconds);
    timers.add(timer);
  }

  function remove(stream: Stream): void {
    const ofSession = bySession.get(stream.sessionId);
    if (!ofSession?.delete(stream)) return;
    open--;
    if (ofSession.size === 0) bySession.delete(stream.sessionId);
    const users = byTenant.get(stream.tenantId);
    const ofUser = users?.get(stream.userId);
    ofUser?.delete(stream);
    if (ofUser?.size === 0) users?.delete(stream.userId);
    if (users?.size === 0) byTenant.delete(stream.tenantId);
    due.get(stream.tenantId)?.delete(stream);
  }

  /** Ends a stream; the client comes again from where it was, and hears what the matter is. */
  function end(stream: Stream): void {
    remove(stream);
    // One that does not take what it has got would not take the end either.
    if (stream.isWriting) stream.res.destroy();
    else stream.res.end();
  }

  /** Reads for a stream soon. */
  function want(stream: Stream): void {
    if (stream.isBusy) {
      stream.isWanted = true;
      return;
    }
    const streams = due.get(stream.tenantId) ?? new Set();
    due.set(stream.tenantId, streams.add(stream));
    if (isScheduled) return;
    isScheduled = true;
    later(() => {
      isScheduled = false;
      while (readers < maxReaders && due.size > 0) void read();
    }, debounce);
  }

  function free(stream: Stream): void {
    stream.isBusy = false;
    if (!stream.isWanted || !bySession.get(stream.sessionId)?.has(stream)) return;
    stream.isWanted = false;
    want(stream);
  }

  /** Reads for whom it is due, school by school. */
  async function read(): Promise<void> {
    readers++;
    for (let [next] = due; next && !isClosed; [next] = due) {
      const [tenantId, streams] = next;
      const some = [...streams].slice(0, maxAtOnce);
      for (const stream of some) {
        stream.isBusy = true;
        stream.isWanted = false;
        streams.delete(stream);
      }
      // Behind the other schools, so that each has its turn.
      due.delete(tenantId);
      if (streams.size > 0) due.set(tenantId, streams);
      if (some.length > 0) await readFor(tenantId, some);
    }
    readers--;
  }

  async function readFor(tenantId: number, streams: readonly Stream[]): Promise<void> {
    try {
      const { rows } = await pool.query<[number, string, string]>({
        name: 'core.stream_read',
        rowMode: 'array',
        text: 'select place, id, event from core.stream_read($1, $2, $3, $4, $5)',
        values: [
          tenantId,
          streams.map(({ sessionId }) => sessionId),
          streams.map(({ after }) => after),
          batchRows,
          batchBytes,
        ],
      });
      let at = 0;
      streams.forEach((stream, index) => {
        const from = at;
        while (at < rows.length && rows[at]?.[0] === index + 1) at++;
        write(stream, rows.slice(from, at));
      });
    } catch (error) {
      logger.warn(
        { tenant: tenantId, cause: error instanceof Error ? error.message : String(error) },
        'Streams could not be read for.',
      );
      later(() => {
        for (const stream of streams) {
          stream.isWanted = true;
          free(stream);
        }
      }, retryRead);
    }
  }

  function write(stream: Stream, rows: readonly [number, string, string][]): void {
    const [, last] = rows.at(-1) ?? [];
    if (last === undefined || !bySession.get(stream.sessionId)?.has(stream)) {
      free(stream);
      return;
    }
    const text = rows.map(([, id, event]) => `id: ${id}\nevent: notification\ndata: ${event}\n\n`).join('');
    stream.after = Number(last);
    // What a limit held back is still there.
    if (rows.length === batchRows || Buffer.byteLength(text) >= batchBytes) stream.isWanted = true;
    stream.isWriting = true;
    // Only when the client has taken it is there more: whoever reads slowly waits, and costs no memory.
    stream.res.write(text, () => {
      stream.isWriting = false;
      stream.isLate = false;
      free(stream);
    });
  }

  function onPayload(payload: string): void {
    const told = /^\{"tenant" ?: ?(\d+)/.exec(payload)?.[1];
    // Most of what is told concerns schools that have no stream here.
    if (told !== undefined && !byTenant.has(Number(told))) return;
    const event = readPayload(payload);
    if (!event) return;
    if (event.tenant !== undefined) {
      const users = byTenant.get(event.tenant);
      if (event.users) for (const id of event.users) users?.get(id)?.forEach(want);
      else ofTenant(event.tenant).forEach(want);
    }
    if (event.ended?.session !== undefined) [...(bySession.get(event.ended.session) ?? [])].forEach(end);
    if (event.ended?.tenant !== undefined) ofTenant(event.ended.tenant).forEach(end);
  }

  /** Ends the streams of sessions that have run out, or whose end was not heard of. */
  async function checkSessions(): Promise<void> {
    const { rows } = await pool.query<{ ended: string[] }>({
      name: 'core.stream_check',
      text: 'select core.stream_check($1) as ended',
      values: [[...bySession.keys()]],
    });
    for (const id of rows[0]?.ended ?? []) [...(bySession.get(Number(id)) ?? [])].forEach(end);
  }

  const listening = listener({
    url: listenUrl,
    role: listenRole,
    channel: 'school_events',
    onPayload,
    onListening: () => {
      all().forEach(want);
      check();
    },
    logger,
  });

  function check(): void {
    if (open === 0) return;
    // The next one comes soon enough.
    checkSessions().catch(() => undefined);
  }

  function onTick(): void {
    const slot = tick++ % slots;
    for (const stream of all()) {
      if (stream.slot !== slot) continue;
      if (!stream.isWriting) stream.res.write(beat);
      else if (stream.isLate) end(stream);
      else stream.isLate = true;
    }
    if (slot > 0 || open === 0) return;
    check();
    void listening.check().then((hears) => {
      // Late rather than never, where nothing can be heard.
      if (!hears) all().forEach(want);
    });
  }

  return {
    open(res, owner, after) {
      if (isClosed)
        throw new ApiError('unavailable', 'The service is stopping. Try again in a moment.', { retryAfter: 1 });
      const users = byTenant.get(owner.tenantId) ?? new Map<number, Set<Stream>>();
      const ofUser = users.get(owner.userId) ?? new Set();
      if (ofUser.size >= maxOfUser) {
        throw new ApiError(
          'rate_limited',
          `You have ${String(maxOfUser)} streams open, which is as many as one may have. Close one.`,
          { retryAfter: 30 },
        );
      }
      if (res.closed) return;
      const stream: Stream = {
        tenantId: owner.tenantId,
        userId: owner.userId,
        sessionId: owner.sessionId,
        ...{ res, after, isBusy: false, isWanted: false, isWriting: false, isLate: false, slot: serial++ % slots },
      };
      byTenant.set(owner.tenantId, users.set(owner.userId, ofUser.add(stream)));
      bySession.set(owner.sessionId, (bySession.get(owner.sessionId) ?? new Set()).add(stream));
      open++;
      res.once('close', () => remove(stream));
      res.on('error', () => undefined);
      res.writeHead(200, streamHeaders);
      // An id without data: a client that is cut off before the first notification knows where it was. All come again at different moments.
      res.write(`${padding}retry: ${String(2_000 + Math.floor(Math.random() * 3_000))}\nid: ${String(after)}\n\n`);
      listening.start();
      ticker ??= setInterval(onTick, heartbeat / slots);
      // What was told between the look-up of `after` and now was not heard for this stream.
      want(stream);
    },
    count: () => open,
    async close() {
      isClosed = true;
      clearInterval(ticker);
      timers.forEach(clearTimeout);
      all().forEach(end);
      await listening.stop();
    },
  };
}
