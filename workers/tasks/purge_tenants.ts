import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type pg from 'pg';
import { archiveName, exportTenant } from '../../src/database/archive.ts';
import { withAdvisoryLock } from '../advisory-lock.ts';
import { forEachSchool, throwFailures } from '../for-each-school.ts';
import type { TaskContext } from '../task-context.ts';

interface DueSchool {
  id: string;
  subdomain: string;
  is_exported: boolean;
}

/**
 * Purges one school: writes the export file, marks the school as purged (from then on it cannot be restored), drops its
 * tables. If the process is killed, the next run continues with the next step.
 * @returns false, without a change, if the school was restored meanwhile
 */
async function purge(
  client: pg.ClientBase,
  tenant: DueSchool,
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
  for (let hasMore = true; hasMore;) {
    const { rows } = await client.query<{ has_more: boolean }>('select core.purge_drop($1) as has_more', [tenant.id]);
    hasMore = rows[0]?.has_more ?? false;
  }
  return true;
}

/** Exports and drops the schools whose retention period is over. Skips a school while another worker has its lock. */
export async function purge_tenants(
  _payload: unknown,
  { pool, sessionPool, logger, retention }: TaskContext,
): Promise<void> {
  const { rows: due } = await pool.query<{ id: string }>('select id from core.purge_due($1) id', [retention.days]);
  const ids = due.map(({ id }) => id);
  const purgeLocked = (id: string) =>
    withAdvisoryLock(sessionPool, 'core.tenant_lock_key($1)', [id], async (client) => {
      // Another worker may have purged it before this one acquired the lock.
      const { rows } = await client.query<DueSchool>(
        'select id, subdomain, is_exported from core.purge_state($1, $2)',
        [id, retention.days],
      );
      if (rows[0] && (await purge(client, rows[0], retention))) logger.info({ task: 'purge_tenants', tenant: id });
    });
  throwFailures('The purge', await forEachSchool(ids, purgeLocked), ids.length);
}
