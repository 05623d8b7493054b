import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { withRole, type BareTenant, provision } from '../support/database/tenants.ts';

let database: TestDatabase;
let school: BareTenant;

const classes = 60;

beforeAll(async () => {
  database = await testDatabase(3);
  school = await provision(database);
  // 60 classes with 40 periods, the teachers of which have limits and periods in which they are away: class c has
  // teacher (c + period of the week) % 60, so that no teacher has two lessons at once.
  await database.query(
    `set search_path to ${school.schema}, public;
     insert into academic_year (name, start_date, end_date, is_current) values ('Now', '2030-01-01', '2030-12-31', true);
     insert into grade (name) values ('One');
     insert into subject (name, code) values ('Maths', 'MAT');
     insert into class (name, grade_id, academic_year_id) select 'Class ' || n, 1, 1 from generate_series(1, ${classes + 1}) n;
     insert into teacher (first_name, last_name, max_periods_per_day, max_periods_per_week) select 'Tia', 'Teacher ' || n, 8, 40 from generate_series(1, ${classes}) n;
     insert into teacher_availability (teacher_id, day_of_week, period, is_available) select t, d, p, d > 5 from generate_series(1, ${classes}) t, generate_series(6, 7) d, generate_series(1, 8) p;
     reset search_path`,
  );
});
afterAll(() => database.drop());

const all = `insert into timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period)
  select c, 1, 1, 1 + (c + d * 8 + p) % ${classes}, d, p from generate_series(1, ${classes}) c, generate_series(1, 5) d, generate_series(1, 8) p`;

describe('2,400 timetable slots', () => {
  test('are checked for conflicts by class and teacher, on a new connection and on one with plans for single slots', async () => {
    const settings = {
      'app.tenant_id': String(school.id),
      'app.scope': 'all',
      search_path: `${school.schema}, public`,
    };
    const reads = await withRole(database.url, 'school_tenant', settings, async ({ rows, attempt }) => {
      /** The number of slot rows that a statement reads, including its triggers. */
      const read = async (text: string) => {
        const count = async () =>
          (
            await rows<{ count: number }>(
              `select (seq_tup_read + idx_tup_fetch)::integer as count from pg_stat_xact_user_tables where relid = 'timetable_slot'::regclass`,
            )
          )[0]?.count ?? 0;
        const before = await count();
        await rows(text);
        return (await count()) - before;
      };
      const fresh = await read(all);
      const moved = await read('update timetable_slot set day_of_week = 6 - day_of_week');
      await rows('delete from timetable_slot');
      for (let n = 1; n <= 8; n++) {
        await rows(
          `insert into timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period) values (${classes + 1}, 1, 1, 1, 1, ${n})`,
        );
        await rows(`update timetable_slot set day_of_week = 2`);
      }
      await rows('delete from timetable_slot');
      const planned = await read(all);
      const movedAgain = await read('update timetable_slot set day_of_week = 6 - day_of_week');
      expect(await attempt('update timetable_slot set day_of_week = 6 where day_of_week = 1')).toBe('S409D');
      return { fresh, moved, planned, movedAgain };
    });
    // Each class and teacher has 40 slots. Comparing all pairs would read millions of rows.
    expect(Math.max(...Object.values(reads))).toBeLessThan(2400 * 200);
  });
});
