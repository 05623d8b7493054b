import { describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { farZones } from '../support/fixtures/days.ts';
import { ids } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { manyConnections, serviceOfFile, testPassword } from '../support/server/service.ts';
import { day, type Enrollment, transportSchool } from '../support/fixtures/transport.ts';
import { until } from '../support/client/until.ts';

const service = await serviceOfFile(manyConnections, 5);
const fleet = await transportSchool(service);
const { admin, school, schema } = fleet;

const list = '/api/transport/enrollments';
const path = '/api/transport/enroll';
const read = async (id: number) => (await admin.get<Enrollment>(`${path}/${id}`)).data;
const statuses = (answers: { status: number }[]) => answers.map(({ status }) => status).sort();

describe('an enrollment', () => {
  test("shows student, class, route, stop and today's bus; after cancellation it stays, with who cancelled it and why", async () => {
    const { busId, routeId } = await fleet.ridden(0);
    const stop_id = await fleet.addStop(routeId, { name: 'Oak Street', pickup_time: '07:10' });
    const student_id = await fleet.addStudent({ first_name: 'Amina', last_name: 'Okafor' });
    const added = await fleet.enroll(student_id, routeId, stop_id, 'pickup');
    expect(added.status).toBe(201);
    expect(added.headers.get('location')).toBe(`${path}/${added.data.id}`);
    expect(added.data).toMatchObject({
      student_id,
      student_name: 'Amina Okafor',
      class_id: fleet.classId,
      route_id: routeId,
      stop_id,
      stop_name: 'Oak Street',
      stop_sequence: 2,
      pickup_time: '07:10',
      enrollment_type: 'pickup',
      status: 'active',
      bus_id: busId,
      cancelled_at: null,
    });
    expect(await read(added.data.id)).toEqual(added.data);
    expect((await admin.delete<{ id: number }>(`${path}/${added.data.id}?reason=Moved%20house`)).data).toEqual({
      id: added.data.id,
    });
    expect(await read(added.data.id)).toMatchObject({
      student_id,
      status: 'cancelled',
      cancelled_at: expect.any(String) as unknown,
      cancelled_by_name: 'School Admin',
      cancel_reason: 'Moved house',
      bus_id: null,
    });
    expect((await admin.delete(`${path}/${added.data.id}`, 404)).error).toBe('not_found');
    await admin.delete(`${path}/999999`, 404);
    // The seat is free, and the student can be enrolled again.
    expect((await fleet.enroll(student_id, routeId, stop_id, 'both')).status).toBe(201);
    expect(ids((await admin.get<Enrollment[]>(`${list}?student_id=${student_id}&status=cancelled`)).data)).toEqual([
      added.data.id,
    ]);
  });

  test('requires an active student, an active route, and a stop of that route', async () => {
    const { routeId, stopId } = await fleet.ridden(0);
    const other = await fleet.ridden(0);
    const [student, inactive, gone] = [
      await fleet.addStudent(),
      await fleet.addStudent({ is_active: false }),
      await fleet.addStudent({ deleted_at: new Date() }),
    ];
    const refused = async (body: [number, number, number], field: string) =>
      expect(await fleet.enroll(...body)).toMatchObject({
        status: 422,
        error: 'invalid_reference',
        details: [{ path: field }],
      });
    for (const wrong of [inactive, gone, 999_999]) await refused([wrong, routeId, stopId], 'student_id');
    await refused([student, 999_999, stopId], 'route_id');
    const removed = await fleet.addStop(routeId);
    await admin.delete(`/api/transport/stops/${removed}`);
    for (const wrong of [other.stopId, removed, 999_999]) await refused([student, routeId, wrong], 'stop_id');
    expect((await fleet.enroll(student, routeId, stopId, 'one way')).status).toBe(400);
    await admin.put(`/api/transport/routes/${routeId}`, { is_active: false });
    expect(await fleet.enroll(student, routeId, stopId)).toMatchObject({ status: 409, error: 'invalid_state' });
    await admin.delete(`/api/transport/routes/${routeId}`);
    await refused([student, routeId, stopId], 'route_id');
  });

  test('is cancelled when the student is deleted, which frees the seat', async () => {
    const { routeId, stopId, enrollments } = await fleet.ridden(1, { capacity: 1 });
    const [enrollment] = enrollments;
    expect((await fleet.enroll(await fleet.addStudent(), routeId, stopId)).status).toBe(409);
    await admin.delete(`/api/students/${enrollment?.student_id ?? 0}`);
    expect(await read(enrollment?.id ?? 0)).toMatchObject({
      status: 'cancelled',
      cancel_reason: 'The student was removed.',
    });
    expect((await fleet.enroll(await fleet.addStudent(), routeId, stopId)).status).toBe(201);
  });

  test('stays when the student is promoted, and shows the new class', async () => {
    const { enrollments } = await fleet.ridden(1);
    const [enrollment] = enrollments;
    const yearId = await school.insert('academic_year', {
      name: 'Next year',
      start_date: day(300),
      end_date: day(600),
    });
    const gradeId = await school.insert('grade', { name: 'Above', sequence: 99 });
    const classId = await school.insert('class', { name: 'Above A', grade_id: gradeId, academic_year_id: yearId });
    const student_id = enrollment?.student_id ?? 0;
    await admin.post('/api/students/promote', {
      student_ids: [student_id],
      to_class_id: classId,
      to_academic_year_id: yearId,
    });
    expect(await read(enrollment?.id ?? 0)).toMatchObject({ student_id, status: 'active', class_id: classId });
    expect(ids((await admin.get<Enrollment[]>(`${list}?class_id=${classId}`)).data)).toEqual([enrollment?.id]);
  });

  test('is cancelled by only one of two concurrent requests', async () => {
    const { routeId, enrollments } = await fleet.ridden(1);
    const id = enrollments[0]?.id ?? 0;
    const answers = await race(
      service.database,
      `select from ${schema}.transport_enrollment where id = ${id} for update`,
      2,
      () => ['One', 'Two'].map((reason) => admin.send('DELETE', `${path}/${id}?reason=${reason}`)),
    );
    expect(statuses(answers)).toEqual([200, 404]);
    expect((await fleet.route(routeId)).student_count).toBe(0);
  });

  test('cancelled while the student is enrolled again, leaves the number of taken seats that the two responses imply', async () => {
    const { routeId, stopId, enrollments } = await fleet.ridden(1, { capacity: 1 });
    let id = enrollments[0]?.id ?? 0;
    const student = enrollments[0]?.student_id ?? 0;
    for (let round = 0; round < 25; round++) {
      const [cancelled, again] = await Promise.all([
        admin.send('DELETE', `${path}/${id}`),
        fleet.enroll(student, routeId, stopId),
      ]);
      expect(cancelled.status).toBe(200);
      expect([201, 409]).toContain(again.status);
      expect((await fleet.route(routeId)).student_count).toBe(again.status === 201 ? 1 : 0);
      id = again.status === 201 ? again.data.id : (await fleet.enroll(student, routeId, stopId)).data.id;
    }
  });

  test('cancelled while another student requests its seat, ends as if the two requests had run one after the other', async () => {
    const { routeId, stopId, enrollments } = await fleet.ridden(1, { capacity: 1 });
    const student = await fleet.addStudent();
    // The enrollment waits for the lock of the route; the cancellation does not, and finishes first.
    const answers = await race<{ status: number }>(
      service.database,
      `select from ${schema}.route where id = ${routeId} for update`,
      1,
      () => [admin.send('DELETE', `${path}/${enrollments[0]?.id ?? 0}`), fleet.enroll(student, routeId, stopId)],
    );
    expect(answers[0]?.status).toBe(200);
    expect((await fleet.route(routeId)).student_count).toBe(answers[1]?.status === 201 ? 1 : 0);
  });

  test('sent twice with the same Idempotency-Key is created once', async () => {
    const { routeId, stopId } = await fleet.ridden(0);
    const body = { student_id: await fleet.addStudent(), route_id: routeId, stop_id: stopId, enrollment_type: 'drop' };
    const send = () =>
      admin.send<Enrollment>('POST', path, { body, headers: { 'Idempotency-Key': 'enrol-twice' } }, 201);
    expect((await send()).data).toEqual((await send()).data);
  });
});

describe('seats', () => {
  test('are counted separately for pickup and drop; both counts in each', async () => {
    const { routeId, stopId } = await fleet.ridden(0, { capacity: 2 });
    const enrol = async (type: string) => (await fleet.enroll(await fleet.addStudent(), routeId, stopId, type)).status;
    expect([await enrol('pickup'), await enrol('drop'), await enrol('both')]).toEqual([201, 201, 201]);
    expect([await enrol('pickup'), await enrol('drop'), await enrol('both')]).toEqual([409, 409, 409]);
    expect(await fleet.route(routeId)).toMatchObject({ capacity: 2, student_count: 3, pickup_count: 2, drop_count: 2 });
  });

  test('are a conflict that names the route when none is free', async () => {
    const { routeId, stopId } = await fleet.ridden(1, { capacity: 1 });
    const refused = await fleet.enroll(await fleet.addStudent(), routeId, stopId);
    expect(refused).toMatchObject({ status: 409, error: 'conflict', details: [{ path: 'route_id' }] });
    expect(refused.message).toMatch(/has 1 seat, and 2 students would ride it to school/);
  });

  test('are unlimited without a bus, and limited by a smaller bus that is assigned for later', async () => {
    const { routeId, stopId } = await fleet.ridden(1);
    await fleet.assign({
      bus_id: await fleet.addBus({ capacity: 1 }),
      route_id: routeId,
      driver_id: await fleet.addDriver(),
      starts_on: day(30),
      ends_on: day(40),
    });
    expect((await fleet.enroll(await fleet.addStudent(), routeId, stopId)).status).toBe(409);
    const open = await fleet.addRoute();
    const stop = await fleet.addStop(open);
    for (let n = 0; n < 3; n++) expect((await fleet.enroll(await fleet.addStudent(), open, stop)).status).toBe(201);
    expect(await fleet.route(open)).toMatchObject({ capacity: null, student_count: 3 });
  });

  test('come only from the assigned bus while the assignment is open-ended', async () => {
    const { routeId, stopId } = await fleet.ridden(1, { capacity: 1 });
    await fleet.assign({
      bus_id: await fleet.addBus({ capacity: 2 }),
      route_id: routeId,
      driver_id: await fleet.addDriver(),
    });
    expect((await fleet.enroll(await fleet.addStudent(), routeId, stopId)).status).toBe(201);
    expect((await fleet.enroll(await fleet.addStudent(), routeId, stopId)).status).toBe(409);
  });

  // At any moment, at least one of these zones has another date than UTC.
  test.each(farZones)(
    'are those of the buses from today on, where today is the date in the time zone %s of the school',
    async (time_zone) => {
      const own = await transportSchool(service);
      await own.school.database.query('update platform.tenant set time_zone = $1 where id = $2', [
        time_zone,
        own.school.id,
      ]);
      const there = (fromToday: number) =>
        new Date(Date.now() + fromToday * 86_400_000).toLocaleDateString('sv-SE', { timeZone: time_zone });
      const left = async (ends_on: string) => {
        const { routeId, stopId } = await own.ridden(1);
        const bus_id = await own.addBus({ capacity: 1 });
        await own.school.insert('bus_assignment', {
          bus_id,
          route_id: routeId,
          driver_id: await own.addDriver(),
          starts_on: there(-9),
          ends_on,
        });
        return (await own.enroll(await own.addStudent(), routeId, stopId)).status;
      };
      expect([await left(there(-1)), await left(there(0))]).toEqual([201, 409]);
    },
  );

  test('are never oversold when ten concurrent requests want the last two', async () => {
    const { routeId, stopId } = await fleet.ridden(1, { capacity: 3 });
    const students = await Promise.all(Array.from({ length: 10 }, () => fleet.addStudent()));
    // The pool has eight connections.
    const answers = await race(
      service.database,
      `select from ${schema}.route where id = ${routeId} for update`,
      8,
      () => students.map((student) => fleet.enroll(student, routeId, stopId)),
    );
    expect(statuses(answers)).toEqual([201, 201, ...Array<number>(8).fill(409)]);
    expect(await fleet.route(routeId)).toMatchObject({ student_count: 3, pickup_count: 3, drop_count: 3 });
  });

  test('block ending or deleting an assignment if the default bus of the route is too small', async () => {
    const { routeId, stopId } = await fleet.ridden(1, { capacity: 1 });
    const crew = { bus_id: await fleet.addBus({ capacity: 5 }), driver_id: await fleet.addDriver() };
    const { data: assignment } = await fleet.assign({ route_id: routeId, ...crew });
    expect((await fleet.enroll(await fleet.addStudent(), routeId, stopId)).status).toBe(201);
    const at = `/api/transport/bus-assignments/${assignment.id}`;
    for (const refused of [
      await admin.put(at, { ends_on: day(9) }, 409),
      await admin.delete(at, 409),
      await admin.put(at, { starts_on: day(1) }, 409),
    ])
      expect(refused).toMatchObject({
        error: 'conflict',
        message: expect.stringMatching(/has 1 seat, and 2 students/) as unknown,
      });
    await admin.put(`/api/transport/routes/${routeId}`, { bus_id: null });
    await admin.put(at, { ends_on: day(9) });
  });

  test('are enforced by the table: of two concurrent inserts for the last seat, the second waits and is refused', async () => {
    const { routeId, stopId } = await fleet.ridden(1, { capacity: 2 });
    const row = async () => ({
      route_id: routeId,
      stop_id: stopId,
      student_id: await fleet.addStudent(),
      enrollment_type: 'pickup',
    });
    const [one, two] = [await row(), await row()];
    const client = new pg.Client({ connectionString: await school.database.addressFor() });
    await client.connect();
    try {
      await client.query('begin');
      await client.query(
        `insert into ${schema}.transport_enrollment (route_id, stop_id, student_id, enrollment_type) values ($1, $2, $3, $4)`,
        [one.route_id, one.stop_id, one.student_id, one.enrollment_type],
      );
      const second = school.insert('transport_enrollment', two).then(
        () => 'taken',
        (error: unknown) => (error as { code: string }).code,
      );
      await until(async () => {
        const waiting = await school.database.query(
          "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'insert into%transport_enrollment%'",
        );
        return waiting.length > 0 || undefined;
      });
      await client.query('commit');
      expect(await second).toBe('S409A');
    } finally {
      await client.end();
    }
  });

  test('are never oversold when the route gets a smaller bus while the last seat is taken', async () => {
    const { routeId, stopId } = await fleet.ridden(1, { capacity: 2 });
    const [small, student] = [await fleet.addBus({ capacity: 1 }), await fleet.addStudent()];
    const answers = await race<{ status: number }>(
      service.database,
      `select from ${schema}.route where id = ${routeId} for update`,
      2,
      () => [
        fleet.enroll(student, routeId, stopId),
        admin.send('PUT', `/api/transport/routes/${routeId}`, { body: { bus_id: small } }),
      ],
    );
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(1);
    const { capacity, student_count } = await fleet.route(routeId);
    expect(student_count).toBeLessThanOrEqual(capacity ?? 0);
  });
});

describe('a student', () => {
  test('has one active enrollment: a second is a conflict that names the first route', async () => {
    const [one, two] = [await fleet.ridden(0), await fleet.ridden(0)];
    const student = await fleet.addStudent();
    await fleet.enroll(student, one.routeId, one.stopId, 'pickup');
    const refused = await fleet.enroll(student, two.routeId, two.stopId, 'drop');
    expect(refused).toMatchObject({ status: 409, error: 'conflict', details: [{ path: 'student_id' }] });
    expect(refused.message).toContain((await fleet.route(one.routeId)).name);
  });

  test('gets only one of two concurrent enrollments', async () => {
    const [one, two] = [await fleet.ridden(0), await fleet.ridden(0)];
    const student = await fleet.addStudent();
    const answers = await race(
      service.database,
      `select from ${schema}.student where id = ${student} for update`,
      2,
      () => [one, two].map(({ routeId, stopId }) => fleet.enroll(student, routeId, stopId)),
    );
    expect(statuses(answers)).toEqual([201, 409]);
    expect((await admin.get(`${list}?student_id=${student}&status=active`)).pagination.totalItems).toBe(1);
  });

  test('deleted during enrollment ends up without an active enrollment', async () => {
    const { routeId, stopId } = await fleet.ridden(0);
    const student = await fleet.addStudent();
    const answers = await race<{ status: number }>(
      service.database,
      `select from ${schema}.student where id = ${student} for update`,
      2,
      () => [fleet.enroll(student, routeId, stopId), admin.send('DELETE', `/api/students/${student}`)],
    );
    expect([201, 422]).toContain(answers[0]?.status);
    expect(answers[1]?.status).toBe(200);
    expect((await admin.get(`${list}?student_id=${student}&status=active`)).pagination.totalItems).toBe(0);
    expect((await fleet.route(routeId)).student_count).toBe(0);
  });
});

describe('the list', () => {
  test('filters by route, student, stop, class, status and type, searches by student, and sorts by stop', async () => {
    const own = await transportSchool(service);
    const { classId } = await own.school.classroom('Other class');
    const a = await own.ridden(0);
    const first = await own.addStop(a.routeId, { sequence: 1 });
    const b = await own.ridden(0);
    const zoe = await own.addStudent({ first_name: 'Zoë', last_name: 'Adams' });
    const noor = await own.addStudent({ first_name: 'Noor', last_name: 'Haddad', class_id: classId });
    const lee = await own.addStudent({ first_name: 'Lee', last_name: 'Young' });
    const [e1, e2, e3] = [
      (await own.enroll(zoe, a.routeId, a.stopId, 'pickup')).data.id,
      (await own.enroll(noor, a.routeId, first)).data.id,
      (await own.enroll(lee, b.routeId, b.stopId, 'drop')).data.id,
    ];
    await own.admin.delete(`${path}/${e3}`);
    const found = async (query: string) => ids((await own.admin.get<Enrollment[]>(`${list}?${query}`)).data);
    expect(await found('')).toEqual([e2, e1]);
    expect(await found('include_ended=true')).toEqual([e3, e2, e1]);
    expect(await found('status=cancelled')).toEqual([e3]);
    expect(await found(`route_id=${a.routeId}`)).toEqual([e2, e1]);
    expect(await found(`stop_id=${first}`)).toEqual([e2]);
    expect(await found(`student_id=${lee}`)).toEqual([]);
    expect(await found(`student_id=${lee}&include_ended=true`)).toEqual([e3]);
    expect(await found(`class_id=${classId}`)).toEqual([e2]);
    expect(await found('status=active&sort=student_name')).toEqual([e1, e2]);
    expect(await found('enrollment_type=drop&include_ended=true')).toEqual([e3]);
    expect(await found('search=zoe')).toEqual([e1]);
    expect(await found('sort=stop&include_ended=true')).toEqual([e2, e1, e3]);
    await own.admin.get(`${list}?status=paused`, 400);
    await own.admin.get(`${list}?stop_id=x`, 400);
  });
});

describe('permissions', () => {
  test('a student reads only their own enrollment and changes nothing; staff without the permission read none', async () => {
    const { routeId, stopId, enrollments } = await fleet.ridden(2);
    const [own, other] = enrollments;
    const user = await school.user(['student']);
    await service.database.query(`update ${schema}.student set user_id = $1 where id = $2`, [user.id, own?.student_id]);
    const student = await service.anonymous.login({ tenant_id: school.id, email: user.email, password: testPassword });
    expect(ids((await student.get<Enrollment[]>(list)).data)).toEqual([own?.id]);
    expect((await student.get<Enrollment>(`${path}/${own?.id ?? 0}`)).data.bus_registration_number).toMatch(/^BUS/);
    await student.get(`${path}/${other?.id ?? 0}`, 404);
    expect((await student.get<Enrollment[]>(`${list}?student_id=${other?.student_id ?? 0}`)).data).toEqual([]);
    await student.delete(`${path}/${own?.id ?? 0}`, 403);
    expect((await fleet.enroll(own?.student_id ?? 0, routeId, stopId, 'both', student)).status).toBe(403);
    const accountant = await school.user(['accountant']);
    await accountant.get(list, 403);
  });

  test('a teacher with transport.read finds the enrollments of the classes they teach', async () => {
    const own = await transportSchool(service);
    const { routeId, stopId } = await own.ridden(1);
    const { classId } = await own.school.classroom('Taught');
    const { data: taught } = await own.enroll(await own.addStudent({ class_id: classId }), routeId, stopId);
    const teacher = await own.school.user(['teacher']);
    const teacherId = await own.school.insert('teacher', {
      first_name: 'Tia',
      last_name: 'Teacher',
      user_id: teacher.id,
    });
    await service.database.query(`update ${own.schema}.class set class_teacher_id = $1 where id = $2`, [
      teacherId,
      classId,
    ]);
    // The teacher has no enrollment of their own.
    expect((await teacher.get<Enrollment[]>(list)).data).toEqual([]);
    const { data: roles } =
      await own.admin.get<{ id: number; name: string; permission_ids: number[] }[]>('/api/rbac/roles');
    const { data: permissions } = await own.admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
    const role = roles.find(({ name }) => name === 'teacher');
    const more = permissions.filter(({ name }) => name.startsWith('transport.')).map(({ id }) => id);
    await own.admin.put(`/api/rbac/roles/${role?.id ?? 0}`, {
      permission_ids: [...(role?.permission_ids ?? []), ...more],
    });
    const again = await service.anonymous.login({
      tenant_id: own.school.id,
      email: teacher.email,
      password: testPassword,
    });
    expect(ids((await again.get<Enrollment[]>(list)).data)).toEqual([taught.id]);
    const { data: everybody } = await own.admin.get<Enrollment[]>(list);
    const other = everybody.find(({ id }) => id !== taught.id);
    await again.get(`${path}/${other?.id ?? 0}`, 404);
    await again.delete(`${path}/${other?.id ?? 0}`, 404);
    expect((await own.enroll(other?.student_id ?? 0, routeId, stopId, 'both', again)).status).toBe(422);
    await again.delete(`${path}/${taught.id}`);
    // Seats are counted over all enrollments, also those outside the row scope.
    expect((await own.route(routeId)).student_count).toBe(1);
  });
});
