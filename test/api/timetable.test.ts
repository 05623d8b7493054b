import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Answer, Client } from '../support/client/client.ts';
import { walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { manyConnections, serviceWithSchool, unique, type School } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  Config as ConfigSchema,
  Conflicts as ConflictsSchema,
  MovedSlot as MovedSlotSchema,
} from '../../src/endpoints/timetable.ts';

const { service, school } = await serviceWithSchool(manyConnections, 15);

type Config = OutputOf<typeof ConfigSchema>;
type Slot = OutputOf<typeof MovedSlotSchema>;
type Conflicts = OutputOf<typeof ConflictsSchema>;

const path = '/api/timetable/slots';
const configPath = '/api/timetable/config';
const checkPath = '/api/timetable/check-conflicts';
const addTeacher = (fields: Record<string, unknown> = {}, at = school) =>
  at.insert('teacher', { first_name: 'Tia', last_name: unique('Teacher'), ...fields });
const addSubject = (name = unique('Subject'), at = school) => at.insert('subject', { name, code: unique('C') });
const away = (teacher: number, day: number, period: number, at = school) =>
  service.database.query(`insert into ${at.schema}.teacher_availability values ($1, $2, $3, false)`, [
    teacher,
    day,
    period,
  ]);

/** Creates a class, a subject and a teacher. */
async function stage(
  at = school,
): Promise<{ class_id: number; subject_id: number; teacher_id: number; yearId: number; className: string }> {
  const className = unique('Class');
  const { classId, yearId } = await at.classroom(className);
  return {
    class_id: classId,
    subject_id: await addSubject(undefined, at),
    teacher_id: await addTeacher({}, at),
    yearId,
    className,
  };
}
const bodyOf = (
  { class_id, subject_id, teacher_id }: { class_id: number; subject_id: number; teacher_id: number },
  day_of_week: number,
  period: number,
) => ({
  class_id,
  subject_id,
  teacher_id,
  day_of_week,
  period,
});
const add = async (body: object, at = school) => (await at.admin.post<Slot>(path, body, 201)).data;
const read = async (id: number) => (await school.admin.get<Slot>(`${path}/${id}`)).data;
const move = (id: number, body: object, status = 200, client: Client = school.admin) =>
  client.send<Slot>('PATCH', `${path}/${id}/move`, { body }, status);
const check = async (body: object, at = school) => (await at.admin.post<Conflicts>(checkPath, body)).data;
/** The part of an ETag that If-Match compares. */
const version = (headers: Headers) => headers.get('etag')?.split('.')[0];
const messages = (answer: Answer<unknown>) => answer.details.map(({ message }) => message);

describe('the configuration', () => {
  const fresh = {
    total_periods: 8,
    lunch_start_period: null,
    lunch_periods: 1,
    period_duration: 45,
    start_time: '08:00',
    break_after: [],
    break_duration: 15,
    working_days: [1, 2, 3, 4, 5],
  };

  test('has defaults in a new school, and every user can read it', async () => {
    const one = await service.school();
    const { data } = await one.admin.get<Config>(configPath);
    expect(data).toEqual({ ...fresh, periods: data.periods, created_at: data.created_at, updated_at: data.updated_at });
    expect(data.periods).toHaveLength(8);
    expect(data.periods[7]).toEqual({ period: 8, start_time: '13:15', end_time: '14:00', is_lunch: false });
    for (const roles of [['student'], ['teacher'], []])
      expect((await (await one.user(roles)).get<Config>(configPath)).data).toEqual(data);
  });

  test('accepts any subset of fields and its own answer; breaks delay the rest of the day, lunch takes whole periods', async () => {
    const one = await service.school();
    const changed = {
      total_periods: 5,
      lunch_start_period: 3,
      period_duration: 40,
      start_time: '09:30',
      break_after: [4, 1],
      break_duration: 10,
      working_days: [7, 1],
    };
    const { data } = await one.admin.put<Config>(configPath, changed);
    expect(data).toMatchObject({ ...changed, break_after: [1, 4], working_days: [1, 7], lunch_periods: 1 });
    expect(
      data.periods.map(({ start_time, end_time, is_lunch }) => `${start_time} ${end_time}${is_lunch ? ' lunch' : ''}`),
    ).toEqual(['09:30 10:10', '10:20 11:00', '11:00 11:40 lunch', '11:40 12:20', '12:30 13:10']);
    expect((await one.admin.get<Config>(configPath)).data).toEqual(data);
    expect((await one.admin.put<Config>(configPath, { ...data, lunch_start_period: null })).data).toMatchObject({
      lunch_start_period: null,
      start_time: '09:30',
    });
    const { data: now } = await one.admin.get<Config>(configPath);
    expect(
      (await one.admin.put(configPath, { ...now, created_at: '2020-01-01T00:00:00Z' }, 400)).details,
    ).toMatchObject([{ path: 'created_at' }]);
    expect((await one.admin.put<Config>(configPath, {})).data.total_periods).toBe(5);
  });

  test('rejects an update with a stale If-Match, and one of two concurrent updates with the same If-Match', async () => {
    const one = await service.school();
    const { headers } = await one.admin.get<Config>(configPath);
    const etag = headers.get('etag') ?? '';
    expect(etag).toMatch(/^"[0-9a-f]{32}\./);
    expect((await one.admin.send('GET', configPath, { headers: { 'If-None-Match': etag } })).status).toBe(304);
    const put = (body: object, match: string) =>
      one.admin.send<Config>('PUT', configPath, { body, headers: { 'If-Match': match } });
    const answers = await race(service.database, `select from ${one.schema}.timetable_config for update`, 2, () => [
      put({ total_periods: 9 }, etag),
      put({ total_periods: 9 }, etag),
    ]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 412]);
    expect(answers.find(({ status }) => status === 412)?.error).toBe('precondition_failed');
    const { data: now, headers: later } = await one.admin.get<Config>(configPath);
    expect([now.total_periods, version(later) === version(headers)]).toEqual([9, false]);
    expect((await put({ total_periods: 7 }, later.get('etag') ?? '')).data.total_periods).toBe(7);
    expect((await put({ total_periods: 6 }, '*')).data.total_periods).toBe(6);
  });

  test('rejects an invalid school day with the name of the field, and changes nothing', async () => {
    const one = await service.school();
    const before = (await one.admin.get<Config>(configPath)).data;
    for (const [body, field] of [
      [{ total_periods: 0 }, 'total_periods'],
      [{ total_periods: 25 }, 'total_periods'],
      [{ total_periods: '' }, 'total_periods'],
      [{ lunch_start_period: 9 }, 'lunch_start_period'],
      [{ lunch_start_period: 8, lunch_periods: 2 }, 'lunch_start_period'],
      [{ lunch_periods: 5 }, 'lunch_periods'],
      [{ period_duration: 4 }, 'period_duration'],
      [{ start_time: '24:00' }, 'start_time'],
      [{ start_time: '8:00' }, 'start_time'],
      [{ start_time: '18:00' }, 'start_time'],
      [{ period_duration: 120 }, 'period_duration'],
      [{ total_periods: 24 }, 'total_periods'],
      [{ break_after: [8] }, 'break_after'],
      [{ break_after: [2, 2] }, 'break_after.1'],
      [{ break_after: [0] }, 'break_after.0'],
      [{ break_duration: 0 }, 'break_duration'],
      [{ working_days: [] }, 'working_days'],
      [{ working_days: [1, 1] }, 'working_days.1'],
      [{ working_days: [8] }, 'working_days.0'],
      [{ color: 'red' }, 'color'],
    ] as [object, string][]) {
      const refused = await one.admin.put(configPath, body, 400);
      expect([body, refused.details.map((detail) => detail.path)]).toEqual([body, [field]]);
    }
    expect((await one.admin.get<Config>(configPath)).data).toEqual(before);
    // The day may end one minute before midnight.
    await one.admin.put(configPath, { start_time: '17:59' });
  });

  test('cannot exclude existing slots of this or a later year: the 409 counts and names them', async () => {
    const one = await service.school();
    const the = await stage(one);
    await add(bodyOf(the, 5, 8), one);
    await add(bodyOf(the, 5, 7), one);
    const past = await one.insert('academic_year', { name: 'Past', start_date: '1990-01-01', end_date: '1990-12-31' });
    const { gradeId } = await one.classroom('Other');
    const pastClass = await one.insert('class', { name: 'Past', grade_id: gradeId, academic_year_id: past });
    await add(bodyOf({ ...the, class_id: pastClass }, 1, 1), one);
    const shorter = await one.admin.put(configPath, { total_periods: 7 }, 409);
    expect(shorter).toMatchObject({
      error: 'schedule_conflict',
      message: expect.stringMatching(/^One slot /),
      details: [{ path: 'total_periods' }],
    });
    expect(messages(shorter)[0]).toContain(`${the.className} has`);
    expect(messages(shorter)[0]).toContain('on Friday, period 8:');
    const friday = await one.admin.put(configPath, { working_days: [1, 2, 3, 4] }, 409);
    expect(friday).toMatchObject({
      error: 'schedule_conflict',
      message: expect.stringMatching(/^2 slots /),
      details: [{ path: 'working_days' }, { path: 'working_days' }],
    });
    expect(await one.admin.put(configPath, { lunch_start_period: 7 }, 409)).toMatchObject({
      details: [{ path: 'lunch_start_period' }],
    });
    expect((await one.admin.get<Config>(configPath)).data).toMatchObject({
      total_periods: 8,
      lunch_start_period: null,
      working_days: [1, 2, 3, 4, 5],
    });
    await one.admin.put(configPath, { lunch_start_period: 1, working_days: [2, 3, 4, 5] });
    const later = await one.insert('academic_year', {
      name: 'Later',
      start_date: '2095-01-01',
      end_date: '2095-12-31',
    });
    const laterClass = await one.insert('class', { name: 'Later', grade_id: gradeId, academic_year_id: later });
    await add(bodyOf({ ...the, class_id: laterClass }, 2, 6), one);
    await one.admin.put(configPath, { lunch_start_period: 6 }, 409);
  });

  test('a shorter day keeps the availability of teachers in lost periods, which applies again with a longer day', async () => {
    const one = await service.school();
    const the = await stage(one);
    await away(the.teacher_id, 1, 8, one);
    await one.admin.put(configPath, { total_periods: 6 });
    expect((await one.admin.get<unknown[]>(`/api/teachers/${the.teacher_id}/availability`)).data).toHaveLength(30);
    await add(bodyOf(the, 1, 6), one);
    await one.admin.put(configPath, { total_periods: 8 });
    expect((await one.admin.post(path, bodyOf(the, 1, 8), 409)).error).toBe('schedule_conflict');
  });
});

describe('slots', () => {
  test('can be created, read with names and times, updated in part, and deleted', async () => {
    const the = await stage();
    const { headers, data } = await school.admin.post<Slot>(path, { ...bodyOf(the, 2, 3), room: 'Lab' }, 201);
    expect(headers.get('location')).toBe(`${path}/${data.id}`);
    expect(data).toMatchObject({
      ...bodyOf(the, 2, 3),
      class_name: the.className,
      academic_year_id: the.yearId,
      start_time: '09:30',
      end_time: '10:15',
      room: 'Lab',
    });
    expect(await read(data.id)).toEqual(data);
    // The room of the class is a separate field and not part of the version.
    await service.database.query(`update ${school.schema}.class set room = 'R1' where id = $1`, [the.class_id]);
    const now = await school.admin.get<Slot>(`${path}/${data.id}`);
    expect(now.data).toEqual({ ...data, class_room: 'R1', is_pinned: true });
    expect(version(now.headers)).toBe(version(headers));
    data.class_room = 'R1';
    const { data: changed } = await school.admin.put<Slot>(`${path}/${data.id}`, { ...data, period: 4, room: null });
    expect(changed).toEqual({
      ...data,
      period: 4,
      room: null,
      start_time: '10:15',
      end_time: '11:00',
      updated_at: changed.updated_at,
    });
    // Generated slots are not pinned. To be sent back with another time pins one, as does a change of its time alone.
    const free = await school.admin.put<Slot>(`${path}/${data.id}`, { is_pinned: false });
    expect(free.data).toMatchObject({ is_pinned: false });
    expect((await school.admin.put(`${path}/${data.id}`, free.data)).data).toEqual(free.data);
    expect((await school.admin.put(`${path}/${data.id}`, { ...free.data, period: 5 })).data).toMatchObject({
      period: 5,
      is_pinned: true,
    });
    expect((await school.admin.put(`${path}/${data.id}`, { period: 4, is_pinned: false })).data).toMatchObject({
      period: 4,
      is_pinned: false,
    });
    const { data: study } = await school.admin.put<Slot>(`${path}/${data.id}`, { teacher_id: null });
    expect(study).toMatchObject({ teacher_id: null, teacher_name: null, period: 4 });
    expect((await school.admin.put(`${path}/${data.id}`, { academic_year_id: 999 }, 400)).details).toMatchObject([
      { path: 'academic_year_id' },
    ]);
    expect((await school.admin.delete<{ id: number }>(`${path}/${data.id}`)).data).toEqual({ id: data.id });
    await school.admin.get(`${path}/${data.id}`, 404);
    await school.admin.put(`${path}/${data.id}`, { period: 1 }, 404);
    await school.admin.delete(`${path}/${data.id}`, 404);
    await move(data.id, { day_of_week: 1, period: 1 }, 404);
  });

  test('require class, subject, day and period; errors name the invalid or unknown field', async () => {
    const the = await stage();
    expect((await school.admin.post(path, {}, 400)).details.map((detail) => detail.path).sort()).toEqual([
      'class_id',
      'day_of_week',
      'period',
      'subject_id',
    ]);
    for (const [field, value] of Object.entries({
      day_of_week: 8,
      period: 25,
      teacher_id: 'x',
      room: 5,
      class_id: null,
    })) {
      expect((await school.admin.post(path, { ...bodyOf(the, 1, 1), [field]: value }, 400)).details).toMatchObject([
        { path: field },
      ]);
    }
    for (const field of ['class_id', 'subject_id', 'teacher_id']) {
      const refused = await school.admin.post(path, { ...bodyOf(the, 1, 1), [field]: 999_999 }, 422);
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: field }] });
    }
    const [inactive, deleted] = [await addTeacher({ is_active: false }), await addTeacher({ deleted_at: new Date() })];
    const slot = await add(bodyOf(the, 1, 1));
    for (const teacher_id of [inactive, deleted]) {
      expect((await school.admin.post(path, { ...bodyOf(the, 1, 2), teacher_id }, 422)).details).toMatchObject([
        { path: 'teacher_id' },
      ]);
      expect((await school.admin.put(`${path}/${slot.id}`, { teacher_id }, 422)).details).toMatchObject([
        { path: 'teacher_id' },
      ]);
    }
    // A teacher who has become inactive keeps the slot, also when it moves.
    await service.database.query(`update ${school.schema}.teacher set is_active = false where id = $1`, [
      the.teacher_id,
    ]);
    expect((await school.admin.put<Slot>(`${path}/${slot.id}`, { ...slot, period: 2 })).data).toMatchObject({
      period: 2,
      teacher_id: the.teacher_id,
    });
  });

  test('take the academic year of their new class', async () => {
    const the = await stage();
    const slot = await add(bodyOf(the, 1, 1));
    const year = await school.insert('academic_year', {
      name: unique('Year'),
      start_date: '1991-01-01',
      end_date: '1991-12-31',
    });
    const { gradeId } = await school.classroom(unique('Class'));
    const class_id = await school.insert('class', { name: unique('Old'), grade_id: gradeId, academic_year_id: year });
    expect((await school.admin.put<Slot>(`${path}/${slot.id}`, { class_id })).data).toMatchObject({
      class_id,
      academic_year_id: year,
    });
    expect((await school.admin.put(`${path}/${slot.id}`, { class_id: 999_999 }, 422)).details).toMatchObject([
      { path: 'class_id' },
    ]);
  });

  test('are created once for a repeated Idempotency-Key, and not updated with a stale If-Match', async () => {
    const the = await stage();
    const send = () =>
      school.admin.send<Slot>(
        'POST',
        path,
        { body: bodyOf(the, 1, 1), headers: { 'Idempotency-Key': 'slot-twice' } },
        201,
      );
    const { data } = await send();
    expect((await send()).data).toEqual(data);
    const { headers } = await school.admin.get(`${path}/${data.id}`);
    const put = (status: number) =>
      school.admin.send(
        'PUT',
        `${path}/${data.id}`,
        { body: { period: 2 }, headers: { 'If-Match': headers.get('etag') ?? '' } },
        status,
      );
    await put(200);
    await put(412);
    await school.admin.send(
      'PATCH',
      `${path}/${data.id}/move`,
      { body: { day_of_week: 1, period: 3 }, headers: { 'If-Match': headers.get('etag') ?? '' } },
      412,
    );
  });
});

describe('a conflict', () => {
  test('between two slots of a class or teacher is a 409 that names class, subject, teacher, day and period', async () => {
    const [one, two] = [await stage(), await stage()];
    const slot = await add(bodyOf(one, 3, 2));
    const both = await school.admin.post(path, bodyOf(one, 3, 2), 409);
    expect(both).toMatchObject({
      error: 'schedule_conflict',
      details: [
        { path: 'period', kind: 'class', slot_id: slot.id },
        { path: 'teacher_id', kind: 'teacher', slot_id: slot.id },
      ],
    });
    expect(messages(both)).toEqual([
      `${one.className} already has ${slot.subject_name} with ${slot.teacher_name ?? ''} on Wednesday, period 2.`,
      `${slot.teacher_name ?? ''} already teaches ${one.className} (${slot.subject_name}) on Wednesday, period 2.`,
    ]);
    expect(both.message).toBe(`${messages(both)[0] ?? ''} (and 1 more)`);
    const teacher = await school.admin.post(path, { ...bodyOf(two, 3, 2), teacher_id: one.teacher_id }, 409);
    expect(teacher.details).toMatchObject([{ path: 'teacher_id' }]);
    // A study period conflicts only with slots of its class.
    await add({ ...bodyOf(two, 3, 2), teacher_id: null });
    expect((await school.admin.put(`${path}/${slot.id}`, { class_id: two.class_id }, 409)).details).toMatchObject([
      { path: 'class_id', kind: 'class' },
    ]);
    expect(await read(slot.id)).toEqual(slot);
  });

  test('is raised for a new teacher of a slot who is busy, unavailable or over their limit', async () => {
    const [one, two] = [await stage(), await stage()];
    const slot = await add(bodyOf(one, 3, 2));
    await add(bodyOf(two, 3, 2));
    const [absent, busy] = [await addTeacher(), await addTeacher({ max_periods_per_week: 1 })];
    await away(absent, 3, 2);
    await add({ ...bodyOf(one, 4, 1), teacher_id: busy });
    for (const [teacher_id, message] of [
      [two.teacher_id, 'already teaches'],
      [absent, 'is not available'],
      [busy, '2 periods a week'],
    ] as const) {
      const refused = await school.admin.put(`${path}/${slot.id}`, { teacher_id }, 409);
      expect(refused).toMatchObject({
        error: 'schedule_conflict',
        details: [{ path: 'teacher_id', message: expect.stringContaining(message) }],
      });
    }
    expect(await read(slot.id)).toEqual(slot);
  });

  test('does not exist between slots of different academic years', async () => {
    const the = await stage();
    const year = await school.insert('academic_year', {
      name: unique('Year'),
      start_date: '1992-01-01',
      end_date: '1992-12-31',
    });
    const { gradeId } = await school.classroom(unique('Class'));
    const class_id = await school.insert('class', { name: unique('Old'), grade_id: gradeId, academic_year_id: year });
    await add(bodyOf(the, 1, 1));
    await add(bodyOf({ ...the, class_id }, 1, 1));
  });

  test('prevents a class from moving to a year in which its teacher is busy; otherwise its slots move along', async () => {
    const [the, other] = [await stage(), await stage()];
    const year = await school.insert('academic_year', {
      name: unique('Year'),
      start_date: '1993-01-01',
      end_date: '1993-12-31',
    });
    const { gradeId } = await school.classroom(unique('Class'));
    const class_id = await school.insert('class', { name: unique('Old'), grade_id: gradeId, academic_year_id: year });
    const slot = await add(bodyOf(the, 1, 1));
    const inTheWay = await add(bodyOf({ ...the, class_id }, 1, 1));
    expect(await school.admin.put(`/api/classes/${the.class_id}`, { academic_year_id: year }, 409)).toMatchObject({
      error: 'schedule_conflict',
      details: [{ path: 'academic_year_id', kind: 'teacher', slot_id: inTheWay.id }],
    });
    await school.admin.put(`${path}/${inTheWay.id}`, { teacher_id: other.teacher_id });
    await school.admin.put(`/api/classes/${the.class_id}`, { academic_year_id: year });
    expect((await read(slot.id)).academic_year_id).toBe(year);
  });

  test('lists at most twenty slots and reports the total', async () => {
    const one = await service.school();
    const the = await stage(one);
    const { gradeId } = await one.classroom('Other');
    const year = await one.insert('academic_year', { name: 'Past', start_date: '1993-01-01', end_date: '1993-12-31' });
    const past = await one.insert('class', { name: 'Past', grade_id: gradeId, academic_year_id: year });
    for (const [class_id, year_id] of [
      [the.class_id, the.yearId],
      [past, year],
    ])
      // prettier-ignore
      await service.database.query(
        `insert into ${one.schema}.timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period)
         select $1, $2, $3, $4, d, p from generate_series(1, 3) d, generate_series(1, 7) p`,
        [class_id, year_id, the.subject_id, the.teacher_id],
      );
    const refused = await one.admin.put(`/api/classes/${the.class_id}`, { academic_year_id: year }, 409);
    expect(refused.message).toMatch(/\(and 20 more\)$/);
    expect(refused.details).toHaveLength(20);
    const outside = await one.admin.put(configPath, { total_periods: 6, working_days: [2, 3, 4, 5] }, 409);
    expect(outside.message).toMatch(/^9 slots /);
    expect(outside.details).toHaveLength(5);
  });

  test('with availability, workload, lunch or the school day is a 409, and the check reports the same', async () => {
    const one = await service.school();
    const the = await stage(one);
    const other = await stage(one);
    await one.admin.put(configPath, { lunch_start_period: 5, total_periods: 7 });
    await one.admin.put(`/api/teachers/${the.teacher_id}/workload-rule`, {
      max_periods_per_day: 2,
      max_periods_per_week: 3,
    });
    await away(the.teacher_id, 4, 1, one);
    const cases: [object, string, string, RegExp][] = [
      [bodyOf(the, 4, 1), 'availability', 'teacher_id', /is not available on Thursday, period 1\.$/],
      [bodyOf(the, 2, 5), 'lunch', 'period', /^Period 5 is lunch\.$/],
      [bodyOf(the, 2, 8), 'outside_day', 'period', /^A day has 7 periods; there is no period 8\.$/],
      [bodyOf(the, 6, 1), 'outside_day', 'day_of_week', /^There is no school on Saturday\.$/],
    ];
    await add(bodyOf(the, 1, 1), one);
    await add(bodyOf(the, 1, 2), one);
    cases.push([
      bodyOf(the, 1, 3),
      'workload_day',
      'teacher_id',
      /would have 3 periods on Monday\. The limit is 2 a day\.$/,
    ]);
    for (const [body, kind, field, message] of cases) {
      const refused = await one.admin.post(path, body, 409);
      expect([body, refused.error, refused.details]).toEqual([
        body,
        'schedule_conflict',
        [{ path: field, message: expect.stringMatching(message), kind }],
      ]);
      const asked = Object.fromEntries(Object.entries(body).filter(([name]) => name !== 'subject_id'));
      expect(await check(asked, one)).toEqual({
        has_conflict: true,
        conflicts: [{ kind, message: messages(refused)[0], slot: null }],
      });
    }
    await add(bodyOf(the, 2, 1), one);
    const week = await one.admin.post(path, bodyOf({ ...other, teacher_id: the.teacher_id }, 3, 1), 409);
    expect(messages(week)).toEqual([expect.stringMatching(/would have 4 periods a week\. The limit is 3\.$/)]);
    expect((await one.admin.get(path)).pagination.totalItems).toBe(3);
  });

  test('with a rule added later allows other changes of a slot, but not moving it back', async () => {
    const the = await stage();
    const slot = await add(bodyOf(the, 1, 1));
    const second = await add(bodyOf(the, 2, 1));
    await away(the.teacher_id, 1, 1);
    await school.admin.put(`/api/teachers/${the.teacher_id}/workload-rule`, {
      max_periods_per_day: 1,
      max_periods_per_week: 1,
    });
    expect((await school.admin.put<Slot>(`${path}/${slot.id}`, { room: 'Hall' })).data.room).toBe('Hall');
    expect(
      await check({
        class_id: the.class_id,
        teacher_id: the.teacher_id,
        day_of_week: 1,
        period: 1,
        exclude_slot_id: slot.id,
      }),
    ).toMatchObject({
      has_conflict: false,
    });
    await move(slot.id, { day_of_week: 1, period: 2 });
    expect(messages(await move(slot.id, { day_of_week: 1, period: 1 }, 409))).toEqual([
      expect.stringContaining('is not available'),
    ]);
    expect(messages(await move(second.id, { day_of_week: 1, period: 3 }, 409))).toEqual([
      expect.stringContaining('2 periods on Monday'),
    ]);
    await move(second.id, { day_of_week: 3, period: 3 });
  });
});

describe('the check', () => {
  test('reports nothing for a free time, the conflicting slot for an occupied one, and ignores the slot to move', async () => {
    const [one, two] = [await stage(), await stage()];
    const slot = await add(bodyOf(one, 4, 4));
    const asked = { class_id: one.class_id, teacher_id: one.teacher_id, day_of_week: 4, period: 4 };
    expect(await check({ ...asked, period: 3 })).toEqual({ has_conflict: false, conflicts: [] });
    const { conflicts } = await check({ ...asked, exclude_slot_id: null });
    const { class_id, class_name, subject_id, subject_name, teacher_id, teacher_name } = slot;
    const inTheWay = {
      slot_id: slot.id,
      class_id,
      class_name,
      subject_id,
      subject_name,
      teacher_id,
      teacher_name,
      day_of_week: 4,
      period: 4,
    };
    expect(conflicts).toMatchObject([
      { kind: 'class', slot: inTheWay },
      { kind: 'teacher', slot: inTheWay },
    ]);
    expect(await check({ ...asked, exclude_slot_id: slot.id })).toEqual({ has_conflict: false, conflicts: [] });
    expect((await check({ ...asked, class_id: two.class_id })).conflicts.map(({ kind }) => kind)).toEqual(['teacher']);
    expect((await check({ ...asked, teacher_id: null })).conflicts.map(({ kind }) => kind)).toEqual(['class']);
    expect((await school.admin.get(`${path}?class_id=${one.class_id}`)).pagination.totalItems).toBe(1);
  });

  test('answers 422 for an unknown class, teacher or slot, and 400 for missing fields', async () => {
    const the = await stage();
    const asked = { class_id: the.class_id, teacher_id: the.teacher_id, day_of_week: 1, period: 1 };
    for (const field of ['class_id', 'teacher_id', 'exclude_slot_id']) {
      expect(await school.admin.post(checkPath, { ...asked, [field]: 999_999 }, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: field }],
      });
    }
    expect((await school.admin.post(checkPath, {}, 400)).details.map((detail) => detail.path).sort()).toEqual([
      'class_id',
      'day_of_week',
      'period',
    ]);
  });
});

describe('a move', () => {
  test('to a free time succeeds; to an occupied time it is a 409 with the other slot, unless it swaps them', async () => {
    const the = await stage();
    const [a, b] = [await add(bodyOf(the, 1, 1)), await add({ ...bodyOf(the, 2, 2), teacher_id: await addTeacher() })];
    expect((await move(a.id, { day_of_week: 1, period: 6 })).data).toMatchObject({
      id: a.id,
      day_of_week: 1,
      period: 6,
      start_time: '11:45',
    });
    const refused = await move(a.id, { day_of_week: 2, period: 2 }, 409);
    expect(refused).toMatchObject({
      error: 'schedule_conflict',
      details: [{ path: 'period', kind: 'class', slot_id: b.id }],
    });
    expect(await read(a.id)).toMatchObject({ day_of_week: 1, period: 6 });
    const swapped = await move(a.id, { day_of_week: 2, period: 2, swap: true });
    expect(swapped.data).toMatchObject({
      id: a.id,
      day_of_week: 2,
      period: 2,
      swapped_with: { id: b.id, day_of_week: 1, period: 6 },
    });
    expect(await read(b.id)).toEqual(swapped.data.swapped_with);
    const { headers, data } = await school.admin.get<Slot>(`${path}/${a.id}`);
    expect({ ...data, swapped_with: swapped.data.swapped_with }).toEqual(swapped.data);
    expect(version(headers)).toBe(version(swapped.headers));
    // A swap with a free time, and with its own time, where nothing changes.
    const free = await move(a.id, { day_of_week: 5, period: 5, swap: true });
    expect(free.data).toMatchObject({ day_of_week: 5, period: 5, swapped_with: null });
    const own = await move(a.id, { day_of_week: 5, period: 5, swap: true });
    expect(own.data).toEqual(free.data);
    expect(own.headers.get('etag')).toBe(free.headers.get('etag'));
    expect((await move(a.id, { day_of_week: 8 }, 400)).details.map((detail) => detail.path).sort()).toEqual([
      'day_of_week',
      'period',
    ]);
  });

  test('with swap leaves all other slots in place: those of other classes, and of the class at other times', async () => {
    const [the, other] = [await stage(), await stage()];
    const [a, b] = [await add(bodyOf(the, 1, 1)), await add({ ...bodyOf(the, 2, 2), teacher_id: await addTeacher() })];
    const stay = [await add(bodyOf(other, 2, 2)), await add(bodyOf(the, 3, 2)), await add(bodyOf(the, 2, 1))];
    await move(a.id, { day_of_week: 2, period: 2, swap: true });
    expect(await read(b.id)).toMatchObject({ day_of_week: 1, period: 1 });
    for (const one of stay) expect(await read(one.id)).toEqual(one);
  });

  test('with swap is refused if it conflicts for either teacher, and changes neither slot', async () => {
    const the = await stage();
    const [a, b] = [await add(bodyOf(the, 1, 1)), await add({ ...bodyOf(the, 2, 2), teacher_id: await addTeacher() })];
    const place = { ...bodyOf(the, 2, 2), subject_id: undefined, exclude_slot_id: a.id };
    expect(await check({ ...place, swap: true })).toEqual({ has_conflict: false, conflicts: [] });
    expect(await check(place)).toMatchObject({ conflicts: [{ kind: 'class', slot: { slot_id: b.id } }] });
    await away(b.teacher_id ?? 0, 1, 1);
    const refused = await move(a.id, { day_of_week: 2, period: 2, swap: true }, 409);
    expect(messages(refused)).toEqual([expect.stringContaining('is not available on Monday, period 1.')]);
    // The error names the time, because a move has no other field.
    expect(refused.details).toMatchObject([{ path: 'period', kind: 'availability' }]);
    expect((await check({ ...place, swap: true })).conflicts.map(({ message }) => message)).toEqual(messages(refused));
    await school.admin.post(checkPath, { ...bodyOf(the, 2, 2), subject_id: undefined, swap: true }, 400);
    expect([await read(a.id), await read(b.id)]).toEqual([a, b]);
  });
});

describe('the list', () => {
  let lists: School;
  let everybody: Slot[];
  let teacherId: number;
  let past: { year: number; class: number; slot: number };
  /** The sequence of the grade of each class. */
  const sequences: Record<string, number> = { Béta: 2, alpha: 10, Gamma: 10 };

  beforeAll(async () => {
    lists = await service.school();
    teacherId = await addTeacher({ first_name: 'Zoë', last_name: 'Quixote' }, lists);
    const others = [await addTeacher({ last_name: 'Ábel' }, lists), await addTeacher({ last_name: 'mills' }, lists)];
    const classes = [];
    for (const name of Object.keys(sequences)) classes.push(await lists.classroom(name));
    for (const [name, sequence] of Object.entries(sequences)) {
      await service.database.query(`update ${lists.schema}.grade set sequence = $2 where name = $1 || ' grade'`, [
        name,
        sequence,
      ]);
    }
    const subjects = [await addSubject('Écology', lists), await addSubject('drama', lists)];
    for (const [c, { classId }] of classes.entries()) {
      for (const [day_of_week, period] of [
        [1, 2],
        [1, 1],
        [3, 4],
      ] as const) {
        const teacher_id = [teacherId, ...others, null][(c + day_of_week + period) % 4] ?? null;
        await add(
          {
            class_id: classId,
            subject_id: subjects[(period + c) % 2],
            teacher_id,
            day_of_week,
            period,
            room: period === 4 ? 'Gym' : null,
          },
          lists,
        );
      }
    }
    const year = await lists.insert('academic_year', {
      name: 'Before',
      start_date: '1990-01-01',
      end_date: '1990-12-31',
    });
    const old = await lists.insert('class', { name: 'Old', grade_id: classes[0]?.gradeId, academic_year_id: year });
    past = {
      year,
      class: old,
      slot: (
        await add({ class_id: old, subject_id: subjects[0], teacher_id: teacherId, day_of_week: 1, period: 1 }, lists)
      ).id,
    };
    everybody = await walk<Slot>(lists.admin, path, 100);
  });
  const found = async (query: string) => (await lists.admin.get<Slot[]>(`${path}?pageSize=100&${query}`)).data;

  test('has the slots of the current year by day and period, unless a class or year is given', async () => {
    expect(everybody).toHaveLength(9);
    expect(
      everybody.map(({ day_of_week, period, class_name }) => `${day_of_week} ${period} ${class_name}`).slice(0, 4),
    ).toEqual(['1 1 Béta', '1 1 alpha', '1 1 Gamma', '1 2 Béta']);
    expect((await found(`class_id=${past.class}`)).map(({ id }) => id)).toEqual([past.slot]);
    expect((await found(`academic_year_id=${past.year}`)).map(({ id }) => id)).toEqual([past.slot]);
    expect(await found(`academic_year_id=${past.year}&class_id=${everybody[0]?.class_id ?? 0}`)).toEqual([]);
    const none = await service.school();
    expect((await none.admin.get(path)).pagination.totalItems).toBe(0);
  });

  test('sorted by teacher has slots without a teacher last', async () => {
    const names = (await found('sort=teacher_name')).map(({ teacher_name }) => teacher_name?.split(' ')[1] ?? null);
    expect([...new Set(names)]).toEqual(['Ábel', 'mills', 'Quixote', null]);
  });

  test('filters by class, teacher, day and search, alone or combined', async () => {
    const [first] = everybody;
    const filters: [string, (one: Slot) => boolean][] = [
      [`class_id=${first?.class_id ?? 0}`, (one) => one.class_id === first?.class_id],
      [`teacher_id=${teacherId}`, (one) => one.teacher_id === teacherId],
      ['day_of_week=3', (one) => one.day_of_week === 3],
      [`teacher_id=${teacherId}&day_of_week=1`, (one) => one.teacher_id === teacherId && one.day_of_week === 1],
      ['search=gym+BETA', (one) => one.room === 'Gym' && one.class_name === 'Béta'],
      ['search=zoe+quix', (one) => one.teacher_id === teacherId],
      ['search=ecology', (one) => one.subject_name === 'Écology'],
    ];
    for (const [query, fits] of filters) {
      const some = await found(query);
      expect([query, some]).toEqual([query, everybody.filter(fits)]);
      expect(some.length).toBeGreaterThan(0);
    }
    for (const query of ['day_of_week=8', 'day_of_week=x', 'class_id=0', 'sort=rooms', 'period=1']) {
      expect((await lists.admin.get(`${path}?${query}`, 400)).details.map((detail) => detail.path)).toEqual([
        query.split('=')[0],
      ]);
    }
  });
});

describe('permissions', () => {
  test('a teacher sees the slots of the classes they teach and changes none; a student sees those of their class', async () => {
    const [near, far] = [await stage(), await stage()];
    const teacher = await school.user(['teacher']);
    await service.database.query(`update ${school.schema}.teacher set user_id = $1 where id = $2`, [
      teacher.id,
      near.teacher_id,
    ]);
    const own = await add(bodyOf(near, 1, 1));
    const beside = await add({ ...bodyOf(near, 1, 2), teacher_id: far.teacher_id });
    const other = await add(bodyOf(far, 1, 1));
    expect((await teacher.get<Slot[]>(path)).data.map(({ id }) => id)).toEqual([own.id, beside.id]);
    await teacher.get(`${path}/${other.id}`, 404);
    expect((await teacher.post(path, bodyOf(near, 2, 1), 403)).error).toBe('forbidden');
    await teacher.put(configPath, {}, 403);
    await teacher.post(checkPath, { class_id: near.class_id, day_of_week: 1, period: 1 });
    const student = await school.user(['student']);
    await school.insert('student', {
      first_name: 'Sam',
      last_name: 'Student',
      admission_number: unique('A'),
      class_id: far.class_id,
      user_id: student.id,
    });
    const again = await service.anonymous.login({
      tenant_id: school.id,
      email: student.email,
      password: 'test-password',
    });
    expect((await again.get<Slot[]>(path)).data.map(({ id }) => id)).toEqual([other.id]);
    await again.get(`${path}/${own.id}`, 404);
    expect((await (await school.user(['accountant'])).get<Slot[]>(path)).data).toEqual([]);
  });

  /** A school whose teachers have timetable.manage, with a class teacher (`teacher`, of `near`) and another class. */
  async function managing() {
    const one = await service.school();
    const [near, far] = [await stage(one), await stage(one)];
    const user = await one.user(['teacher']);
    await service.database.query(`update ${one.schema}.teacher set user_id = $1 where id = $2`, [
      user.id,
      near.teacher_id,
    ]);
    await service.database.query(`update ${one.schema}.class set class_teacher_id = $1 where id = $2`, [
      near.teacher_id,
      near.class_id,
    ]);
    await service.database.query(
      `insert into ${one.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${one.schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'timetable.manage'`,
    );
    return {
      one,
      near,
      far,
      teacher: await service.anonymous.login({ tenant_id: one.id, email: user.email, password: 'test-password' }),
    };
  }

  test('the check treats slots of other classes as unknown for a teacher with timetable.manage', async () => {
    const { one, near, far, teacher } = await managing();
    const asked = {
      class_id: near.class_id,
      day_of_week: 1,
      period: 1,
      exclude_slot_id: (await add(bodyOf(far, 1, 1), one)).id,
    };
    expect(await teacher.post(checkPath, asked, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'exclude_slot_id' }],
    });
  });

  test('a teacher with timetable.manage changes their classes only; conflicts with other classes are found but not named', async () => {
    const { one, near, far, teacher } = await managing();
    const { id: room_id } = (await one.admin.post<{ id: number }>('/api/rooms', { name: 'Lab' }, 201)).data;
    const slot = await add({ ...bodyOf(far, 1, 1), room_id }, one);
    const inRoom = await teacher.post(path, { ...bodyOf(near, 1, 1), teacher_id: null, room_id }, 409);
    expect(messages(inRoom)).toEqual(['Lab is taken by another class on Monday, period 1.']);
    expect(JSON.stringify(inRoom)).not.toContain(far.className);
    await service.database.query(`insert into ${one.schema}.teacher_availability values ($1, 1, 2, false)`, [
      far.teacher_id,
    ]);
    await one.admin.put(`/api/teachers/${far.teacher_id}/workload-rule`, { max_periods_per_day: 1 });
    await teacher.post(path, bodyOf(near, 1, 1), 201);
    const taken = await teacher.post(path, { ...bodyOf(near, 1, 1), teacher_id: far.teacher_id }, 409);
    expect(messages(taken)).toEqual([
      expect.stringContaining(`${near.className} already has`),
      `${slot.teacher_name ?? ''} already teaches another class on Monday, period 1.`,
      `${slot.teacher_name ?? ''} cannot have more periods on Monday.`,
    ]);
    expect(JSON.stringify(taken)).not.toContain(far.className);
    const { data } = await teacher.post<Conflicts>(checkPath, {
      class_id: near.class_id,
      teacher_id: far.teacher_id,
      day_of_week: 1,
      period: 2,
    });
    expect(data.conflicts.map(({ kind }) => kind)).toEqual(['availability', 'workload_day']);
    expect((await teacher.post(path, bodyOf(far, 2, 2), 422)).details).toMatchObject([{ path: 'class_id' }]);
    await teacher.send('PATCH', `${path}/${slot.id}/move`, { body: { day_of_week: 2, period: 2 } }, 404);
    await teacher.delete(`${path}/${slot.id}`, 404);
    expect((await teacher.put(configPath, { total_periods: 9 }, 403)).message).toContain('whole school');
    // The conflict check restores the scope of the request.
    expect((await teacher.get<Slot[]>(path)).data).toHaveLength(1);
  });

  test('a school without the feature has no timetable', async () => {
    const none = await service.school({ feature_flags: { timetable: false } });
    for (const get of [path, configPath]) expect((await none.admin.get(get, 403)).error).toBe('feature_disabled');
    expect((await none.admin.post('/api/timetable/generate', {}, 403)).error).toBe('feature_disabled');
  });
});

describe('concurrent requests', () => {
  const lock = (at: School) => `select from ${at.schema}.timetable_config for update`;
  const statuses = (answers: { status: number }[]) => answers.map(({ status }) => status).sort();
  // The service retries after a deadlock, so only the statistics of the database show one.
  const expectNoDeadlock = async () =>
    expect(
      await service.database.query(
        'select deadlocks::integer from pg_stat_database where datname = current_database()',
      ),
    ).toEqual([{ deadlocks: 0 }]);

  test('for the last free period of a teacher: one succeeds and the other exceeds the limit', async () => {
    const [one, two] = [await stage(), await stage()];
    await school.admin.put(`/api/teachers/${one.teacher_id}/workload-rule`, { max_periods_per_day: 1 });
    const answers = await race(service.database, lock(school), 2, () => [
      school.admin.send('POST', path, { body: bodyOf(one, 1, 1) }),
      school.admin.send('POST', path, { body: { ...bodyOf(two, 1, 2), teacher_id: one.teacher_id } }),
    ]);
    expect(statuses(answers)).toEqual([201, 409]);
    expect(answers.filter(({ status }) => status === 409).flatMap(messages)).toEqual([
      expect.stringContaining('2 periods on Monday'),
    ]);
  });

  test('for the same teacher or class at the same time: only one succeeds', async () => {
    const stages = await Promise.all(Array.from({ length: 6 }, () => stage()));
    const [{ teacher_id } = { teacher_id: 0 }] = stages;
    const answers = await race(service.database, lock(school), 6, () =>
      stages.map((each) => school.admin.send('POST', path, { body: { ...bodyOf(each, 2, 2), teacher_id } })),
    );
    expect(statuses(answers)).toEqual([201, 409, 409, 409, 409, 409]);
    for (const { status, error } of answers)
      expect([201, 'schedule_conflict']).toContain(status === 201 ? status : error);
    const [{ class_id } = { class_id: 0 }] = stages;
    const same = await race(service.database, lock(school), 6, () =>
      stages.map((each) => school.admin.send('POST', path, { body: { ...bodyOf(each, 5, 5), class_id } })),
    );
    expect(statuses(same)).toEqual([201, 409, 409, 409, 409, 409]);
  });

  test('to shorten the day and to add a slot in its last period: one of them is refused', async () => {
    const one = await service.school();
    const the = await stage(one);
    const answers = await race(service.database, lock(one), 2, () => [
      one.admin.send('POST', path, { body: bodyOf(the, 1, 8) }),
      one.admin.send('PUT', configPath, { body: { total_periods: 7 } }),
    ]);
    expect([`201,409`, `200,409`]).toContain(statuses(answers).join());
    expect(answers.find(({ status }) => status === 409)?.error).toBe('schedule_conflict');
  });

  test('to swap the same slots from opposite sides do not deadlock', async () => {
    const the = await stage();
    const [a, b] = [await add(bodyOf(the, 1, 1)), await add({ ...bodyOf(the, 2, 2), teacher_id: await addTeacher() })];
    const swap = (id: number, day: number) =>
      school.admin.send('PATCH', `${path}/${id}/move`, { body: { day_of_week: day, period: day, swap: true } });
    const answers = await race(service.database, lock(school), 2, () => [swap(a.id, 2), swap(b.id, 1)]);
    // The second one finds its slot already at the new time and changes nothing.
    expect(statuses(answers)).toEqual([200, 200]);
    expect([await read(a.id), await read(b.id)].map(({ day_of_week, period }) => `${day_of_week} ${period}`)).toEqual([
      '2 2',
      '1 1',
    ]);
    const again = await race(service.database, lock(school), 6, () => [
      swap(a.id, 1),
      swap(b.id, 1),
      swap(a.id, 2),
      swap(b.id, 2),
      swap(a.id, 1),
      swap(b.id, 1),
    ]);
    expect(statuses(again)).toEqual(Array(6).fill(200));
    expect(
      [await read(a.id), await read(b.id)].map(({ day_of_week, period }) => `${day_of_week} ${period}`).sort(),
    ).toEqual(['1 1', '2 2']);
    await expectNoDeadlock();
  });

  test('to update, delete, move and create slots do not deadlock', async () => {
    const the = await stage();
    const [a, b, c] = [await add(bodyOf(the, 1, 1)), await add(bodyOf(the, 2, 2)), await add(bodyOf(the, 3, 3))];
    const answers = await race(service.database, lock(school), 4, () => [
      school.admin.send('PUT', `${path}/${a.id}`, { body: { day_of_week: 2, period: 2 } }),
      school.admin.send('DELETE', `${path}/${b.id}`),
      school.admin.send('PATCH', `${path}/${c.id}/move`, { body: { day_of_week: 1, period: 1, swap: true } }),
      school.admin.send('POST', path, { body: bodyOf(the, 4, 4) }),
    ]);
    // The result depends on whether the slot at that time is deleted first.
    expect([200, 409]).toContain(answers[0]?.status);
    expect(answers.slice(1).map(({ status }) => status)).toEqual([200, 200, 201]);
    await expectNoDeadlock();
  });

  test('to add a slot and to move or delete its class: the slot follows the class or is not created', async () => {
    const nextYear = await school.insert('academic_year', {
      name: unique('Year'),
      start_date: '1999-01-01',
      end_date: '1999-12-31',
    });
    const both = async (send: (the: Awaited<ReturnType<typeof stage>>) => Promise<Answer<unknown>>) => {
      const the = await stage();
      await add(bodyOf(the, 1, 1));
      const answers = await race(service.database, lock(school), 2, () => [
        send(the),
        school.admin.send('POST', path, { body: bodyOf(the, 2, 2) }),
      ]);
      const slots = await service.database.query<{ year: number }>(
        `select academic_year_id::integer as year from ${school.schema}.timetable_slot where class_id = $1`,
        [the.class_id],
      );
      return { answers, years: slots.map(({ year }) => year) };
    };
    for (let n = 0; n < 3; n++) {
      const moved = await both((the) =>
        school.admin.send('PUT', `/api/classes/${the.class_id}`, { body: { academic_year_id: nextYear } }),
      );
      expect([moved.answers.map(({ status }) => status), moved.years]).toEqual([
        [200, 201],
        [nextYear, nextYear],
      ]);
      const removed = await both((the) => school.admin.send('DELETE', `/api/classes/${the.class_id}`));
      const [of, slot] = removed.answers;
      expect([of?.status, removed.years]).toEqual([200, []]);
      if (slot?.status !== 201)
        expect([slot?.status, slot?.details.map((detail) => detail.path)]).toEqual([422, ['class_id']]);
    }
    await expectNoDeadlock();
  });
});
