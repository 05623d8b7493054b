import { opendir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type pg from 'pg';
import { forEachSchool, throwFailures } from '../for-each-school.ts';
import type { TaskContext } from '../task-context.ts';

const dayMs = 24 * 60 * 60 * 1000;

/** Calls an SQL function that deletes a batch per transaction, until it returns that there is no more. */
async function deleteBatches(pool: pg.Pool, call: string, values: unknown[], stopping: AbortSignal): Promise<void> {
  for (let hasMore = true; hasMore && !stopping.aborted;) {
    const { rows } = await pool.query<{ has_more: boolean }>(`select ${call} as has_more`, values);
    hasMore = rows[0]?.has_more ?? false;
  }
}

/** Deletes the files of a folder that were last changed more than `days` days ago. Another worker may do the same. */
async function deleteOldFiles(folder: string, days: number): Promise<void> {
  const before = Date.now() - days * dayMs;
  const entries = await opendir(folder).catch(() => undefined);
  if (!entries) return;
  for await (const entry of entries) {
    if (!entry.isFile()) continue;
    const file = join(folder, entry.name);
    const found = await stat(file).catch(() => undefined);
    if (found && found.mtimeMs < before) await rm(file, { force: true });
  }
}

/** Deletes rows and files whose retention has ended. docs/schools.md lists them. */
export async function clean_up(
  _payload: unknown,
  { pool, retention, stopping }: Pick<TaskContext, 'pool' | 'retention' | 'stopping'>,
): Promise<void> {
  const { rows: keep } = retention;
  await deleteBatches(pool, 'core.clean_up($1)', [keep], stopping);
  await deleteOldFiles(retention.exports, retention.exportDays);
  await deleteOldFiles(retention.outbox, retention.outboxDays);
  const { rows } = await pool.query<{ id: string }>('select id from core.schools_to_clean_up() id');
  const ids = rows.map(({ id }) => id);
  const failures = await forEachSchool(
    ids,
    (id) => deleteBatches(pool, 'core.clean_up_school($1, $2)', [id, keep], stopping),
    stopping,
  );
  await deleteBatches(pool, 'core.clean_up_audit_log($1)', [keep], stopping);
  throwFailures('The clean-up', failures, ids.length);
}
