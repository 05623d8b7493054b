import { z } from 'zod';
import type { TaskContext } from '../task-context.ts';

const Payload = z.object({ tenant_ids: z.array(z.int()) });

/**
 * Reads the facts of some schools that have changed, each in a transaction of its own. One at which it fails does not keep the others from it; those
 * that a worker leaves when it is told to stop are due again at the next look.
 * @throws at the end, the first error, naming the school
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
    // A connection remembers the catalogue of each school that it was in, hundreds of kilobytes: it goes with the batch.
    client.release(true);
  }
  logger.info({ task: 'analytics_schools', schools: tenant_ids.length, read, failed: failures.length });
  const [first] = failures;
  if (!first) return;
  const [id, error] = first;
  throw new Error(
    `The facts of ${String(failures.length)} of ${String(tenant_ids.length)} schools could not be read, of school ${String(id)}: ${error instanceof Error ? error.message : String(error)}`,
  );
}
