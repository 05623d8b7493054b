import type pg from 'pg';
import type { Passwords } from '../domain/passwords.ts';
import { generateInThread } from '../timetable/generate-in-thread.ts';
import { type GenerationRun, slotsOf } from '../timetable/school.ts';
import { sqlFile } from '../database/migrate/install.ts';
import { createOperator } from '../database/operator.ts';

/** The logins of the demo school. */
export const demo = {
  subdomain: 'demo',
  password: 'demo-password',
  admin: 'admin@demo.example',
  teacher: 'teacher@demo.example',
  student: 'student@demo.example',
  guardian: 'guardian@demo.example',
  operator: 'operator@demo.example',
} as const;

/** Loads the demo school and its operator unless the database has a school. @returns whether it was loaded */
export async function loadDemo(client: pg.Client, passwords: Passwords): Promise<boolean> {
  const { rows } = await client.query<{ empty: boolean }>('select not exists (select from platform.tenant) as empty');
  if (!rows[0]?.empty) return false;
  const passwordHash = await passwords.hash(demo.password);
  await createOperator(client, {
    email: demo.operator,
    passwordHash,
    firstName: 'Olu',
    lastName: 'Operator',
    role: 'admin',
    tenantIds: null,
  });
  await client.query('begin');
  try {
    await client.query("select set_config('demo.password_hash', $1, true)", [passwordHash]);
    await client.query((await sqlFile('db/demo/demo.sql')).text);
    await generateTimetable(client);
    await client.query('commit');
    await client.query('select core.analytics_refresh(id) from platform.tenant');
    // The first requests would come before the autovacuum.
    await client.query('analyze');
    return true;
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}

/** A login of the demo school, or of its operator. */
export type DemoLogin = 'admin' | 'teacher' | 'student' | 'guardian' | 'operator';

/**
 * The demo logins that work: their accounts exist and still have the password of the demo. A school named demo may have
 * been imported, without the operator or with other users.
 */
export async function findDemoLogins(client: pg.Client, passwords: Passwords): Promise<DemoLogin[]> {
  const { rows } = await client.query<{ email: string; password_hash: string }>(
    'select email, password_hash from core.login_hashes($1, $2)',
    [demo.subdomain, [demo.admin, demo.teacher, demo.student, demo.guardian, demo.operator]],
  );
  const hashes = [...new Set(rows.map((row) => row.password_hash))];
  const isRight = new Map(
    await Promise.all(hashes.map(async (hash) => [hash, await passwords.verify(hash, demo.password)] as const)),
  );
  const working = new Set(rows.filter((row) => isRight.get(row.password_hash)).map((row) => row.email));
  return (['admin', 'teacher', 'student', 'guardian', 'operator'] as const).filter((login) => working.has(demo[login]));
}

/** Generates a timetable for the school of this transaction, through the API's functions. Takes about half a second. */
async function generateTimetable(client: pg.Client): Promise<void> {
  const call = async <Answer>(operation: string, params: object) =>
    (await client.query<{ answer: Answer }>(`select api.${operation}($1) as answer`, [JSON.stringify(params)])).rows[0]
      ?.answer;
  await client.query("select set_config('app.whole_school_permissions', '{timetable.manage}', true)");
  const generation = await call<GenerationRun>('timetable_generate', {});
  if (!generation) return;
  const timetable = await generateInThread(generation.problem, { effort: 1 });
  if (timetable.status === 'infeasible') throw new Error('No timetable is possible for the demo school.');
  const { run, digest, academic_year_id, class_ids } = generation;
  await call('timetable_generate_save', {
    run,
    digest,
    academic_year_id,
    class_ids,
    slots: slotsOf(generation, timetable.placed),
  });
}
