import type pg from 'pg';
import type { TaskContext } from './task-context.ts';

/**
 * First half of the advisory lock of each worker; the second half is the hash of its name. A worker without it has
 * crashed.
 */
export const ownLock = 7315;
/**
 * A job is unlocked after this many checks in a row in which no worker ran it: a worker needs some time to connect
 * again, and to store the result of a job.
 */
const maxMissedChecks = 3;

/** A job that is locked though no worker runs it. */
interface Abandoned {
  id: string;
  worker: string;
  locked_at: string;
}

/**
 * Unlocks, after about three checks, the jobs that no worker runs; graphile-worker itself waits for four hours. Either
 * their worker has crashed, or it is this one and has not received the answer to the statement that locked the job,
 * because the connection broke: graphile-worker then asks for another job.
 * @param own  the name of this worker, and the ids of the jobs that it runs
 * @returns a function that stops the checks
 */
export function unlockAbandonedJobs(
  pool: pg.Pool,
  logger: TaskContext['logger'],
  own: { name: string; running: ReadonlySet<string> },
  intervalMs: number,
): () => Promise<void> {
  /** How many checks in a row each lock was without a running worker. */
  let missed = new Map<string, number>();
  const check = async () => {
    const { rows } = await pool.query<Abandoned>(
      `select j.id, j.locked_by as worker, j.locked_at::text from core.jobs() j
       -- core.move_jobs_hold keeps the jobs of a school that moves, without a worker.
       where j.locked_by <> 'school move' and (j.locked_by = $2 or not exists (
         select from pg_locks l
         where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())
           and l.classid = $1 and l.objid = (hashtext(j.locked_by)::bigint & 4294967295)::oid
           and l.objsubid = 2 and l.granted))`,
      [ownLock, own.name],
    );
    const abandoned = rows.filter(({ id, worker }) => worker !== own.name || !own.running.has(id));
    const lockOf = ({ id, worker, locked_at }: Abandoned) =>
      worker === own.name ? `${worker} ${id} ${locked_at}` : worker;
    missed = new Map(abandoned.map((job) => [lockOf(job), (missed.get(lockOf(job)) ?? 0) + 1]));
    const due = abandoned.filter((job) => (missed.get(lockOf(job)) ?? 0) >= maxMissedChecks);
    for (const worker of new Set(due.map((job) => job.worker))) {
      const ids = due.filter((job) => job.worker === worker).map(({ id }) => id);
      await pool.query('select core.unlock_jobs($1, $2)', [worker, worker === own.name ? ids : null]);
      const message =
        worker === own.name
          ? 'Unlocked jobs that this worker has never received.'
          : 'Unlocked the jobs of a crashed worker.';
      logger.warn({ worker: message, jobs: ids.length });
    }
  };
  let checking = Promise.resolve();
  const timer = setInterval(() => {
    checking = checking.then(check).catch(() => missed.clear());
  }, intervalMs);
  return async () => {
    clearInterval(timer);
    await checking;
  };
}
