import { expect, test } from '@jest/globals';
import type { Generated as GeneratedSchema } from '../../src/endpoints/timetable-generate.ts';
import type { OutputOf } from '../support/client/output.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';

const { service } = await serviceWithSchool();

type Generated = OutputOf<typeof GeneratedSchema>;
const path = '/api/timetable/generate';
const generate = async (school: School, body: object = {}) =>
  (await school.admin.post<Generated>(path, { effort: 1, ...body })).data;

/**
 * A school of three classes with 3 periods of Science and 2 of Maths a week, each with teachers of its own, in a week of
 * two days of four periods.
 */
async function planned() {
  const school = await service.school();
  const { schema } = school;
  const sql = (text: string) => school.database.query<{ id: number }>(text.replaceAll('@', `${schema}.`));
  await sql(`update platform.tenant set is_setup_complete = true where id = ${school.id}`);
  await school.classroom('Class 1');
  await sql(`
    insert into @class (name, grade_id, academic_year_id)
      select 'Class ' || n, grade_id, academic_year_id from @class, generate_series(2, 3) n`);
  await sql(`insert into @teacher (first_name, last_name) select 'Tia', 'T' || n from generate_series(1, 6) n`);
  await sql(`insert into @subject (name, code) values ('Science', 'SCI'), ('Maths', 'MAT')`);
  await sql(`
    insert into @class_subject (class_id, subject_id, teacher_id, periods_per_week)
      select c, s, c + 3 * (s - 1), 4 - s from generate_series(1, 3) c, generate_series(1, 2) s`);
  await school.admin.put('/api/timetable/config', { working_days: [1, 2], total_periods: 4 });
  const room = async (name: string, fields: object = {}) =>
    (await school.admin.post<{ id: number }>('/api/rooms', { name, ...fields }, 201)).data.id;
  return { school, sql, room };
}
const rooms = (slots: Generated['slots']) => slots.map(({ subject_id, room, room_id }) => [subject_id, room, room_id]);
const times = (slots: Generated['slots']) => slots.map(({ day_of_week, period }) => `${day_of_week}.${period}`);

test('the lessons of a subject with rooms take place in them, one at a time, and are stored and answered with them', async () => {
  const { school, room } = await planned();
  const [lab, two, closed] = [await room('Lab 1'), await room('Lab 2'), await room('Closed')];
  await school.admin.put('/api/subjects/1', { room_ids: [lab, two, closed] });
  await school.admin.put(`/api/rooms/${closed}`, { is_active: false });
  const answer = await generate(school);
  expect(answer).toMatchObject({ status: 'complete', placed: 15 });
  const science = answer.slots.filter(({ subject_id }) => subject_id === 1);
  expect(new Set(science.map((slot) => `${slot.room} ${slot.room_id}`))).toEqual(
    new Set([`Lab 1 ${lab}`, `Lab 2 ${two}`]),
  );
  expect(new Set(science.map((slot) => `${slot.room_id} ${slot.day_of_week}.${slot.period}`)).size).toBe(9);
  expect(rooms(answer.slots).filter(([subject]) => subject === 2)).toEqual(Array(6).fill([2, null, null]));
  const { data: saved } = await school.admin.get<Generated['slots']>('/api/timetable/slots?pageSize=100');
  expect(rooms(saved).sort()).toEqual(rooms(answer.slots).sort());
});

test('lessons in the rooms by hand or of other classes leave the other periods to the generator', async () => {
  const { school, room } = await planned();
  const lab = await room('Lab');
  await school.admin.put('/api/subjects/1', { room_ids: [lab] });
  await school.admin.put('/api/class-subjects/1', { periods_per_week: 2 });
  // Class 3 is not generated. Its lesson is in the laboratory on Monday in period 1.
  const other = { class_id: 3, subject_id: 2, day_of_week: 1, period: 1, room: 'lab' };
  await school.admin.post('/api/timetable/slots', other, 201);
  await school.admin.post('/api/timetable/slots', { ...other, class_id: 2, period: 2 }, 201);
  const { slots, status } = await generate(school, { class_ids: [1, 2] });
  expect(status).toBe('complete');
  const inLab = times(slots.filter(({ room_id }) => room_id === lab));
  expect(inLab).toHaveLength(5);
  expect(new Set([...inLab, '1.1', '1.2']).size).toBe(7);
});

test('classes with the same home room have their lessons one after the other, and lessons in a hall at the same time', async () => {
  const { school, room, sql } = await planned();
  const home = await room('R1');
  await sql(`update @class_subject set periods_per_week = 2`);
  await school.admin.put('/api/classes/1', { home_room_id: home });
  await school.admin.put('/api/classes/2', { home_room_id: home });
  const { slots } = await generate(school, { class_ids: [1, 2] });
  expect(rooms(slots)).toEqual(slots.map(({ subject_id }) => [subject_id, null, null]));
  expect(new Set(times(slots)).size).toBe(8);
  // A class keeps a home room that is no longer active.
  await school.admin.put(`/api/rooms/${home}`, { is_active: false });
  const again = await generate(school, { class_ids: [1, 2] });
  expect(new Set(times(again.slots)).size).toBe(8);
  await school.admin.put(`/api/rooms/${home}`, { is_shared: true });
  await sql(`update @class_subject set periods_per_week = 3 where class_id < 3`);
  expect(await generate(school, { class_ids: [1, 2] })).toMatchObject({ status: 'complete', placed: 12 });
});

test('more lessons than the rooms have periods are a 409 that names the room, or are left out on request', async () => {
  const { school, room } = await planned();
  const lab = await room('Lab');
  await school.admin.put('/api/subjects/1', { room_ids: [lab] });
  const refused = await school.admin.post(path, { effort: 1 }, 409);
  expect(refused).toMatchObject({
    error: 'schedule_conflict',
    details: [{ path: `room.${lab}`, message: 'The lessons in Lab need 9 periods a week, but only 8 are free.' }],
  });
  const answer = await generate(school, { allow_partial: true });
  expect(answer).toMatchObject({ status: 'partial', placed: 14, unplaced: [{ missing: 1, subject_name: 'Science' }] });
});

test('pinned lessons that are replaced, and lessons of another year, leave their rooms to the generator', async () => {
  const { school, sql, room } = await planned();
  const lab = await room('Lab');
  await school.admin.put('/api/subjects/1', { room_ids: [lab] });
  await sql(`update @class_subject set periods_per_week = 4 where subject_id = 1 and class_id < 3`);
  const past = { name: 'Past', start_date: '2020-01-01', end_date: '2020-12-31' };
  const year = (await school.admin.post<{ id: number }>('/api/academics/years', past, 201)).data.id;
  await sql(
    `insert into @class (name, grade_id, academic_year_id) select 'Past', grade_id, ${year} from @class limit 1`,
  );
  await sql(`
    insert into @timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period, room_id, room)
      select max(id), ${year}, 1, 1, n, ${lab}, 'Lab' from @class, generate_series(1, 4) n group by n`);
  // The two classes need all eight periods of the laboratory.
  expect(await generate(school, { class_ids: [1, 2] })).toMatchObject({ status: 'complete' });
  await sql(`update @timetable_slot set is_pinned = true where academic_year_id <> ${year}`);
  expect(await generate(school, { class_ids: [1, 2], replace_pinned: true })).toMatchObject({ status: 'complete' });
});
