import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { Answer } from '../support/client/client.ts';
import { race } from '../support/client/race.ts';
import { manyConnections, serviceWithSchool, type School } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Generated as GeneratedSchema } from '../../src/endpoints/timetable-generate.ts';

const { service } = await serviceWithSchool(manyConnections, 30, { leaseRenewMs: 300, timetableQueueWaitMs: 1500 });

interface Cell {
  class_id: number;
  subject_id: number;
  teacher_id: number;
  day_of_week: number;
  period: number;
}
type Generated = OutputOf<typeof GeneratedSchema>;

const path = '/api/timetable/generate';
const rows = <R extends Record<string, unknown>>(text: string, values?: unknown[]) =>
  service.database.query<R>(text, values);

/**
 * A school with completed setup. Every class has one subject per entry of `periods`; there are as many teachers as
 * classes.
 */
async function planned(classes: number, periods: number[]): Promise<School> {
  const school = await service.school();
  const { schema } = school;
  await school.database.query(`update platform.tenant set is_setup_complete = true where id = $1`, [school.id]);
  await school.classroom('Class 1');
  await rows(
    `insert into ${schema}.class (name, grade_id, academic_year_id) select 'Class ' || n, grade_id, academic_year_id from ${schema}.class, generate_series(2, $1) n`,
    [classes],
  );
  await rows(
    `insert into ${schema}.teacher (first_name, last_name) select 'Tia', 'Teacher ' || n from generate_series(1, $1) n`,
    [classes],
  );
  await rows(
    `insert into ${schema}.subject (name, code) select 'Subject ' || n, 'S' || n from generate_series(1, $1) n`,
    [periods.length],
  );
  await rows(
    `insert into ${schema}.class_subject (class_id, subject_id, teacher_id, periods_per_week)
     select c, s, 1 + (c + s::integer) % $1::integer, periods from generate_series(1, $1::integer) c, unnest($2::integer[]) with ordinality p (periods, s)`,
    [classes, periods],
  );
  return school;
}
const generate = async (school: School, body: object = {}) =>
  (await school.admin.post<Generated>(path, { time_limit_seconds: 1, ...body })).data;
/** The time limit does not end the search, however busy the machine is. */
const repeatable = { effort: 1, time_limit_seconds: 60 };
const refused = (school: School, body: object, status: number) =>
  school.admin.post<Generated>(path, { time_limit_seconds: 1, ...body }, status);
/** Generates for a minute, or until the client disconnects. */
const generateUntil = (signal: AbortSignal, school: School) =>
  fetch(`${service.url}${path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${school.admin.token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ effort: 60, time_limit_seconds: 60 }),
    signal,
  }).catch((error: unknown) => error);
const savedSlots = (school: School) =>
  rows<Cell & Record<string, unknown>>(
    `select class_id::integer, subject_id::integer, teacher_id::integer, day_of_week, period from ${school.schema}.timetable_slot order by class_id, day_of_week, period`,
  );
const leases = (school: School) => rows(`select from ${school.schema}.timetable_generation`);
const cells = (slots: readonly Cell[]) =>
  slots.map(({ class_id, subject_id, teacher_id, day_of_week, period }): Cell => ({
    class_id,
    subject_id,
    teacher_id,
    day_of_week,
    period,
  }));
const inOrder = (slots: readonly Cell[]) =>
  cells(slots).sort((a, b) => a.class_id - b.class_id || a.day_of_week - b.day_of_week || a.period - b.period);
/** The number of slots per class, subject and teacher. */
const counts = (slots: readonly Cell[]) =>
  Object.fromEntries(
    [...Map.groupBy(slots, (one) => `${one.class_id} ${one.subject_id} ${one.teacher_id}`)].map(([key, all]) => [
      key,
      all.length,
    ]),
  );

/**
 * A school whose timetable is never free of gaps, so that the generator uses all of its effort: the only lesson of one
 * class must be in the last period.
 */
async function hard(): Promise<School> {
  const school = await planned(24, [4, 4, 4, 4, 4, 4, 4, 4, 4]);
  const { schema } = school;
  await rows(`insert into ${schema}.teacher (first_name, last_name) values ('Mona', 'Monday')`);
  await rows(`insert into ${schema}.subject (name, code) values ('Mondays', 'MON')`);
  await rows(
    `insert into ${schema}.teacher_availability select 25, d, p, false from generate_series(2, 5) d, generate_series(1, 8) p`,
  );
  await rows(`insert into ${schema}.teacher (first_name, last_name) values ('Luna', 'Last')`);
  await rows(
    `insert into ${schema}.teacher_availability select 26, d, p, false from generate_series(1, 5) d, generate_series(1, 8) p where d * p <> 40`,
  );
  await rows(
    `insert into ${schema}.class (name, grade_id, academic_year_id) select 'Late', grade_id, academic_year_id from ${schema}.class where id = 1`,
  );
  await rows(
    `insert into ${schema}.class_subject (class_id, subject_id, teacher_id, periods_per_week) values (24, 10, 25, 3), (25, 10, 26, 1)`,
  );
  return school;
}
const hardPeriods = 24 * 36 + 3 + 1;

describe('the generator', () => {
  test('finds teachers who were assigned to a class before its subjects, and after them', async () => {
    const school = await planned(1, []);
    for (const n of [1, 2]) {
      const name = `Late ${n}`;
      const { data: subject } = await school.admin.post<{ id: number }>('/api/subjects', { name, code: `L${n}` }, 201);
      const assign = () => school.admin.post('/api/classes/1/teachers', { teacher_id: 1, subject: name });
      if (n === 1) await assign();
      const body = { class_id: 1, subject_id: subject.id, periods_per_week: 2 };
      await school.admin.post('/api/class-subjects', body, 201);
      if (n === 2) await assign();
    }
    const answer = await generate(school, { class_ids: [1] });
    expect(answer).toMatchObject({ status: 'complete', placed: 4, unplaced: [] });
    expect(counts(answer.slots)).toEqual({ '1 1 1': 2, '1 2 1': 2 });
  });

  test('places every period of every class subject within the school day, availability and limits, and saves the slots of its answer', async () => {
    const school = await planned(6, [5, 5, 4, 3, 3]);
    await school.admin.put('/api/timetable/config', {
      working_days: [1, 2, 4, 6],
      total_periods: 7,
      lunch_start_period: 4,
    });
    await school.admin.put(
      '/api/teachers/1/availability',
      [1, 2, 3].map((period) => ({ day_of_week: 6, period, is_available: false })),
    );
    await school.admin.put('/api/teachers/2/workload-rule', { max_periods_per_day: 5, max_periods_per_week: 20 });
    const answer = await generate(school);
    expect(answer).toMatchObject({
      status: 'complete',
      placed: 120,
      removed: 0,
      unplaced: [],
      over_capacity: [],
      seed: 1,
      effort: 1,
    });
    expect(await savedSlots(school)).toEqual(inOrder(answer.slots));
    const wanted = await rows<{ key: string; periods: number }>(
      `select concat_ws(' ', class_id, subject_id, teacher_id) as key, periods_per_week as periods from ${school.schema}.class_subject`,
    );
    expect(counts(answer.slots)).toEqual(Object.fromEntries(wanted.map(({ key, periods }) => [key, periods])));
    expect([...new Set(answer.slots.map((one) => one.day_of_week))].sort()).toEqual([1, 2, 4, 6]);
    expect(answer.slots.filter(({ period }) => period === 4 || period > 7)).toEqual([]);
    for (const owner of ['class_id', 'teacher_id'] as const) {
      expect(new Set(answer.slots.map((one) => `${one[owner]} ${one.day_of_week} ${one.period}`)).size).toBe(120);
    }
    expect(answer.slots.filter((one) => one.teacher_id === 1 && one.day_of_week === 6 && one.period < 4)).toEqual([]);
    const days = Map.groupBy(
      answer.slots.filter((one) => one.teacher_id === 2),
      (one) => one.day_of_week,
    );
    expect(Math.max(...[...days.values()].map((all) => all.length))).toBeLessThanOrEqual(5);
    expect(await leases(school)).toEqual([]);
  });

  test('produces the same timetable for the same seed, and another one for another seed', async () => {
    const school = await planned(4, [5, 4, 3]);
    const [first, again, other] = [
      await generate(school, { ...repeatable, seed: 7 }),
      await generate(school, { ...repeatable, seed: 7 }),
      await generate(school, { ...repeatable, seed: 8 }),
    ];
    expect(cells(again.slots)).toEqual(cells(first.slots));
    expect(cells(other.slots)).not.toEqual(cells(first.slots));
    expect([first.removed, again.removed]).toEqual([0, 48]);
    expect(other).toMatchObject({ seed: 8, placed: 48 });
  });

  test('changes only the given classes, and treats their teachers as busy in other classes; a dry run changes nothing', async () => {
    const school = await planned(3, [6, 6, 6]);
    const before = await generate(school);
    const tried = await generate(school, { ...repeatable, class_ids: [1], seed: 5, dry_run: true });
    expect(tried.slots).toHaveLength(18);
    expect(await savedSlots(school)).toEqual(inOrder(before.slots));
    const { slots } = await generate(school, { ...repeatable, class_ids: [1], seed: 5 });
    expect(cells(slots)).toEqual(cells(tried.slots));
    expect(tried).toMatchObject({
      removed: 18,
      slots: expect.not.arrayContaining([expect.objectContaining({ id: expect.any(Number) })]),
    });
    for (const slot of slots.slice(0, 3))
      expect((await school.admin.get(`/api/timetable/slots/${slot.id ?? 0}`)).data).toMatchObject({ ...slot });
    expect(new Set(slots.map(({ class_id }) => class_id))).toEqual(new Set([1]));
    expect(await savedSlots(school)).toEqual(
      inOrder([...slots, ...before.slots.filter(({ class_id }) => class_id !== 1)]),
    );
    expect(await leases(school)).toEqual([]);
  });

  test('counts lessons in other classes of the year toward the limits of a teacher, but not those of another year', async () => {
    const school = await planned(2, [5]);
    const { schema } = school;
    await rows(`update ${schema}.class_subject set teacher_id = 1`);
    await school.admin.put('/api/teachers/1/workload-rule', { max_periods_per_day: 2, max_periods_per_week: 10 });
    await rows(
      `with past as (insert into ${schema}.academic_year (name, start_date, end_date) values ('Past', '1990-01-01', '1990-12-31') returning id),
         old as (insert into ${schema}.class (name, grade_id, academic_year_id) select 'Old', 1, id from past returning id, academic_year_id)
       insert into ${schema}.timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period)
       select id, academic_year_id, 1, 1, 1 + n % 5, 1 + n / 5 from old, generate_series(0, 9) n`,
    );
    // The other class uses the limit of 2 lessons on Monday and Tuesday, and one lesson on Wednesday and Thursday.
    await rows(
      `insert into ${schema}.timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period)
       select 2, academic_year_id, 1, 1, d, p from ${schema}.class, (values (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1)) at (d, p) where id = 2`,
    );
    await rows(`update ${schema}.class_subject set periods_per_week = 4 where class_id = 1`);
    const { status, slots } = await generate(school, { class_ids: [1] });
    expect({ status, days: slots.map((one) => one.day_of_week).sort() }).toEqual({
      status: 'complete',
      days: [3, 4, 5, 5],
    });
    await rows(`update ${schema}.class_subject set periods_per_week = 5 where class_id = 1`);
    expect((await refused(school, { class_ids: [1] }, 409)).details.map((detail) => detail.path)).toContain(
      'teacher.1',
    );
  });

  test('keeps a lunch of two periods free', async () => {
    const school = await planned(2, [4, 4, 4]);
    await school.admin.put('/api/timetable/config', {
      total_periods: 5,
      lunch_start_period: 2,
      lunch_periods: 2,
      working_days: [1, 2, 3, 4],
    });
    const { slots } = await generate(school);
    expect(new Set(slots.map(({ period }) => period))).toEqual(new Set([1, 4, 5]));
  });

  test('reports subjects without an active teacher with status partial, and replaces slots created by hand', async () => {
    const school = await planned(2, [3, 3, 3]);
    await rows(
      `insert into ${school.schema}.timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period) select id, academic_year_id, 1, 1, 1 from ${school.schema}.class`,
    );
    await rows(`update ${school.schema}.class_subject set teacher_id = null where class_id = 1 and subject_id = 1`);
    await rows(`update ${school.schema}.teacher set is_active = false where id = 1`);
    const answer = await generate(school);
    const inactive = await rows<{ count: number }>(
      `select count(*)::integer as count from ${school.schema}.class_subject where teacher_id = 1`,
    );
    expect(answer).toMatchObject({ status: 'partial', placed: 18 - 3 * (1 + (inactive[0]?.count ?? 0)) });
    expect(answer.unplaced.filter(({ reason }) => reason === 'no_teacher')).toMatchObject([
      {
        class_name: 'Class 1',
        subject_name: 'Subject 1',
        teacher_id: null,
        teacher_name: null,
        missing: 3,
        message: 'Subject 1 in Class 1 has no teacher.',
      },
    ]);
    expect(answer.unplaced.filter(({ reason }) => reason === 'teacher_inactive')).toHaveLength(inactive[0]?.count ?? 0);
    expect(answer.unplaced.find(({ reason }) => reason === 'teacher_inactive')).toMatchObject({
      teacher_id: 1,
      teacher_name: 'Tia Teacher 1',
    });
    expect(await savedSlots(school)).toEqual(inOrder(answer.slots));
  });

  test('answers 409 with the classes and teachers over capacity, and leaves the timetable unchanged', async () => {
    const school = await planned(4, [8, 8, 8]);
    const before = await generate(school);
    await school.admin.put('/api/teachers/2/workload-rule', { max_periods_per_week: 10 });
    await rows(`update ${school.schema}.class_subject set periods_per_week = 40 where class_id = 3 and subject_id = 1`);
    const answer = await refused(school, { time_limit_seconds: 30 }, 409);
    expect(answer.error).toBe('schedule_conflict');
    const paths = answer.details.map((detail) => detail.path);
    expect(paths).toEqual(expect.arrayContaining(['class.3', 'teacher.2']));
    expect(new Set(paths).size).toBe(paths.length);
    const text = JSON.stringify([answer.message, answer.details]);
    expect(text).toContain('Class 3');
    expect(text).toContain('Tia Teacher 2');
    expect(text).not.toMatch(/\{(class|teacher|day)/);
    expect(await savedSlots(school)).toEqual(inOrder(before.slots));
    expect(await leases(school)).toEqual([]);
  });

  test('places as much as possible with allow_partial, and reports what is over capacity', async () => {
    const school = await planned(4, [8, 8, 8]);
    await school.admin.put('/api/teachers/2/workload-rule', { max_periods_per_week: 10 });
    const refusal = await refused(school, {}, 409);
    expect(refusal).toMatchObject({ error: 'schedule_conflict', details: [{ path: 'teacher.2' }] });
    const answer = await generate(school, { allow_partial: true });
    const asked = await rows<{ periods: number }>(
      `select sum(periods_per_week)::integer as periods from ${school.schema}.class_subject where teacher_id = 2`,
    );
    const missing = (asked[0]?.periods ?? 0) - 10;
    expect(answer).toMatchObject({ status: 'partial', placed: 96 - missing, over_capacity: refusal.details });
    expect(new Set(answer.unplaced.map(({ teacher_id, reason }) => `${teacher_id ?? ''} ${reason}`))).toEqual(
      new Set(['2 teacher_week_limit']),
    );
    expect(answer.unplaced.reduce((sum, one) => sum + one.missing, 0)).toBe(missing);
    expect(await savedSlots(school)).toEqual(inOrder(answer.slots));
  });

  test('keeps pinned slots, counts them as lessons, and schedules around them', async () => {
    const school = await planned(2, [5, 5]);
    const before = await generate(school);
    const [pin] = before.slots;
    await school.admin.put(`/api/timetable/slots/${pin?.id ?? 0}`, { is_pinned: true });
    const own = { class_id: 1, subject_id: 1, day_of_week: 5, period: 8, room: 'Hall', is_pinned: true };
    await school.admin.post('/api/timetable/slots', own, 201);
    const again = await generate(school, { seed: 9 });
    expect(again).toMatchObject({ status: 'complete', placed: 18, removed: 19 });
    const saved = await savedSlots(school);
    expect(saved).toEqual(expect.arrayContaining(cells(pin ? [pin] : [])));
    expect(saved).toContainEqual({ class_id: 1, subject_id: 1, teacher_id: null, day_of_week: 5, period: 8 });
    expect(saved.filter((one) => one.class_id === 1 && one.subject_id === 1)).toHaveLength(5);
    expect((await generate(school, { seed: 10 })).removed).toBe(18);
    // There is nothing to do if all slots are pinned.
    await rows(`update ${school.schema}.timetable_slot set is_pinned = true`);
    expect(await generate(school)).toMatchObject({ status: 'complete', placed: 0, removed: 0, slots: [] });
  });

  test('keeps slots that a person added, moved, swapped or changed, and replaces the others', async () => {
    const school = await planned(1, [3, 3, 3]);
    const slots = '/api/timetable/slots';
    const [first, second, third, fourth, fifth, sixth] = (await generate(school, { class_ids: [1] })).slots;
    const pinned = async () =>
      (await school.admin.get<(Cell & { id: number; is_pinned: boolean })[]>(`${slots}?class_id=1&pageSize=100`)).data
        .filter(({ is_pinned }) => is_pinned)
        .map(({ id }) => id)
        .toSorted((a, b) => a - b);
    const idOf = (slot: { id: number | null } | undefined) => slot?.id ?? 0;
    expect(await pinned()).toEqual([]);
    const added = { class_id: 1, subject_id: 1, day_of_week: 5, period: 8 };
    const { data } = await school.admin.post<{ id: number; is_pinned: boolean }>(slots, added, 201);
    expect(data.is_pinned).toBe(true);
    const spare = { ...added, period: 7, is_pinned: false };
    expect((await school.admin.post<{ is_pinned: boolean }>(slots, spare, 201)).data.is_pinned).toBe(false);
    const at = (slot: Cell | undefined) => ({ day_of_week: slot?.day_of_week, period: slot?.period });
    // Both sides of a swap, unless the request says otherwise.
    const swap = { ...at(second), swap: true };
    const moved = await school.admin.send<{ swapped_with: { is_pinned: boolean } }>(
      'PATCH',
      `${slots}/${idOf(first)}/move`,
      { body: swap },
      200,
    );
    expect(moved.data).toMatchObject({ is_pinned: true, swapped_with: { id: second?.id, is_pinned: true } });
    await school.admin.send('PATCH', `${slots}/${idOf(third)}/move`, { body: { day_of_week: 4, period: 8, is_pinned: false } }, 200); // prettier-ignore
    // A move to the same place changes nothing.
    await school.admin.send('PATCH', `${slots}/${idOf(fourth)}/move`, { body: at(fourth) }, 200);
    await school.admin.put(`${slots}/${idOf(fourth)}`, at(fourth));
    await school.admin.put(`${slots}/${idOf(fifth)}`, { day_of_week: 3, period: 8 });
    await school.admin.put(`${slots}/${idOf(sixth)}`, { teacher_id: null });
    const kept = [first, second, fifth, sixth].map(idOf).concat(data.id);
    expect(await pinned()).toEqual(kept.toSorted((a, b) => a - b));
    const before = await rows(`select * from ${school.schema}.timetable_slot where is_pinned order by id`);
    expect(await generate(school, { class_ids: [1], seed: 5, dry_run: true })).toMatchObject({ removed: 6 });
    expect(await generate(school, { class_ids: [1], seed: 5 })).toMatchObject({ removed: 6, pinned_conflicts: [] });
    expect(await rows(`select * from ${school.schema}.timetable_slot where is_pinned order by id`)).toEqual(before);
    const all = await generate(school, { class_ids: [1], seed: 5, replace_pinned: true });
    expect(all).toMatchObject({ status: 'complete', placed: 9, pinned_conflicts: [] });
    expect(await pinned()).toEqual([]);
    expect(await savedSlots(school)).toEqual(inOrder(all.slots));
  });

  test('names pinned slots that no longer fit the school day, the teacher or the subjects, and keeps them', async () => {
    const school = await planned(1, [2, 1]);
    const { schema } = school;
    const add = async (fields: object) =>
      (await school.admin.post<{ id: number }>('/api/timetable/slots', { class_id: 1, subject_id: 1, ...fields }, 201))
        .data.id;
    const [other] = await rows<{ id: number }>(
      `insert into ${schema}.subject (name, code) values ('Chess', 'CHE') returning id::integer`,
    );
    const [tess] = await rows<{ id: number }>(
      `insert into ${schema}.teacher (first_name, last_name) values ('Tess', 'Left') returning id::integer`,
    );
    const fits = await add({ teacher_id: 1, day_of_week: 1, period: 1 });
    const away = await add({ teacher_id: 1, day_of_week: 2, period: 2 });
    const third = await add({ day_of_week: 3, period: 1 });
    const chess = await add({ subject_id: other?.id, day_of_week: 3, period: 2 });
    const left = await add({ subject_id: 2, teacher_id: tess?.id, day_of_week: 4, period: 1 });
    // A row of an earlier release: today this is a 409.
    await rows(`insert into ${schema}.teacher_availability values (1, 2, 2, false)`);
    await rows(`update ${schema}.teacher set is_active = false where id = $1`, [tess?.id]);
    const conflicts = (answer: Generated) =>
      answer.pinned_conflicts.map(({ slot_id, kind, message }) => [slot_id, kind, message]);
    const name = 'Class 1 has';
    const expected = [
      [away, 'availability', `${name} Subject 1 on Tuesday, period 2: Tia Teacher 1 is not available on Tuesday, period 2.`], // prettier-ignore
      [third, 'subject', `${name} Subject 1 on Wednesday, period 1: The subject has 2 periods a week, and more pinned slots.`], // prettier-ignore
      [chess, 'subject', `${name} Chess on Wednesday, period 2: It is not a subject of the class.`],
      [left, 'teacher_inactive', `${name} Subject 2 on Thursday, period 1: Tess Left is not active.`],
    ];
    expect(conflicts(await generate(school, { dry_run: true }))).toEqual(expected);
    // Rows of an earlier release, or of a year that was past when the school day changed.
    await rows(`update ${schema}.timetable_config set working_days = '{2,3,4}', lunch_start_period = 1`);
    const answer = await generate(school);
    expect(answer).toMatchObject({ removed: 0 });
    expect(conflicts(answer)).toEqual([
      [fits, 'lunch', `${name} Subject 1 on Monday, period 1: Period 1 is lunch.`],
      [fits, 'outside_day', `${name} Subject 1 on Monday, period 1: There is no school on Monday.`],
      expected[0],
      [third, 'lunch', `${name} Subject 1 on Wednesday, period 1: Period 1 is lunch.`],
      expected[1],
      expected[2],
      [left, 'lunch', `${name} Subject 2 on Thursday, period 1: Period 1 is lunch.`],
      expected[3],
    ]);
    expect(await rows(`select from ${schema}.timetable_slot where is_pinned`)).toHaveLength(5);
    expect((await generate(school, { replace_pinned: true })).pinned_conflicts).toEqual([]);
  });

  test('treats the teacher of a pinned slot as busy', async () => {
    const school = await planned(2, [1]);
    await rows(`update ${school.schema}.class_subject set teacher_id = 1`);
    await school.admin.put('/api/timetable/config', { working_days: [1], total_periods: 2 });
    await school.admin.post(
      '/api/timetable/slots',
      { class_id: 1, subject_id: 1, teacher_id: 1, day_of_week: 1, period: 1, is_pinned: true },
      201,
    );
    expect(cells((await generate(school)).slots)).toEqual([
      { class_id: 2, subject_id: 1, teacher_id: 1, day_of_week: 1, period: 2 },
    ]);
  });

  test('names days over capacity by their weekday, whichever days are working days', async () => {
    const school = await planned(2, [6, 6]);
    await school.admin.put('/api/timetable/config', { working_days: [2, 6], total_periods: 6 });
    // Both classes have lessons in every period, but one of their teachers is unavailable in one on Saturday.
    await school.admin.put('/api/teachers/1/availability', [{ day_of_week: 6, period: 3, is_available: false }]);
    const answer = await refused(school, {}, 409);
    const said = answer.details.map(({ message }) => message).join(' ');
    expect(said).toMatch(/Saturday|Tia Teacher 1/);
    expect(said).not.toMatch(/day \d|\{/);
  });
});

describe('a refused request to generate', () => {
  const why = (answer: Answer<unknown>) => [answer.error, answer.details.map((detail) => detail.path)];

  test('has nothing to place, unknown references or invalid options, and takes no lease', async () => {
    const school = await service.school();
    expect((await refused(school, {}, 409)).error).toBe('setup_incomplete');
    await school.database.query(`update platform.tenant set is_setup_complete = true where id = $1`, [school.id]);
    expect((await refused(school, {}, 409)).message).toContain('has no classes');
    const { classId, yearId } = await school.classroom('Empty');
    expect((await refused(school, {}, 409)).message).toContain('have no subjects');
    await rows(`insert into ${school.schema}.subject (name, code) values ('Maths', 'M')`);
    await rows(
      `insert into ${school.schema}.class_subject (class_id, subject_id, periods_per_week) values ($1, 1, 3)`,
      [classId],
    );
    expect((await refused(school, {}, 409)).message).toContain('has an active teacher');
    expect(why(await refused(school, { class_ids: [classId, 999_999] }, 422))).toEqual([
      'invalid_reference',
      ['class_ids.1'],
    ]);
    expect(why(await refused(school, { academic_year_id: 999_999 }, 422))).toEqual([
      'invalid_reference',
      ['academic_year_id'],
    ]);
    const [year] = await rows<{ id: number }>(
      `insert into ${school.schema}.academic_year (name, start_date, end_date) values ('Other', '1990-01-01', '1990-12-31') returning id::integer`,
    );
    expect(why(await refused(school, { academic_year_id: year?.id, class_ids: [classId] }, 422))).toEqual([
      'invalid_reference',
      ['class_ids.0'],
    ]);
    expect(yearId).not.toBe(year?.id);
    for (const [body, field] of [
      [{ time_limit_seconds: 0 }, 'time_limit_seconds'],
      [{ time_limit_seconds: 61 }, 'time_limit_seconds'],
      [{ effort: 0 }, 'effort'],
      [{ effort: 61 }, 'effort'],
      [{ class_ids: [] }, 'class_ids'],
      [{ seed: -1 }, 'seed'],
      [{ color: 'red' }, 'color'],
    ] as [object, string][])
      expect(why(await refused(school, body, 400))).toEqual(['validation_error', [field]]);
    expect(await leases(school)).toEqual([]);
  });

  test('lacks the permission for the whole school, or an active subscription', async () => {
    const school = await hard();
    const teacher = await school.user(['teacher']);
    expect((await teacher.post(path, { time_limit_seconds: 30 }, 403)).error).toBe('forbidden');
    await rows(
      `insert into ${school.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${school.schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'timetable.manage'`,
    );
    const manager = await service.anonymous.login({
      tenant_id: school.id,
      email: teacher.email,
      password: 'test-password',
    });
    expect((await manager.post(path, { time_limit_seconds: 30 }, 403)).message).toContain('whole school');
    await school.database.query(`update platform.subscription set status = 'past_due' where tenant_id = $1`, [
      school.id,
    ]);
    expect((await refused(school, { time_limit_seconds: 30 }, 402)).error).toBe('subscription_inactive');
    expect(await savedSlots(school)).toEqual([]);
  });
});

describe('on a busy machine', () => {
  const busy: Worker[] = [];
  afterEach(async () => {
    await Promise.all(busy.splice(0).map((thread) => thread.terminate()));
  });

  test('the same seed and effort give the same timetable as on an idle one', async () => {
    const school = await hard();
    const asked = { time_limit_seconds: undefined, effort: 1, dry_run: true };
    const idle = await generate(school, asked);
    for (let n = 0; n < availableParallelism(); n++) busy.push(new Worker('for (;;);', { eval: true }));
    const loaded = await generate(school, asked);
    expect([idle, loaded]).toMatchObject([{ is_cut_short: false }, { is_cut_short: false, effort: 1 }]);
    expect(loaded.slots).toEqual(idle.slots);
  });

  test('the time limit ends the search, and the answer has is_cut_short', async () => {
    const school = await hard();
    for (let n = 0; n < availableParallelism(); n++) busy.push(new Worker('for (;;);', { eval: true }));
    expect(await generate(school, { time_limit_seconds: 1, effort: 60, dry_run: true })).toMatchObject({
      is_cut_short: true,
      effort: 60,
    });
  });
});

describe('while the generator runs', () => {
  test('the API answers other requests', async () => {
    const school = await hard();
    const running = generate(school, { time_limit_seconds: 1 });
    await until(async () => (await leases(school)).length === 1 || undefined);
    const state = { isOver: false, answered: 0 };
    void running.finally(() => (state.isOver = true));
    while (!state.isOver) {
      await school.admin.get('/api/timetable/config');
      state.answered++;
      await new Promise((done) => setTimeout(done, 20));
    }
    const answer = await running;
    expect(answer.placed).toBe(hardPeriods);
    expect(await savedSlots(school)).toHaveLength(hardPeriods);
    // A search on the event loop would block all other requests until it ends.
    expect(state.answered).toBeGreaterThan(2);
  });

  test('a second request of the school waits, and both succeed', async () => {
    const school = await hard();
    const answers = await Promise.all([
      generate(school, { effort: 1, time_limit_seconds: 30 }),
      generate(school, { effort: 1, time_limit_seconds: 30, seed: 2 }),
    ]);
    // The second one read the school after the first one had saved.
    expect(answers.map(({ removed }) => removed).sort((a, b) => a - b)).toEqual([0, hardPeriods]);
    const saved = await savedSlots(school);
    expect([inOrder(answers[0].slots), inOrder(answers[1].slots)]).toContainEqual(saved);
    expect(await leases(school)).toEqual([]);
  });

  test('two more requests of the school wait, and further ones get a 409 at once', async () => {
    const school = await hard();
    const gone = new AbortController();
    const first = generateUntil(gone.signal, school);
    await until(async () => (await leases(school)).length === 1 || undefined);
    const answers: string[] = [];
    const others = Array.from({ length: 20 }, async () => {
      const { status, error } = await school.admin.send('POST', path, {
        body: { effort: 1, time_limit_seconds: 10, class_ids: [1] },
      });
      answers.push(status === 200 ? 'saved' : `${status} ${error}`);
    });
    // The first one searches for a minute, unless its client disconnects.
    await until(() => answers.length >= 18 || undefined);
    expect(answers).toEqual(Array(18).fill('409 conflict'));
    gone.abort();
    expect(await first).toMatchObject({ name: 'AbortError' });
    await Promise.all(others);
    expect(answers.slice(18)).toEqual(['saved', 'saved']);
    expect(await leases(school)).toEqual([]);
  });

  test('logging out prevents the save and releases the lease', async () => {
    const school = await hard();
    const other = await service.anonymous.login({
      subdomain: school.subdomain,
      email: school.adminEmail,
      password: 'test-password',
    });
    const running = other.post(path, { time_limit_seconds: 1 }, 401);
    await until(async () => (await leases(school)).length === 1 || undefined);
    await other.post('/api/auth/logout');
    expect((await running).error).toBe('invalid_token');
    expect(await leases(school)).toEqual([]);
    expect(await savedSlots(school)).toEqual([]);
  });

  test('its lease is renewed, and losing the lease ends it with a 409', async () => {
    const school = await hard();
    const expiry = async () =>
      (await rows<{ at: Date }>(`select expires_at as at from ${school.schema}.timetable_generation`))[0]?.at.getTime();
    const running = refused(school, { effort: 60, time_limit_seconds: 30 }, 409);
    const before = await until(expiry);
    expect(before - Date.now()).toBeLessThan(21_000);
    await until(async () => ((await expiry()) ?? 0) > before || undefined);
    await rows(`update ${school.schema}.timetable_generation set run = 'another'`);
    expect(await running).toMatchObject({
      error: 'conflict',
      message: expect.stringContaining('started in the meantime'),
    });
    expect(await leases(school)).toHaveLength(1);
  });

  test('another request gets a 409 with its start time after waiting; an abandoned lease expires', async () => {
    const school = await planned(2, [2]);
    await rows(
      `insert into ${school.schema}.timetable_generation (run, started_at, expires_at) values ('elsewhere', '2030-01-02T03:04:05Z', now() + interval '1 hour')`,
    );
    const busy = await refused(school, {}, 409);
    expect(busy).toMatchObject({ error: 'conflict', message: expect.stringContaining('2030-01-02T03:04:05') });
    await rows(`update ${school.schema}.timetable_generation set expires_at = now() - interval '1 second'`);
    expect((await generate(school)).placed).toBe(4);
    expect(await leases(school)).toEqual([]);
  });

  test.each([
    ['a class subject', (at: School) => at.admin.put('/api/class-subjects/1', { periods_per_week: 3 })],
    [
      'the availability of a teacher',
      (at: School) =>
        at.admin.put('/api/teachers/1/availability', [{ day_of_week: 1, period: 1, is_available: false }]),
    ],
    ['the school day', (at: School) => at.admin.put('/api/timetable/config', { total_periods: 9 })],
    [
      'a slot',
      (at: School) =>
        at.admin.post('/api/timetable/slots', { class_id: 1, subject_id: 1, day_of_week: 1, period: 1 }, 201),
    ],
    [
      'the time of a slot',
      (at: School) =>
        at.admin.send('PATCH', '/api/timetable/slots/1/move', { body: { day_of_week: 5, period: 2 } }, 200),
    ],
  ])('a change of %s makes the save fail with a 409, and the timetable is unchanged', async (_case, change) => {
    const school = await hard();
    await school.admin.post('/api/timetable/slots', { class_id: 1, subject_id: 1, day_of_week: 5, period: 1 }, 201);
    const running = refused(school, { time_limit_seconds: 1 }, 409);
    await until(async () => (await leases(school)).length === 1 || undefined);
    // If the search ends before the change, the save waits for the lease.
    await shared.withOwner(await school.database.addressFor(), async (owner) => {
      await owner.query(`begin; select from ${school.schema}.timetable_generation for update`);
      await change(school);
      await owner.query('commit');
    });
    const before = await savedSlots(school);
    expect(await running).toMatchObject({
      error: 'conflict',
      message: expect.stringContaining('changed in the meantime'),
    });
    expect(await savedSlots(school)).toEqual(before);
    expect(await leases(school)).toEqual([]);
  });

  test('the save waits for a concurrent change of a teacher, and fails with a 409', async () => {
    const school = await planned(2, [2]);
    // Like an update of the availability that is not committed yet when the slots are saved.
    const change = `select from ${school.schema}.teacher where id = 1 for no key update;
      insert into ${school.schema}.teacher_availability (teacher_id, day_of_week, period, is_available) select 1, d, p, false from generate_series(1, 5) d, generate_series(1, 7) p`;
    const [answer] = await race(service.database, change, 1, () => [refused(school, {}, 409)]);
    expect(answer).toMatchObject({ error: 'conflict', message: expect.stringContaining('changed in the meantime') });
    expect(await savedSlots(school)).toEqual([]);
    const { slots } = await generate(school);
    expect(slots.filter(({ teacher_id, period }) => teacher_id === 1 && period < 8)).toEqual([]);
  });

  test('a disconnected client ends the search, releases the lease at once, and leaves the timetable unchanged', async () => {
    const school = await hard();
    const gone = new AbortController();
    const running = generateUntil(gone.signal, school);
    await until(async () => (await leases(school)).length === 1 || undefined);
    gone.abort();
    expect(await running).toMatchObject({ name: 'AbortError' });
    await until(async () => (await leases(school)).length === 0 || undefined);
    expect(await savedSlots(school)).toEqual([]);
    expect((await generate(school, { class_ids: [1] })).placed).toBe(36);
  });
});
