import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { classify } from '../src/database/errors.ts';
import { isLockConflict } from '../src/database/lock-conflicts.ts';
import { traceIdOf, validTraceparent } from '../src/domain/tracing.ts';
import type { TaskContext } from './task-context.ts';

/** How often a worker looks for events. A look takes 0.3 ms; if it takes longer, the worker looks less often. */
const intervalMs = 50;
/** So that looks take at most this part of the time, but the worker always looks once in ten seconds. */
const maxLookShare = 0.05;
const maxIntervalMs = 10_000;
/** For how many schools a worker writes at the same time. One that waits for a lock then delays no other. */
const lanes = 3;
/** How long a school is left alone whose notifications could not be written, for example because of a lock. */
const restMs = 10_000;
/** The limit of one write of a school. It has at most 2,000 recipients, so it usually takes less than two seconds. */
const writeTimeoutMs = 60_000;
/** How long the worker waits after a lost connection. */
const pauseMs = 1_000;

type Context = Pick<TaskContext, 'pool' | 'logger' | 'tracing'>;

/** A school with events, and the trace of the first of them. */
interface Waiting {
  id: number;
  traceparent: string | null;
}

/** query_canceled: the write of a school took longer than its limit. */
const isCanceled = (error: unknown) => Error.isError(error) && 'code' in error && error.code === '57014';

/** Whether the server or the connection failed, and not the work for one school. */
const isOutage = (error: unknown) =>
  classify(error).apiError?.error === 'unavailable' && !isLockConflict(error) && !isCanceled(error);

/**
 * Writes the notifications of events (platform.outbox): of each school that has some, one batch (core.outbox_write). An
 * error of a school is logged, and the school is tried again later.
 * @param timeoutMs  the limit of each write
 */
export function outboxWriter({ pool, logger, tracing }: Context, timeoutMs = writeTimeoutMs) {
  const resting = new Map<number, number>();
  /** The schools for which it writes now. A slow one takes one of the lanes, and the others go on. */
  const writing = new Map<number, Promise<void>>();
  let outage: Error | undefined;

  async function write({ id, traceparent }: Waiting): Promise<void> {
    const start = performance.now();
    const request = validTraceparent(traceparent);
    const span = tracing?.start('notifications', 'CONSUMER', request, { 'school.id': id });
    let failure: string | undefined;
    try {
      // Two statements in one message, so that `set local` also applies behind a connection pooler.
      const results = (await pool.query(
        `set local statement_timeout = ${String(timeoutMs)}; select core.outbox_write(${String(id)}) as count`,
      )) as unknown as pg.QueryResult<{ count: number | null }>[];
      const count = results[1]?.rows[0]?.count ?? 0;
      if (count > 0)
        logger.info({
          task: 'outbox',
          trace_id: traceIdOf(span?.traceparent ?? request),
          tenant: id,
          events: count,
          ms: Math.round(performance.now() - start),
        });
    } catch (error) {
      failure = error instanceof Error ? error.name : 'unknown';
      if (isOutage(error)) throw error;
      resting.set(id, Date.now() + restMs);
      logger.warn({ worker: 'The notifications of a school could not be written.', tenant: id, cause: String(error) });
    } finally {
      span?.end(failure);
    }
  }

  return {
    /**
     * Looks once, on a connection that the caller may keep, and begins to write. Throws if a connection breaks, also that
     * of an earlier write.
     * @returns the number of schools for which it has begun to write, and the milliseconds of the look
     */
    async round(looker: Pick<pg.Pool, 'query'>, isStopping: () => boolean = () => false) {
      const start = performance.now();
      const { rows } = await looker.query<{ school_id: unknown; traceparent: string | null }>(
        'select school_id, traceparent from core.outbox_schools()',
      );
      const lookMs = performance.now() - start;
      let begun = 0;
      for (const { school_id, traceparent } of rows) {
        // A bigint arrives as text, unless the pool parses it.
        const school: Waiting = { id: Number(school_id), traceparent };
        if (writing.has(school.id) || (resting.get(school.id) ?? 0) > Date.now()) continue;
        while (writing.size >= lanes) await Promise.race(writing.values());
        if (isStopping() || outage !== undefined) break;
        begun++;
        const ended = write(school)
          .catch((error: unknown) => void (outage = error instanceof Error ? error : new Error(String(error))))
          .finally(() => writing.delete(school.id));
        writing.set(school.id, ended);
      }
      const broken = outage;
      outage = undefined;
      if (broken !== undefined) throw broken;
      return { begun, lookMs };
    },
    /** Waits until all that has begun is written. */
    async finish(): Promise<void> {
      await Promise.all(writing.values());
    },
  };
}

/** The pause after a look. One slow look, for example because the machine is busy, makes it no longer, but two do. */
export const pauseAfter = (lookMs: number, earlierLookMs: number): number =>
  Math.min(Math.max(intervalMs, Math.min(lookMs, earlierLookMs) / maxLookShare), maxIntervalMs);

/**
 * Looks and writes again and again, as long as the worker runs. Several workers do not disturb each other, because each
 * transaction locks its school.
 * @returns a function that stops it after the schools at which it is
 */
export function startOutbox(context: Context): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const isStopping = () => signal.aborted;
  const writer = outboxWriter(context);
  let wasUp = true;
  let earlierLookMs = 0;
  /** Looks on one connection until it breaks: a connection of the pool is replaced after some uses. */
  const look = async () => {
    const client = await context.pool.connect();
    let hasFailed = true;
    try {
      while (!isStopping()) {
        const { begun, lookMs } = await writer.round(client, isStopping);
        wasUp = true;
        const pause = pauseAfter(lookMs, earlierLookMs);
        earlierLookMs = lookMs;
        if (begun === 0) await sleep(pause, undefined, { signal });
      }
      hasFailed = false;
    } finally {
      client.release(hasFailed && !isStopping());
    }
  };
  const run = async () => {
    while (!isStopping())
      try {
        await look();
      } catch (error) {
        if (isStopping()) return;
        if (wasUp) context.logger.warn({ worker: 'Notifications could not be written.', cause: String(error) });
        wasUp = false;
        await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
      }
  };
  const running = run();
  return async () => {
    stopping.abort();
    await running;
    await writer.finish();
  };
}
