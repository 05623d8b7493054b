import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { rolePool } from '../../src/database/pool/pool.ts';
import { type LoginRole, roleSettings, switchToRole } from '../../src/domain/role-settings.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.drop());

test.each(Object.keys(roleSettings) as LoginRole[])(
  'a process that switches to %s has the settings of a process that logs in as it',
  async (role) => {
    const expected = await database.query<{ name: string; value: string }>(
      `select split_part(setting, '=', 1) as name, split_part(setting, '=', 2) as value
       from pg_db_role_setting, unnest(setconfig) setting where setrole = $1::regrole and setdatabase = 0`,
      [role],
    );
    expect(expected.map(({ name }) => name)).toEqual(expect.arrayContaining(Object.keys(roleSettings[role])));
    const client = new shared.pg.Client({ connectionString: database.url, options: switchToRole(role) });
    await client.connect();
    try {
      for (const { name, value } of expected) {
        const { rows } = await client.query<{ value: string }>('select current_setting($1) as value', [name]);
        expect({ name, value: rows[0]?.value }).toEqual({ name, value });
      }
      expect((await client.query<{ role: string }>('select current_user as role')).rows[0]?.role).toBe(role);
    } finally {
      await client.end();
    }
  },
);

test('a process switches to its role even if DATABASE_URL has options of its own', async () => {
  const options = `options=${encodeURIComponent('-c school.probe=yes')}`;
  const url = `${database.url}${database.url.includes('?') ? '&' : '?'}${options}`;
  const pool = rolePool('school_worker', url, undefined, 1);
  try {
    const { rows } = await pool.query<{ role: string; probe: string }>(
      "select current_user as role, current_setting('school.probe') as probe",
    );
    expect(rows).toEqual([{ role: 'school_worker', probe: 'yes' }]);
  } finally {
    await pool.end();
  }
});
