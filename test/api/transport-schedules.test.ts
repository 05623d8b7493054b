import { describe, expect, test } from '@jest/globals';
import { ids } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { serviceOfFile, testPassword } from '../support/server/service.ts';
import { day, transportSchool } from '../support/fixtures/transport.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  Assignment as AssignmentSchema,
  Conflicts as ConflictsSchema,
  ScheduledRoute as ScheduledRouteSchema,
} from '../../src/endpoints/transport-schedules.ts';

const service = await serviceOfFile({}, 5);
const fleet = await transportSchool(service);
const { admin, school, schema } = fleet;

const assignments = '/api/transport/bus-assignments';
const exceptions = '/api/transport/schedules/exceptions';
const schedules = '/api/transport/schedules';

type Assignment = OutputOf<typeof AssignmentSchema>;
type Scheduled = OutputOf<typeof ScheduledRouteSchema>;
type Conflicts = OutputOf<typeof ConflictsSchema>;

const statuses = (answers: { status: number }[]) => answers.map(({ status }) => status).sort();
const addCrew = async (bus: object = {}, driver: object = {}) => ({
  bus_id: await fleet.addBus(bus),
  driver_id: await fleet.addDriver(driver),
});
const scheduled = async (query: string) => (await admin.get<Scheduled[]>(`${schedules}?pageSize=100&${query}`)).data;
const check = async (query: string) => (await admin.get<Conflicts>(`${schedules}/conflict-check?${query}`)).data;
const kinds = async (query: string) => (await check(query)).conflicts.map(({ kind }) => kind);

describe('an assignment', () => {
  test('is read with the names of its references, begins today by default, and is ended by setting ends_on', async () => {
    const body = {
      route_id: await fleet.addRoute({ name: 'North' }),
      ...(await addCrew({ registration_number: 'LX21 ABC' }, { name: 'Kofi' })),
      staff_id: await fleet.addStaff({ name: 'Ama' }),
    };
    const { data, headers } = await admin.post<Assignment>(assignments, body, 201);
    expect(headers.get('location')).toBe(`${assignments}/${data.id}`);
    expect(data).toMatchObject({
      ...body,
      bus_registration_number: 'LX21 ABC',
      route_name: 'North',
      driver_name: 'Kofi',
      staff_name: 'Ama',
      starts_on: day(),
      ends_on: null,
      is_current: true,
    });
    expect((await admin.get<Assignment>(`${assignments}/${data.id}`)).data).toEqual(data);
    expect((await admin.put<Assignment>(`${assignments}/${data.id}`, { ...data, ends_on: day(5) })).data).toMatchObject(
      { ...body, ends_on: day(5) },
    );
    for (const wrong of [{ ends_on: day(-1) }, { starts_on: day(6) }]) {
      expect((await admin.put(`${assignments}/${data.id}`, wrong, 400)).details).toMatchObject([{ path: 'ends_on' }]);
    }
    expect(
      (await admin.put(`${assignments}/${data.id}`, { route_id: await fleet.addRoute() }, 400)).details,
    ).toMatchObject([{ path: 'route_id' }]);
    await admin.delete(`${assignments}/${data.id}`);
    await admin.get(`${assignments}/${data.id}`, 404);
  });

  test('can be ended but not deleted once it has begun', async () => {
    const { data } = await fleet.assign({ route_id: await fleet.addRoute(), ...(await addCrew()), starts_on: day(-3) });
    expect((await admin.delete(`${assignments}/${data.id}`, 409)).error).toBe('invalid_state');
    await admin.put(`${assignments}/${data.id}`, { ends_on: day(-1) });
    expect((await admin.get<Assignment>(`${assignments}/${data.id}`)).data.is_current).toBe(false);
  });

  test('is refused if it overlaps another one, with a conflict for each shared bus, driver, attendant and route', async () => {
    const staff_id = await fleet.addStaff({ name: 'Ama' });
    const crew = await addCrew({ registration_number: 'SAME 1' }, { name: 'Kofi' });
    const first = {
      route_id: await fleet.addRoute({ name: 'Taken' }),
      ...crew,
      staff_id,
      starts_on: day(10),
      ends_on: day(20),
    };
    await fleet.assign(first);
    const other = { route_id: await fleet.addRoute(), ...(await addCrew()), starts_on: day(20), ends_on: day(30) };
    for (const [same, path] of [
      [{ bus_id: crew.bus_id }, 'bus_id'],
      [{ driver_id: crew.driver_id }, 'driver_id'],
      [{ staff_id }, 'staff_id'],
      [{ route_id: first.route_id }, 'route_id'],
    ] as const) {
      const refused = await fleet.assign({ ...other, ...same }, 409);
      expect(refused).toMatchObject({
        error: 'schedule_conflict',
        details: [{ path, message: expect.stringContaining(`from ${day(10)} to ${day(20)}`) as unknown }],
      });
    }
    const all = await fleet.assign({ ...other, ...crew, staff_id }, 409);
    expect((all as unknown as { details: { message: string }[] }).details.map(({ message }) => message)).toEqual([
      `Bus SAME 1 already serves Taken from ${day(10)} to ${day(20)}.`,
      `Kofi already drives Taken from ${day(10)} to ${day(20)}.`,
      `Ama is already assigned to Taken from ${day(10)} to ${day(20)}.`,
    ]);
    // The day after it is free; an open-ended assignment that begins before it conflicts.
    const { data } = await fleet.assign({ ...other, ...crew, staff_id, starts_on: day(21) });
    await fleet.assign({ ...first, route_id: await fleet.addRoute(), starts_on: day(5), ends_on: null }, 409);
    // An update conflicts with other assignments and not with itself.
    await admin.put(`${assignments}/${data.id}`, { ends_on: day(40) });
    expect((await admin.put(`${assignments}/${data.id}`, { starts_on: day(20) }, 409)).error).toBe('schedule_conflict');
  });

  test('requires an active bus, driver and attendant, valid documents, and seats for all enrolled students', async () => {
    const { routeId } = await fleet.ridden(2);
    const refused = async (fields: object) => {
      const { details } = await admin.post(
        assignments,
        { route_id: routeId, starts_on: day(10), ends_on: day(20), ...fields },
        409,
      );
      return details.map(({ path, message }) => `${path}: ${message}`);
    };
    const crew = await addCrew();
    expect(
      await refused({ ...crew, bus_id: await fleet.addBus({ registration_number: 'OFF', is_active: false }) }),
    ).toEqual(['bus_id: Bus OFF is inactive.']);
    expect(await refused({ ...crew, staff_id: await fleet.addStaff({ name: 'Ill', is_active: false }) })).toEqual([
      'staff_id: Ill is inactive.',
    ]);
    expect(
      await refused({
        bus_id: await fleet.addBus({
          registration_number: 'OLD',
          insurance_expires_on: day(15),
          fitness_expires_on: day(9),
          capacity: 1,
        }),
        driver_id: await fleet.addDriver({ name: 'Late', license_expires_on: day(19) }),
      }),
    ).toEqual([
      `bus_id: The insurance of OLD is valid only until ${day(15)}.`,
      `bus_id: The fitness certificate of OLD is valid only until ${day(9)}.`,
      `driver_id: The driving license of Late is valid only until ${day(19)}.`,
      expect.stringMatching(/^bus_id: Bus OLD has 1 seat, but 2 students ride Route/),
    ]);
    // An open-ended assignment needs documents that are valid on its first day.
    const { data } = await fleet.assign({
      route_id: routeId,
      bus_id: await fleet.addBus({ insurance_expires_on: day(1) }),
      driver_id: crew.driver_id,
    });
    await service.database.query(
      `update ${schema}.bus set insurance_expires_on = $1 where id = (select bus_id from ${schema}.bus_assignment where id = $2)`,
      [day(-1), data.id],
    );
    // Ending it checks no conflicts.
    await admin.put(`${assignments}/${data.id}`, { ends_on: day(2) });
    expect((await admin.put(`${assignments}/${data.id}`, { ends_on: day(3) }, 409)).error).toBe('schedule_conflict');
  });

  test('is created by only one of two concurrent requests with the same bus, driver or attendant', async () => {
    const [one, two] = [await fleet.addRoute(), await fleet.addRoute()];
    const shared = { ...(await addCrew()), staff_id: await fleet.addStaff() };
    for (const [field, id] of Object.entries(shared)) {
      const table = { bus_id: 'bus', driver_id: 'driver', staff_id: 'transport_staff' }[field] ?? '';
      const bodies: object[] = [];
      for (const route_id of [one, two])
        bodies.push({ route_id, ...(await addCrew()), [field]: id, starts_on: day(50), ends_on: day(60) });
      const answers = await race(
        service.database,
        `select from ${schema}.${table} where id = ${id} for update`,
        2,
        () => bodies.map((body) => admin.send<Assignment>('POST', assignments, { body })),
      );
      expect(statuses(answers)).toEqual([201, 409]);
      expect(answers.find(({ status }) => status === 409)).toMatchObject({
        error: 'schedule_conflict',
        details: [{ path: field }],
      });
      await admin.delete(`${assignments}/${answers.find(({ status }) => status === 201)?.data.id ?? 0}`);
    }
  });

  test('is checked again in full when its bus, driver or attendant changes', async () => {
    const { data } = await fleet.assign({
      route_id: await fleet.addRoute(),
      ...(await addCrew()),
      starts_on: day(1),
      ends_on: day(9),
    });
    for (const [field, id] of [
      ['bus_id', await fleet.addBus({ fitness_expires_on: day(8) })],
      ['driver_id', await fleet.addDriver({ is_active: false })],
      ['staff_id', await fleet.addStaff({ is_active: false })],
    ] as const) {
      expect(await admin.put(`${assignments}/${data.id}`, { [field]: id }, 409)).toMatchObject({
        error: 'schedule_conflict',
        details: [{ path: field }],
      });
      expect(await admin.put(`${assignments}/${data.id}`, { [field]: 999_999 }, 422)).toMatchObject({
        details: [{ path: field }],
      });
    }
  });

  test('is refused for an inactive route', async () => {
    const route_id = await fleet.addRoute({ is_active: false });
    expect(await fleet.assign({ route_id, ...(await addCrew()) }, 409)).toMatchObject({
      error: 'schedule_conflict',
      details: [{ path: 'route_id' }],
    });
  });

  test('is also refused by the table constraints if it overlaps another one, even by one day', async () => {
    const { data } = await fleet.assign({
      route_id: await fleet.addRoute(),
      ...(await addCrew()),
      staff_id: await fleet.addStaff(),
      ends_on: day(3),
    });
    for (const column of ['bus_id', 'driver_id', 'route_id', 'staff_id']) {
      const row: Record<string, unknown> = {
        route_id: await fleet.addRoute(),
        ...(await addCrew()),
        starts_on: day(3),
      };
      row[column] = (data as unknown as Record<string, unknown>)[column];
      await expect(school.insert('bus_assignment', row)).rejects.toMatchObject({
        code: '23P01',
        constraint: `bus_assignment_${column}_excl`,
      });
    }
  });

  test('the list is sorted latest first and filters by bus, route, driver, attendant and day', async () => {
    const own = await transportSchool(service);
    const add = async (fields: object) => {
      const body = {
        route_id: await own.addRoute({ name: 'Ring' }),
        bus_id: await own.addBus(),
        driver_id: await own.addDriver(),
        staff_id: await own.addStaff(),
        ...fields,
      };
      return { ...body, id: (await own.assign(body)).data.id };
    };
    const [past, now] = [
      await add({ starts_on: day(-9), ends_on: day(-5) }),
      await add({ route_id: await own.addRoute({ name: 'Äußere' }) }),
    ];
    const found = async (query: string) => ids((await own.admin.get<Assignment[]>(`${assignments}?${query}`)).data);
    expect(await found('')).toEqual([now.id, past.id]);
    for (const field of ['bus_id', 'route_id', 'driver_id', 'staff_id'] as const)
      expect(await found(`${field}=${past[field]}`)).toEqual([past.id]);
    expect(await found(`date=${day()}`)).toEqual([now.id]);
    expect(await found(`date=${day(-5)}`)).toEqual([past.id]);
    expect(await found('search=ring')).toEqual([past.id]);
    expect(await found('sort=route_name')).toEqual([now.id, past.id]);
  });
});

describe('the schedule', () => {
  test('lists every route on every school day with its default or assigned bus and driver, its stops and times', async () => {
    const own = await transportSchool(service);
    const [bus_id, driver_id] = [await own.addBus(), await own.addDriver()];
    const route = await own.addRoute({ name: 'A', bus_id, driver_id });
    await own.addStop(route, { name: 'Oak', pickup_time: '07:00' });
    await own.addRoute({ name: 'Off', is_active: false });
    const crew = { bus_id: await own.addBus(), driver_id: await own.addDriver(), staff_id: await own.addStaff() };
    await own.assign({ route_id: route, ...crew, starts_on: day(2), ends_on: day(3) });
    await own.school.insert('holiday', { name: 'Feast', date: day(1) });
    const { data, pagination } = await own.admin.get<Scheduled[]>(`${schedules}?from_date=${day()}&to_date=${day(3)}`);
    expect(pagination.totalItems).toBe(3);
    expect(data.map((one) => [one.date, one.bus_id, one.driver_id, one.staff_id, one.status])).toEqual([
      [day(), bus_id, driver_id, null, 'planned'],
      [day(2), crew.bus_id, crew.driver_id, crew.staff_id, 'planned'],
      [day(3), crew.bus_id, crew.driver_id, crew.staff_id, 'planned'],
    ]);
    expect(data[0]?.stops).toMatchObject([{ name: 'Oak', sequence: 1, pickup_time: '07:00', drop_time: null }]);
    const count = async (query: string) => (await own.admin.get(`${schedules}?${query}`)).pagination.totalItems;
    expect([
      await count(`date=${day()}`),
      await count(`date=${day(1)}`),
      await count(''),
      await count(`from_date=${day(2)}`),
    ]).toEqual([1, 0, 6, 7]);
    // Days outside the academic year are not school days.
    expect(await count(`from_date=${day(264)}&to_date=${day(270)}`)).toBe(2);
    await service.database.query(`update ${own.schema}.timetable_config set working_days = '{7}'`);
    const { data: sundays } = await own.admin.get<(Scheduled & { day_of_week: number })[]>(
      `${schedules}?from_date=${day(10)}&to_date=${day(23)}`,
    );
    expect(sundays.map(({ day_of_week }) => day_of_week)).toEqual([7, 7]);
    await own.admin.get(`${schedules}?from_date=${day(3)}&to_date=${day()}`, 400);
    await own.admin.get(`${schedules}?from_date=${day()}&to_date=${day(100)}`, 400);
    await own.admin.get(`${schedules}?date=tomorrow`, 400);
  });

  test('filters by route, bus and driver as scheduled on each day', async () => {
    const crew = await addCrew();
    const route = await fleet.addRoute(crew);
    const other = await addCrew();
    await fleet.assign({ route_id: route, ...other, starts_on: day(1), ends_on: day(1) });
    const days = `from_date=${day()}&to_date=${day(2)}`;
    const dates = async (query: string) => (await scheduled(`${days}&${query}`)).map(({ date }) => date);
    expect(await dates(`route_id=${route}`)).toEqual([day(), day(1), day(2)]);
    expect(await dates(`bus_id=${crew.bus_id}`)).toEqual([day(), day(2)]);
    expect(await dates(`driver_id=${other.driver_id}`)).toEqual([day(1)]);
  });

  test('shows no bus and driver for a route whose defaults are assigned to another route on that day', async () => {
    const crew = await addCrew();
    const [route, busy] = [await fleet.addRoute(crew), await fleet.addRoute()];
    await fleet.assign({ route_id: busy, ...crew, starts_on: day(1), ends_on: day(1) });
    const days = await scheduled(`from_date=${day()}&to_date=${day(2)}&route_id=${route}`);
    expect(days.map(({ bus_id, driver_id }) => [bus_id, driver_id])).toEqual([
      [crew.bus_id, crew.driver_id],
      [null, null],
      [crew.bus_id, crew.driver_id],
    ]);
  });
});

describe('an exception', () => {
  test('cancels a route on a day or replaces its bus or driver; one per route and day until it is deleted', async () => {
    const crew = await addCrew();
    const route_id = await fleet.addRoute(crew);
    const { data, headers } = await fleet.except({ route_id, date: day(4), kind: 'cancelled', reason: 'Snow' });
    expect((await admin.get(headers.get('location') ?? '')).data).toEqual(data);
    const spare = await fleet.addBus();
    await fleet.except({ route_id, date: day(5), kind: 'replaced', bus_id: spare });
    const days = await scheduled(`from_date=${day(3)}&to_date=${day(5)}&route_id=${route_id}`);
    expect(days.map((one) => [one.status, one.reason, one.bus_id, one.driver_id])).toEqual([
      ['planned', null, crew.bus_id, crew.driver_id],
      ['cancelled', 'Snow', crew.bus_id, crew.driver_id],
      ['replaced', null, spare, crew.driver_id],
    ]);
    expect(await fleet.except({ route_id, date: day(4), kind: 'replaced', bus_id: spare }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'date' }],
    });
    await admin.delete(`${exceptions}/${data.id}`);
    expect((await scheduled(`date=${day(4)}&route_id=${route_id}`)).map(({ status }) => status)).toEqual(['planned']);
    await admin.delete(`${exceptions}/${data.id}`, 404);
  });

  test('is unique per route and day and per bus or driver and day, enforced by the table', async () => {
    const [route_id, other, crew] = [await fleet.addRoute(), await fleet.addRoute(), await addCrew()];
    await fleet.except({ route_id, date: day(30), kind: 'replaced', ...crew });
    const refused = (row: object, constraint: string) =>
      expect(school.insert('route_exception', { date: day(30), ...row })).rejects.toMatchObject({
        code: '23505',
        constraint,
      });
    await refused({ route_id, kind: 'cancelled' }, 'route_exception_date_key');
    await refused({ route_id: other, kind: 'replaced', bus_id: crew.bus_id }, 'route_exception_bus_id_key');
    await refused({ route_id: other, kind: 'replaced', driver_id: crew.driver_id }, 'route_exception_driver_id_key');
  });

  test("overrides the fields of the day's assignment that it names", async () => {
    const route_id = await fleet.addRoute(await addCrew());
    const [crew, spare] = [await addCrew(), await addCrew()];
    await fleet.assign({ route_id, ...crew, starts_on: day(1), ends_on: day(3) });
    await fleet.except({ route_id, date: day(2), kind: 'replaced', bus_id: spare.bus_id });
    await fleet.except({ route_id, date: day(3), kind: 'replaced', driver_id: spare.driver_id });
    const days = await scheduled(`from_date=${day(1)}&to_date=${day(3)}&route_id=${route_id}`);
    expect(days.map(({ bus_id, driver_id }) => [bus_id, driver_id])).toEqual([
      [crew.bus_id, crew.driver_id],
      [spare.bus_id, crew.driver_id],
      [crew.bus_id, spare.driver_id],
    ]);
  });

  test.each<[object, string]>([
    [{ kind: 'replaced' }, 'bus_id'],
    [{ kind: 'cancelled', driver_id: 1 }, 'driver_id'],
    [{ kind: 'late' }, 'kind'],
    [{ kind: 'cancelled', date: '2026-13-01' }, 'date'],
  ])('%j is a 400 that names the field', async (fields, field) => {
    const refused = await admin.post(exceptions, { route_id: await fleet.addRoute(), date: day(4), ...fields }, 400);
    expect(refused.details.map(({ path }) => path)).toEqual([field]);
  });

  test('accepts only a replacement that is free on that day: no bus of another route, no driver who replaces another one', async () => {
    const busy = await addCrew({ registration_number: 'BUSY' }, { name: 'Busy' });
    const elsewhere = await fleet.addRoute({ name: 'Elsewhere', ...busy });
    const route_id = await fleet.addRoute(await addCrew());
    const body = { route_id, date: day(6), kind: 'replaced' };
    for (const field of ['bus_id', 'driver_id']) {
      expect(await fleet.except({ ...body, [field]: 999_999 }, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: field }],
      });
    }
    expect(await fleet.except({ ...body, route_id: 999_999, bus_id: busy.bus_id }, 422)).toMatchObject({
      details: [{ path: 'route_id' }],
    });
    const refused = await fleet.except({ ...body, ...busy }, 409);
    expect(refused).toMatchObject({
      error: 'schedule_conflict',
      details: [
        { path: 'bus_id', message: `Bus BUSY already serves Elsewhere on ${day(6)}.` },
        { path: 'driver_id', message: `Busy already drives Elsewhere on ${day(6)}.` },
      ],
    });
    // They are free when that route is cancelled, which then cannot be restored while they are used.
    await fleet.assign({ route_id: elsewhere, ...busy, starts_on: day(6), ends_on: day(6) });
    const { data: cancelled } = await fleet.except({ route_id: elsewhere, date: day(6), kind: 'cancelled' });
    const { data: replaced } = await fleet.except({ ...body, ...busy });
    expect((await admin.delete(`${exceptions}/${cancelled.id}`, 409)).error).toBe('schedule_conflict');
    const third = await fleet.addRoute();
    await fleet.except({ ...body, route_id: third, bus_id: busy.bus_id }, 409);
    // They cannot be assigned on that day either: an assignment and a replacement conflict.
    const spare = await addCrew();
    expect(
      await fleet.assign({ route_id: third, ...spare, bus_id: busy.bus_id, starts_on: day(5), ends_on: day(7) }, 409),
    ).toMatchObject({
      details: [{ path: 'bus_id' }, { path: 'bus_id' }],
    });
    await admin.delete(`${exceptions}/${replaced.id}`);
    await admin.delete(`${exceptions}/${cancelled.id}`);
  });

  test('cannot be deleted while the bus or driver that it freed, assigned or default, replaces others', async () => {
    const body = { date: day(11), kind: 'replaced' };
    const own = await addCrew();
    const assigned = await addCrew();
    const [ownRoute, assignedRoute] = [await fleet.addRoute(own), await fleet.addRoute()];
    await fleet.assign({ route_id: assignedRoute, ...assigned, starts_on: day(10), ends_on: day(12) });
    for (const [route_id, crew] of [
      [ownRoute, own],
      [assignedRoute, assigned],
    ] as const) {
      const { data: freed } = await fleet.except({ ...body, route_id, ...(await addCrew()) });
      for (const used of [{ bus_id: crew.bus_id }, { driver_id: crew.driver_id }]) {
        const { data: taken } = await fleet.except({ ...body, route_id: await fleet.addRoute(), ...used });
        expect((await admin.delete(`${exceptions}/${freed.id}`, 409)).error).toBe('schedule_conflict');
        await admin.delete(`${exceptions}/${taken.id}`);
      }
      await admin.delete(`${exceptions}/${freed.id}`);
    }
  });

  test('deleted while its bus becomes a replacement, ends as if the two requests had run one after the other', async () => {
    const crew = await addCrew();
    const [route_id, other] = [await fleet.addRoute(), await fleet.addRoute()];
    await fleet.assign({ route_id, ...crew, starts_on: day(12), ends_on: day(14) });
    const { data: cancelled } = await fleet.except({ route_id, date: day(13), kind: 'cancelled' });
    const answers = await race(
      service.database,
      `select from ${schema}.bus where id = ${crew.bus_id} for update`,
      2,
      () => [
        admin.send('POST', exceptions, {
          body: { route_id: other, date: day(13), kind: 'replaced', bus_id: crew.bus_id },
        }),
        admin.send('DELETE', `${exceptions}/${cancelled.id}`),
      ],
    );
    const [created, removed] = answers.map(({ status }) => status);
    expect([
      [201, 409],
      [409, 200],
    ]).toContainEqual([created, removed]);
  });

  test('accepts only a replacement that is active, has valid documents on that day, and has enough seats', async () => {
    const { routeId } = await fleet.ridden(2);
    const bus_id = await fleet.addBus({
      registration_number: 'TINY',
      capacity: 1,
      insurance_expires_on: day(6),
      is_active: false,
    });
    const refused = await fleet.except({ route_id: routeId, date: day(7), kind: 'replaced', bus_id }, 409);
    expect((refused as unknown as { details: { message: string }[] }).details.map(({ message }) => message)).toEqual([
      'Bus TINY is inactive.',
      `The insurance of TINY is valid only until ${day(6)}.`,
      expect.stringMatching(/^Bus TINY has 1 seat, but 2 students ride/),
    ]);
  });

  test('is created by only one of two concurrent requests for the same bus and day', async () => {
    const [one, two, bus_id] = [await fleet.addRoute(), await fleet.addRoute(), await fleet.addBus()];
    const answers = await race(service.database, `select from ${schema}.bus where id = ${bus_id} for update`, 3, () => [
      ...[one, two].map((route_id) =>
        admin.send('POST', exceptions, { body: { route_id, date: day(8), kind: 'replaced', bus_id } }),
      ),
      admin.send('PUT', `/api/transport/buses/${bus_id}`, { body: { model: 'New' } }),
    ]);
    expect(statuses(answers)).toEqual([200, 201, 409]);
    expect(answers.find(({ status }) => status === 409)?.error).toBe('schedule_conflict');
  });

  test('and a concurrent assignment of the same bus are not both created', async () => {
    const [one, two, bus_id, driver_id] = [
      await fleet.addRoute(),
      await fleet.addRoute(),
      await fleet.addBus(),
      await fleet.addDriver(),
    ];
    const answers = await race(service.database, `select from ${schema}.bus where id = ${bus_id} for update`, 2, () => [
      admin.send('POST', exceptions, { body: { route_id: one, date: day(9), kind: 'replaced', bus_id } }),
      admin.send('POST', assignments, { body: { route_id: two, bus_id, driver_id } }),
    ]);
    expect(statuses(answers)).toEqual([201, 409]);
  });

  test('the list is sorted latest day first and filters by route, bus, driver, kind and days', async () => {
    const own = await transportSchool(service);
    const [a, b] = [await own.addRoute({ name: 'Ark' }), await own.addRoute({ name: 'Bay' })];
    const [bus_id, driver_id] = [await own.addBus(), await own.addDriver()];
    const e1 = (await own.except({ route_id: a, date: day(1), kind: 'cancelled' })).data.id;
    const e2 = (await own.except({ route_id: b, date: day(2), kind: 'replaced', bus_id, driver_id })).data.id;
    const found = async (query: string) => ids((await own.admin.get<{ id: number }[]>(`${exceptions}?${query}`)).data);
    expect(await found('')).toEqual([e2, e1]);
    expect([
      await found(`route_id=${a}`),
      await found(`bus_id=${bus_id}`),
      await found(`driver_id=${driver_id}`),
      await found('kind=cancelled'),
    ]).toEqual([[e1], [e2], [e2], [e1]]);
    expect([await found(`from_date=${day(2)}`), await found(`to_date=${day(1)}`), await found('search=bay')]).toEqual([
      [e2],
      [e1],
      [e2],
    ]);
  });
});

describe('the conflict check', () => {
  const days = `from_date=${day(10)}&to_date=${day(20)}`;

  test('lists the conflicts of a bus or driver with their days', async () => {
    const crew = await addCrew({ registration_number: 'CHK 1', insurance_expires_on: day(14) }, { name: 'Ama' });
    const busy = await fleet.addRoute({ name: 'Busy' });
    expect(await check(`bus_id=${crew.bus_id}&from_date=${day(10)}&to_date=${day(14)}`)).toEqual({
      has_conflict: false,
      conflicts: [],
    });
    await fleet.assign({ route_id: busy, ...crew, starts_on: day(12), ends_on: day(13) });
    expect(await check(`bus_id=${crew.bus_id}&driver_id=${crew.driver_id}&${days}`)).toMatchObject({
      has_conflict: true,
      conflicts: [
        {
          kind: 'bus',
          path: 'bus_id',
          message: `Bus CHK 1 already serves Busy from ${day(12)} to ${day(13)}.`,
          from_date: day(12),
          to_date: day(13),
          route_id: busy,
          bus_id: crew.bus_id,
        },
        {
          kind: 'driver',
          path: 'driver_id',
          message: `Ama already drives Busy from ${day(12)} to ${day(13)}.`,
          driver_id: crew.driver_id,
        },
        { kind: 'insurance', from_date: day(15), to_date: day(20) },
      ],
    });
    // For the route that already uses it, the conflict is the route.
    expect(await kinds(`bus_id=${crew.bus_id}&route_id=${busy}&from_date=${day(12)}&to_date=${day(12)}`)).toEqual([
      'route',
    ]);
    expect(await kinds(`bus_id=${crew.bus_id}&from_date=${day(1)}&to_date=${day(11)}`)).toEqual([]);
  });

  test('reports the default routes of a bus for a replacement but not for an assignment', async () => {
    const bus_id = await fleet.addBus();
    await fleet.addRoute({ bus_id });
    const query = `bus_id=${bus_id}&from_date=${day(11)}&to_date=${day(11)}`;
    expect([
      await kinds(query),
      await kinds(`${query}&kind=assignment`),
      await kinds(`${query}&kind=replacement`),
    ]).toEqual([[], [], ['bus']]);
  });

  test('without a bus and driver lists the conflicts of the existing plan, for one route or all', async () => {
    const own = await transportSchool(service);
    const { routeId, busId } = await own.ridden(2, { fitness_expires_on: day(15) });
    const fine = await own.addRoute({ bus_id: await own.addBus() });
    const driver_id = await own.addDriver({ license_expires_on: day(11), is_active: false });
    await own.admin.put(`/api/transport/routes/${routeId}`, { driver_id });
    const conflicts = async (query: string) =>
      (await own.admin.get<Conflicts>(`${schedules}/conflict-check?${days}&${query}`)).data.conflicts.map(
        ({ kind, from_date, to_date }) => [kind, from_date, to_date],
      );
    const expected = [
      ['inactive', day(10), day(20)],
      ['fitness', day(16), day(20)],
      ['license', day(12), day(20)],
    ];
    expect(await conflicts(`route_id=${routeId}`)).toEqual(expected);
    expect(await conflicts('')).toEqual(expected);
    expect(await conflicts(`route_id=${fine}`)).toEqual([]);
    // A day on which the route does not run has no conflicts.
    const { data: cancelled } = await own.except({ route_id: routeId, date: day(10), kind: 'cancelled' });
    expect((await conflicts(`route_id=${routeId}`))[0]).toEqual(['inactive', day(11), day(20)]);
    await own.admin.delete(`${exceptions}/${cancelled.id}`);
    // Too few seats, written directly to the table.
    await service.database.query(
      `set session_replication_role = replica; update ${own.schema}.bus set capacity = 1 where id = ${busId}; reset session_replication_role`,
    );
    expect((await conflicts(`route_id=${routeId}`)).map(([kind]) => kind)).toEqual([
      'inactive',
      'fitness',
      'license',
      'capacity',
    ]);
  });

  test('covers the week from today by default, and answers not_found for unknown references', async () => {
    // Without dates, the week from today.
    expect(await check('')).toEqual(await check(`from_date=${day(0)}&to_date=${day(6)}`));
    await admin.get(`${schedules}/conflict-check?from_date=${day(2)}&to_date=${day(1)}`, 400);
    for (const field of ['bus_id', 'driver_id', 'route_id'])
      await admin.get(`${schedules}/conflict-check?${days}&${field}=999999`, 404);
  });
});

describe('permissions', () => {
  test('a student sees the schedule of the route in which they are enrolled; transport.read allows reading and transport.manage writing', async () => {
    const { routeId, busId, enrollments } = await fleet.ridden(1);
    const user = await school.user(['student']);
    await service.database.query(`update ${schema}.student set user_id = $1 where id = $2`, [
      user.id,
      enrollments[0]?.student_id,
    ]);
    const student = await service.anonymous.login({ tenant_id: school.id, email: user.email, password: testPassword });
    const { data } = await student.get<Scheduled[]>(`${schedules}?date=${day()}`);
    expect(data).toMatchObject([{ route_id: routeId, bus_id: busId }]);
    for (const path of [assignments, exceptions, `${schedules}/conflict-check?from_date=${day()}&to_date=${day()}`])
      await student.get(path, 403);
    const userWith = async (permission: string) => school.user([await school.role(permission)]);
    const [reader, writer] = [await userWith('transport.read'), await userWith('transport.manage')];
    await reader.get(assignments);
    await reader.post(exceptions, { route_id: routeId, date: day(1), kind: 'cancelled' }, 403);
    await writer.post(exceptions, { route_id: routeId, date: day(1), kind: 'cancelled' }, 201);
    await writer.get(exceptions, 403);
  });
});
