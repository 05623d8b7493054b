import { describe, expect, test } from '@jest/globals';
import { ids } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { manyConnections, serviceOfFile, unique } from '../support/server/service.ts';
import { day, type Route, type Stop, transportSchool } from '../support/fixtures/transport.ts';

const service = await serviceOfFile(manyConnections);
const fleet = await transportSchool(service);
const { admin, school, schema } = fleet;

const routes = '/api/transport/routes';
const stops = '/api/transport/stops';

/** Creates a route with stops of these names, optionally with pickup and drop times. */
async function routeOf(...given: [name: string, pickup_time?: string | null, drop_time?: string | null][]) {
  const id = await fleet.addRoute();
  const stopIds: number[] = [];
  for (const [name, pickup_time = null, drop_time = null] of given)
    stopIds.push(await fleet.addStop(id, { name, pickup_time, drop_time }));
  return { id, stopIds };
}

/** The stops of a route by sequence: name, sequence, times. */
const order = async (id: number) =>
  (await fleet.stops(id)).map(({ name, sequence, pickup_time, drop_time }) =>
    [sequence, name, ...((pickup_time ?? drop_time) ? [pickup_time, drop_time] : [])].join(' '),
  );

describe('routes', () => {
  test('a route is created, read with the names of its references, partially updated and deleted', async () => {
    const [bus_id, driver_id] = [
      await fleet.addBus({ registration_number: 'LX21 ABC' }),
      await fleet.addDriver({ name: 'Kofi Mensah' }),
    ];
    const sent = {
      name: 'North',
      code: 'N1',
      start_point: 'Depot',
      end_point: 'School',
      distance_km: 12.5,
      bus_id,
      driver_id,
    };
    const added = await admin.post<Route>(routes, sent, 201);
    expect(added.data).toMatchObject({
      ...sent,
      bus_registration_number: 'LX21 ABC',
      driver_name: 'Kofi Mensah',
      is_active: true,
      today: { status: 'planned', bus_id, bus_registration_number: 'LX21 ABC', driver_id, driver_name: 'Kofi Mensah' },
      stop_count: 0,
      capacity: 40,
      student_count: 0,
    });
    expect((await admin.get<Route>(`${routes}/${added.data.id}`)).data).toEqual(added.data);
    const { data: changed } = await admin.put<Route>(`${routes}/${added.data.id}`, {
      ...added.data,
      distance_km: null,
      is_active: false,
    });
    expect(changed).toMatchObject({ ...sent, distance_km: null, is_active: false, today: null });
    expect((await admin.delete<{ id: number }>(`${routes}/${added.data.id}`)).data).toEqual({ id: added.data.id });
    await admin.get(`${routes}/${added.data.id}`, 404);
    await admin.get(`${routes}/${added.data.id}/stops`, 404);
  });

  test('a code is unique, ignoring case; an unknown bus or driver is a 422 that names the field', async () => {
    const first = await fleet.addRoute({ code: 'east' });
    expect(await admin.post(routes, { name: 'Two', code: 'EAST' }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'code' }],
    });
    await admin.delete(`${routes}/${first}`);
    await fleet.addRoute({ code: 'East' });
    for (const field of ['bus_id', 'driver_id']) {
      expect(await admin.post(routes, { name: 'X', [field]: 999_999 }, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: field }],
      });
    }
    expect((await admin.post(routes, { name: 'X', distance_km: 1.005 }, 400)).details).toMatchObject([
      { path: 'distance_km' },
    ]);
  });

  test("today's assignment overrides the default bus of the route, in `today` and in the filter", async () => {
    const own = await fleet.addBus();
    const id = await fleet.addRoute({ bus_id: own });
    const [other, driver_id, staff_id] = [
      await fleet.addBus({ capacity: 30 }),
      await fleet.addDriver(),
      await fleet.addStaff(),
    ];
    await fleet.assign({ bus_id: other, route_id: id, driver_id, staff_id, ends_on: day(1) });
    expect(await fleet.route(id)).toMatchObject({
      bus_id: own,
      today: { bus_id: other, driver_id, staff_id },
      capacity: 30,
    });
    for (const bus of [own, other])
      expect(ids((await admin.get<Route[]>(`${routes}?bus_id=${bus}`)).data)).toEqual([id]);
    expect(ids((await admin.get<Route[]>(`${routes}?driver_id=${driver_id}`)).data)).toEqual([id]);
  });

  test('a bus with fewer seats than enrolled students is refused', async () => {
    const { routeId, busId } = await fleet.ridden(2);
    const small = await fleet.addBus({ capacity: 1 });
    expect(await admin.put(`${routes}/${routeId}`, { bus_id: small }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'bus_id' }],
    });
    expect((await fleet.route(routeId)).bus_id).toBe(busId);
    await admin.put(`${routes}/${routeId}`, { bus_id: null });
  });

  test('deleting a route is refused as in_use while students are enrolled or an assignment has not ended', async () => {
    const { routeId, enrollments } = await fleet.ridden(1);
    expect((await admin.delete(`${routes}/${routeId}`, 409)).error).toBe('in_use');
    await admin.delete(`/api/transport/enroll/${enrollments[0]?.id ?? 0}`);
    const { data } = await fleet.assign({
      bus_id: await fleet.addBus(),
      route_id: routeId,
      driver_id: await fleet.addDriver(),
    });
    await admin.delete(`${routes}/${routeId}`, 409);
    await admin.delete(`/api/transport/bus-assignments/${data.id}`);
    await admin.delete(`${routes}/${routeId}`);
    // Its enrollments can still be read.
    expect(
      (await admin.get<{ status: string }>(`/api/transport/enroll/${enrollments[0]?.id ?? 0}`)).data,
    ).toMatchObject({
      route_id: routeId,
      status: 'cancelled',
      stop_sequence: null,
    });
  });

  test('deleting a route frees the bus of its future replacements', async () => {
    const [route_id, other, bus_id] = [await fleet.addRoute(), await fleet.addRoute(), await fleet.addBus()];
    const body = { date: day(4), kind: 'replaced', bus_id };
    await fleet.except({ ...body, route_id });
    await fleet.except({ ...body, route_id: other }, 409);
    await admin.delete(`${routes}/${route_id}`);
    await fleet.except({ ...body, route_id: other });
  });

  test('the list is sorted by name, searchable, and filters by is_active', async () => {
    const own = await transportSchool(service);
    const b = await own.addRoute({ name: 'Bay', code: 'x9', distance_km: 3 });
    const a = await own.addRoute({ name: 'ábaco', distance_km: 7, is_active: false });
    const found = async (query: string) => ids((await own.admin.get<Route[]>(`${routes}?${query}`)).data);
    expect([
      await found(''),
      await found('sort=distance_km'),
      await found('sort=code'),
      await found('search=abaco'),
      await found('search=X9'),
      await found('is_active=true'),
    ]).toEqual([[a, b], [b, a], [b, a], [a], [b], [b]]);
  });
});

describe('stops', () => {
  test('are appended by default; one inserted at a sequence moves the following ones, and beyond the end it is appended', async () => {
    const { id } = await routeOf(['A'], ['B']);
    await fleet.addStop(id, { name: 'C', sequence: 2 });
    await fleet.addStop(id, { name: 'D', sequence: 1 });
    await fleet.addStop(id, { name: 'E', sequence: 99 });
    expect(await order(id)).toEqual(['1 D', '2 A', '3 C', '4 B', '5 E']);
    expect((await fleet.route(id)).stop_count).toBe(5);
  });

  test('a stop is created, read, partially updated, moved and deleted', async () => {
    const { id, stopIds } = await routeOf(
      ['A', '07:00', '15:30'],
      ['B', '07:10', '15:20'],
      ['C', '07:20', '15:10'],
      ['D', '07:30', '15:00'],
    );
    const sent = {
      route_id: id,
      name: 'E',
      latitude: 51.5014,
      longitude: -0.1419,
      pickup_time: '07:40',
      drop_time: '14:50',
    };
    const added = await admin.post<Stop>(stops, sent, 201);
    expect(added.data).toMatchObject({ ...sent, sequence: 5, student_count: 0 });
    expect((await admin.get(added.headers.get('location') ?? '')).data).toEqual(added.data);
    // To the front, with times that fit there; the other stops move back.
    const { data: moved } = await admin.put<Stop>(`${stops}/${added.data.id}`, {
      ...added.data,
      sequence: 1,
      pickup_time: '06:50',
      drop_time: '15:40',
    });
    expect(moved).toMatchObject({ name: 'E', sequence: 1 });
    expect(await order(id)).toEqual([
      '1 E 06:50 15:40',
      '2 A 07:00 15:30',
      '3 B 07:10 15:20',
      '4 C 07:20 15:10',
      '5 D 07:30 15:00',
    ]);
    await admin.put(`${stops}/${stopIds[0] ?? 0}`, { sequence: 99, pickup_time: null, drop_time: null });
    expect((await order(id)).at(-1)).toBe('5 A');
    await admin.delete(`${stops}/${stopIds[1] ?? 0}`);
    expect(await order(id)).toEqual(['1 E 06:50 15:40', '2 C 07:20 15:10', '3 D 07:30 15:00', '4 A']);
    await admin.put(`${stops}/${stopIds[1] ?? 0}`, { name: 'X' }, 404);
    await admin.delete(`${stops}/${stopIds[1] ?? 0}`, 404);
  });

  test('the route of a stop cannot be changed, and an unknown route is a 422', async () => {
    const { stopIds } = await routeOf(['A']);
    const other = await fleet.addRoute();
    expect((await admin.put(`${stops}/${stopIds[0] ?? 0}`, { route_id: other }, 400)).details).toMatchObject([
      { path: 'route_id' },
    ]);
    expect(await admin.post(stops, { route_id: 999_999, name: 'X' }, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'route_id' }],
    });
  });

  test('pickup times increase along the route: one that goes backwards is refused and changes nothing', async () => {
    const { id, stopIds } = await routeOf(['A', '07:00'], ['B'], ['C', '07:20'], ['D', '07:20']);
    const before = await order(id);
    const refusal = { error: 'conflict', details: [{ path: 'pickup_time' }] };
    expect(await admin.post(stops, { route_id: id, name: 'E', pickup_time: '07:10' }, 409)).toMatchObject(refusal);
    expect(await admin.post(stops, { route_id: id, name: 'E', sequence: 1, pickup_time: '07:01' }, 409)).toMatchObject(
      refusal,
    );
    expect(await admin.put(`${stops}/${stopIds[1] ?? 0}`, { pickup_time: '06:59' }, 409)).toMatchObject(refusal);
    expect(await admin.put(`${stops}/${stopIds[0] ?? 0}`, { sequence: 4 }, 409)).toMatchObject(refusal);
    expect(await order(id)).toEqual(before);
    await admin.put(`${stops}/${stopIds[1] ?? 0}`, { pickup_time: '07:10' });
  });

  test('drop times either increase or decrease along the route, never both', async () => {
    const { id: there } = await routeOf(['A', null, '15:00'], ['B', null, '15:10']);
    await fleet.addStop(there, { drop_time: '15:20' });
    const { id: back } = await routeOf(['A', null, '15:20'], ['B', null, '15:10']);
    expect(await admin.post(stops, { route_id: back, name: 'C', drop_time: '15:15' }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'drop_time' }],
    });
    await fleet.addStop(back, { drop_time: '15:10' });
  });

  test('deleting a stop is refused as in_use until the enrollments of its students are cancelled', async () => {
    const { routeId, stopId, enrollments } = await fleet.ridden(1);
    expect((await admin.delete(`${stops}/${stopId}`, 409)).error).toBe('in_use');
    await admin.delete(`/api/transport/enroll/${enrollments[0]?.id ?? 0}`);
    await admin.delete(`${stops}/${stopId}`);
    expect(await order(routeId)).toEqual([]);
  });

  test.each<[object, string]>([
    [{ pickup_time: '7:00' }, 'pickup_time'],
    [{ drop_time: '24:00' }, 'drop_time'],
    [{ sequence: 0 }, 'sequence'],
    [{ latitude: 91 }, 'latitude'],
    [{ longitude: -181 }, 'longitude'],
    [{ name: '' }, 'name'],
  ])('%j is a 400 that names the field', async (fields, field) => {
    const route_id = await fleet.addRoute();
    expect(
      (await admin.post(stops, { route_id, name: 'A', ...fields }, 400)).details.map((detail) => detail.path),
    ).toEqual([field]);
  });

  test('the list is sorted by route and sequence, filters by route, and is searchable', async () => {
    const own = await transportSchool(service);
    const [b, a] = [await own.addRoute({ name: 'Bay' }), await own.addRoute({ name: 'ark' })];
    const [b1, a1] = [await own.addStop(b, { name: 'Mill' }), await own.addStop(a, { name: 'Élm' })];
    const a0 = await own.addStop(a, { name: 'Oak', sequence: 1 });
    const found = async (query: string) => ids((await own.admin.get<Stop[]>(`${stops}?${query}`)).data);
    expect([
      await found(''),
      await found(`route_id=${a}`),
      await found('search=elm'),
      await found('search=bay'),
      await found('sort=name'),
    ]).toEqual([[a0, a1, b1], [a0, a1], [a1], [b1], [a1, b1, a0]]);
  });
});

describe('reordering the stops of a route', () => {
  const reorder = (id: number, stop_ids: number[], status = 200) =>
    admin.post<Stop[]>(`${routes}/${id}/stops/reorder`, { stop_ids }, status);

  test('moves all stops at once; times stay with the positions', async () => {
    const { id, stopIds } = await routeOf(['A', '07:00', '15:20'], ['B', '07:10', '15:10'], ['C', '07:20', '15:00']);
    const { data } = await reorder(
      id,
      [2, 0, 1].map((n) => stopIds[n] ?? 0),
    );
    expect(data.map(({ name, sequence, pickup_time }) => `${sequence} ${name} ${pickup_time ?? ''}`)).toEqual([
      '1 C 07:00',
      '2 A 07:10',
      '3 B 07:20',
    ]);
    expect(await order(id)).toEqual(['1 C 07:00 15:20', '2 A 07:10 15:10', '3 B 07:20 15:00']);
  });

  test('is refused, and changes nothing, when a stop is missing, repeated or of another route', async () => {
    const { id, stopIds } = await routeOf(['A'], ['B'], ['C']);
    const [a = 0, b = 0, c = 0] = stopIds;
    const foreign = (await routeOf(['X'])).stopIds[0] ?? 0;
    const { data: removed } = await admin.post<Stop>(stops, { route_id: id, name: 'D' }, 201);
    await admin.delete(`${stops}/${removed.id}`);
    expect(await reorder(id, [c, a], 400)).toMatchObject({
      error: 'validation_error',
      details: [{ path: 'stop_ids', message: expect.stringContaining('(B)') as unknown }],
    });
    expect(await reorder(id, [c, b, a, b], 400)).toMatchObject({
      details: [{ path: 'stop_ids.3', message: 'is a duplicate' }],
    });
    for (const wrong of [foreign, removed.id, 999_999]) {
      expect(await reorder(id, [c, b, wrong], 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: 'stop_ids' }],
      });
    }
    await reorder(id, [], 400);
    await reorder(999_999, [a], 404);
    expect(await order(id)).toEqual(['1 A', '2 B', '3 C']);
  });

  test('twice at the same time ends with the order of one of the two requests, without gaps', async () => {
    const { id, stopIds } = await routeOf(['A'], ['B'], ['C'], ['D']);
    const [a = 0, b = 0, c = 0, d = 0] = stopIds;
    const answers = await race(service.database, `select from ${schema}.route where id = ${id} for update`, 2, () => [
      reorder(id, [d, c, b, a]),
      reorder(id, [b, a, d, c]),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect([
      ['1 D', '2 C', '3 B', '4 A'],
      ['1 B', '2 A', '3 D', '4 C'],
    ]).toContainEqual(await order(id));
  });

  test('while stops are added, moved or deleted leaves no gap and no duplicate sequence', async () => {
    const { id, stopIds } = await routeOf(['A'], ['B'], ['C'], ['D']);
    const [a = 0, b = 0, c = 0, d = 0] = stopIds;
    const answers = await race(service.database, `select from ${schema}.route where id = ${id} for update`, 4, () => [
      admin.send('POST', `${routes}/${id}/stops/reorder`, { body: { stop_ids: [d, c, b, a] } }),
      admin.send('POST', stops, { body: { route_id: id, name: 'E', sequence: 2 } }),
      admin.send('PUT', `${stops}/${a}`, { body: { sequence: 3 } }),
      admin.send('DELETE', `${stops}/${b}`),
    ]);
    // A reorder that runs after an insert or a delete no longer names every stop and is refused.
    expect([200, 400, 422]).toContain(answers[0]?.status);
    expect(answers.slice(1).map(({ status }) => status)).toEqual([201, 200, 200]);
    const left = await fleet.stops(id);
    expect(left.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4]);
    expect(left.map(({ name }) => name).sort()).toEqual(['A', 'C', 'D', 'E']);
  });
});

describe('permissions', () => {
  test('a student sees only the route in which they are enrolled, with its stops, and no counts of other students', async () => {
    const { routeId, stopId, busId } = await fleet.ridden(2);
    const other = await routeOf([unique('Elsewhere')]);
    const driver_id = await fleet.addDriver({ name: 'Kofi', phone: '123' });
    await admin.put(`${routes}/${routeId}`, { driver_id });
    const student = await school.user(['student']);
    const studentId = await fleet.addStudent({ user_id: student.id });
    // Logs in again, now that the user is linked to a student.
    const again = await service.anonymous.login({
      tenant_id: school.id,
      email: student.email,
      password: 'test-password',
    });
    expect((await again.get<Route[]>(routes)).data).toEqual([]);
    const { data: enrollment } = await fleet.enroll(studentId, routeId, stopId);
    const { data: seen } = await again.get<Route[]>(routes);
    expect(seen).toMatchObject([
      {
        id: routeId,
        today: { bus_id: busId, driver_name: 'Kofi', driver_phone: '123' },
        student_count: null,
        pickup_count: null,
        capacity: null,
      },
    ]);
    expect((await again.get<Stop[]>(stops)).data).toMatchObject([{ id: stopId, student_count: null }]);
    expect((await again.get<Stop[]>(`${routes}/${routeId}/stops`)).data).toHaveLength(1);
    await again.get(`${routes}/${other.id}`, 404);
    await again.get(`${routes}/${other.id}/stops`, 404);
    await again.get(`${stops}/${stopId}`);
    await again.get(`${stops}/${other.stopIds[0] ?? 0}`, 404);
    expect((await again.get<Stop[]>(`${stops}?route_id=${other.id}`)).data).toEqual([]);
    for (const [method, at] of [
      ['PUT', `${routes}/${routeId}`],
      ['DELETE', `${routes}/${routeId}`],
      ['DELETE', `${stops}/${stopId}`],
    ] as const)
      expect((await again.send(method, at, method === 'PUT' ? { body: { name: 'Mine' } } : {})).status).toBe(403);
    await admin.delete(`/api/transport/enroll/${enrollment.id}`);
    expect((await again.get<Route[]>(routes)).data).toEqual([]);
  });

  test('transport.read allows reading and transport.manage writing', async () => {
    const userWith = async (permission: string) => school.user([await school.role(permission)]);
    const [reader, writer] = [await userWith('transport.read'), await userWith('transport.manage')];
    const { id, stopIds } = await routeOf(['A'], ['B']);
    expect((await reader.get<Stop[]>(`${routes}/${id}/stops`)).data).toHaveLength(2);
    await reader.post(`${routes}/${id}/stops/reorder`, { stop_ids: stopIds }, 403);
    await writer.post(`${routes}/${id}/stops/reorder`, { stop_ids: [...stopIds].reverse() });
    await writer.get(`${routes}/${id}`, 403);
  });
});
