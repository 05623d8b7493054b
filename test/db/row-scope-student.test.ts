import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import {
  withRole,
  type BareTenant,
  dropConstraintsAndTriggers,
  minimalInsert,
  provision,
  type TenantTable,
  tenantTables,
} from '../support/database/tenants.ts';

let database: TestDatabase;
let school: BareTenant;
let tables: TenantTable[];
let ofStudents: TenantTable[];

/** Student 1 and user 1 are the same person, as are student 2 and user 2. */
const mine = { 'app.scope': 'own', 'app.student_id': '1', 'app.user_id': '1' };

beforeAll(async () => {
  database = await testDatabase(3);
  school = await provision(database);
  tables = await tenantTables(database, school.schema);
  ofStudents = tables.filter((table) => table.columns.includes('student_id'));
  await dropConstraintsAndTriggers(database, school.schema);
  for (const table of tables) await database.query(`truncate ${school.schema}.${table.name} restart identity cascade`);
  for (const number of ['1', '2']) {
    for (const table of tables) {
      const given = table.columns.includes('student_id')
        ? { student_id: number }
        : table.name === 'student' || table.columns.includes('user_id')
          ? { user_id: number }
          : ['user_account', 'teacher'].includes(table.name)
            ? {}
            : undefined;
      if (given) await database.query(minimalInsert(school.schema, table, given));
    }
  }
});
afterAll(() => database.drop());

const reads = (settings: Record<string, string>) =>
  withRole(database.url, 'school_tenant', { 'app.tenant_id': String(school.id), ...settings }, async ({ rows }) => {
    const found: Record<string, number[]> = {};
    const numbers = async (table: string, column: string) =>
      (await rows<{ n: string }>(`select distinct "${column}" as n from ${school.schema}.${table} order by 1`)).map(
        (row) => Number(row.n),
      );
    found['student'] = await numbers('student', 'id');
    found['user_account'] = await numbers('user_account', 'id');
    found['teacher'] = await numbers('teacher', 'id');
    for (const { name } of ofStudents) found[name] = await numbers(name, 'student_id');
    return found;
  });

/** The expected ids in `student`, `user_account`, every table with a student_id, and `teacher`. */
const shows = (students: number[], users: number[], teachers: number[], ofGuardians = students) => ({
  student: students,
  user_account: users,
  teacher: teachers,
  ...Object.fromEntries(ofStudents.map(({ name }) => [name, students])),
  student_guardian: ofGuardians,
});

describe('row policies', () => {
  test('a user with more than the student role sees the whole school', async () => {
    expect(ofStudents.map((table) => table.name)).toContain('enrollment');
    expect(await reads({ 'app.scope': 'all' })).toEqual(shows([1, 2], [1, 2], [1, 2]));
  });

  test('a student sees their own rows in every table with a student_id but that of guardians, their own user, and the teachers', async () => {
    expect(await reads(mine)).toEqual(shows([1], [1], [1, 2], []));
    expect(await reads({ ...mine, 'app.student_id': '2', 'app.user_id': '2' })).toEqual(shows([2], [2], [1, 2], []));
  });

  test('a guardian sees the rows of their children in every table with a student_id', async () => {
    const guardian = { 'app.scope': 'children', 'app.child_ids': ',2,', 'app.user_id': '3', 'app.student_id': '1' };
    expect(await reads(guardian)).toEqual(shows([2], [], [1, 2]));
    // A user who is a student and a guardian.
    expect(await reads({ ...mine, 'app.child_ids': ',2,' })).toEqual(shows([1, 2], [1], [1, 2], [2]));
    expect(await reads({ ...guardian, 'app.child_ids': ',,' })).toEqual(shows([], [], [1, 2]));
  });

  test('a user with the student role but without a student record sees no student', async () => {
    expect(await reads({ ...mine, 'app.student_id': '0' })).toEqual(shows([], [1], [1, 2]));
  });

  test.each<[string, Record<string, string>]>([
    ['no setting is set', {}],
    [
      'every setting is empty, as after another transaction',
      { 'app.scope': '', 'app.student_id': '', 'app.user_id': '' },
    ],
    ['the scope is unknown', { 'app.scope': 'ALL', 'app.student_id': '', 'app.user_id': '' }],
  ])('no rows are visible when %s', async (_case, settings) => {
    expect(await reads(settings)).toEqual(shows([], [], []));
  });

  test('only teachers are visible when only the scope is set', async () => {
    expect(await reads({ 'app.scope': 'own' })).toEqual(shows([], [], [1, 2]));
  });

  test('a student cannot insert, update or delete rows of another student', async () => {
    await withRole(
      database.url,
      'school_tenant',
      { 'app.tenant_id': String(school.id), ...mine },
      async ({ attempt }) => {
        const refused: Record<string, unknown> = {};
        for (const table of ofStudents) {
          const name = `${school.schema}.${table.name}`;
          refused[table.name] = {
            insert: await attempt(minimalInsert(school.schema, table, { student_id: '2' })),
            delete: table.verbs.includes('delete') ? await attempt(`delete from ${name} where student_id = 2`) : 0,
            update:
              table.changeable === null
                ? 0
                : await attempt(
                    `update ${name} set "${table.changeable}" = "${table.changeable}" where student_id = 2`,
                  ),
          };
        }
        expect(refused).toEqual(
          Object.fromEntries(ofStudents.map(({ name }) => [name, { insert: '42501', delete: 0, update: 0 }])),
        );
        expect(await attempt(`update ${school.schema}.student set phone = '0' where id = 2`)).toBe(0);
        expect(await attempt(`update ${school.schema}.student set phone = '0'`)).toBe(1);
        expect(await attempt(`update ${school.schema}.user_account set phone = '0'`)).toBe(1);
      },
    );
  });
});
