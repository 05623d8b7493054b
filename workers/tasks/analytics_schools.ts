import { z } from 'zod';
import type { TaskContext } from '../task-context.ts';

const Payload = z.object({ tenant_ids: z.array(z.int()) });

/**
 * Refreshes the analytics tables of some schools, each in a transaction of its own. A failure at one school does not
 * stop the others. When the worker stops, the job ends early; the next run of `analytics` queues the remaining schools
 * again.
 * @throws after the last school, the first error, with the id of its school
 */
export async function analytics_schools(payload: unknown, { pool, logger, stopping }: TaskContext): Promise<void> {
  const { tenant_ids } = Payload.parse(payload);
  const failures: [number, unknown][] = [];
  let read = 0;
  const client = await pool.connect();
  try {
    for (const id of tenant_ids) {
      if (stopping.aborted) break;
      try {
        const { rows } = await client.query<{ parts: object | null }>('select core.analytics_refresh($1) as parts', [
          id,
        ]);
        if (rows[0]?.parts) read++;
      } catch (error) {
        failures.push([id, error]);
      }
    }
  } finally {
    // The connection is closed: it caches the catalog of each school that it has entered, hundreds of kilobytes per
    // school.
    client.release(true);
  }
  logger.info({ task: 'analytics_schools', schools: tenant_ids.length, read, failed: failures.length });
  const [first] = failures;
  if (!first) return;
  const [id, error] = first;
  const message = error instanceof Error ? error.message : String(error);
  const share = `${String(failures.length)} of ${String(tenant_ids.length)}`;
  throw new Error(`The refresh failed for ${share} schools. School ${String(id)}: ${message}`);
}
