import { EventEmitter } from 'node:events';
import { Logger, parseCrontab, run, type Task, type WorkerEvents } from 'graphile-worker';
import type pg from 'pg';
import type { Logger as Log } from 'pino';
import type { SendEmail } from './email.ts';
import { clean_up } from './tasks/clean_up.ts';
import { daily } from './tasks/daily.ts';
import { daily_school } from './tasks/daily_school.ts';
import { notify_daily } from './tasks/notify_daily.ts';
import { purge_tenants } from './tasks/purge_tenants.ts';
import { send_email } from './tasks/send_email.ts';
import { send_invoice_reminder } from './tasks/send_invoice_reminder.ts';

/** What a task works with. */
export interface TaskContext {
  /** Connections as school_worker. */
  pool: pg.Pool;
  sendEmail: SendEmail;
  logger: Log;
  links: { publicUrl: string; passwordPageUrl: string | undefined };
  /** What becomes of deleted schools: the folder of their files, and when. */
  retention: { exports: string; days: number };
}

const tasks = { send_email, send_invoice_reminder, clean_up, purge_tenants, daily, daily_school, notify_daily };

/**
 * When jobs run by themselves, in UTC. `daily` looks where it has become six in the morning; a worker that was not there looks when it
 * starts.
 */
const crontab = `
*/15 * * * * daily ?fill=15m&jobKey=daily&jobKeyMode=replace
17 * * * * clean_up ?max=3&fill=2h
23 2 * * * purge_tenants ?max=3&fill=1d
11 * * * * notify_daily ?max=3
`;

/** The advisory lock that every living worker shares; /api/health/ready looks for it. */
const aliveLock = [7312, 1];

/** A running worker. */
export interface Worker {
  isAlive(): boolean;
  /** Takes no more jobs, waits for those under way. */
  stop(): Promise<void>;
}

/** Starts to work through the queue, `concurrency` jobs at a time. @param events  hears of what becomes of jobs */
export async function startWorker(context: TaskContext, concurrency: number, events: WorkerEvents = new EventEmitter()): Promise<Worker> {
  const { pool, logger } = context;
  let lockedBy = '';
  events.on('pool:create', ({ workerPool }) => (lockedBy = workerPool.id));
  const runner = await run({
    pgPool: pool,
    events,
    noHandleSignals: true,
    parsedCronItems: parseCrontab(crontab),
    taskList: Object.fromEntries(
      Object.entries(tasks).map(([name, task]): [string, Task] => [
        name,
        async (payload, helpers) => {
          const start = performance.now();
          await task(payload, context);
          logger.info({ task: name, job: helpers.job.id, attempt: helpers.job.attempts, ms: Math.round(performance.now() - start) });
        },
      ]),
    ),
    preset: { worker: { concurrentJobs: concurrency, pollInterval: 1000 } },
    logger: new Logger(() => (level, message, meta) => {
      if (level === 'error' || level === 'warning') logger.warn({ worker: message, error: meta['error'] instanceof Error ? meta['error'].message : undefined });
    }),
  });
  let alive = true;
  const ended = runner.promise.finally(() => {
    alive = false;
  });
  ended.catch(() => undefined);
  const stopHolding = await holdAliveLock(pool, () => alive);
  return {
    isAlive: () => alive,
    async stop() {
      await runner.stop().catch(() => undefined);
      await untilWrittenOff(pool, lockedBy);
      await stopHolding();
    },
  };
}

/**
 * Waits until the queue knows that the last jobs are done. graphile-worker calls itself stopped before it has written that;
 * were the connections closed then, those jobs would run again hours later.
 */
async function untilWrittenOff(pool: pg.Pool, lockedBy: string): Promise<void> {
  for (let attempt = 0; attempt < 250; attempt++) {
    const { rowCount } = await pool.query('select from graphile_worker._private_jobs where locked_by = $1', [lockedBy]).catch(() => ({ rowCount: 0 }));
    if (!rowCount) return;
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Holds the lock on a connection of its own, and takes it again when that connection is lost. */
async function holdAliveLock(pool: pg.Pool, isAlive: () => boolean): Promise<() => Promise<void>> {
  let client: pg.PoolClient | undefined;
  const take = async () => {
    const taken = await pool.connect();
    taken.on('error', () => {
      if (client !== taken) return;
      client = undefined;
      taken.release(true);
    });
    await taken.query('select pg_advisory_lock_shared($1, $2)', aliveLock);
    client = taken;
  };
  await take();
  const timer = setInterval(() => {
    if (!client && isAlive()) take().catch(() => undefined);
  }, 2000);
  return async () => {
    clearInterval(timer);
    const held = client;
    client = undefined;
    held?.release(true);
    await Promise.resolve();
  };
}
