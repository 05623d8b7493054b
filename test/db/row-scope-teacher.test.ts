import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { withRole, type BareTenant, provision } from '../support/database/tenants.ts';

let database: TestDatabase;
let school: BareTenant;

beforeAll(async () => {
  database = await testDatabase(3);
  school = await provision(database);
  // Students 1 and 2 are in class 1 (student 2 was in class 2 before), student 3 is in class 2.
  await database.query(
    `set search_path to ${school.schema}, public;
     insert into academic_year (name, start_date, end_date) values ('2030', '2030-01-01', '2030-12-31');
     insert into grade (name) values ('One');
     insert into class (name, grade_id, academic_year_id) values ('First', 1, 1), ('Second', 1, 1);
     insert into student (first_name, last_name, admission_number, class_id) values ('Sam', 'One', '1', 1), ('Sam', 'Two', '2', 2), ('Sam', 'Three', '3', 2);
     update student set class_id = 1 where id = 2;
     insert into attendance (student_id, class_id, date, status) values (1, 1, '2030-02-01', 'present'), (2, 2, '2030-02-01', 'late'), (2, 1, '2030-02-02', 'absent'), (3, 2, '2030-02-01', 'present');
     update attendance set status = 'absent' where status = 'present';
     reset search_path`,
  );
});
afterAll(() => database.drop());

/** The visible classes, students and enrollments (student in class). */
const shows = (settings: Record<string, string>) =>
  withRole(database.url, 'school_tenant', { 'app.tenant_id': String(school.id), ...settings }, async ({ rows }) => {
    const [found] = await rows(
      `select array(select id::integer from ${school.schema}.class order by id) as classes, array(select id::integer from ${school.schema}.student order by id) as students,
         array(select student_id || ' in ' || class_id from ${school.schema}.enrollment order by 1) as enrollments,
         array(select student_id || ' in ' || class_id from ${school.schema}.attendance order by 1) as marks,
         array(select student_id || ' in ' || class_id from ${school.schema}.attendance_correction order by 1) as corrections,
         array(select class_id::integer from ${school.schema}.attendance_total order by 1) as totals,
         array(select date || ' ' || class_id from ${school.schema}.attendance_day order by 1) as days`,
    );
    return found;
  });

describe('row policies', () => {
  test('a teacher sees their classes with current students and enrollments, but no other classes', async () => {
    expect(await shows({ 'app.scope': 'taught', 'app.class_ids': ',1,' })).toEqual({
      classes: [1],
      students: [1, 2],
      enrollments: ['1 in 1', '2 in 1'],
      marks: ['1 in 1', '2 in 1'],
      corrections: ['1 in 1'],
      totals: [1],
      days: ['2030-02-01 1', '2030-02-02 1'],
    });
    expect(await shows({ 'app.scope': 'taught', 'app.class_ids': ',1,2,' })).toEqual({
      classes: [1, 2],
      students: [1, 2, 3],
      enrollments: ['1 in 1', '2 in 1', '2 in 2', '3 in 2'],
      marks: ['1 in 1', '2 in 1', '2 in 2', '3 in 2'],
      corrections: ['1 in 1', '3 in 2'],
      totals: [1, 2],
      days: ['2030-02-01 1', '2030-02-01 2', '2030-02-02 1'],
    });
  });

  test('a student sees their present and past classes, themselves and their enrollments, but no other students', async () => {
    expect(await shows({ 'app.scope': 'own', 'app.student_id': '2', 'app.class_ids': ',1,2,' })).toEqual({
      classes: [1, 2],
      students: [2],
      enrollments: ['2 in 1', '2 in 2'],
      marks: ['2 in 1', '2 in 2'],
      corrections: [],
      totals: [],
      days: [],
    });
  });

  test('a teacher who is also a student sees the names of the classes that they attend, but no classmates', async () => {
    const settings = { 'app.class_ids': ',1,', 'app.attended_class_ids': ',2,', 'app.student_id': '3' };
    expect(await shows({ 'app.scope': 'taught', ...settings })).toEqual({
      classes: [1, 2],
      students: [1, 2, 3],
      enrollments: ['1 in 1', '2 in 1', '3 in 2'],
      marks: ['1 in 1', '2 in 1', '3 in 2'],
      corrections: ['1 in 1', '3 in 2'],
      totals: [1],
      days: ['2030-02-01 1', '2030-02-02 1'],
    });
  });

  test.each<[string, Record<string, string>]>([
    ['a teacher of no class', { 'app.scope': 'taught', 'app.class_ids': ',,' }],
    ['a teacher whose classes were never set', { 'app.scope': 'taught' }],
  ])('%s sees no rows', async (_user, settings) => {
    expect(await shows(settings)).toEqual({
      classes: [],
      students: [],
      enrollments: [],
      marks: [],
      corrections: [],
      totals: [],
      days: [],
    });
  });

  test('timetable: a teacher reads all and writes only own classes; a student reads own classes and writes nothing', async () => {
    await database.query(
      `insert into ${school.schema}.subject (name, code) values ('Maths', 'M');
       insert into ${school.schema}.timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period) values (1, 1, 1, 1, 1), (2, 1, 1, 1, 1)`,
    );
    const slots = (settings: Record<string, string>) =>
      withRole(
        database.url,
        'school_tenant',
        { 'app.tenant_id': String(school.id), ...settings },
        async ({ rows, attempt }) => {
          const table = `${school.schema}.timetable_slot`;
          const add = (classId: number) =>
            attempt(
              `insert into ${table} (class_id, academic_year_id, subject_id, day_of_week, period) values (${classId}, 1, 1, 2, 2)`,
            );
          return {
            seen: (await rows<{ id: number }>(`select class_id::integer as id from ${table} order by 1`)).map(
              ({ id }) => id,
            ),
            added: [await add(1), await add(2)],
            moved: await attempt(`update ${table} set period = 3`),
            // Into a class of another teacher.
            given: await attempt(`update ${table} set class_id = 2, period = 4 where class_id = 1`),
            removed: await attempt(`delete from ${table}`),
          };
        },
      );
    const refused = '42501';
    expect(await slots({ 'app.scope': 'all' })).toEqual({
      seen: [1, 2],
      added: [1, 1],
      moved: 2,
      given: 1,
      removed: 2,
    });
    expect(await slots({ 'app.scope': 'taught', 'app.class_ids': ',1,' })).toEqual({
      seen: [1, 2],
      added: [1, refused],
      moved: 1,
      given: refused,
      removed: 1,
    });
    expect(await slots({ 'app.scope': 'own', 'app.class_ids': ',1,' })).toEqual({
      seen: [1],
      added: [refused, refused],
      moved: 0,
      given: 0,
      removed: 0,
    });
  });

  test('subjects, teachers and the class itself: only a user who teaches the class changes them', async () => {
    const changes = (settings: Record<string, string>, classId: number) =>
      withRole(
        database.url,
        'school_tenant',
        { 'app.tenant_id': String(school.id), ...settings },
        async ({ attempt }) => {
          const { schema } = school;
          return {
            added: [
              await attempt(
                `insert into ${schema}.class_subject (class_id, subject_id, periods_per_week) select ${classId}, min(id), 1 from ${schema}.subject`,
              ),
              await attempt(
                `insert into ${schema}.teaching_assignment (class_id, teacher_id, subject) select ${classId}, min(id), 'New' from ${schema}.teacher`,
              ),
            ],
            changed: [
              await attempt(`update ${schema}.class_subject set periods_per_week = 2 where class_id = ${classId}`),
              await attempt(`update ${schema}.teaching_assignment set subject = 'Other' where class_id = ${classId}`),
              await attempt(`update ${schema}.class set room = 'R' where id = ${classId}`),
            ],
            removed: [
              await attempt(`delete from ${schema}.class_subject where class_id = ${classId}`),
              await attempt(`delete from ${schema}.teaching_assignment where class_id = ${classId}`),
              await attempt(`delete from ${schema}.class where id = ${classId}`),
            ],
          };
        },
      );
    const { schema } = school;
    await database.query(
      `insert into ${schema}.subject (name, code) values ('Art', 'A'), ('Music', 'MU');
       insert into ${schema}.teacher (first_name, last_name) values ('Tess', 'Teacher');
       insert into ${schema}.class (id, name, grade_id, academic_year_id) values (101, 'Taught', 1, 1), (102, 'Attended', 1, 1);
       insert into ${schema}.class_subject (class_id, subject_id, periods_per_week) select c, max(s.id), 1 from ${schema}.subject s, unnest('{101,102}'::bigint[]) c group by c;
       insert into ${schema}.teaching_assignment (class_id, teacher_id, subject) select c, min(t.id), 'Old' from ${schema}.teacher t, unnest('{101,102}'::bigint[]) c group by c`,
    );
    const all = { added: [1, 1], changed: [1, 1, 1], removed: [1, 1, 1] };
    const none = { added: ['42501', '42501'], changed: [0, 0, 0], removed: [0, 0, 0] };
    const both = { 'app.scope': 'taught', 'app.class_ids': ',101,', 'app.attended_class_ids': ',102,' };
    expect(await changes({ 'app.scope': 'all' }, 102)).toEqual(all);
    expect(await changes(both, 101)).toEqual(all);
    expect(await changes(both, 102)).toEqual(none);
    expect(
      await changes({ 'app.scope': 'own', 'app.class_ids': ',102,', 'app.attended_class_ids': ',102,' }, 102),
    ).toEqual(none);
  });

  test('a move to another class is checked against the whole school, and the scope is restored afterwards', async () => {
    const settings = { 'app.tenant_id': String(school.id), 'app.scope': 'taught', 'app.class_ids': ',1,2,' };
    const after = await withRole(database.url, 'school_tenant', settings, async ({ rows }) => {
      await rows(`update ${school.schema}.student set class_id = 2 where id = 1`);
      return rows(
        `select class_id::integer, current_setting('app.scope') as scope from ${school.schema}.student where id = 1`,
      );
    });
    expect(after).toEqual([{ class_id: 2, scope: 'taught' }]);
  });

  test('plan limits count the whole school, and the scope is restored afterwards', async () => {
    await database.query('insert into platform.tenant_usage (tenant_id) values ($1) on conflict do nothing', [
      school.id,
    ]);
    const settings = { 'app.tenant_id': String(school.id), 'app.scope': 'taught', 'app.class_ids': ',1,' };
    const after = await withRole(database.url, 'school_tenant', settings, async ({ rows }) => {
      await rows('select core.enforce_plan_limits()');
      return rows(
        `select current_setting('app.scope') as scope, current_setting('app.tenant_id') as tenant, students from core.tenant_usage()`,
      );
    });
    expect(after).toEqual([{ scope: 'taught', tenant: String(school.id), students: 3 }]);
  });
});
