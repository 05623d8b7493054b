import { EventEmitter } from 'node:events';
import { Logger, parseCrontab, run, type Task, type WorkerEvents } from 'graphile-worker';
import type pg from 'pg';
import type { TaskContext } from './task-context.ts';
import { analytics } from './tasks/analytics.ts';
import { analytics_schools } from './tasks/analytics_schools.ts';
import { clean_up } from './tasks/clean_up.ts';
import { daily } from './tasks/daily.ts';
import { daily_school } from './tasks/daily_school.ts';
import { deliver } from './tasks/deliver.ts';
import { notify_daily } from './tasks/notify_daily.ts';
import { purge_tenants } from './tasks/purge_tenants.ts';
import { send_email } from './tasks/send_email.ts';
import { send_invoice_reminder } from './tasks/send_invoice_reminder.ts';

const tasks = {
  deliver,
  send_email,
  send_invoice_reminder,
  clean_up,
  purge_tenants,
  daily,
  daily_school,
  notify_daily,
  analytics,
  analytics_schools,
};

/**
 * When jobs run by themselves, in UTC. `daily` looks where it has become six in the morning; a worker that was not there looks when it
 * starts.
 */
const crontab = `
*/15 * * * * daily ?fill=15m&jobKey=daily&jobKeyMode=replace
17 * * * * clean_up ?max=3&fill=2h
23 2 * * * purge_tenants ?max=3&fill=1d
11 * * * * notify_daily ?max=3
5,20,35,50 * * * * analytics ?fill=15m&max=3&jobKey=analytics&jobKeyMode=replace
`;

/** The advisory lock that every living worker shares; /api/health/ready looks for it. */
const aliveLock = [7312, 1];
/** And one of its own, by the hash of its name: whoever does not hold it is dead. */
const ownLock = 7315;
/** A worker is dead when it was so at three looks in a row: one that lost its connections takes its lock again before. */
const looks = 3;

/** A running worker. */
export interface Worker {
  isAlive(): boolean;
  /** Takes no more jobs, waits for those under way. */
  stop(): Promise<void>;
}

/**
 * Starts to work through the queue, `concurrency` jobs at a time.
 * @param events  hears of what becomes of jobs
 * @param lookEveryMs  how often it looks for workers that died
 */
export async function startWorker(
  given: Omit<TaskContext, 'stopping'>,
  concurrency: number,
  { events = new EventEmitter(), lookEveryMs = 5000 }: { events?: WorkerEvents; lookEveryMs?: number } = {},
): Promise<Worker> {
  const stopping = new AbortController();
  const context: TaskContext = { ...given, stopping: stopping.signal };
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
          await task(payload, context, helpers.job);
          logger.info({
            task: name,
            job: helpers.job.id,
            attempt: helpers.job.attempts,
            ms: Math.round(performance.now() - start),
          });
        },
      ]),
    ),
    preset: { worker: { concurrentJobs: concurrency, pollInterval: 1000 } },
    logger: new Logger(() => (level, message, meta) => {
      if (level === 'error' || level === 'warning')
        logger.warn({ worker: message, error: meta['error'] instanceof Error ? meta['error'].message : undefined });
    }),
  });
  let alive = true;
  const ended = runner.promise.finally(() => {
    alive = false;
  });
  ended.catch(() => undefined);
  const stopHolding = await holdAliveLock(pool, lockedBy, () => alive);
  const stopLooking = freeJobsOfTheDead(pool, logger, lookEveryMs);
  return {
    isAlive: () => alive,
    async stop() {
      stopping.abort();
      await stopLooking();
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
    const { rowCount } = await pool
      .query('select from graphile_worker._private_jobs where locked_by = $1', [lockedBy])
      .catch(() => ({ rowCount: 0 }));
    if (!rowCount) return;
    await new Promise((done) => setTimeout(done, 20));
  }
}

/**
 * Gives jobs back to the queue whose worker is dead, within some 15 seconds; graphile-worker by itself waits for four hours.
 * @returns stops it
 */
function freeJobsOfTheDead(pool: pg.Pool, logger: TaskContext['logger'], lookEveryMs: number): () => Promise<void> {
  const seen = new Map<string, number>();
  const look = async () => {
    const { rows } = await pool.query<{ name: string }>(
      `select distinct j.locked_by as name from graphile_worker._private_jobs j
       where j.locked_by is not null and not exists (
         select from pg_locks l where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())
           and l.classid = $1 and l.objid = (hashtext(j.locked_by)::bigint & 4294967295)::oid and l.objsubid = 2 and l.granted)`,
      [ownLock],
    );
    const missing = new Set(rows.map(({ name }) => name));
    for (const name of seen.keys()) if (!missing.has(name)) seen.delete(name);
    for (const name of missing) seen.set(name, (seen.get(name) ?? 0) + 1);
    const dead = [...seen].filter(([, times]) => times >= looks).map(([name]) => name);
    if (dead.length === 0) return;
    await pool.query('select graphile_worker.force_unlock_workers($1)', [dead]);
    logger.warn({ worker: 'Jobs of workers that are gone were given back.', workers: dead.length });
  };
  let looking = Promise.resolve();
  const timer = setInterval(() => {
    looking = looking.then(look).catch(() => seen.clear());
  }, lookEveryMs);
  return async () => {
    clearInterval(timer);
    await looking;
  };
}

/** Holds the lock on a connection of its own, and takes it again when that connection is lost. */
async function holdAliveLock(pool: pg.Pool, name: string, isAlive: () => boolean): Promise<() => Promise<void>> {
  let client: pg.PoolClient | undefined;
  const take = async () => {
    const taken = await pool.connect();
    taken.on('error', () => {
      if (client !== taken) return;
      client = undefined;
      taken.release(true);
    });
    await taken.query('select pg_advisory_lock_shared($1, $2), pg_advisory_lock_shared($3, hashtext($4))', [
      ...aliveLock,
      ownLock,
      name,
    ]);
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
