import type pg from 'pg';

/**
 * Runs `work` with each school that a query names, as its parameter. One at which it fails does not keep the others from it.
 * @throws at the end, the first error, naming the school
 */
export async function eachSchool(pool: pg.Pool, schools: string, work: string): Promise<void> {
  const { rows } = await pool.query<{ id: string }>(`select id from ${schools} id`);
  const failures: [string, unknown][] = [];
  for (const { id } of rows)
    await pool.query(`select ${work}($1)`, [id]).catch((error: unknown) => failures.push([id, error]));
  const [first] = failures;
  if (!first) return;
  const [id, error] = first;
  throw new Error(
    `It failed at ${String(failures.length)} of ${String(rows.length)} schools, at ${id}: ${error instanceof Error ? error.message : String(error)}`,
  );
}
