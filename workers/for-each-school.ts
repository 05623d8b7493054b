import type pg from 'pg';

/**
 * Calls the SQL function `work` with each id that the SQL expression `schools` returns. A failure at one school does
 * not stop the others.
 * @throws after the last school, the first error, with the id of its school
 */
export async function forEachSchool(pool: pg.Pool, schools: string, work: string): Promise<void> {
  const { rows } = await pool.query<{ id: string }>(`select id from ${schools} id`);
  const failures: [string, unknown][] = [];
  for (const { id } of rows)
    await pool.query(`select ${work}($1)`, [id]).catch((error: unknown) => failures.push([id, error]));
  const [first] = failures;
  if (!first) return;
  const [id, error] = first;
  const message = error instanceof Error ? error.message : String(error);
  throw new Error(
    `${work} failed for ${String(failures.length)} of ${String(rows.length)} schools. School ${id}: ${message}`,
  );
}
