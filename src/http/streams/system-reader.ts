import { createHash } from 'node:crypto';
import type { SchoolPool } from '../../database/pool/school-pool.ts';
import type { Logger } from 'pino';
import type { StreamReader } from './reader.ts';
import { platform, type Stream, type StreamRegistry } from './registry.ts';

/** The time between two reads is at least this many times that of a read, so that reads are a small part of load. */
const restPerRead = 20;

export interface SystemReaderOptions {
  pool: Pick<SchoolPool, 'query'>;
  registry: StreamRegistry;
  intervalMs: number;
  endSessions: (sessionIds: readonly number[]) => void;
  logger: Logger;
}

/**
 * The message about a state. Its id is a number of 15 digits at most that depends on everything but the time at which
 * the state was read. So a client can resume at any process, and gets a message only if the state has changed.
 */
function toMessage(state: string): { id: number; text: string } {
  const { at, ...rest } = JSON.parse(state) as { at: string };
  const id = createHash('sha256').update(JSON.stringify(rest)).digest().readUIntBE(0, 6);
  return { id, text: `id: ${String(id)}\ndata: ${JSON.stringify({ at, ...rest })}\n\n` };
}

/**
 * Creates the reader of the state of the installation for the streams of operators. One statement at a time reads it
 * for all of them, and also says which of them have to end. Without streams, nothing is read.
 */
export function createSystemReader(options: SystemReaderOptions): StreamReader {
  const { pool, registry, intervalMs, endSessions, logger } = options;
  let latest: ReturnType<typeof toMessage> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isReading = false;
  let isFailing = false;
  let isClosed = false;

  /** Writes the latest state, unless the client has it. A slow client does not get what was replaced meanwhile. */
  function send(stream: Stream): void {
    if (!latest || stream.lastId === latest.id || stream.isWriting || !registry.has(stream)) return;
    stream.lastId = latest.id;
    stream.isWriting = true;
    stream.res.write(latest.text, () => {
      stream.isWriting = false;
      stream.isLate = false;
      send(stream);
    });
  }

  async function readState(): Promise<void> {
    const sessionIds = [...new Set(registry.ofTenant(platform).map(({ sessionId }) => sessionId))];
    const statement = {
      name: 'core.stream_system',
      text: 'select ended, state::text from core.stream_system($1)',
      values: [sessionIds],
    };
    const { rows } = await pool.query<{ ended: string[]; state: string | null }>(statement, {
      school: 'platform',
      isVerified: true,
      server: 'home',
      planKey: 'stream_system',
      isRead: true,
    });
    const [{ ended, state } = { ended: [], state: null }] = rows;
    endSessions(ended.map(Number));
    if (state === null) return;
    const message = toMessage(state);
    // `at` stays the time of the change.
    if (message.id !== latest?.id) latest = message;
    registry.ofTenant(platform).forEach(send);
  }

  async function read(): Promise<void> {
    isReading = true;
    timer = undefined;
    const startedAt = performance.now();
    try {
      await readState();
      isFailing = false;
    } catch (error) {
      // Log once per outage.
      if (!isFailing)
        logger.warn({ cause: String(error) }, 'Reading the state of the installation for streams failed.');
      isFailing = true;
    }
    isReading = false;
    if (isClosed) return;
    if (registry.ofTenant(platform).length === 0) {
      latest = undefined;
      return;
    }
    timer = setTimeout(() => void read(), Math.max(intervalMs, (performance.now() - startedAt) * restPerRead));
  }

  return {
    request(stream) {
      if (isClosed) return;
      // At most as old as the time between two reads.
      send(stream);
      if (!isReading && !timer) void read();
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}
