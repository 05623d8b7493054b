import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { register } from '../support/database/tenants.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.drop());

test('a school that was marked before attendance knew who and when gets both, and the totals of its days, and nothing else changes', async () => {
  const school = await register(database);
  await database.query('select core.tenant_migrate($1, 5)', [school.id]);
  await database.query(
    `set search_path to ${school.schema}, public;
     insert into user_account (email, first_name, last_name) values ('a@school.example', 'Ada', 'Admin');
     insert into academic_year (name, start_date, end_date) values ('2026', '2026-01-01', '2026-12-31');
     insert into grade (name) values ('One');
     insert into class (name, grade_id, academic_year_id) values ('A', 1, 1);
     insert into student (first_name, last_name, admission_number, class_id) values ('Sam', 'One', '1', 1), ('Sam', 'Two', '2', 1);
     insert into attendance (student_id, class_id, date, status, marked_by) values (1, 1, '2026-02-02', 'late', 1), (2, 1, '2026-02-02', 'present', null), (1, 1, '2026-02-03', 'absent', 1);
     reset search_path`,
  );
  const marks = () =>
    database.query(
      `select id, student_id, class_id, date, status, marked_by, created_at, updated_at from ${school.schema}.attendance order by id`,
    );
  const [before, totals] = [
    await marks(),
    await database.query(`select marks, attended from ${school.schema}.attendance_total`),
  ];
  await database.query('select core.tenant_migrate($1)', [school.id]);
  expect(await marks()).toEqual(before);
  expect(await database.query(`select marks, attended from ${school.schema}.attendance_total`)).toEqual(totals);
  expect(
    await database.query(
      `select marked_by_name, marked_at = updated_at as then from ${school.schema}.attendance order by id`,
    ),
  ).toEqual([
    { marked_by_name: 'Ada Admin', then: true },
    { marked_by_name: null, then: true },
    { marked_by_name: 'Ada Admin', then: true },
  ]);
  expect(
    await database.query(
      `select to_char(date, 'MM-DD') as day, class_id::integer, present, absent, late from ${school.schema}.attendance_day order by date`,
    ),
  ).toEqual([
    { day: '02-02', class_id: 1, present: 1, absent: 0, late: 1 },
    { day: '02-03', class_id: 1, present: 0, absent: 1, late: 0 },
  ]);
  expect(await database.query(`select from ${school.schema}.attendance_correction`)).toEqual([]);
});
