import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type pg from 'pg';
import { archiveName, exportTenant } from '../../src/database/archive.ts';
import type { TaskContext } from '../task-context.ts';

interface Due {
  id: string;
  subdomain: string;
  is_exported: boolean;
}

const dueSql = 'select id, subdomain, is_exported from core.purge_due($1)';

/**
 * Purges one school: the file first, then the mark from which there is no restoring, then the tables. Each step may be the
 * last of a killed process; the next run goes on from there. Does nothing when the school was restored meanwhile.
 */
async function purge(
  client: pg.ClientBase,
  tenant: Due,
  { exports, days }: TaskContext['retention'],
): Promise<boolean> {
  if (!tenant.is_exported) {
    const name = archiveName(tenant);
    const file = join(exports, name);
    const lines = await exportTenant(
      client,
      { text: 'select name, at_a_time from core.purge_open($1, $2)', values: [tenant.id, days] },
      file,
    );
    if (lines === undefined) return false;
    const { rows } = await client.query<{ marked: boolean }>('select core.purge_mark($1, $2, $3) as marked', [
      tenant.id,
      days,
      name,
    ]);
    if (!rows[0]?.marked) {
      await rm(file);
      return false;
    }
  }
  for (let more = true; more;) {
    const { rows } = await client.query<{ more: boolean }>('select core.purge_drop($1) as more', [tenant.id]);
    more = rows[0]?.more ?? false;
  }
  return true;
}

/** Exports and drops the schools that were deleted long enough ago. One that another worker is at is left to it. */
export async function purge_tenants(_payload: unknown, { pool, logger, retention }: TaskContext): Promise<void> {
  const { rows: due } = await pool.query<Due>(dueSql, [retention.days]);
  const failures: unknown[] = [];
  for (const { id } of due) {
    const client = await pool.connect();
    let failure: unknown;
    try {
      const { rows: lock } = await client.query<{ taken: boolean }>(
        'select pg_try_advisory_lock(core.tenant_lock_key($1)) as taken',
        [id],
      );
      if (!lock[0]?.taken) continue;
      // Another worker may have finished it before this one got the lock.
      const { rows } = await client.query<Due>(`${dueSql} where id = $2`, [retention.days, id]);
      if (rows[0] && (await purge(client, rows[0], retention))) logger.info({ task: 'purge_tenants', tenant: id });
      await client.query('select pg_advisory_unlock(core.tenant_lock_key($1))', [id]);
    } catch (error) {
      failure = error;
      failures.push(
        new Error(`school ${id}: ${error instanceof Error ? error.message : String(error)}`, { cause: error }),
      );
    } finally {
      // A connection that failed is closed, and its lock with it.
      client.release(failure !== undefined);
    }
  }
  if (failures.length > 0) throw new AggregateError(failures, failures.map(String).join('; '));
}
