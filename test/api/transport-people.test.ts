import { describe, expect, test } from '@jest/globals';
import { ids } from '../support/client/pages.ts';
import { serviceOfFile, unique } from '../support/server/service.ts';
import { day, transportSchool } from '../support/fixtures/transport.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Driver as DriverSchema, Workload as WorkloadSchema } from '../../src/endpoints/transport-people.ts';

const service = await serviceOfFile({}, 4);
const fleet = await transportSchool(service);
const { admin, school, schema } = fleet;

type Driver = OutputOf<typeof DriverSchema>;
type Workload = OutputOf<typeof WorkloadSchema>;

describe('drivers', () => {
  const path = '/api/transport/drivers';

  test('a driver is created, read, partially updated and deleted', async () => {
    const sent = {
      name: 'Kofi Mensah',
      phone: '+44 20 7946 0123',
      license_number: 'MENSA712116K99',
      license_expires_on: day(400),
      address: '1 Depot Road',
    };
    const added = await admin.post<Driver>(path, sent, 201);
    expect(added.data).toMatchObject({ ...sent, is_active: true });
    expect((await admin.get<Driver>(`${path}/${added.data.id}`)).data).toEqual(added.data);
    expect((await admin.put<Driver>(`${path}/${added.data.id}`, { ...added.data, phone: '' })).data).toMatchObject({
      ...sent,
      phone: null,
    });
    expect((await admin.delete<{ id: number }>(`${path}/${added.data.id}`)).data).toEqual({ id: added.data.id });
    await admin.get(`${path}/${added.data.id}`, 404);
  });

  test('name and license number are required; a license number is unique, ignoring case, until its driver is deleted', async () => {
    expect((await admin.post(path, {}, 400)).details.map((detail) => detail.path).sort()).toEqual([
      'license_number',
      'name',
    ]);
    const first = await fleet.addDriver({ license_number: 'lic 1' });
    expect(await admin.post(path, { name: 'Two', license_number: 'LIC 1' }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'license_number' }],
    });
    await admin.delete(`${path}/${first}`);
    await fleet.addDriver({ license_number: 'Lic 1' });
  });

  test('deleting a driver is refused as in_use while a route or an assignment uses them', async () => {
    const driver_id = await fleet.addDriver();
    const route_id = await fleet.addRoute({ driver_id });
    expect((await admin.delete(`${path}/${driver_id}`, 409)).error).toBe('in_use');
    await admin.put(`/api/transport/routes/${route_id}`, { driver_id: null });
    const { data } = await fleet.assign({ bus_id: await fleet.addBus(), route_id, driver_id });
    await admin.delete(`${path}/${driver_id}`, 409);
    await admin.delete(`/api/transport/bus-assignments/${data.id}`);
    await admin.delete(`${path}/${driver_id}`);
    const refused = await admin.put(`/api/transport/routes/${route_id}`, { driver_id }, 422);
    expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: 'driver_id' }] });
  });

  test('the list is sorted by name, searchable, and filters by expires_before', async () => {
    const own = await transportSchool(service);
    const zoe = await own.addDriver({ name: 'Zoë', license_expires_on: day(3) });
    const adam = await own.addDriver({ name: 'adam', license_number: 'XQ-7' });
    const found = async (query: string) => ids((await own.admin.get<Driver[]>(`${path}?${query}`)).data);
    expect(await found('')).toEqual([adam, zoe]);
    expect(await found('sort=license_expires_on')).toEqual([zoe, adam]);
    expect(await found('search=zoe')).toEqual([zoe]);
    expect(await found('search=xq-7')).toEqual([adam]);
    expect(await found(`expires_before=${day(4)}`)).toEqual([zoe]);
    expect(await found(`expires_before=${day(3)}`)).toEqual([]);
  });

  test('the address is visible only with the scope "all"', async () => {
    const own = await transportSchool(service);
    const id = await own.addDriver({ address: '1 Depot Road' });
    const { data: roles } =
      await own.admin.get<{ id: number; name: string; permission_ids: number[] }[]>('/api/rbac/roles');
    const teacherRole = roles.find(({ name }) => name === 'teacher');
    const { data: permissions } = await own.admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
    const read = permissions.find(({ name }) => name === 'transport.read')?.id ?? 0;
    await own.admin.put(`/api/rbac/roles/${teacherRole?.id ?? 0}`, {
      permission_ids: [...(teacherRole?.permission_ids ?? []), read],
    });
    const teacher = await own.school.user(['teacher']);
    expect((await teacher.get<Driver>(`${path}/${id}`)).data).toMatchObject({ id, address: null });
    const manager = await own.school.user(['transport_manager']);
    expect((await manager.get<Driver>(`${path}/${id}`)).data).toMatchObject({ id, address: '1 Depot Road' });
  });
});

describe('transport staff', () => {
  const path = '/api/transport/staff';

  test('a staff member is created, read, partially updated and deleted', async () => {
    const added = await admin.post<{ id: number }>(path, { name: 'Ama', role: 'attendant', phone: '1' }, 201);
    expect(added.data).toMatchObject({ name: 'Ama', role: 'attendant', phone: '1', is_active: true });
    expect((await admin.get(`${path}/${added.data.id}`)).data).toEqual(added.data);
    expect((await admin.put(`${path}/${added.data.id}`, { role: 'supervisor' })).data).toMatchObject({
      name: 'Ama',
      role: 'supervisor',
    });
    await admin.delete(`${path}/${added.data.id}`);
    await admin.get(`${path}/${added.data.id}`, 404);
    expect((await admin.post(path, { name: 'X', role: 'driver' }, 400)).details.map((detail) => detail.path)).toEqual([
      'role',
    ]);
  });

  test('the list is sorted by name and filters by role', async () => {
    const own = await transportSchool(service);
    const b = await own.addStaff({ name: 'Béa', role: 'mechanic' });
    const a = await own.addStaff({ name: 'abe' });
    const found = async (query: string) => ids((await own.admin.get<{ id: number }[]>(`${path}?${query}`)).data);
    expect([
      await found(''),
      await found('role=mechanic'),
      await found('search=bea'),
      await found('is_active=false'),
    ]).toEqual([[a, b], [b], [b], []]);
  });

  test('the workload contains assigned routes, trips per week and students', async () => {
    const staff_id = await fleet.addStaff();
    const now = await fleet.ridden(2, {}, 'pickup');
    const later = await fleet.ridden(1);
    const [first, second] = [await fleet.addDriver(), await fleet.addDriver()];
    const { data } = await fleet.assign({
      bus_id: now.busId,
      route_id: now.routeId,
      driver_id: first,
      staff_id,
      ends_on: day(9),
    });
    await fleet.assign({
      bus_id: later.busId,
      route_id: later.routeId,
      driver_id: second,
      staff_id,
      starts_on: day(10),
    });
    await service.database.query(`update ${schema}.timetable_config set working_days = '{1,2,3,4}'`);
    const { data: workload } = await admin.get<Workload>(`${path}/${staff_id}/workload`);
    await service.database.query(`update ${schema}.timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
    expect(workload).toMatchObject({
      staff_id,
      assigned_routes: 2,
      trips_per_week: 4,
      student_count: 2,
      assignments: [
        { assignment_id: data.id, route_id: now.routeId, is_current: true, student_count: 2, trips_per_week: 4 },
        { route_id: later.routeId, is_current: false, student_count: 1, trips_per_week: 8 },
      ],
    });
    expect((await admin.delete(`${path}/${staff_id}`, 409)).error).toBe('in_use');
    expect((await admin.get<Workload>(`${path}/${await fleet.addStaff()}/workload`)).data).toMatchObject({
      assigned_routes: 0,
      trips_per_week: 0,
      assignments: [],
    });
    await admin.get(`${path}/999999/workload`, 404);
  });

  test('transport.read allows reading and transport.manage writing', async () => {
    const userWith = async (permission: string) => school.user([await school.role(permission)]);
    const [reader, writer] = [await userWith('transport.read'), await userWith('transport.manage')];
    const id = await fleet.addStaff({ name: unique('Helper') });
    await reader.get(`${path}/${id}/workload`);
    await reader.put(`${path}/${id}`, { name: 'Y' }, 403);
    await writer.put(`${path}/${id}`, { name: 'Y' });
    await writer.get(path, 403);
  });
});
