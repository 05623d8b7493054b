import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { register } from '../support/database/tenants.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.drop());

test('the migration gives people who are inactive the day of their last change as left_on, and ends their seats', async () => {
  const { id, schema } = await register(database);
  const [migration] = await database.query<{ version: number }>(
    "select version from platform.tenant_migration where name like '%leaving'",
  );
  await database.query('select core.tenant_migrate($1, $2)', [id, Number(migration?.version) - 1]);
  await database.query(`
    set session_replication_role = replica;
    set search_path = ${schema}, public;
    insert into academic_year (id, name, start_date, end_date, is_current) values (1, '2026', '2026-01-01', '2026-12-31', true);
    insert into grade (id, name) values (1, 'One');
    insert into class (id, name, grade_id, academic_year_id) values (1, 'One A', 1, 1);
    insert into student (id, first_name, last_name, admission_number, class_id, grade_id, is_active, updated_at) values
      (1, 'Stays', 'S', '1', 1, 1, true, '2026-05-10T23:30Z'),
      (2, 'Left', 'S', '2', 1, 1, false, '2026-05-10T23:30Z'),
      (3, 'Left early', 'S', '3', 1, 1, false, '2026-01-05T00:30Z');
    insert into enrollment (student_id, class_id, academic_year_id, starts_on)
      values (1, 1, 1, '2026-02-01'), (2, 1, 1, '2026-02-01'), (3, 1, 1, '2026-02-01');
    insert into teacher (id, first_name, last_name, is_active, updated_at) values (1, 'Tea', 'Cher', false, '2026-04-01T12:00Z');
    insert into driver (id, name, license_number, is_active, updated_at) values (1, 'Dri', 'L', false, '2026-03-01T12:00Z');
    insert into route (id, name) values (1, 'North');
    insert into stop (id, route_id, name, sequence) values (1, 1, 'Elm', 1);
    insert into transport_enrollment (student_id, route_id, stop_id, enrollment_type, created_at)
      values (1, 1, 1, 'both', '2026-02-01'), (2, 1, 1, 'both', '2026-02-01');
    reset session_replication_role;
    reset search_path;`);

  await database.query('select core.tenant_migrate($1)', [id]);

  const day = '2026-05-10';
  expect(
    await database.query(
      `select s.id::integer, s.is_active, s.left_on::text, s.updated_at::date::text as updated, e.status, e.ends_on::text,
         t.status as seat, t.cancel_reason
       from ${schema}.student s
       join ${schema}.enrollment e on e.student_id = s.id
       left join ${schema}.transport_enrollment t on t.student_id = s.id
       order by s.id`,
    ),
  ).toEqual([
    {
      id: 1,
      is_active: true,
      left_on: null,
      updated: day,
      status: 'active',
      ends_on: null,
      seat: 'active',
      cancel_reason: null,
    },
    {
      id: 2,
      is_active: false,
      left_on: day,
      updated: day,
      status: 'withdrawn',
      ends_on: day,
      seat: 'cancelled',
      cancel_reason: 'The student left.',
    },
    {
      id: 3,
      is_active: false,
      left_on: '2026-01-05',
      updated: '2026-01-05',
      status: 'withdrawn',
      ends_on: '2026-02-01',
      seat: null,
      cancel_reason: null,
    },
  ]);
  expect(
    await database.query(
      `select left_on::text from ${schema}.teacher union all select left_on::text from ${schema}.driver`,
    ),
  ).toEqual([{ left_on: '2026-04-01' }, { left_on: '2026-03-01' }]);
  const broken = await database.query<{ invariant: string }>('select invariant from core.find_violations($1)', [id]);
  expect(broken.map(({ invariant }) => invariant)).not.toContain('enrollment');
});
