import type { SchoolPool } from '../../database/pool/school-pool.ts';
import type { Logger } from 'pino';
import type { Stream, StreamRegistry } from './registry.ts';

/**
 * Limits of one read for one stream. A stream has one write in progress at a time, so it buffers less than 64 kB: an
 * event has at most 34 kB.
 */
const maxBatchRows = 50;
const maxBatchBytes = 24_576;
const maxStreamsPerRead = 500;
const maxConcurrentReads = 2;

/** A read waits this long, so that it also covers the streams that need one a moment later. */
const debounceMs = 4;
const retryMs = 1_000;

/** Reads new messages and writes them to the streams. */
export interface StreamReader {
  /** Reads for a stream soon, or when the read or write in progress is done. */
  request: (stream: Stream) => void;
  close: () => void;
}

/** A stream's position among those of the read, from 1; the id of a notification, and the notification as JSON. */
type EventRow = [streamIndex: number, id: string, event: string];

/** Creates the reader of the notifications of this process. Reads of several streams of a school share a statement. */
export function createStreamReader(
  pool: Pick<SchoolPool, 'query'>,
  registry: StreamRegistry,
  logger: Logger,
): StreamReader {
  /** Streams that need a read, by school. */
  const pending = new Map<number, Set<Stream>>();
  const timers = new Set<NodeJS.Timeout>();
  let reads = 0;
  let isScheduled = false;
  let isClosed = false;

  function schedule(work: () => void, delayMs: number): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      work();
    }, delayMs);
    timers.add(timer);
  }

  function request(stream: Stream): void {
    if (!registry.has(stream)) return;
    if (stream.isBusy) {
      stream.isReadPending = true;
      return;
    }
    pending.set(stream.tenantId, (pending.get(stream.tenantId) ?? new Set()).add(stream));
    if (isScheduled) return;
    isScheduled = true;
    schedule(() => {
      isScheduled = false;
      while (reads < maxConcurrentReads && pending.size > 0) void readAll();
    }, debounceMs);
  }

  /** Marks a stream as idle, and reads again if notifications arrived in the meantime. */
  function finish(stream: Stream): void {
    stream.isBusy = false;
    if (!stream.isReadPending) return;
    stream.isReadPending = false;
    request(stream);
  }

  /** Reads school after school until no stream needs a read. */
  async function readAll(): Promise<void> {
    reads++;
    for (let [next] = pending; next && !isClosed; [next] = pending) {
      const [tenantId, streams] = next;
      // The rest goes to the end of the map, so that a large school does not delay the others.
      pending.delete(tenantId);
      const batch = [...streams].slice(0, maxStreamsPerRead);
      const rest = [...streams].slice(maxStreamsPerRead);
      if (rest.length > 0) pending.set(tenantId, new Set(rest));
      const open = batch.filter((stream) => registry.has(stream));
      for (const stream of open) {
        stream.isBusy = true;
        stream.isReadPending = false;
      }
      if (open.length > 0) await readBatch(tenantId, open);
    }
    reads--;
  }

  async function readBatch(tenantId: number, streams: readonly Stream[]): Promise<void> {
    try {
      const rows = await queryEvents(pool, tenantId, streams);
      let start = 0;
      for (const [index, stream] of streams.entries()) {
        let end = start;
        while (rows[end]?.[0] === index + 1) end++;
        write(stream, rows.slice(start, end));
        start = end;
      }
    } catch (error) {
      const cause = error instanceof Error ? error.message : String(error);
      logger.warn({ tenant: tenantId, cause }, 'Reading notifications for streams failed.');
      schedule(() => {
        for (const stream of streams) {
          stream.isReadPending = true;
          finish(stream);
        }
      }, retryMs);
    }
  }

  function write(stream: Stream, rows: readonly EventRow[]): void {
    const [, lastId] = rows.at(-1) ?? [];
    if (lastId === undefined || !registry.has(stream)) {
      finish(stream);
      return;
    }
    const text = rows.map(([, id, event]) => `id: ${id}\ndata: ${event}\n\n`).join('');
    stream.lastId = Number(lastId);
    // The read may have stopped at a limit.
    if (rows.length === maxBatchRows || Buffer.byteLength(text) >= maxBatchBytes) stream.isReadPending = true;
    stream.isWriting = true;
    // The next read starts when the client has received this batch, so that a slow client costs no memory.
    stream.res.write(text, () => {
      stream.isWriting = false;
      stream.isLate = false;
      finish(stream);
    });
  }

  return {
    request,
    close() {
      isClosed = true;
      timers.forEach(clearTimeout);
    },
  };
}

async function queryEvents(
  pool: Pick<SchoolPool, 'query'>,
  tenantId: number,
  streams: readonly Stream[],
): Promise<EventRow[]> {
  const statement = {
    name: 'core.stream_read',
    rowMode: 'array',
    text: 'select stream_index, id, event from core.stream_read($1, $2, $3, $4, $5)',
    values: [
      tenantId,
      streams.map(({ sessionId }) => sessionId),
      streams.map(({ lastId }) => lastId),
      maxBatchRows,
      maxBatchBytes,
    ],
  };
  const { rows } = await pool.query<EventRow>(statement, {
    school: tenantId,
    isVerified: true,
    planKey: 'stream_read',
  });
  return rows;
}
