import { describe, expect, test } from '@jest/globals';
import { ids } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { serviceOfFile, unique } from '../support/server/service.ts';
import { day, transportSchool } from '../support/fixtures/transport.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Bus as BusSchema, BusDetail as BusDetailSchema } from '../../src/endpoints/transport-buses.ts';

const service = await serviceOfFile();
const fleet = await transportSchool(service);
const { admin, school, schema } = fleet;

const path = '/api/transport/buses';

type Bus = OutputOf<typeof BusSchema>;
type Detail = OutputOf<typeof BusDetailSchema>;

describe('buses', () => {
  test('a bus is created, read, partially updated and deleted', async () => {
    const sent = {
      registration_number: 'LX21 ABC',
      capacity: 32,
      model: 'Iveco Daily',
      insurance_expires_on: day(200),
      fitness_expires_on: day(100),
    };
    const added = await admin.post<Bus>(path, sent, 201);
    expect(added.headers.get('location')).toBe(`${path}/${added.data.id}`);
    expect(added.data).toMatchObject({ ...sent, is_active: true });
    expect((await admin.get<Bus>(`${path}/${added.data.id}`)).data).toEqual(added.data);
    const { data: changed } = await admin.put<Bus>(`${path}/${added.data.id}`, {
      ...added.data,
      model: null,
      is_active: false,
    });
    expect(changed).toMatchObject({ ...sent, model: null, is_active: false });
    expect((await admin.delete<{ id: number }>(`${path}/${added.data.id}`)).data).toEqual({ id: added.data.id });
    await admin.get(`${path}/${added.data.id}`, 404);
    await admin.put(`${path}/${added.data.id}`, { capacity: 1 }, 404);
    await admin.delete(`${path}/${added.data.id}`, 404);
  });

  test('a registration number is unique, ignoring case, until its bus is deleted', async () => {
    const first = await fleet.addBus({ registration_number: 'AB 123 cd' });
    const refused = await admin.post(path, { registration_number: 'ab 123 CD', capacity: 20 }, 409);
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'registration_number' }] });
    const other = await fleet.addBus();
    await admin.put(`${path}/${other}`, { registration_number: 'Ab 123 Cd' }, 409);
    await admin.delete(`${path}/${first}`);
    await fleet.addBus({ registration_number: 'AB 123 CD' });
  });

  test.each<[object, string]>([
    [{ capacity: 0 }, 'capacity'],
    [{ capacity: 40.5 }, 'capacity'],
    [{ capacity: 501 }, 'capacity'],
    [{ registration_number: ' ' }, 'registration_number'],
    [{ insurance_expires_on: '2026-02-30' }, 'insurance_expires_on'],
    [{ route_id: 1 }, 'route_id'],
  ])('%j is a 400 that names the field', async (fields, field) => {
    const refused = await admin.post(path, { registration_number: unique('BUS'), capacity: 40, ...fields }, 400);
    expect(refused.details.map((detail) => detail.path)).toEqual([field]);
  });

  test('the list is sorted by registration number, searchable, and filters by is_active and expires_before', async () => {
    const own = await transportSchool(service);
    const b = await own.addBus({ registration_number: 'b-2', model: 'Škoda', insurance_expires_on: day(10) });
    const a = await own.addBus({
      registration_number: 'A-1',
      is_active: false,
      fitness_expires_on: day(5),
      insurance_expires_on: day(300),
    });
    const c = await own.addBus({ registration_number: 'C-3' });
    const found = async (query: string) => ids((await own.admin.get<Bus[]>(`${path}?${query}`)).data);
    expect(await found('')).toEqual([a, b, c]);
    expect(await found('order=desc')).toEqual([c, b, a]);
    expect(await found('sort=insurance_expires_on')).toEqual([b, a, c]);
    expect(await found('search=skoda')).toEqual([b]);
    expect(await found('is_active=true')).toEqual([b, c]);
    expect(await found(`expires_before=${day(7)}`)).toEqual([a]);
    expect(await found(`expires_before=${day(11)}`)).toEqual([a, b]);
    await own.admin.get(`${path}?sort=models`, 400);
  });
});

describe('bus details', () => {
  const details = async (id: number) => (await admin.get<Detail>(`${path}/${id}/details`)).data;

  test('contain its routes with driver and student counts, and its documents', async () => {
    const { busId, routeId, enrollments } = await fleet.ridden(3, {
      insurance_expires_on: day(-1),
      fitness_expires_on: day(20),
    });
    const driver = await fleet.addDriver({ name: 'Kofi Mensah' });
    await admin.put(`/api/transport/routes/${routeId}`, { driver_id: driver });
    await admin.delete(`/api/transport/enroll/${enrollments[0]?.id ?? 0}`);
    expect(await details(busId)).toMatchObject({
      id: busId,
      route: { id: routeId, student_count: 2, driver_name: 'Kofi Mensah', is_assigned: false },
      student_count: 2,
      documents: [
        { kind: 'insurance', expires_on: day(-1), days_left: -1, is_expired: true },
        { kind: 'fitness', expires_on: day(20), days_left: 20, is_expired: false },
      ],
      assignments: [],
    });
    expect(await details(await fleet.addBus())).toMatchObject({
      route: null,
      routes: [],
      student_count: 0,
      documents: [],
    });
    await admin.get(`${path}/999999/details`, 404);
  });

  test("follow today's assignment, which overrides the default bus of the route", async () => {
    const { busId, routeId } = await fleet.ridden(1);
    const [other, driver_id] = [await fleet.addBus(), await fleet.addDriver()];
    const { data: assignment } = await fleet.assign({ bus_id: other, route_id: routeId, driver_id, ends_on: day(3) });
    expect((await details(busId)).route).toBeNull();
    expect(await details(other)).toMatchObject({
      route: { id: routeId, is_assigned: true },
      student_count: 1,
      assignments: [{ id: assignment.id, route_id: routeId }],
    });
  });

  test("follow today's plan: they omit a route that uses another bus and include a route where the bus is a replacement", async () => {
    const { busId } = await fleet.ridden(1);
    const [assigned, replaced, driver_id] = [await fleet.addRoute(), await fleet.addRoute(), await fleet.addDriver()];
    await fleet.assign({ bus_id: busId, route_id: assigned, driver_id, ends_on: day(3) });
    const { data: cancelled } = await fleet.except({
      route_id: assigned,
      date: day(),
      kind: 'cancelled',
      reason: 'Snow',
    });
    expect((await details(busId)).routes).toMatchObject([{ id: assigned, status: 'cancelled', student_count: 0 }]);
    await fleet.except({ route_id: replaced, date: day(), kind: 'replaced', bus_id: busId });
    expect((await details(busId)).routes).toMatchObject([
      { id: assigned, status: 'cancelled', is_assigned: true },
      { id: replaced, status: 'replaced', is_assigned: false },
    ]);
    expect((await admin.delete(`/api/transport/schedules/exceptions/${cancelled.id}`, 409)).error).toBe(
      'schedule_conflict',
    );
  });
});

describe('bus capacity', () => {
  test('cannot fall below the number of students on the pickup or the drop trip, which are counted separately', async () => {
    const { busId, routeId, stopId } = await fleet.ridden(2, {}, 'pickup');
    for (const type of ['drop', 'drop', 'drop', 'both'])
      expect((await fleet.enroll(await fleet.addStudent(), routeId, stopId, type)).status).toBe(201);
    const refused = await admin.put(`${path}/${busId}`, { capacity: 3 }, 409);
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'capacity' }] });
    expect(refused.message).toMatch(/has 3 seats, and 4 students would ride it from school/);
    await admin.put(`${path}/${busId}`, { capacity: 4 });
  });

  test('also counts students of future assignments, and no longer those of routes that use another bus', async () => {
    const { busId, routeId } = await fleet.ridden(3);
    const [later, driver_id] = [await fleet.addBus(), await fleet.addDriver()];
    const { data } = await fleet.assign({
      bus_id: later,
      route_id: routeId,
      driver_id,
      starts_on: day(20),
      ends_on: day(30),
    });
    await admin.put(`${path}/${later}`, { capacity: 2 }, 409);
    await admin.delete(`/api/transport/bus-assignments/${data.id}`);
    await admin.put(`${path}/${later}`, { capacity: 2 });
    await admin.put(`/api/transport/routes/${routeId}`, { bus_id: await fleet.addBus() });
    await admin.put(`${path}/${busId}`, { capacity: 1 });
  });

  test('when one request takes the last seat while another lowers the capacity, one of the two is refused', async () => {
    const { busId, routeId, stopId } = await fleet.ridden(1, { capacity: 2 });
    const student = await fleet.addStudent();
    const answers = await race(service.database, `select from ${schema}.bus where id = ${busId} for update`, 2, () => [
      fleet.enroll(student, routeId, stopId),
      admin.send('PUT', `${path}/${busId}`, { body: { capacity: 1 } }),
    ]);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(1);
    const { data } = await admin.get<Bus>(`${path}/${busId}`);
    expect((await fleet.route(routeId)).student_count).toBeLessThanOrEqual(data.capacity);
  });
});

describe('deleting a bus', () => {
  test('is refused as in_use while a route uses it, an assignment has not ended, or it is a future replacement', async () => {
    const [bus_id, other, driver_id] = [await fleet.addBus(), await fleet.addBus(), await fleet.addDriver()];
    const route_id = await fleet.addRoute({ name: 'Northern line', bus_id });
    const refused = await admin.delete(`${path}/${bus_id}`, 409);
    expect(refused).toMatchObject({
      error: 'in_use',
      message: 'Still used by these routes: Northern line. Change them first.',
    });
    await admin.put(`/api/transport/routes/${route_id}`, { bus_id: null });
    const { data: assignment } = await fleet.assign({ bus_id, route_id, driver_id });
    await admin.delete(`${path}/${bus_id}`, 409);
    await service.database.query(`update ${schema}.bus_assignment set starts_on = $1, ends_on = $2 where id = $3`, [
      day(-5),
      day(-1),
      assignment.id,
    ]);
    await fleet.except({ route_id, date: day(3), kind: 'replaced', bus_id });
    await admin.delete(`${path}/${bus_id}`, 409);
    await service.database.query(`update ${schema}.route_exception set date = $1 where bus_id = $2`, [day(-1), bus_id]);
    await admin.delete(`${path}/${bus_id}`);
    // Its history can still be read.
    expect((await admin.get<{ bus_id: number }>(`/api/transport/bus-assignments/${assignment.id}`)).data.bus_id).toBe(
      bus_id,
    );
    for (const body of [{ bus_id }, { bus_id: 999_999 }]) {
      expect(await admin.put(`/api/transport/routes/${route_id}`, body, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: 'bus_id' }],
      });
    }
    await admin.put(`/api/transport/routes/${route_id}`, { bus_id: other });
  });
});

describe('permissions', () => {
  test('transport.read allows reading and transport.manage writing; teachers and students see no buses', async () => {
    const userWith = async (permission: string) => school.user([await school.role(permission)]);
    const [reader, writer, manager] = [
      await userWith('transport.read'),
      await userWith('transport.manage'),
      await school.user(['transport_manager']),
    ];
    const id = await fleet.addBus();
    expect((await reader.get<Bus>(`${path}/${id}`)).data.id).toBe(id);
    await reader.put(`${path}/${id}`, { capacity: 41 }, 403);
    await writer.put(`${path}/${id}`, { capacity: 41 });
    await writer.get(`${path}/${id}`, 403);
    await manager.put<Bus>(`${path}/${id}`, { capacity: 42 });
    for (const role of ['teacher', 'student']) {
      const client = await school.user([role]);
      for (const at of ['', `/${id}`, `/${id}/details`]) await client.get(`${path}${at}`, 403);
    }
  });

  test('a school without the transport feature gets feature_disabled', async () => {
    const { data: tenant } = await service.operator.get<{ id: number }>(`/api/platform/tenants/${school.id}`);
    await service.operator.put(`/api/platform/tenants/${tenant.id}`, { feature_flags: { transport: false } });
    expect((await admin.get(path, 403)).error).toBe('feature_disabled');
    await service.operator.put(`/api/platform/tenants/${tenant.id}`, { feature_flags: {} });
    await admin.get(path);
  });
});
