import type pg from 'pg';
import { z } from 'zod';
import { withAdvisoryLock } from '../advisory-lock.ts';
import type { TaskContext } from '../task-context.ts';

const Payload = z.object({ tenant_id: z.int(), day: z.iso.date() });

/** Rows per transaction. A step locks them for so short a time that a cashier does not notice. */
const batchSize = 500;

interface Step {
  next: string | null;
  overdue: number;
  reminded: number;
}

/**
 * Does the daily run of a school step by step. Each step is a transaction: if the process is killed, the steps done so
 * far stay, and the job does the rest when it is queued again. Does nothing while another worker has the school's lock,
 * which Postgres releases when that worker's connection ends.
 */
export async function daily_school(payload: unknown, { sessionPool, logger }: TaskContext): Promise<void> {
  const { tenant_id, day } = Payload.parse(payload);
  await withAdvisoryLock(sessionPool, "core.lock_key('daily run', $1)", [tenant_id], async (client) => {
    const sum = { overdue: 0, reminded: 0 };
    for (let after: string | null = '0'; after !== null;) {
      const answer: pg.QueryResult<Step> = await client.query('select * from core.daily_step($1, $2, $3, $4)', [
        tenant_id,
        day,
        after,
        batchSize,
      ]);
      const step: Step | undefined = answer.rows[0];
      sum.overdue += step?.overdue ?? 0;
      sum.reminded += step?.reminded ?? 0;
      after = step?.next ?? null;
    }
    logger.info({ task: 'daily_school', tenant: tenant_id, day, ...sum });
  });
}
