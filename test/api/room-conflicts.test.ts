import { describe, expect, test } from '@jest/globals';
import type { Answer } from '../support/client/client.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Class as ClassSchema } from '../../src/endpoints/classes.ts';
import type { Room as RoomSchema } from '../../src/endpoints/rooms.ts';
import type { Conflicts as ConflictsSchema, MovedSlot as MovedSlotSchema } from '../../src/endpoints/timetable.ts';

type Class = OutputOf<typeof ClassSchema>;
type Room = OutputOf<typeof RoomSchema>;
type Slot = OutputOf<typeof MovedSlotSchema>;
type Conflicts = OutputOf<typeof ConflictsSchema>;
interface Subject {
  id: number;
  room_ids: number[];
}

const { service, school } = await serviceWithSchool();

const slots = '/api/timetable/slots';
const addRoom = async (fields: Record<string, unknown> = {}, at = school) =>
  (await at.admin.post<Room>('/api/rooms', { name: unique('Room'), ...fields }, 201)).data;
const subject = await school.insert('subject', { name: 'Science', code: 'SCI' });
const addClass = async (fields: Record<string, unknown> = {}) => {
  const { classId } = await school.classroom(unique('Class'));
  return (await school.admin.put<Class>(`/api/classes/${classId}`, { capacity: 30, ...fields })).data;
};
const body = (of: Class, day_of_week: number, period: number, fields: object = {}) => ({
  class_id: of.id,
  subject_id: subject,
  ...{ day_of_week, period },
  ...fields,
});
const add = async (...given: Parameters<typeof body>) =>
  (await school.admin.post<Slot>(slots, body(...given), 201)).data;
const refuse = async (...given: Parameters<typeof body>) => school.admin.post(slots, body(...given), 409);
const put = async (slot: Slot, fields: object) => (await school.admin.put<Slot>(`${slots}/${slot.id}`, fields)).data;
const kinds = ({ details }: Answer<unknown>) =>
  (details as { path: string; kind: string; slot_id: number }[]).map(({ path, kind, slot_id }) => [
    path,
    kind,
    slot_id,
  ]);

describe('the room of a class or a slot', () => {
  test('is named by its id, or by a text that is its name in any case; other texts stay as they are', async () => {
    const room = await addRoom({ name: unique('Lab') });
    const is = { room: room.name, home_room_id: room.id };
    expect(await addClass({ home_room_id: room.id })).toMatchObject(is);
    const one = await addClass({ room: room.name.toUpperCase() });
    expect(one).toMatchObject(is);
    const path = `/api/classes/${one.id}`;
    expect((await school.admin.put<Class>(path, { ...one, room: 'Cellar' })).data).toMatchObject({
      ...{ room: 'Cellar', home_room_id: null },
    });
    expect((await school.admin.put<Class>(path, { home_room_id: room.id })).data).toMatchObject(is);
    expect((await school.admin.put<Class>(path, { home_room_id: null })).data).toMatchObject({
      ...{ room: null, home_room_id: null },
    });
    const own = await add(one, 1, 1, { room_id: room.id });
    expect(own).toMatchObject({ room: room.name, room_id: room.id, class_room: null });
    expect(await put(own, { ...own, room: 'Garden' })).toMatchObject({ room: 'Garden', room_id: null });
    expect(await put(own, { room: room.name.toLowerCase() })).toMatchObject({ room: room.name, room_id: room.id });
    expect(await put(own, { ...own, room_id: null })).toMatchObject({ room: null, room_id: null });
  });

  test('that was a text before the room was added stays a text until it is changed', async () => {
    const name = unique('Later');
    const slot = await add(await addClass({ room: name }), 1, 2, { room: name });
    const room = await addRoom({ name });
    expect(await put(slot, { ...slot, period: 3 })).toMatchObject({ room: name, room_id: null });
    expect(await put(slot, { room_id: room.id })).toMatchObject({ room: name, room_id: room.id });
  });

  test('that differs as id and as text is a 400, an unknown or inactive one a 422', async () => {
    const [one, two] = [await addRoom(), await addRoom({ is_active: false })];
    const of = await addClass();
    const post = async (fields: object, status: number) =>
      (await school.admin.post(slots, body(of, 2, 2, fields), status)).details.map(({ path }) => path);
    expect(await post({ room_id: one.id, room: 'Elsewhere' }, 400)).toEqual(['room']);
    expect(await post({ room_id: two.id }, 422)).toEqual(['room_id']);
    expect(await post({ room: two.name }, 422)).toEqual(['room']);
    expect(await post({ room_id: 987654 }, 422)).toEqual(['room_id']);
    expect((await school.admin.put(`/api/classes/${of.id}`, { home_room_id: two.id }, 422)).details).toMatchObject([
      { path: 'home_room_id' },
    ]);
  });

  test('keeps a room from being deleted, and has its new name when it is renamed', async () => {
    const room = await addRoom();
    const of = await addClass({ home_room_id: room.id });
    const slot = await add(await addClass(), 1, 1, { room_id: room.id });
    const refused = await school.admin.delete(`/api/rooms/${room.id}`, 409);
    expect(refused.error).toBe('in_use');
    const name = unique('Renamed');
    await school.admin.put(`/api/rooms/${room.id}`, { name });
    expect((await school.admin.get<Class>(`/api/classes/${of.id}`)).data.room).toBe(name);
    expect((await school.admin.get<Slot>(`${slots}/${slot.id}`)).data.room).toBe(name);
    await school.admin.delete(`${slots}/${slot.id}`);
    await school.admin.put(`/api/classes/${of.id}`, { room: '' });
    await school.admin.delete(`/api/rooms/${room.id}`);
  });

  test('that is deactivated stays that of its slots and classes, and has one lesson at a time', async () => {
    const room = await addRoom();
    const [one, two] = [await addClass({ home_room_id: room.id }), await addClass()];
    const slot = await add(two, 1, 1, { room_id: room.id });
    await school.admin.put(`/api/rooms/${room.id}`, { is_active: false });
    expect(await put(slot, { ...slot, period: 2 })).toMatchObject({ room_id: room.id });
    const lesson = { class_id: one.id, subject_id: slot.subject_id, day_of_week: 1, period: 2 };
    const { details } = await school.admin.post(slots, lesson, 409);
    expect(details).toMatchObject([{ kind: 'room', slot_id: slot.id }]);
    const check = { class_id: one.id, day_of_week: 1, period: 2 };
    const { data } = await school.admin.post<{ conflicts: unknown[] }>('/api/timetable/check-conflicts', check);
    expect(data.conflicts).toMatchObject([{ kind: 'room', slot: { slot_id: slot.id } }]);
  });

  test('has the last name of the room in every class, however the requests meet', async () => {
    const room = await addRoom();
    const { grade_id, academic_year_id } = await addClass();
    for (const round of [1, 2, 3, 4, 5])
      await Promise.all([
        school.admin.put(`/api/rooms/${room.id}`, { name: `${room.name} ${round}` }),
        ...[1, 2, 3, 4].map(() =>
          school.admin.post(
            '/api/classes',
            { name: unique('Class'), grade_id, academic_year_id, home_room_id: room.id },
            201,
          ),
        ),
      ]);
    const { data } = await school.admin.get<Class[]>(`/api/classes?home_room_id=${room.id}&pageSize=100`);
    expect(data.map((of) => of.room)).toEqual(Array<string>(20).fill(`${room.name} 5`));
  });

  test('pins a lesson that gets another room, as another time does', async () => {
    const room = await addRoom();
    const slot = await add(await addClass(), 1, 1, { is_pinned: false });
    expect(await put(slot, { room_id: room.id })).toMatchObject({ room: room.name, is_pinned: true });
  });

  test('leaves the class and the slot when the previous release writes another text', async () => {
    const room = await addRoom();
    const of = await addClass({ home_room_id: room.id });
    const slot = await add(await addClass(), 1, 1, { room_id: room.id });
    await school.database.query(`update ${school.schema}.class set room = 'Garden' where id = $1`, [of.id]);
    await school.database.query(`update ${school.schema}.timetable_slot set room = 'Garden' where id = $1`, [slot.id]);
    expect((await school.admin.get<Class>(`/api/classes/${of.id}`)).data).toMatchObject({
      room: 'Garden',
      home_room_id: null,
    });
    expect((await school.admin.get<Slot>(`${slots}/${slot.id}`)).data).toMatchObject({ room: 'Garden', room_id: null });
    await add(of, 1, 1, { room_id: room.id });
  });

  test('is copied to the next year with the class, unless it has been deactivated', async () => {
    const [kept, closed] = [await addRoom(), await addRoom()];
    const [one, two] = [await addClass({ home_room_id: kept.id }), await addClass({ home_room_id: closed.id })];
    await school.admin.put(`/api/rooms/${closed.id}`, { is_active: false });
    const year = { name: unique('Year'), start_date: '2034-01-01', end_date: '2034-12-31' };
    const to = (await school.admin.post<{ id: number }>('/api/academics/years', year, 201)).data.id;
    await school.admin.post('/api/classes/copy', {
      from_academic_year_id: one.academic_year_id,
      to_academic_year_id: to,
      class_ids: [one.id, two.id],
    });
    const { data } = await school.admin.get<Class[]>(`/api/classes?academic_year_id=${to}&sort=created_at`);
    expect(data.sort((a, b) => a.id - b.id).map(({ room, home_room_id }) => [room, home_room_id])).toEqual([
      [kept.name, kept.id],
      [null, null],
    ]);
  });

  test('finds its lessons, also those of the class whose home room it is', async () => {
    const room = await addRoom();
    const [one, two] = [await addClass({ home_room_id: room.id }), await addClass()];
    const here = [await add(one, 1, 1), await add(two, 1, 2, { room: room.name })];
    await add(one, 1, 3, { room: 'Elsewhere' });
    const { data } = await school.admin.get<Slot[]>(`${slots}?room_id=${room.id}`);
    expect(data.map(({ id }) => id)).toEqual(here.map(({ id }) => id));
    const classes = await school.admin.get<Class[]>(`/api/classes?home_room_id=${room.id}`);
    expect(classes.data.map(({ id }) => id)).toEqual([one.id]);
  });
});

describe('two lessons in one room at one time', () => {
  test('are a conflict of the kind room, for a room of its own and for a home room', async () => {
    const room = await addRoom();
    const [one, two] = [await addClass({ home_room_id: room.id }), await addClass()];
    const first = await add(one, 1, 1);
    const refused = await refuse(two, 1, 1, { room_id: room.id });
    expect(refused).toMatchObject({
      error: 'schedule_conflict',
      message: `${room.name} is taken by ${one.class_name} (Science) on Monday, period 1.`,
    });
    expect(kinds(refused)).toEqual([['room_id', 'room', first.id]]);
    const second = await add(two, 1, 2, { room: room.name });
    expect(kinds(await refuse(one, 1, 2))).toEqual([['period', 'room', second.id]]);
    await add(one, 1, 2, { room: 'Elsewhere' });
    const third = await add(two, 1, 3);
    expect(kinds(await school.admin.put(`${slots}/${third.id}`, { period: 1, room_id: room.id }, 409))).toEqual([
      ['room_id', 'room', first.id],
    ]);
  });

  test('are refused by a move and found by the check, but may change places', async () => {
    const room = await addRoom();
    const [one, two] = [await addClass({ home_room_id: room.id }), await addClass()];
    const [first, later] = [await add(one, 1, 1), await add(one, 1, 2)];
    const other = await add(two, 1, 3, { room_id: room.id });
    const move = (slot: Slot, period: number, status: number, swap = false) =>
      school.admin.send('PATCH', `${slots}/${slot.id}/move`, { body: { day_of_week: 1, period, swap } }, status);
    expect(kinds(await move(other, 1, 409))).toEqual([['period', 'room', first.id]]);
    await move(first, 2, 200, true);
    expect(kinds(await move(other, 1, 409))).toEqual([['period', 'room', later.id]]);
    const check = async (fields: object) =>
      (await school.admin.post<Conflicts>('/api/timetable/check-conflicts', fields)).data.conflicts.map(
        ({ kind, slot }) => [kind, slot?.slot_id],
      );
    const at = { class_id: two.id, day_of_week: 1, period: 1 };
    expect(await check({ ...at, exclude_slot_id: other.id })).toEqual([['room', later.id]]);
    expect(await check({ ...at, exclude_slot_id: other.id, room: null })).toEqual([]);
    expect(await check(at)).toEqual([]);
    expect(await check({ ...at, room: room.name })).toEqual([['room', later.id]]);
    expect(await check({ class_id: one.id, day_of_week: 1, period: 3 })).toEqual([['room', other.id]]);
    expect(await check({ ...at, room: 'Elsewhere' })).toEqual([]);
  });

  test('are a conflict when the home room of a class changes', async () => {
    const room = await addRoom();
    const [one, two] = [await addClass({ home_room_id: room.id }), await addClass()];
    const first = await add(one, 1, 1);
    const second = await add(two, 1, 1);
    const path = `/api/classes/${two.id}`;
    expect(kinds(await school.admin.put(path, { home_room_id: room.id }, 409))).toEqual([
      ['home_room_id', 'room', first.id],
    ]);
    await put(second, { period: 2 });
    await school.admin.put(path, { home_room_id: room.id });
    expect(kinds(await refuse(one, 1, 2))).toEqual([['period', 'room', second.id]]);
  });

  test('are allowed in a shared room, which cannot become a room for one lesson meanwhile', async () => {
    const hall = await addRoom({ is_shared: true });
    const [one, two] = [await addClass({ home_room_id: hall.id }), await addClass()];
    const [first, second] = [await add(one, 1, 1), await add(two, 1, 1, { room_id: hall.id })];
    const path = `/api/rooms/${hall.id}`;
    const refused = await school.admin.put(path, { is_shared: false }, 409);
    expect(refused).toMatchObject({
      error: 'schedule_conflict',
      details: [
        {
          path: 'is_shared',
          message: `${one.class_name} (Science), ${two.class_name} (Science) on Monday, period 1.`,
        },
      ],
    });
    await put(second, { period: 2 });
    await school.admin.put(path, { is_shared: false });
    expect(kinds(await refuse(two, 1, 1, { room_id: hall.id }))).toEqual([['room_id', 'room', first.id]]);
    await school.admin.put(path, { is_shared: true });
    await add(two, 1, 1, { room_id: hall.id });
  });

  test('of a past year stay when a hall becomes a room for one lesson, and have its new name', async () => {
    const hall = await addRoom({ is_shared: true });
    const { grade_id } = await addClass();
    const year = { name: unique('Past'), start_date: '2020-01-01', end_date: '2020-12-31' };
    const academic_year_id = (await school.admin.post<{ id: number }>('/api/academics/years', year, 201)).data.id;
    const past = async () =>
      (await school.admin.post<Class>('/api/classes', { name: unique('Past'), grade_id, academic_year_id }, 201)).data;
    const both = [
      await add(await past(), 1, 1, { room_id: hall.id }),
      await add(await past(), 1, 1, { room_id: hall.id }),
    ];
    await school.admin.put(`/api/rooms/${hall.id}`, { is_shared: false });
    const name = unique('Former hall');
    await school.admin.put(`/api/rooms/${hall.id}`, { name });
    for (const { id } of both) expect((await school.admin.get<Slot>(`${slots}/${id}`)).data.room).toBe(name);
  });

  test('do not include lessons whose text is another place, when a class gets a home room or a hall is no hall', async () => {
    const [room, hall] = [await addRoom(), await addRoom({ is_shared: true })];
    const [one, two, three] = [await addClass(), await addClass(), await addClass({ home_room_id: hall.id })];
    await add(one, 1, 1, { room: 'Garden' });
    await school.admin.put(`/api/classes/${one.id}`, { home_room_id: room.id });
    await add(two, 1, 1, { room_id: room.id });
    await add(three, 1, 2, { room: 'Garden' });
    await add(two, 1, 2, { room_id: hall.id });
    await school.admin.put(`/api/rooms/${hall.id}`, { is_shared: false });
  });

  test('of the next year keep a hall shared, too', async () => {
    const hall = await addRoom({ is_shared: true });
    const { grade_id } = await addClass();
    const next = { name: unique('Year'), start_date: '2035-01-01', end_date: '2035-12-31' };
    const academic_year_id = (await school.admin.post<{ id: number }>('/api/academics/years', next, 201)).data.id;
    for (const name of [unique('Class'), unique('Class')])
      await add(
        (await school.admin.post<Class>('/api/classes', { name, grade_id, academic_year_id }, 201)).data,
        ...([1, 1] as const),
        { room_id: hall.id },
      );
    const { details } = await school.admin.put(`/api/rooms/${hall.id}`, { is_shared: false }, 409);
    expect(details).toMatchObject([{ path: 'is_shared' }]);
  });

  test('are a conflict when a slot moves to a class with a home room', async () => {
    const room = await addRoom();
    const [home, guest, third] = [await addClass({ home_room_id: room.id }), await addClass(), await addClass()];
    const taken = await add(guest, 1, 1, { room_id: room.id });
    const slot = await add(third, 1, 1);
    const refused = await school.admin.put(`${slots}/${slot.id}`, { class_id: home.id }, 409);
    expect(kinds(refused)).toEqual([['class_id', 'room', taken.id]]);
  });

  test('cannot be stored: a constraint of the table refuses them without the trigger, too', async () => {
    const room = await addRoom();
    await add(await addClass({ home_room_id: room.id }), 1, 1);
    const other = await addClass({ home_room_id: room.id });
    await expect(
      service.database.query(`
        alter table ${school.schema}.timetable_slot disable trigger check_conflicts_of_insert;
        insert into ${school.schema}.timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period)
          values (${other.id}, ${other.academic_year_id}, ${subject}, 1, 1)`),
    ).rejects.toThrow('timetable_slot_room_key');
  });
});

test('a subject has rooms, which replace the earlier ones and are active', async () => {
  const [one, two, closed] = [await addRoom(), await addRoom(), await addRoom({ is_active: false })];
  const create = { name: 'Chemistry', code: unique('CH'), room_ids: [two.id, one.id] };
  const { data } = await school.admin.post<Subject>('/api/subjects', create, 201);
  expect(data.room_ids).toEqual([one.id, two.id]);
  const path = `/api/subjects/${data.id}`;
  expect((await school.admin.put<Subject>(path, { room_ids: [two.id] })).data.room_ids).toEqual([two.id]);
  expect((await school.admin.put<Subject>(path, { name: 'Physics' })).data.room_ids).toEqual([two.id]);
  expect((await school.admin.put(path, { room_ids: [two.id, closed.id] }, 422)).details).toMatchObject([
    { path: 'room_ids.1' },
  ]);
  expect(await school.admin.delete(`/api/rooms/${two.id}`, 409)).toMatchObject({
    error: 'in_use',
    message: 'This is one of the rooms of Physics. Change the rooms of the subject first.',
  });
  await school.admin.put(`/api/rooms/${two.id}`, { is_active: false });
  expect((await school.admin.put<Subject>(path, { room_ids: [one.id, two.id] })).data.room_ids).toHaveLength(2);
  expect((await school.admin.put<Subject>(path, { room_ids: [] })).data.room_ids).toEqual([]);
  await school.admin.delete(`/api/rooms/${two.id}`);
});
