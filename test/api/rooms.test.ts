import { describe, expect, test } from '@jest/globals';
import type { Room as RoomSchema } from '../../src/endpoints/rooms.ts';
import type { OutputOf } from '../support/client/output.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

type Room = OutputOf<typeof RoomSchema>;

const { service, school } = await serviceWithSchool();

const path = '/api/rooms';
const add = async (fields: Record<string, unknown> = {}, at = school) =>
  (await at.admin.post<Room>(path, { name: unique('Room'), ...fields }, 201)).data;

describe('a room', () => {
  test('is created, read, changed and deleted', async () => {
    const { id: unit } = (await school.admin.post<{ id: number }>('/api/school-units', { name: 'Primary' }, 201)).data;
    const record = await add({ name: '  Lab   1 ', capacity: 24, school_unit_id: unit });
    expect(record).toMatchObject({
      ...{ name: 'Lab 1', capacity: 24, school_unit_id: unit, school_unit_name: 'Primary' },
      ...{ is_shared: false, is_active: true },
    });
    expect((await school.admin.get<Room>(`${path}/${record.id}`)).data).toEqual(record);
    const changes = { name: unique('Hall'), capacity: null, school_unit_id: null, is_shared: true, is_active: false };
    const { data: changed } = await school.admin.put<Room>(`${path}/${record.id}`, changes);
    expect(changed).toEqual({ ...record, ...changes, school_unit_name: null, updated_at: changed.updated_at });
    expect((await school.admin.delete<{ id: number }>(`${path}/${record.id}`)).data).toEqual({ id: record.id });
    await school.admin.get(`${path}/${record.id}`, 404);
  });

  test('has a name that is unique within the school, ignoring case', async () => {
    const { name } = await add();
    const refused = await school.admin.post(path, { name: name.toUpperCase() }, 409);
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'name' }] });
    await add({ name }, await service.school());
  });

  test.each([
    [{ name: ' ' }, 400, ['name']],
    [{ name: 'x'.repeat(51), capacity: 0 }, 400, ['capacity', 'name']],
    [{ name: 'Unknown unit', school_unit_id: 987654 }, 422, ['school_unit_id']],
  ])('%j is refused with the fields', async (body, status, fields) => {
    expect((await school.admin.post(path, body, status)).details.map((detail) => detail.path).sort()).toEqual(fields);
  });

  test('can be found by name, unit and state', async () => {
    const one = await service.school();
    const { id: unit } = (await one.admin.post<{ id: number }>('/api/school-units', { name: 'Secondary' }, 201)).data;
    await add({ name: 'Sporthalle Süd', is_shared: true }, one);
    await add({ name: 'Chemie', school_unit_id: unit, capacity: 20 }, one);
    await add({ name: 'Archiv', is_active: false, capacity: 5 }, one);
    const found = async (query: string) =>
      (await one.admin.get<Room[]>(`${path}?${query}`)).data.map(({ name }) => name);
    expect(await found('')).toEqual(['Archiv', 'Chemie', 'Sporthalle Süd']);
    expect(await found('search=sud')).toEqual(['Sporthalle Süd']);
    expect(await found(`school_unit_id=${unit}`)).toEqual(['Chemie']);
    expect(await found('is_shared=true')).toEqual(['Sporthalle Süd']);
    expect(await found('is_active=false')).toEqual(['Archiv']);
    expect(await found('sort=capacity&order=desc')).toEqual(['Chemie', 'Archiv', 'Sporthalle Süd']);
  });

  test('keeps its unit from being deleted', async () => {
    const { id: unit } = (await school.admin.post<{ id: number }>('/api/school-units', { name: 'Kept' }, 201)).data;
    await add({ school_unit_id: unit });
    expect((await school.admin.delete(`/api/school-units/${unit}`, 409)).error).toBe('in_use');
  });
});

test('every user of the school reads rooms; changing them requires master_data.manage', async () => {
  const { id } = await add();
  for (const roles of [['student'], ['teacher'], ['accountant']]) {
    const client = await school.user(roles);
    expect((await client.get<Room>(`${path}/${id}`)).data.id).toBe(id);
    await client.get(path, 200);
    await client.post(path, { name: 'Mine' }, 403);
    await client.put(`${path}/${id}`, { name: 'Mine' }, 403);
    await client.delete(`${path}/${id}`, 403);
  }
});
