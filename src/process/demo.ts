import type pg from 'pg';
import type { Passwords } from '../domain/passwords.ts';
import { generateInThread } from '../timetable/generate-in-thread.ts';
import { type GenerationRun, slotsOf } from '../timetable/school.ts';
import { sqlFile } from '../database/install.ts';
import { createOperator } from '../database/operator.ts';

/** The logins of the demo school. */
export const demo = {
  subdomain: 'demo',
  password: 'demo-password',
  admin: 'admin@demo.example',
  teacher: 'teacher@demo.example',
  student: 'student@demo.example',
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
    return true;
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}

/** Generates a timetable for the school of this transaction, through the API's functions. Takes about half a second. */
async function generateTimetable(client: pg.Client): Promise<void> {
  const call = async <Answer>(operation: string, params: object) =>
    (await client.query<{ answer: Answer }>(`select api.${operation}($1) as answer`, [JSON.stringify(params)])).rows[0]
      ?.answer;
  await client.query("select set_config('app.wide_permissions', '{timetable.manage}', true)");
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
