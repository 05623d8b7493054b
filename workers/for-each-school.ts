import type pg from 'pg';

/** The errors of some schools, by id. */
type Failures = Map<string, unknown>;

/**
 * Runs `work` for one school after another. A failure at one school does not stop the others.
 * @param stopping  ends the loop before the next school
 * @returns the errors, for `throwFailures`
 */
export async function forEachSchool(
  ids: readonly string[],
  work: (id: string) => Promise<void>,
  stopping?: AbortSignal,
): Promise<Failures> {
  const failures: Failures = new Map();
  for (const id of ids) {
    if (stopping?.aborted) break;
    await work(id).catch((error: unknown) => failures.set(id, error));
  }
  return failures;
}

/** @throws if there are failures: an error that counts them and has the message of the first */
export function throwFailures(what: string, failures: Failures, schoolCount: number): void {
  const [first] = failures;
  if (!first) return;
  const [id, cause] = first;
  const message = Error.isError(cause) ? cause.message : String(cause);
  const share = `${String(failures.size)} of ${String(schoolCount)}`;
  throw new Error(`${what} failed for ${share} schools. School ${id}: ${message}`, { cause });
}

/**
 * Calls the SQL function `work` with each id that the SQL expression `schools` returns.
 * @throws after the last school, if any failed
 */
export async function callForEachSchool(pool: pg.Pool, schools: string, work: string): Promise<void> {
  const { rows } = await pool.query<{ id: string }>(`select id from ${schools} id`);
  const ids = rows.map(({ id }) => id);
  const failures = await forEachSchool(ids, async (id) => {
    await pool.query(`select ${work}($1)`, [id]);
  });
  throwFailures(work, failures, ids.length);
}
