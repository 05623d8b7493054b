import { z } from 'zod';
import type { TaskContext } from '../task-context.ts';

const Payload = z.object({ tenant_id: z.int(), day: z.iso.date() });

/** As many rows as a cashier may wait for. */
const atATime = 500;

/** The advisory locks of the schools whose daily work is being done. */
const lock = 7316;

interface Step {
  next: string | null;
  overdue: number;
  reminded: number;
}

/**
 * Does the work of a school's day, step by step. Whatever was done stays when the process is killed, and the rest is done when
 * the job is queued again. One that another worker is at is left to it: its lock goes with its connection.
 */
export async function daily_school(payload: unknown, { pool, logger }: TaskContext): Promise<void> {
  const { tenant_id, day } = Payload.parse(payload);
  const client = await pool.connect();
  let isFit = false;
  try {
    const { rows } = await client.query<{ taken: boolean }>('select pg_try_advisory_lock($1, $2) as taken', [
      lock,
      tenant_id,
    ]);
    if (rows[0]?.taken) {
      const sum = { overdue: 0, reminded: 0 };
      for (let after: string | null = '0'; after !== null;) {
        const step: Step | undefined = (
          await client.query<Step>('select * from core.daily_step($1, $2, $3, $4)', [tenant_id, day, after, atATime])
        ).rows[0];
        sum.overdue += step?.overdue ?? 0;
        sum.reminded += step?.reminded ?? 0;
        after = step?.next ?? null;
      }
      await client.query('select pg_advisory_unlock($1, $2)', [lock, tenant_id]);
      logger.info({ task: 'daily_school', tenant: tenant_id, day, ...sum });
    }
    isFit = true;
  } finally {
    // A connection that failed is closed, and its lock with it.
    client.release(!isFit);
  }
}
