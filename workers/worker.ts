import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Logger, parseCrontab, run, type Task, type WorkerEvents } from 'graphile-worker';
import type pg from 'pg';
import { traceIdOf, validTraceparent } from '../src/domain/tracing.ts';
import type { TaskContext } from './task-context.ts';
import { loadJobs } from './jobs.ts';
import { startOutbox } from './outbox.ts';
import { queuePool } from './queue-pool.ts';
import { ownLock, unlockAbandonedJobs } from './unlock-jobs.ts';

/** The advisory lock that all running workers share; /api/health/ready checks whether somebody holds it. */
const workersLock = [7312, 1];

/** The flag of jobs that are slow (core.job_type). They may take half of the slots of a worker. */
const slowFlag = 'slow';

/** A running worker. */
export interface Worker {
  isAlive(): boolean;
  /** Takes no more jobs and waits for those that are running. */
  stop(): Promise<void>;
}

/**
 * Starts a worker that runs at most `concurrency` jobs at a time.
 * @param events  receives the events of graphile-worker
 * @param crashCheckMs  interval of the check for jobs that no worker runs
 * @param canPrepare  whether the statements of graphile-worker may have names
 */
export async function startWorker(
  dependencies: Omit<TaskContext, 'stopping'>,
  concurrency: number,
  {
    events = new EventEmitter(),
    crashCheckMs = 5000,
    canPrepare = true,
  }: { events?: WorkerEvents; crashCheckMs?: number; canPrepare?: boolean } = {},
): Promise<Worker> {
  const stopping = new AbortController();
  const context: TaskContext = { ...dependencies, stopping: stopping.signal };
  const { pool, sessionPool, logger } = context;
  const { tasks, crontab } = await loadJobs(pool);
  const running = new Set<string>();
  let runningSlowJobs = 0;
  let lockedBy = '';
  events.on('pool:create', ({ workerPool }) => (lockedBy = workerPool.id));
  const runner = await run({
    pgPool: queuePool(pool, sessionPool),
    events,
    noHandleSignals: true,
    parsedCronItems: parseCrontab(crontab),
    taskList: Object.fromEntries(
      [...tasks].map(([name, task]): [string, Task] => [
        name,
        async (payload, helpers) => {
          const start = performance.now();
          const slots = helpers.job.flags?.[slowFlag] ? 1 : 0;
          runningSlowJobs += slots;
          running.add(helpers.job.id);
          const { traceparent, tenant_id: school } = (payload ?? {}) as { traceparent?: unknown; tenant_id?: number };
          const request = validTraceparent(traceparent);
          const span = context.tracing?.start(`job ${name}`, 'CONSUMER', request, {
            'school.task': name,
            'school.id': school ?? undefined,
            'school.job.attempt': helpers.job.attempts,
          });
          let failure: string | undefined;
          try {
            await task(payload, context, helpers.job);
          } catch (error) {
            failure = error instanceof Error ? error.name : 'unknown';
            throw error;
          } finally {
            runningSlowJobs -= slots;
            running.delete(helpers.job.id);
            span?.end(failure);
          }
          logger.info({
            task: name,
            trace_id: traceIdOf(span?.traceparent ?? request),
            job: helpers.job.id,
            attempt: helpers.job.attempts,
            ms: Math.round(performance.now() - start),
          });
        },
      ]),
    ),
    forbiddenFlags: () => (runningSlowJobs >= Math.max(1, Math.floor(concurrency / 2)) ? [slowFlag] : []),
    preset: { worker: { concurrentJobs: concurrency, pollInterval: 1000, preparedStatements: canPrepare } },
    logger: new Logger(() => (level, message, meta) => {
      if (level === 'error' || level === 'warning')
        logger.warn({ worker: message, error: meta['error'] instanceof Error ? meta['error'].message : undefined });
    }),
  });
  let isAlive = true;
  const ended = runner.promise.finally(() => {
    isAlive = false;
  });
  ended.catch(() => undefined);
  const releaseLocks = await holdWorkerLocks(sessionPool, lockedBy, () => isAlive).catch(async (error: unknown) => {
    await runner.stop().catch(() => undefined);
    throw error;
  });
  const stopOutbox = startOutbox(context);
  const stopChecking = unlockAbandonedJobs(pool, logger, { name: lockedBy, running }, crashCheckMs);
  return {
    isAlive: () => isAlive,
    async stop() {
      stopping.abort();
      await stopOutbox();
      await stopChecking();
      await runner.stop().catch(() => undefined);
      await waitForUnlockedJobs(pool, lockedBy);
      releaseLocks();
    },
  };
}

/**
 * Waits, for at most five seconds, until the queue shows the last jobs of this worker as done. graphile-worker reports
 * that it has stopped before it has stored that. If the connections were closed earlier, those jobs would run again
 * hours later.
 */
async function waitForUnlockedJobs(pool: pg.Pool, lockedBy: string): Promise<void> {
  for (let attempt = 0; attempt < 250; attempt++) {
    const { rowCount } = await pool
      .query('select from core.jobs() where locked_by = $1', [lockedBy])
      .catch(() => ({ rowCount: 0 }));
    if (!rowCount) return;
    await sleep(20);
  }
}

/**
 * Holds both locks of this worker on a connection of its own, and takes them again if that connection is lost.
 * @returns a function that releases them
 */
async function holdWorkerLocks(pool: pg.Pool, name: string, isAlive: () => boolean): Promise<() => void> {
  let client: pg.PoolClient | undefined;
  let isAcquiring = false;
  const acquire = async () => {
    const connection = await pool.connect();
    connection.on('error', () => {
      if (client !== connection) return;
      client = undefined;
      connection.release(true);
    });
    try {
      await connection.query('select pg_advisory_lock_shared($1, $2), pg_advisory_lock_shared($3, hashtext($4))', [
        ...workersLock,
        ownLock,
        name,
      ]);
    } catch (error) {
      connection.release(true);
      throw error;
    }
    client = connection;
  };
  await acquire();
  const timer = setInterval(() => {
    // One attempt at a time: a second connection with the locks would never be released.
    if (client || isAcquiring || !isAlive()) return;
    isAcquiring = true;
    acquire()
      .catch(() => undefined)
      .finally(() => (isAcquiring = false));
  }, 2000);
  return () => {
    clearInterval(timer);
    const held = client;
    client = undefined;
    held?.release(true);
  };
}
