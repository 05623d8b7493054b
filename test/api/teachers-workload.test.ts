import { beforeAll, describe, expect, test } from '@jest/globals';
import { steadyDay } from '../support/fixtures/days.ts';
import { type Teacher, type Cell, type Workload, teacherHelpers } from '../support/fixtures/teachers.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';

await steadyDay();
const { service, school } = await serviceWithSchool();
const { add, withLogin, rows, classOfYear, subject, teach, slot } = teacherHelpers(service, school);

describe('availability', () => {
  const grid = (but: Record<string, boolean> = {}, working = [1, 2, 3, 4, 5], periods = 8): Cell[] =>
    working.flatMap((day_of_week) =>
      Array.from({ length: periods }, (_, n) => ({
        day_of_week,
        period: n + 1,
        is_available: but[`${day_of_week} ${n + 1}`] ?? true,
      })),
    );
  const get = async (id: number, client = school.admin) =>
    (await client.get<Cell[]>(`/api/teachers/${id}/availability`)).data;
  const put = (id: number, slots: unknown, status = 200) =>
    school.admin.put<Cell[]>(`/api/teachers/${id}/availability`, slots, status);

  test('covers the whole week of the timetable, and every period is available by default', async () => {
    const teacher = await add();
    expect(await get(teacher.id)).toEqual(grid());
  });

  test('is replaced as a whole: periods that are not listed become available', async () => {
    const teacher = await add();
    const first = await put(teacher.id, [
      { day_of_week: 1, period: 1, is_available: false },
      { day_of_week: 5, period: 8, is_available: false },
      { day_of_week: 2, period: 2, is_available: true },
    ]);
    expect(first.data).toEqual(grid({ '1 1': false, '5 8': false }));
    expect(await get(teacher.id)).toEqual(first.data);
    expect((await put(teacher.id, [{ day_of_week: 3, period: 3, is_available: false }])).data).toEqual(
      grid({ '3 3': false }),
    );
    expect((await put(teacher.id, await get(teacher.id))).data).toEqual(grid({ '3 3': false }));
    expect((await put(teacher.id, [])).data).toEqual(grid());
  });

  test('follows the working days and periods of the timetable', async () => {
    const week = await service.school();
    const teacher = await add({}, week);
    await rows(`update ${week.schema}.timetable_config set working_days = '{7,6}', total_periods = 2`);
    const saturday = [{ day_of_week: 6, period: 2, is_available: false }];
    const { data } = await week.admin.put<Cell[]>(`/api/teachers/${teacher.id}/availability`, saturday);
    expect(data).toEqual(grid({ '6 2': false }, [6, 7], 2));
  });

  test('of a day that is no working day is stored and returned, and applies when it becomes one', async () => {
    const week = await service.school();
    const teacher = await add({}, week);
    const path = `/api/teachers/${teacher.id}/availability`;
    const saturday = [
      { day_of_week: 6, period: 2, is_available: false },
      { day_of_week: 6, period: 3, is_available: true },
    ];
    const stored = await week.admin.put<Cell[]>(path, saturday);
    expect(stored.data).toEqual([...grid(), ...saturday]);
    expect((await week.admin.get<Cell[]>(path)).data).toEqual(stored.data);
    expect((await week.admin.put<Cell[]>(path, stored.data)).data).toEqual(stored.data);
    await week.admin.put(path, saturday);
    await week.admin.put('/api/timetable/config', { working_days: [5, 6] });
    expect((await week.admin.get<Cell[]>(path)).data).toEqual(grid({ '6 2': false }, [5, 6]));
  });

  test('with a period that the day does not have is a 400 that says how many there are, on every day', async () => {
    const teacher = await add();
    for (const day_of_week of [1, 2, 3, 4, 5, 6, 7])
      for (const period of [9, 24, 25, 2 ** 40]) {
        const refused = await put(teacher.id, [{ day_of_week, period, is_available: false }], 400);
        expect(refused.details).toEqual([
          { path: '0.period', message: 'must be at most 8, the number of periods of a day' },
        ]);
      }
  });

  test('of periods that a shorter day has lost stays when the grid is written back', async () => {
    const week = await service.school();
    const teacher = await add({}, week);
    const path = `/api/teachers/${teacher.id}/availability`;
    await week.admin.put(path, [{ day_of_week: 1, period: 8, is_available: false }]);
    await week.admin.put('/api/timetable/config', { total_periods: 6 });
    const { data: shorter } = await week.admin.get<Cell[]>(path);
    expect(shorter).toEqual(grid({}, [1, 2, 3, 4, 5], 6));
    await week.admin.put(path, shorter);
    await week.admin.put('/api/timetable/config', { total_periods: 8 });
    expect((await week.admin.get<Cell[]>(path)).data).toEqual(grid({ '1 8': false }));
  });

  test('with a duplicate, unknown or incomplete period is a 400 that names its position, and nothing changes', async () => {
    const teacher = await add();
    await put(teacher.id, [{ day_of_week: 1, period: 1, is_available: false }]);
    const good = { day_of_week: 2, period: 2, is_available: false };
    for (const [slots, path] of [
      [[good, { day_of_week: 1, period: 2, is_available: true }, { ...good, is_available: true }], '2'],
      [[good, { ...good, day_of_week: 1, period: 9 }], '1.period'],
      [[good, { ...good, period: 0 }], '1.period'],
      [[good, { ...good, period: 25 }], '1.period'],
      [[{ ...good, day_of_week: 8 }], '0.day_of_week'],
      [[{ ...good, day_of_week: -1 }], '0.day_of_week'],
      [[{ day_of_week: 1, period: 1 }], '0.is_available'],
      [[{ ...good, colour: 'red' }], '0.colour'],
      [{}, ''],
    ] as [unknown, string][]) {
      expect((await put(teacher.id, slots, 400)).details.map((detail) => detail.path)).toEqual([path]);
    }
    expect(await get(teacher.id)).toEqual(grid({ '1 1': false }));
  });

  test('sent by two concurrent requests is that of one of them', async () => {
    const teacher = await add();
    const all = (period: number) =>
      [1, 2, 3, 4, 5].map((day_of_week) => ({ day_of_week, period, is_available: false }));
    const answers = await Promise.all([1, 2, 3, 4].map((period) => put(teacher.id, all(period))));
    expect(answers.map(({ data }) => data)).toContainEqual(await get(teacher.id));
    expect((await get(teacher.id)).filter(({ is_available }) => !is_available)).toHaveLength(5);
  });

  test('that makes a teacher unavailable where they teach is a 409 that names the lessons, and nothing changes', async () => {
    const week = await service.school();
    const teacher = await add({}, week);
    const path = `/api/teachers/${teacher.id}/availability`;
    const className = unique('Class');
    const { classId } = await week.classroom(className);
    const later = await classOfYear(1, week);
    const art = await subject('Art', week);
    const [first, second] = [
      await slot(week, classId, art, teacher.id, 1, 2),
      await slot(week, later.classId, art, teacher.id, 3, 4),
    ];
    const away = (...times: [number, number][]) =>
      times.map(([day_of_week, period]) => ({ day_of_week, period, is_available: false }));
    const refused = await week.admin.put(path, [...away([1, 1], [1, 2], [3, 4])], 409);
    expect(refused).toMatchObject({
      error: 'schedule_conflict',
      message:
        'The teacher has 2 lessons in periods that would become unavailable. Move them or assign another teacher first.',
    });
    expect(refused.details).toEqual([
      {
        path: '1.is_available',
        message: `${className} has Art on Monday, period 2.`,
        kind: 'availability',
        slot_id: first,
      },
      {
        path: '2.is_available',
        message: `${later.name} has Art on Wednesday, period 4.`,
        kind: 'availability',
        slot_id: second,
      },
    ]);
    expect((await week.admin.get<Cell[]>(path)).data).toEqual(grid());
    await week.admin.put(path, away([1, 1]));
    // Rows of an earlier release may be unavailable already. They can be sent back.
    await rows(`insert into ${week.schema}.teacher_availability values ($1, 1, 2, false)`, [teacher.id]);
    await week.admin.put(path, away([1, 1], [1, 2], [5, 1]));
    expect((await week.admin.put(path, away([1, 2], [3, 4]), 409)).details).toMatchObject([{ slot_id: second }]);
    await week.admin.delete(`/api/timetable/slots/${second}`);
    expect((await week.admin.put<Cell[]>(path, away([1, 2], [3, 4]))).data).toEqual(
      grid({ '1 2': false, '3 4': false }),
    );
  });

  test('of a teacher ignores the lessons of past years', async () => {
    const week = await service.school();
    const teacher = await add({}, week);
    const past = await classOfYear(-1, week);
    await slot(week, past.classId, await subject('Art', week), teacher.id, 1, 2);
    const away = [{ day_of_week: 1, period: 2, is_available: false }];
    expect((await week.admin.put<Cell[]>(`/api/teachers/${teacher.id}/availability`, away)).data).toEqual(
      grid({ '1 2': false }),
    );
  });

  test('is read by the teacher, but not by colleagues', async () => {
    const { teacher, client } = await withLogin();
    const colleague = await add();
    await put(teacher.id, [{ day_of_week: 1, period: 1, is_available: false }]);
    expect(await get(teacher.id, client)).toEqual(grid({ '1 1': false }));
    expect((await client.get(`/api/teachers/${colleague.id}/availability`, 404)).error).toBe('not_found');
    await (await school.user(['accountant'])).get(`/api/teachers/${teacher.id}/availability`, 403);
    await (await school.user(['student'])).get(`/api/teachers/${teacher.id}/availability`, 403);
  });
});

describe('workload', () => {
  let work: School;
  let teacher: Teacher;
  const get = async (client = work.admin, id = teacher.id) =>
    (await client.get<Workload>(`/api/teachers/${id}/workload`)).data;
  const rule = (body: unknown, status = 200, id = teacher.id) =>
    work.admin.put<Workload>(`/api/teachers/${id}/workload-rule`, body, status);
  const week = (periods: Record<number, number>) =>
    [1, 2, 3, 4, 5, ...(6 in periods ? [6] : [])].map((day_of_week) => ({
      day_of_week,
      periods: periods[day_of_week] ?? 0,
    }));

  beforeAll(async () => {
    work = await service.school();
    teacher = await add({}, work);
    const colleague = await add({}, work);
    const now = await work.classroom('Now');
    const past = await classOfYear(-1, work);
    const [maths, art] = [await subject('Maths', work), await subject('Art', work)];
    await teach(now.classId, maths, teacher.id, 4, work);
    await teach(now.classId, art, colleague.id, 9, work);
    await teach(past.classId, maths, teacher.id, 7, work);
    // The slot on a Saturday was created while Saturday was a working day.
    await rows(`update ${work.schema}.timetable_config set working_days = '{1,2,3,4,5,6}'`);
    for (const [day, period] of [
      [1, 1],
      [1, 2],
      [3, 1],
      [6, 1],
    ] as const)
      await slot(work, now.classId, maths, teacher.id, day, period);
    await rows(`update ${work.schema}.timetable_config set working_days = '{1,2,3,4,5}'`);
    await slot(work, now.classId, art, colleague.id, 2, 1);
    await slot(work, past.classId, maths, teacher.id, 2, 1);
  });

  test("counts only the teacher's own slots and planned periods of the current year, per day", async () => {
    expect(await get()).toEqual({
      teacher_id: teacher.id,
      max_periods_per_day: null,
      max_periods_per_week: null,
      assigned_periods: 4,
      planned_periods: 4,
      per_day: week({ 1: 2, 3: 1, 6: 1 }),
      is_over_limit: false,
    });
    const idle = await add({}, work);
    expect(await get(work.admin, idle.id)).toMatchObject({
      assigned_periods: 0,
      planned_periods: 0,
      per_day: week({}),
      is_over_limit: false,
    });
  });

  test.each([
    [{ max_periods_per_day: 2, max_periods_per_week: 4 }, false],
    [{ max_periods_per_day: 1, max_periods_per_week: 4 }, true],
    [{ max_periods_per_day: null, max_periods_per_week: 3 }, true],
    [{ max_periods_per_day: 2, max_periods_per_week: null }, false],
    [{ max_periods_per_day: null, max_periods_per_week: null }, false],
  ])('with the rule %j is over the limit: %s', async (given, isOver) => {
    const { data } = await rule(given);
    expect(data).toMatchObject({ ...given, is_over_limit: isOver });
    expect(await get()).toEqual(data);
    expect((await work.admin.get<Teacher>(`/api/teachers/${teacher.id}`)).data).toMatchObject(given);
  });

  test('is over the limit if the planned periods exceed the weekly limit, even without a timetable', async () => {
    const planned = await add({}, work);
    const { classId } = await work.classroom(unique('Planned'));
    await teach(classId, await subject(unique('Subject'), work), planned.id, 6, work);
    expect((await rule({ max_periods_per_week: 5 }, 200, planned.id)).data).toMatchObject({
      assigned_periods: 0,
      planned_periods: 6,
      is_over_limit: true,
    });
  });

  test('accepts one of the limits, and the whole record as returned by GET', async () => {
    await rule({ max_periods_per_day: 3, max_periods_per_week: 10 });
    expect((await rule({ max_periods_per_week: 12 })).data).toMatchObject({
      max_periods_per_day: 3,
      max_periods_per_week: 12,
    });
    expect((await rule({ ...(await get()), max_periods_per_day: 5 })).data).toMatchObject({
      max_periods_per_day: 5,
      max_periods_per_week: 12,
    });
    expect((await rule({ teacher_id: 999 }, 400)).details).toMatchObject([{ path: 'teacher_id' }]);
  });

  test('rejects a daily limit above the weekly one, in one request or two, and numbers out of range', async () => {
    await rule({ max_periods_per_day: 3, max_periods_per_week: 10 });
    for (const body of [
      { max_periods_per_day: 6, max_periods_per_week: 5 },
      { max_periods_per_day: 11 },
      { max_periods_per_week: 2 },
    ]) {
      const refused = await rule(body, 400);
      expect(refused).toMatchObject({ error: 'validation_error', details: [{ path: 'max_periods_per_day' }] });
    }
    for (const value of [0, -1, 1.5, 25, 'three'])
      expect((await rule({ max_periods_per_day: value }, 400)).details).toMatchObject([
        { path: 'max_periods_per_day' },
      ]);
    expect((await rule({ max_periods_per_week: 169 }, 400)).details).toMatchObject([{ path: 'max_periods_per_week' }]);
    expect(await get()).toMatchObject({ max_periods_per_day: 3, max_periods_per_week: 10 });
  });

  test('gets a new ETag for If-Match when a limit changes, but not when a slot is added', async () => {
    const one = await add({}, work);
    const path = `/api/teachers/${one.id}/workload`;
    const etag = (await work.admin.get(path)).headers.get('etag') ?? '';
    const { classId } = await work.classroom(unique('Class'));
    await slot(work, classId, await subject(unique('Subject'), work), one.id, 4, 4);
    const put = (status: number) =>
      work.admin.send(
        'PUT',
        `${path}-rule`,
        { body: { max_periods_per_day: 2 }, headers: { 'If-Match': etag } },
        status,
      );
    await put(200);
    await put(412);
  });

  test('is read by the teacher, but not by colleagues', async () => {
    const { teacher: me, client } = await withLogin({}, work);
    expect(await get(client, me.id)).toEqual(await get(work.admin, me.id));
    expect((await client.get(`/api/teachers/${teacher.id}/workload`, 404)).error).toBe('not_found');
    await (await work.user(['accountant'])).get(`/api/teachers/${me.id}/workload`, 403);
    await (await work.user(['student'])).get(`/api/teachers/${me.id}/workload`, 403);
  });
});
