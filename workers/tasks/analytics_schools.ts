import { z } from 'zod';
import { forEachSchool, throwFailures } from '../for-each-school.ts';
import type { TaskContext } from '../task-context.ts';

const Payload = z.object({ tenant_ids: z.array(z.int()) });

/**
 * Refreshes the analytics tables of some schools, each in a transaction of its own. A failure at one school does not
 * stop the others. When the worker stops, the job ends early; the next run of `analytics` queues the remaining schools
 * again.
 * @throws after the last school, if any failed
 */
export async function analytics_schools(payload: unknown, { pool, logger, stopping }: TaskContext): Promise<void> {
  const { tenant_ids } = Payload.parse(payload);
  let read = 0;
  const client = await pool.connect();
  const refresh = async (id: string) => {
    const { rows } = await client.query<{ parts: object | null }>('select core.analytics_refresh($1) as parts', [id]);
    if (rows[0]?.parts) read++;
  };
  // The connection is closed: it caches the catalog of each school that it has entered, hundreds of kilobytes per
  // school.
  const failures = await forEachSchool(tenant_ids.map(String), refresh, stopping).finally(() => client.release(true));
  logger.info({ task: 'analytics_schools', schools: tenant_ids.length, read, failed: failures.size });
  throwFailures('The refresh', failures, tenant_ids.length);
}
