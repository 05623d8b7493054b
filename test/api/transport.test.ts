import { describe, expect, test } from '@jest/globals';
import { readSheet } from '../../src/documents/spreadsheets.ts';
import type { Client } from '../support/client/client.ts';
import type { Generated, StudentFee } from '../support/fixtures/fees.ts';
import { ids } from '../support/client/pages.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { withRole } from '../support/database/tenants.ts';
import { day, transportSchool } from '../support/fixtures/transport.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Dashboard as DashboardSchema, FeePlan as FeePlanSchema } from '../../src/endpoints/transport.ts';

const service = await serviceOfFile({}, 20);
const fleet = await transportSchool(service);
const { admin, school, schema } = fleet;

type Dashboard = OutputOf<typeof DashboardSchema>;
type FeePlan = OutputOf<typeof FeePlanSchema>;

describe('the transport dashboard', () => {
  const path = '/api/transport/dashboard';
  const read = async (of = fleet) => (await of.admin.get<Dashboard>(path)).data;

  test('is all zeros for a school without transport', async () => {
    expect(await read(await transportSchool(service))).toEqual({
      date: day(),
      is_school_day: true,
      holiday: null,
      buses: { total: 0, active: 0, seats: 0 },
      drivers: { total: 0, active: 0 },
      staff: { total: 0, active: 0 },
      routes: { total: 0, active: 0 },
      enrollments: { active: 0, pickup: 0, drop: 0 },
      occupancy: [],
      exceptions: [],
      expiring: [],
      without_bus: [],
      inactive_students: [],
    });
  });

  test('shows totals and the occupancy of each route', async () => {
    const own = await transportSchool(service);
    const { routeId, busId, enrollments } = await own.ridden(3, { capacity: 10 }, 'pickup');
    await own.admin.delete(`/api/transport/enroll/${enrollments[0]?.id ?? 0}`);
    await own.addBus({ is_active: false });
    await own.addDriver();
    await own.addStaff({ is_active: false });
    await own.addRoute({ is_active: false });
    const gone = await own.addBus();
    await own.admin.delete(`/api/transport/buses/${gone}`);
    expect(await read(own)).toMatchObject({
      buses: { total: 2, active: 1, seats: 10 },
      drivers: { total: 1, active: 1 },
      staff: { total: 1, active: 0 },
      routes: { total: 2, active: 1 },
      enrollments: { active: 2, pickup: 2, drop: 0 },
      occupancy: [
        {
          route_id: routeId,
          bus_id: busId,
          capacity: 10,
          student_count: 2,
          pickup_count: 2,
          drop_count: 0,
          seats_left: 8,
          percent: 20,
        },
      ],
      without_bus: [],
    });
  });

  test("lists today's exceptions and the routes that have students but no bus", async () => {
    const own = await transportSchool(service);
    const [cancelled, replaced, lost] = [await own.ridden(1), await own.ridden(2), await own.ridden(1)];
    await own.admin.put(`/api/transport/routes/${lost.routeId}`, { bus_id: null });
    const idle = await own.ridden(1);
    await own.admin.put(`/api/transport/routes/${idle.routeId}`, { bus_id: null });
    await own.except({ route_id: idle.routeId, date: day(), kind: 'cancelled' });
    const spare = await own.addBus();
    await own.except({ route_id: cancelled.routeId, date: day(), kind: 'cancelled', reason: 'Snow' });
    await own.except({ route_id: replaced.routeId, date: day(), kind: 'replaced', bus_id: spare });
    await own.except({ route_id: replaced.routeId, date: day(1), kind: 'cancelled' });
    const { exceptions, without_bus, occupancy } = await read(own);
    expect(exceptions).toMatchObject([
      { route_id: cancelled.routeId, kind: 'cancelled', reason: 'Snow', student_count: 1 },
      { route_id: replaced.routeId, kind: 'replaced', reason: null, bus_id: spare, student_count: 2 },
      { route_id: idle.routeId, kind: 'cancelled', bus_id: null },
    ]);
    expect(without_bus).toMatchObject([{ route_id: lost.routeId, student_count: 1 }]);
    expect(occupancy.map(({ bus_id }) => bus_id)).toEqual([cancelled.busId, spare, null, null]);
  });

  test('lists documents that expire within 30 days or have expired, by expiry date', async () => {
    const own = await transportSchool(service);
    const bus = await own.addBus({
      registration_number: 'B',
      insurance_expires_on: day(30),
      fitness_expires_on: day(-2),
    });
    await own.addBus({ insurance_expires_on: day(31), fitness_expires_on: null });
    await own.addBus({ insurance_expires_on: day(-5), is_active: false });
    await own.addDriver({ license_expires_on: day(-5), is_active: false });
    await own.admin.delete(
      `/api/transport/buses/${await own.addBus({ insurance_expires_on: day(1), fitness_expires_on: day(1) })}`,
    );
    await own.admin.delete(`/api/transport/drivers/${await own.addDriver({ license_expires_on: day(1) })}`);
    const driver = await own.addDriver({ name: 'D', license_expires_on: day(0) });
    expect((await read(own)).expiring).toEqual([
      {
        kind: 'fitness',
        bus_id: bus,
        driver_id: null,
        name: 'B',
        expires_on: day(-2),
        days_left: -2,
        is_expired: true,
      },
      {
        kind: 'license',
        bus_id: null,
        driver_id: driver,
        name: 'D',
        expires_on: day(0),
        days_left: 0,
        is_expired: false,
      },
      {
        kind: 'insurance',
        bus_id: bus,
        driver_id: null,
        name: 'B',
        expires_on: day(30),
        days_left: 30,
        is_expired: false,
      },
    ]);
  });

  test('counts no student who has left, and lists none as still enrolled', async () => {
    const own = await transportSchool(service);
    const { enrollments } = await own.ridden(2);
    await own.admin.put(`/api/students/${enrollments[0]?.student_id ?? 0}`, { is_active: false });
    expect(await read(own)).toMatchObject({
      enrollments: { active: 1, pickup: 1, drop: 1 },
      occupancy: [{ student_count: 1, seats_left: 39 }],
      inactive_students: [],
    });
  });

  test('shows whether today is a school day', async () => {
    const own = await transportSchool(service);
    const id = await own.school.insert('holiday', { name: 'Feast', date: day() });
    expect(await read(own)).toMatchObject({ is_school_day: false, holiday: { id, name: 'Feast' } });
  });

  test('requires transport.read', async () => {
    const reader = await school.user([await school.role('transport.read')]);
    await reader.get(path);
    for (const role of ['teacher', 'accountant', 'student']) await (await school.user([role])).get(path, 403);
  });
});

describe('row policies of the transport tables', () => {
  const ofStaff = ['bus', 'driver', 'transport_staff', 'bus_assignment', 'route_exception', 'transport_fee_plan'];

  test('show a student no bus, driver, attendant, assignment, exception or fee plan, and refuse every write', async () => {
    const own = await transportSchool(service);
    const { busId: bus_id, routeId: route_id, stopId: stop_id, enrollments } = await own.ridden(1);
    const [driver_id, staff_id] = [await own.addDriver(), await own.addStaff()];
    await own.assign({ route_id, bus_id, driver_id, staff_id });
    await own.except({ route_id, date: day(1), kind: 'cancelled' });
    await own.admin.post('/api/transport/fee-plans', { name: 'Bus', amount: 1, frequency: 'monthly' }, 201);
    const student = enrollments[0]?.student_id ?? 0;
    await own.admin.delete(`/api/transport/enroll/${enrollments[0]?.id ?? 0}`);
    const reads = async (scope: string) =>
      withRole(
        await own.school.database.addressFor(),
        'school_tenant',
        {
          search_path: `${own.schema}, public`,
          'app.tenant_id': String(own.school.id),
          'app.scope': scope,
          'app.student_id': String(student),
        },
        async ({ rows, attempt }) => ({
          seen: (
            await rows<{ count: number }>(
              ofStaff.map((table) => `select count(*)::integer from ${table}`).join(' union all '),
            )
          ).map(({ count }) => count),
          refused: [
            await attempt(`insert into route (name) values ('Mine')`),
            await attempt(`insert into stop (route_id, name, sequence) values (${route_id}, 'Mine', 2)`),
            await attempt(
              `insert into transport_enrollment (student_id, route_id, stop_id, enrollment_type) values (${student}, ${route_id}, ${stop_id}, 'both')`,
            ),
          ],
        }),
      );
    expect(await reads('own')).toEqual({ seen: [0, 0, 0, 0, 0, 0], refused: ['42501', '42501', '42501'] });
    expect(await reads('')).toEqual({ seen: [0, 0, 0, 0, 0, 0], refused: ['42501', '42501', '42501'] });
    expect(await reads('all')).toEqual({ seen: [1, 1, 1, 1, 1, 1], refused: [1, 1, 1] });
  });
});

describe('notices about expiring documents', () => {
  /** Calls a function in a school with the scope "all". */
  const answers = async (of: typeof fleet, call: string) =>
    withRole(
      await of.school.database.addressFor(),
      'school_tenant',
      {
        search_path: `${of.schema}, public`,
        'app.tenant_id': String(of.school.id),
        'app.scope': 'all',
        'app.time_zone': 'UTC',
      },
      ({ rows }) => rows<Record<string, unknown>>(`select * from ${call} answer order by answer`),
    );

  test('have one key per step (30 days, 7 days, expired), which changes with the expiry date', async () => {
    const own = await transportSchool(service);
    const bus = await own.addBus({
      registration_number: 'B',
      insurance_expires_on: day(30),
      fitness_expires_on: day(31),
    });
    const notices = async () =>
      (await answers(own, 'api.transport_expiring_notices()')).map(({ task, variables }) => [
        task,
        (variables as { in_days: string }).in_days,
      ]);
    const insured = async (until: number) => {
      await own.admin.put(`/api/transport/buses/${bus}`, { insurance_expires_on: day(until) });
      return notices();
    };
    expect(await notices()).toEqual([[`transport.expiring:insurance:${bus}:30`, 'in 30 days']]);
    expect(await insured(8)).toEqual([[`transport.expiring:insurance:${bus}:30`, 'in 8 days']]);
    expect(await insured(7)).toEqual([[`transport.expiring:insurance:${bus}:7`, 'in 7 days']]);
    expect(await insured(0)).toEqual([[`transport.expiring:insurance:${bus}:7`, 'today']]);
    expect(await insured(-1)).toEqual([[`transport.expiring:insurance:${bus}:expired`, 'yesterday']]);
    expect(await insured(40)).toEqual([]);
    const driver = await own.addDriver({ name: 'Ama', license_expires_on: day(1) });
    expect(await answers(own, 'api.transport_expiring_notices()')).toMatchObject([
      {
        task: `transport.expiring:license:${driver}:7`,
        variables: { document: 'The driving license', subject: 'Ama', in_days: 'tomorrow' },
      },
    ]);
  });

  test('go to the users who manage transport, or to the admins if there are none', async () => {
    const own = await transportSchool(service);
    const managers = async () => (await answers(own, 'api.transport_managers()')).map(({ answer }) => Number(answer));
    const [admin] = await service.database.query<{ id: string }>(`select id from ${own.schema}.user_account`);
    await own.school.user([await own.school.role('transport.read')]);
    expect(await managers()).toEqual([Number(admin?.id)]);
    const manager = await own.school.user(['transport_manager']);
    const other = await own.school.user([await own.school.role('transport.manage')]);
    expect(await managers()).toEqual([manager.id, other.id]);
    await service.database.query(`update ${own.schema}.user_account set is_active = false where id = $1`, [manager.id]);
    expect(await managers()).toEqual([other.id]);
  });
});

describe('fee plans', () => {
  const path = '/api/transport/fee-plans';
  const add = async (fields: object, of = fleet) =>
    (await of.admin.post<FeePlan>(path, { amount: 100, frequency: 'monthly', ...fields }, 201)).data;
  const generate = async (plan: FeePlan, fields: object = {}, of = fleet) =>
    (await of.admin.post<Generated>(`${path}/${plan.id}/generate`, fields)).data;
  const feesOf = async (student: number, of = fleet) =>
    (await of.admin.get<StudentFee[]>(`/api/finance/student-fees?student_id=${student}`)).data;

  test('a fee plan is a fee structure with one component, updated and deleted together', async () => {
    const route_id = await fleet.addRoute({ name: 'North' });
    const plan = await add({ name: 'Bus North', route_id, amount: 45.5 });
    expect(plan).toMatchObject({
      name: 'Bus North',
      route_id,
      route_name: 'North',
      amount: 45.5,
      frequency: 'monthly',
      min_km: null,
      max_km: null,
      academic_year_id: fleet.yearId,
      student_count: 0,
    });
    expect((await admin.get<FeePlan>(`${path}/${plan.id}`)).data).toEqual(plan);
    const structure = `/api/finance/fee-structures/${plan.fee_structure_id}`;
    expect((await admin.get(structure)).data).toMatchObject({
      name: 'Bus North',
      components: [{ name: 'Bus North', amount: 45.5, frequency: 'monthly' }],
      classes: [],
    });
    const { data: changed } = await admin.put<FeePlan>(`${path}/${plan.id}`, {
      ...plan,
      name: 'Bus',
      amount: 50,
      frequency: 'term',
      route_id: null,
      max_km: 5,
    });
    expect(changed).toMatchObject({
      name: 'Bus',
      amount: 50,
      frequency: 'term',
      route_id: null,
      route_name: null,
      max_km: 5,
    });
    expect((await admin.get(structure)).data).toMatchObject({
      name: 'Bus',
      components: [{ name: 'Bus', amount: 50, frequency: 'term' }],
    });
    // The finance endpoints cannot delete the fee structure of a plan.
    expect((await admin.delete(structure, 409)).error).toBe('in_use');
    await admin.delete(`${path}/${plan.id}`);
    await admin.get(structure, 404);
    await admin.get(`${path}/${plan.id}`, 404);
  });

  test('a fee plan applies by route or by length, has an amount, and belongs to an existing year', async () => {
    const route_id = await fleet.addRoute();
    const refused = async (fields: object, status = 400) =>
      (await admin.post(path, { name: 'Wrong', amount: 1, frequency: 'monthly', ...fields }, status)).details.map(
        (detail) => detail.path,
      );
    expect(await refused({ route_id, min_km: 1 })).toEqual(['route_id']);
    expect(await refused({ min_km: 5, max_km: 5 })).toEqual(['max_km']);
    expect(await refused({ amount: 0 })).toEqual(['amount']);
    expect(await refused({ frequency: 'weekly' })).toEqual(['frequency']);
    expect(await refused({ route_id: 999_999 }, 422)).toEqual(['route_id']);
    expect(await refused({ academic_year_id: 999_999 }, 422)).toEqual(['academic_year_id']);
    const plan = await add({ name: 'By length', min_km: 1, max_km: 2 });
    expect((await admin.put(`${path}/${plan.id}`, { route_id }, 400)).details).toMatchObject([{ path: 'route_id' }]);
    expect((await admin.put(`${path}/${plan.id}`, { max_km: 0.5 }, 400)).details).toMatchObject([{ path: 'max_km' }]);
    expect(await refused({ name: 'By length' }, 409)).toEqual(['name']);
  });

  test('generate bills enrolled students by route, by length or all, each once per period', async () => {
    const own = await transportSchool(service);
    const [near, far] = [await own.ridden(1), await own.ridden(2)];
    await own.admin.put(`/api/transport/routes/${near.routeId}`, { distance_km: 5 });
    await own.admin.put(`/api/transport/routes/${far.routeId}`, { distance_km: 12 });
    const [byRoute, short, long, all] = [
      await add({ name: 'Far', route_id: far.routeId, amount: 10 }, own),
      await add({ name: 'Below 5 km', max_km: 5, amount: 1 }, own),
      await add({ name: 'From 5 km on', min_km: 5, amount: 2 }, own),
      await add({ name: 'All', amount: 3 }, own),
    ];
    expect((await own.admin.get<FeePlan[]>(path)).data.map(({ name, student_count }) => [name, student_count])).toEqual(
      [
        ['All', 3],
        ['Below 5 km', 0],
        ['Far', 2],
        ['From 5 km on', 3],
      ],
    );
    expect(await generate(byRoute, { dry_run: true }, own)).toMatchObject({ created: 2, amount: 20, dry_run: true });
    expect(await generate(byRoute, { due_date: day(9) }, own)).toMatchObject({
      created: 2,
      skipped: 0,
      amount: 20,
      date: day(),
      due_date: day(9),
    });
    expect(await generate(byRoute, {}, own)).toMatchObject({
      created: 0,
      skipped: 2,
      reasons: [{ reason: 'already_billed', count: 2 }],
    });
    expect([
      (await generate(short, {}, own)).created,
      (await generate(long, {}, own)).created,
      (await generate(all, {}, own)).created,
    ]).toEqual([0, 3, 3]);
    const student = far.enrollments[0]?.student_id ?? 0;
    const fees = await feesOf(student, own);
    expect(fees.map(({ amount }) => amount).sort((a, b) => a - b)).toEqual([2, 3, 10]);
    // It is paid like any other fee, and billed fees stay.
    const fee = fees.find(({ amount }) => amount === 10);
    await own.admin.post(
      '/api/finance/payments',
      { student_fee_id: fee?.id ?? 0, amount: 10, payment_method: 'cash' },
      201,
    );
    expect((await own.admin.delete(`${path}/${byRoute.id}`, 409)).error).toBe('in_use');
    expect(await own.admin.put(`${path}/${byRoute.id}`, { frequency: 'annual' }, 409)).toMatchObject({
      error: 'in_use',
      details: [{ path: 'frequency' }],
    });
    await own.admin.put(`${path}/${byRoute.id}`, { amount: 11, frequency: 'monthly' });
    expect((await feesOf(student, own)).find(({ id }) => id === fee?.id)).toMatchObject({ amount: 10, status: 'paid' });
  });

  test('generate bills only the students enrolled on the given day, including those who cancelled later', async () => {
    const own = await transportSchool(service);
    const { routeId, enrollments } = await own.ridden(2);
    await own.addStudent();
    const plan = await add({ name: 'Monthly' }, own);
    await service.database.query(
      `update ${own.schema}.transport_enrollment set created_at = now() - interval '50 days'`,
    );
    await service.database.query(`update ${own.schema}.enrollment set starts_on = $1`, [day(-90)]);
    await own.admin.delete(`/api/transport/enroll/${enrollments[0]?.id ?? 0}`);
    expect(await generate(plan, { date: day(-40) }, own)).toMatchObject({ created: 2 });
    expect(await generate(plan, { date: day(-60) }, own)).toMatchObject({ created: 0, skipped: 0 });
    expect(await generate(plan, {}, own)).toMatchObject({ created: 1 });
    expect((await own.admin.post(`${path}/${plan.id}/generate`, { date: day(-400) }, 400)).details).toMatchObject([
      { path: 'date' },
    ]);
    expect((await own.route(routeId)).student_count).toBe(1);
    // The finance endpoint bills nobody with it: it is assigned to no class.
    const refused = await own.admin.post(
      '/api/finance/student-fees/generate',
      { fee_structure_id: plan.fee_structure_id },
      409,
    );
    expect(refused.error).toBe('invalid_state');
  });

  test('two concurrent generates bill each student once', async () => {
    const own = await transportSchool(service);
    await own.ridden(3);
    const plan = await add({ name: 'Once' }, own);
    const answers = await Promise.all([generate(plan, {}, own), generate(plan, {}, own)]);
    expect(answers.map(({ created }) => created).sort()).toEqual([0, 3]);
  });

  test('the list is sorted by name and filters by route and year', async () => {
    const own = await transportSchool(service);
    const year = await own.school.insert('academic_year', { name: 'Next', start_date: day(300), end_date: day(600) });
    const route_id = await own.addRoute();
    const b = await add({ name: 'Bay', route_id, amount: 1 }, own);
    const a = await add({ name: 'ábaco', academic_year_id: year, amount: 2 }, own);
    const found = async (query: string) => ids((await own.admin.get<FeePlan[]>(`${path}?${query}`)).data);
    expect([
      await found(''),
      await found(`route_id=${route_id}`),
      await found(`academic_year_id=${year}`),
      await found('search=abaco'),
      await found('sort=amount'),
    ]).toEqual([[a.id, b.id], [b.id], [a.id], [a.id], [b.id, a.id]]);
  });

  test('transport.manage allows creating plans, fee.manage billing in a school with fees_management', async () => {
    const userWith = async (...permissions: string[]) => school.user([await school.role(...permissions)]);
    const [reader, manager, accountant] = [
      await userWith('transport.read'),
      await school.user(['transport_manager']),
      await school.user(['accountant']),
    ];
    const { data: plan } = await manager.post<FeePlan>(
      path,
      { name: 'By the manager', amount: 1, frequency: 'annual' },
      201,
    );
    await reader.get(`${path}/${plan.id}`);
    await reader.put(`${path}/${plan.id}`, { amount: 2 }, 403);
    await manager.post(`${path}/${plan.id}/generate`, {}, 403);
    await accountant.post(`${path}/${plan.id}/generate`, {});
    await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: { fees_management: false } });
    expect((await accountant.post(`${path}/${plan.id}/generate`, {}, 403)).error).toBe('feature_disabled');
    await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: {} });
    expect(await service.database.query(`select from ${schema}.fee_structure_class`)).toEqual([]);
  });
});

describe('the contact sheet', () => {
  const path = '/api/transport/export/contact-sheet';
  const sheet = async (client: Client, query = '') => {
    const { data, headers } = await client.get<Buffer>(path + query);
    const [header, ...rows] = await readSheet(
      { content: data, contentType: headers.get('content-type')?.split(';')[0] ?? '' },
      5000,
    );
    return { header: header?.cells, rows: rows.map(({ cells }) => cells), headers, data };
  };

  test('is an .xlsx with format=excel, and with an Accept header that prefers it unless format says otherwise', async () => {
    const own = await transportSchool(service);
    const xlsx = 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet';
    const typeOf = async (query: string, accept?: string) => {
      const headers = accept === undefined ? {} : { Accept: accept };
      const answer = await own.admin.send<Buffer>('GET', path + query, { headers }, 200);
      if (query === '') expect(answer.headers.get('vary')).toContain('Accept');
      return answer.headers.get('content-type')?.split(';')[0];
    };
    expect(await typeOf('?format=excel')).toBe(xlsx);
    expect(await typeOf('', xlsx)).toBe(xlsx);
    expect(await typeOf('', `text/csv;q=0.5, ${xlsx}`)).toBe(xlsx);
    expect(await typeOf('?format=csv', xlsx)).toBe('text/csv');
    expect(await typeOf('?format=excel', 'text/csv')).toBe(xlsx);
    for (const accept of [undefined, '*/*', 'text/csv', 'application/json'])
      expect(await typeOf('', accept)).toBe('text/csv');
  });

  test.each(['csv', 'xlsx'])('as .%s lists the students by route and stop, with their contacts', async (format) => {
    const own = await transportSchool(service);
    const [south, north] = [
      await own.addRoute({ name: 'South' }),
      await own.addRoute({ name: 'North', bus_id: await own.addBus({ registration_number: 'LX21 ABC' }) }),
    ];
    const last = await own.addStop(north, { name: 'Oak', pickup_time: '07:20', drop_time: '15:10' });
    const first = await own.addStop(north, { name: 'Elm', sequence: 1 });
    const alone = await own.addStop(south, { name: 'Fir' });
    const parent = { parent_name: 'Berta Núñez', parent_phone: '+44 20 7946 0001' };
    const zoe = await own.addStudent({ first_name: 'Zoë', last_name: 'Abel', admission_number: '007', ...parent });
    const others = [];
    for (const last_name of ['Young', 'Baker', 'Gone', 'Cole'])
      others.push(await own.addStudent({ first_name: 'Lee', last_name, admission_number: last_name }));
    const [young = 0, baker = 0, gone = 0, cole = 0] = others;
    await own.enroll(young, north, last);
    await own.enroll(zoe, north, last, 'pickup');
    await own.enroll(baker, north, first, 'drop');
    await own.enroll(cole, south, alone);
    const { data: cancelled } = await own.enroll(gone, south, alone);
    await own.admin.delete(`/api/transport/enroll/${cancelled.id}`);
    const { data: classes } = await own.admin.get<{ class_name: string }[]>('/api/classes');
    const name = classes[0]?.class_name ?? '';
    const { header, rows, headers } = await sheet(own.admin, `?format=${format}`);
    expect(headers.get('content-disposition')).toContain(`filename=transport-contacts-${day()}.${format}`);
    expect(header).toEqual([
      'Route',
      'Bus',
      'Place',
      'Stop',
      'Pickup',
      'Drop',
      'Student',
      'Admission number',
      'Class',
      'Rides',
      'Parent',
      'Parent phone',
    ]);
    const full = (cells: string[]) => [...cells, ...Array<string>(12 - cells.length).fill('')];
    expect(rows.map(full)).toEqual([
      ['North', 'LX21 ABC', '1', 'Elm', '', '', 'Lee Baker', 'Baker', name, 'drop', '', ''],
      [
        'North',
        'LX21 ABC',
        '2',
        'Oak',
        '07:20',
        '15:10',
        'Zoë Abel',
        '007',
        name,
        'pickup',
        'Berta Núñez',
        '+44 20 7946 0001',
      ],
      ['North', 'LX21 ABC', '2', 'Oak', '07:20', '15:10', 'Lee Young', 'Young', name, 'both', '', ''],
      ['South', '', '1', 'Fir', '', '', 'Lee Cole', 'Cole', name, 'both', '', ''],
    ]);
    expect((await sheet(own.admin, `?format=${format}&route_id=${south}`)).rows).toHaveLength(1);
  });

  test('neutralizes text that a spreadsheet program would read as a formula, phone numbers included', async () => {
    const own = await transportSchool(service);
    const route = await own.addRoute({ name: '=1+1' });
    const stop = await own.addStop(route, { name: '@SUM(A1)' });
    await own.enroll(
      await own.addStudent({ first_name: '-2', parent_name: '=HYPERLINK("http://x")', parent_phone: '+44' }),
      route,
      stop,
    );
    const text = (await sheet(own.admin)).data.toString();
    expect(text).not.toMatch(/(^|,|")[=+\-@]/m);
    expect(text).toContain(`'=1+1`);
    expect(text).toContain(`,'+44`);
  });

  test('is a .csv by default; an unknown format is a 400, an unknown route a 404; without enrollments it has only the header', async () => {
    const own = await transportSchool(service);
    const { headers, rows } = await sheet(own.admin);
    expect([headers.get('content-type'), rows]).toEqual(['text/csv; charset=utf-8', []]);
    await own.admin.get(`${path}?format=pdf`, 400);
    await own.admin.get(`${path}?route_id=x`, 400);
    await own.admin.get(`${path}?route_id=999999`, 404);
  });

  test('is read in pages of whole routes, so that renaming routes meanwhile neither repeats nor skips a student', async () => {
    const own = await transportSchool(service);
    const routes = [];
    for (const name of ['B', 'A', 'C']) {
      const route = await own.addRoute({ name });
      const stop = await own.addStop(route);
      for (let n = 0; n < 2; n++) await own.enroll(await own.addStudent(), route, stop);
      routes.push(route);
    }
    const read = async (after?: unknown) => {
      const [row] = await service.database.query<{ page: { rows: string[][]; next: number[] | null } }>(
        `select set_config('search_path', '${own.schema}, public', true), set_config('app.tenant_id', $1, true), set_config('app.scope', 'all', true), api.transport_contact_sheet($2) as page`,
        [String(own.school.id), JSON.stringify({ limit: 2, ...(after === undefined ? {} : { after }) })],
      );
      return row?.page ?? { rows: [], next: null };
    };
    const first = await read();
    expect([first.rows.map(([name]) => name), first.next]).toEqual([
      ['A', 'A'],
      [routes[0], routes[2]],
    ]);
    await own.admin.put(`/api/transport/routes/${routes[2] ?? 0}`, { name: '0' });
    const second = await read(first.next);
    expect([second.rows.map(([name]) => name), second.next]).toEqual([['B', 'B'], [routes[2]]]);
    const third = await read(second.next);
    expect([third.rows.map(([name]) => name), third.next]).toEqual([['0', '0'], null]);
  });

  test('requires transport.read', async () => {
    await sheet(await school.user([await school.role('transport.read')]));
    for (const role of ['teacher', 'student']) await (await school.user([role])).get(path, 403);
  });
});
