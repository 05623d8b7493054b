import type pg from 'pg';
import type { Passwords } from '../api/passwords.ts';
import { sqlFile } from './install.ts';
import { createOperator } from './operator.ts';

/** Who can log in to the demo. */
export const demo = {
  subdomain: 'demo',
  password: 'demo-password',
  admin: 'admin@demo.example',
  teacher: 'teacher@demo.example',
  student: 'student@demo.example',
  operator: 'operator@demo.example',
} as const;

/** Loads the demo school and its operator into a database without schools. @returns whether it did */
export async function loadDemo(client: pg.Client, passwords: Passwords): Promise<boolean> {
  const { rows } = await client.query<{ empty: boolean }>('select not exists (select from platform.tenant) as empty');
  if (!rows[0]?.empty) return false;
  const passwordHash = await passwords.hash(demo.password);
  await createOperator(client, { email: demo.operator, passwordHash, firstName: 'Olu', lastName: 'Operator', role: 'admin', tenantIds: null });
  await client.query('begin');
  try {
    await client.query("select set_config('demo.password_hash', $1, true)", [passwordHash]);
    await client.query((await sqlFile('db/demo/demo.sql')).text);
    await client.query('commit');
    return true;
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}
