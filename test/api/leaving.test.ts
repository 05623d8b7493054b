import { describe, expect, test } from '@jest/globals';
import type { Student } from '../support/fixtures/classes.ts';
import { fileForm } from '../support/fixtures/pictures.ts';
import { serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { admin, schema } = school;

/** The date a number of days from today. */
const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const create = async (path: string, body: object) => (await admin.post<{ id: number }>(path, body, 201)).data.id;

const year = await school.insert('academic_year', {
  name: 'Now',
  start_date: day(-200),
  end_date: day(160),
  is_current: true,
});
const nextYear = await school.insert('academic_year', { name: 'Next', start_date: day(161), end_date: day(500) });
const grade = await school.insert('grade', { name: 'One' });
const nextClass = await create('/api/classes', { name: 'Next', grade_id: grade, academic_year_id: nextYear });

/** A student with a login and a parent, alone in a class and in a bus with one seat each. */
async function pupil(academicYear = year) {
  const name = unique('Leaver');
  const classId = await create('/api/classes', {
    name: unique('Class'),
    grade_id: grade,
    academic_year_id: academicYear,
    capacity: 1,
  });
  const busId = await create('/api/transport/buses', { registration_number: unique('BUS'), capacity: 1 });
  const routeId = await create('/api/transport/routes', { name: unique('Route'), bus_id: busId });
  const stopId = await create('/api/transport/stops', { route_id: routeId, name: 'Stop' });
  const credentials = { tenant_id: school.id, email: `${name}@school.example`, password: testPassword };
  const parent = `parent-of-${name.toLowerCase()}@home.example`;
  const { data } = await admin.post<Student>(
    '/api/students',
    {
      first_name: 'Sam',
      last_name: name,
      class_id: classId,
      parent_email: parent,
      create_user_account: true,
      email: credentials.email,
      password: testPassword,
    },
    201,
  );
  await service.database.query(`update ${schema}.enrollment set starts_on = $1 where student_id = $2`, [
    day(-100),
    data.id,
  ]);
  await create('/api/transport/enroll', {
    student_id: data.id,
    route_id: routeId,
    stop_id: stopId,
    enrollment_type: 'both',
  });
  return { id: data.id, userId: data.user_id, name, classId, routeId, stopId, credentials, parent };
}
/** A year from one day until another, both given as days from today. */
const endedYear = (from: number, until: number) =>
  school.insert('academic_year', { name: unique('Year'), start_date: day(from), end_date: day(until) });
type Pupil = Awaited<ReturnType<typeof pupil>>;

const change = (student: Pupil, fields: object, status = 200) =>
  admin.put<Student & { not_restored?: { field: string; message: string }[] }>(
    `/api/students/${student.id}`,
    fields,
    status,
  );

const mark = (student: Pupil, date: string, status = 'absent') =>
  admin.send<{ marked: number }>('POST', '/api/attendance/mark', {
    body: { class_id: student.classId, date, records: [{ student_id: student.id, status }] },
  });

/** The number of emails that the parent got, or is about to get. */
async function emails(student: Pupil) {
  await service.settled();
  const rows = await school.database.query(`select from ${schema}.notification_delivery where address = $1`, [
    student.parent,
  ]);
  return rows.length;
}

const counted = async (path: string) => (await admin.get<unknown[]>(path)).pagination.totalItems;
const total = async () => (await admin.get<{ total_students: number }>('/api/dashboard')).data.total_students;

/** What each consumer of the state of a student shows. */
const consumers: Record<string, (student: Pupil, totalBefore: number) => Promise<unknown>> = {
  'is_active of the student': async ({ id }) => {
    const { status, data } = await admin.send<Student>('GET', `/api/students/${id}`);
    return status === 200 ? data.is_active : status;
  },
  'students with is_active=true': ({ name }) => counted(`/api/students?search=${name}&is_active=true`),
  'students with is_active=false': ({ name }) => counted(`/api/students?search=${name}&is_active=false`),
  'students of the class': ({ classId }) => counted(`/api/students?class_id=${classId}`),
  'student_count of the class': async ({ classId }) =>
    (await admin.get<{ student_count: number }>(`/api/classes/${classId}`)).data.student_count,
  'students on the dashboard': async (_, totalBefore) => (await total()) - totalBefore,
  'attendance sheet of today': ({ classId }) => counted(`/api/attendance/class/${classId}?date=${day(0)}`),
  'attendance sheet of ten days ago': ({ classId }) => counted(`/api/attendance/class/${classId}?date=${day(-10)}`),
  'attendance sheet of tomorrow': ({ classId }) => counted(`/api/attendance/class/${classId}?date=${day(1)}`),
  'student_count of my classes': async ({ classId }) =>
    (
      await admin.get<{ class_id: number; student_count: number }[]>('/api/attendance/my-classes?pageSize=100')
    ).data.find((row) => row.class_id === classId)?.student_count,
  'message of marking today': async (student) => {
    const { status, details } = await mark(student, day(0));
    return status === 200 ? 'marked' : details[0]?.message.replace(`Student ${student.id}`, 'Student N');
  },
  'emails to the parent after marking today': emails,
  'marking ten days ago': async (student) => (await mark(student, day(-10), 'present')).status,
  'students of the route': async ({ routeId }) =>
    (await admin.get<{ student_count: number }>(`/api/transport/routes/${routeId}`)).data.student_count,
  'active transport enrollments': ({ id }) => counted(`/api/transport/enrollments?student_id=${id}&status=active`),
  'contact sheet': async ({ name, routeId }) =>
    (await admin.get<Buffer>(`/api/transport/export/contact-sheet?format=csv&route_id=${routeId}`)).data.includes(name),
  'seat in the bus for another': async ({ routeId, stopId }) => {
    const other = await create('/api/students', { first_name: 'An', last_name: 'Other' });
    return (
      await admin.send('POST', '/api/transport/enroll', {
        body: { student_id: other, route_id: routeId, stop_id: stopId, enrollment_type: 'both' },
      })
    ).status;
  },
  promotion: async ({ id }) => {
    const { status, data } = await admin.send<{ students: { reason: string | null }[] }>(
      'POST',
      '/api/students/promotion/preview',
      { body: { student_ids: [id], to_class_id: nextClass, to_academic_year_id: nextYear } },
    );
    return status === 200 ? data.students[0]?.reason : status;
  },
  'fees of today': async ({ classId }) => {
    const structure = await create('/api/finance/fee-structures', {
      name: unique('Fees'),
      academic_year_id: year,
      class_ids: [classId],
      components: [{ name: 'Tuition', amount: 100, frequency: 'monthly' }],
    });
    const body = { fee_structure_id: structure, dry_run: true };
    return (await admin.post<{ created: number }>('/api/finance/student-fees/generate', body)).data.created;
  },
  invoice: async ({ id }) => {
    const items = [{ description: 'Book', amount: 10 }];
    const body = { student_id: id, due_date: day(30), status: 'draft', items };
    return (await admin.send('POST', '/api/fees/invoices', { body })).status;
  },
  login: async ({ credentials }) =>
    (await service.anonymous.send('POST', '/api/auth/login', { body: credentials })).status,
  'message to the user': async ({ userId }) => {
    const body = { user_ids: [userId], title: 'Hello', message: 'Hello', channels: ['in_app'] };
    return (await admin.post<{ sent: number }>('/api/notifications/send', body)).data.sent;
  },
  'place in the class for another': async ({ classId }) =>
    (await admin.send('POST', '/api/students', { body: { first_name: 'An', last_name: 'Other', class_id: classId } }))
      .status,
};

/** How a student gets into each state. */
const states = {
  attends: () => Promise.resolve(),
  'will leave tomorrow': (student: Pupil) => change(student, { left_on: day(1) }),
  'left today': (student: Pupil) => change(student, { is_active: false }),
  'left last week': (student: Pupil) => change(student, { left_on: day(-7), leaving_reason: 'Moved away' }),
  'has no class': (student: Pupil) => change(student, { class_id: null }),
  'is deleted': (student: Pupil) => admin.delete(`/api/students/${student.id}`),
};
type State = keyof typeof states;

/** The table of docs/leaving.md: consumer, and what it shows in each state, in the order of `states`. */
const table: Record<string, unknown[]> = {
  'is_active of the student': [true, true, false, false, true, 404],
  'students with is_active=true': [1, 1, 0, 0, 1, 0],
  'students with is_active=false': [0, 0, 1, 1, 0, 0],
  'students of the class': [1, 1, 0, 0, 0, 0],
  'student_count of the class': [1, 1, 0, 0, 0, 0],
  'students on the dashboard': [1, 1, 0, 0, 1, 0],
  'attendance sheet of today': [1, 1, 0, 0, 0, 0],
  'attendance sheet of ten days ago': [1, 1, 1, 1, 1, 1],
  'attendance sheet of tomorrow': [1, 0, 0, 0, 0, 0],
  'student_count of my classes': [1, 1, 0, 0, 0, 0],
  'message of marking today': [
    'marked',
    'marked',
    `Student N left on ${day(0)}.`,
    `Student N left on ${day(-7)}.`,
    'marked',
    'Student N was deleted.',
  ],
  'emails to the parent after marking today': [1, 1, 0, 0, 1, 0],
  'marking ten days ago': [200, 200, 200, 200, 200, 422],
  'students of the route': [1, 1, 0, 0, 1, 0],
  'active transport enrollments': [1, 1, 0, 0, 1, 0],
  'contact sheet': [true, true, false, false, true, false],
  'seat in the bus for another': [409, 409, 201, 201, 409, 201],
  promotion: [null, null, 'The student has left.', 'The student has left.', null, 422],
  'fees of today': [1, 1, 0, 0, 0, 0],
  invoice: [201, 201, 422, 422, 201, 422],
  login: [200, 200, 403, 403, 200, 401],
  'message to the user': [1, 1, 0, 0, 1, 0],
  'place in the class for another': [409, 409, 201, 201, 201, 201],
};

describe('what each endpoint shows of a student in the state', () => {
  test.each(Object.keys(states) as State[])('%s', async (state) => {
    const before = await total();
    const student = await pupil();
    await states[state](student);
    const shown: Record<string, unknown> = {};
    for (const [name, show] of Object.entries(consumers)) shown[name] = await show(student, before);
    const place = Object.keys(states).indexOf(state);
    expect(shown).toEqual(Object.fromEntries(Object.entries(table).map(([name, row]) => [name, row[place]])));
  });
});

describe('left_on', () => {
  test('of today by is_active=false keeps a mark of today, which can be corrected, and tells nobody', async () => {
    const student = await pupil();
    expect((await mark(student, day(0))).status).toBe(200);
    await service.settled();
    await change(student, { is_active: false, leaving_reason: 'Moved away' });
    const { data } = await admin.get<Student>(`/api/students/${student.id}`);
    expect(data).toMatchObject({ is_active: false, left_on: day(0), leaving_reason: 'Moved away' });
    expect(await counted(`/api/attendance/class/${student.classId}?date=${day(0)}`)).toBe(1);
    expect((await mark(student, day(0), 'late')).data).toMatchObject({ corrected: 1 });
    expect(await emails(student)).toBe(1);
  });

  test('counts instead of is_active if both change, and must agree with it', async () => {
    const student = await pupil();
    const ahead = await change(student, { is_active: false, left_on: day(5) });
    expect(ahead.data).toMatchObject({ is_active: true, left_on: day(5) });
    const now = await change(student, { is_active: false, left_on: day(5) });
    expect(now.data).toMatchObject({ is_active: false, left_on: day(0) });
    const refused = await change(student, { is_active: true, left_on: day(-1) }, 400);
    expect(refused.details).toMatchObject([{ path: 'is_active' }]);
    const reason = await change(student, { is_active: true, leaving_reason: 'Other' }, 400);
    expect(reason.details).toMatchObject([{ path: 'leaving_reason', message: 'is only allowed with left_on' }]);
  });

  test('that is corrected moves the end of the enrollment, also in the past', async () => {
    const student = await pupil();
    await school.database.query(`update ${schema}.transport_enrollment set created_at = $1 where student_id = $2`, [
      day(-50),
      student.id,
    ]);
    const ends = () =>
      school.database.query(
        `select ends_on::text, status, (select to_char(cancelled_at, 'YYYY-MM-DD') from ${schema}.transport_enrollment
           where student_id = $1) as seat from ${schema}.enrollment where student_id = $1`,
        [student.id],
      );
    await change(student, { left_on: day(20) });
    expect(await ends()).toEqual([{ ends_on: day(20), status: 'withdrawn', seat: day(20) }]);
    await change(student, { left_on: day(30) });
    expect(await ends()).toEqual([{ ends_on: day(30), status: 'withdrawn', seat: day(30) }]);
    await change(student, { left_on: null });
    expect(await ends()).toEqual([{ ends_on: null, status: 'active', seat: null }]);
    await change(student, { left_on: day(-3) });
    expect((await ends())[0]).toMatchObject({ ends_on: day(-3), status: 'withdrawn' });
    await change(student, { left_on: day(-6) });
    expect((await ends())[0]).toMatchObject({ ends_on: day(-6), status: 'withdrawn', seat: day(-6) });
  });

  test('that is corrected leaves a seat that was cancelled before, and an earlier stay, as they were', async () => {
    const student = await pupil();
    const seats = () =>
      school.database.query(`select cancel_reason from ${schema}.transport_enrollment where student_id = $1`, [
        student.id,
      ]);
    await school.database.query(
      `update ${schema}.transport_enrollment
       set status = 'cancelled', cancelled_at = now(), cancel_reason = 'Walks' where student_id = $1`,
      [student.id],
    );
    for (const offset of [-3, -7]) await change(student, { left_on: day(offset) });
    await change(student, { is_active: true });
    await change(student, { left_on: day(-7) });
    await change(student, { left_on: day(-5) });
    expect(await seats()).toEqual([{ cancel_reason: 'Walks' }]);
    expect(await counted(`/api/attendance/class/${student.classId}?date=${day(-6)}`)).toBe(0);
  });

  test('ahead goes with a student to another class', async () => {
    const student = await pupil();
    const other = await create('/api/classes', { name: unique('Class'), grade_id: grade, academic_year_id: year });
    await change(student, { left_on: day(9) });
    await change(student, { class_id: other });
    expect(await counted(`/api/attendance/class/${student.classId}?date=${day(0)}`)).toBe(0);
    expect(await counted(`/api/attendance/class/${other}?date=${day(8)}`)).toBe(1);
    expect(await counted(`/api/attendance/class/${other}?date=${day(9)}`)).toBe(0);
  });

  test('after the last day of a year keeps the student in the class of that year', async () => {
    const student = await pupil(await endedYear(-990, -910));
    await school.database.query(`update ${schema}.enrollment set starts_on = $1 where student_id = $2`, [
      day(-980),
      student.id,
    ]);
    const students = async () =>
      (await admin.get<{ student_count: number }>(`/api/classes/${student.classId}`)).data.student_count;
    await change(student, { left_on: day(-909) });
    expect([await students(), await counted(`/api/students?class_id=${student.classId}`)]).toEqual([1, 1]);
    await change(student, { left_on: day(-910) });
    expect([await students(), await counted(`/api/students?class_id=${student.classId}`)]).toEqual([0, 0]);
  });

  test('of a new student is kept, without an enrollment if it is past', async () => {
    const { classId } = await pupil();
    const fields = { first_name: 'Old', last_name: unique('Leaver'), class_id: classId, left_on: day(-300) };
    const { data } = await admin.post<Student>('/api/students', fields, 201);
    expect(data).toMatchObject({ is_active: false, left_on: day(-300), class_id: classId });
    expect(await counted(`/api/students?class_id=${classId}`)).toBe(1);
  });
});

/** Imports a file that updates students. @returns the notes about their rows */
async function notesOfUpdate(file: string) {
  const form = fileForm(Buffer.from(file), 'students.csv', 'text/csv', 'file');
  form.set('mode', 'update');
  const { data } = await admin.send<{ result: { changed: { note: string | null }[] } }>(
    'POST',
    '/api/students/import',
    { body: form },
  );
  return data.result.changed.map(({ note }) => note);
}

describe('a student who returns', () => {
  test('gets the class and the seat in the bus back, but keeps the gap in the enrollment', async () => {
    const student = await pupil();
    await change(student, { left_on: day(-7) });
    const { data } = await change(student, { is_active: true });
    expect(data).toMatchObject({ is_active: true, left_on: null, leaving_reason: null, class_id: student.classId });
    expect(data).not.toHaveProperty('not_restored');
    const listed = async (offset: number) => counted(`/api/attendance/class/${student.classId}?date=${day(offset)}`);
    expect([await listed(-8), await listed(-3), await listed(0)]).toEqual([1, 0, 1]);
    expect(await counted(`/api/transport/enrollments?student_id=${student.id}&status=active`)).toBe(1);
    await service.anonymous.login(student.credentials);
  });

  test('on the day of leaving has one enrollment without a gap', async () => {
    const student = await pupil();
    await change(student, { is_active: false });
    await change(student, { is_active: true });
    const rows = await school.database.query(`select ends_on, status from ${schema}.enrollment where student_id = $1`, [
      student.id,
    ]);
    expect(rows).toEqual([{ ends_on: null, status: 'active' }]);
  });

  test('learns what could not be given back: a full class, a full bus', async () => {
    const student = await pupil();
    await change(student, { is_active: false });
    const { data: other } = await admin.post<Student>(
      '/api/students',
      { first_name: 'An', last_name: 'Other', class_id: student.classId },
      201,
    );
    await create('/api/transport/enroll', {
      student_id: other.id,
      route_id: student.routeId,
      stop_id: student.stopId,
      enrollment_type: 'both',
    });
    const { data } = await change(student, { is_active: true });
    expect(data).toMatchObject({
      is_active: true,
      class_id: null,
      not_restored: [
        { field: 'class_id', message: expect.stringContaining('has room for 1 students.') },
        { field: 'transport_enrollment', message: expect.stringContaining('has 1 seat') },
      ],
    });
    await change(student, { class_id: student.classId }, 409);
  });

  test('is in no class of a year that has ended, also if the whole record is sent back', async () => {
    const student = await pupil(await endedYear(-900, -500));
    const { data: before } = await change(student, { left_on: day(-7) });
    const { data } = await change(student, { ...before, is_active: true });
    expect(data).toMatchObject({
      class_id: null,
      not_restored: [{ field: 'class_id', message: expect.stringContaining('has ended') }],
    });
  });

  test('by a file gets class and seat back, or returns without the class if it is full', async () => {
    const [one, two] = [await pupil(), await pupil()];
    for (const student of [one, two]) await change(student, { left_on: day(-7) });
    await admin.post('/api/students', { first_name: 'An', last_name: 'Other', class_id: two.classId }, 201);
    const numbers = await Promise.all(
      [one, two].map(
        async ({ id }) => (await admin.get<{ admission_number: string }>(`/api/students/${id}`)).data.admission_number,
      ),
    );
    const file = `admission_number,is_active\n${numbers.map((number) => `${number},yes\n`).join('')}`;
    expect(await notesOfUpdate(file)).toEqual([
      null,
      expect.stringContaining('has room for 1 students. The student returns without a class.'),
    ]);
    const classOf = async ({ id }: { id: number }) => (await admin.get<Student>(`/api/students/${id}`)).data.class_id;
    expect([await classOf(one), await classOf(two)]).toEqual([one.classId, null]);
    expect(await counted(`/api/transport/enrollments?student_id=${one.id}&status=active`)).toBe(1);
  });

  test('by a file shares the places of a class in the order of the rows, with those who leave in the same file', async () => {
    const { classId } = await pupil();
    await admin.put(`/api/classes/${classId}`, { capacity: 9 });
    const numbers = [unique('N'), unique('N'), unique('N')];
    for (const [at, admission_number] of numbers.entries())
      await admin.post(
        '/api/students',
        { first_name: 'A', last_name: 'B', admission_number, class_id: classId, left_on: at === 2 ? null : day(-7) },
        201,
      );
    await admin.put(`/api/classes/${classId}`, { capacity: 2 });
    const [one, two, three] = numbers;
    const file = `admission_number,is_active\n${one},yes\n${two},yes\n${three},no\n`;
    expect(await notesOfUpdate(file)).toEqual([null, expect.stringContaining('returns without a class'), null]);
    expect(await counted(`/api/students?class_id=${classId}`)).toBe(2);
  });

  test('does not return into a full class by a write of the table, either', async () => {
    const student = await pupil();
    await change(student, { is_active: false });
    await admin.post('/api/students', { first_name: 'An', last_name: 'Other', class_id: student.classId }, 201);
    await expect(
      school.database.query(`update ${schema}.student set left_on = null where id = $1`, [student.id]),
    ).rejects.toThrow('has room for 1 students');
  });

  test('is refused if the request names a full class', async () => {
    const student = await pupil();
    await change(student, { is_active: false });
    await admin.post('/api/students', { first_name: 'An', last_name: 'Other', class_id: student.classId }, 201);
    await change(student, { is_active: true, class_id: student.classId }, 409);
    expect((await admin.get<Student>(`/api/students/${student.id}`)).data.is_active).toBe(false);
  });
});

/** How a teacher or a driver gets into each state. `path` is that of the person. */
const employment = {
  'works here': () => Promise.resolve(),
  'will leave tomorrow': (path: string) => admin.put(path, { left_on: day(1), leaving_reason: 'Retires' }),
  'left today': (path: string) => admin.put(path, { is_active: false }),
};
type Employment = keyof typeof employment;
const isActive = async (path: string) => (await admin.get<{ is_active: boolean }>(path)).data.is_active;

describe('what the consumers show of a teacher who', () => {
  interface Teacher {
    id: number;
    name: string;
    path: string;
    classId: number;
    userId: number;
    credentials: object;
  }
  /** A class teacher with a lesson in the first period of every day. */
  async function teacher(): Promise<Teacher> {
    const name = unique('Teacher');
    const credentials = { tenant_id: school.id, email: `${name}@school.example`, password: testPassword };
    const fields = { first_name: 'Tea', last_name: name, email: credentials.email, password: testPassword };
    const body = { ...fields, create_user_account: true };
    const { data } = await admin.post<{ id: number; user_id: number }>('/api/teachers', body, 201);
    const classId = await create('/api/classes', {
      name: unique('Class'),
      grade_id: grade,
      academic_year_id: year,
      class_teacher_id: data.id,
    });
    await service.database.query(`update ${schema}.timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
    const subject_id = await school.insert('subject', { name: unique('Subject'), code: unique('S') });
    for (let day_of_week = 1; day_of_week <= 7; day_of_week++)
      await school.insert('timetable_slot', {
        class_id: classId,
        academic_year_id: year,
        subject_id,
        teacher_id: data.id,
        day_of_week,
        period: 1,
      });
    return { id: data.id, name, path: `/api/teachers/${data.id}`, classId, userId: data.user_id, credentials };
  }
  const lesson = async (classId: number, offset: number) =>
    (await admin.get<{ slots: { teacher_id: number | null }[] }>(`/api/schedule/class/${classId}?date=${day(offset)}`))
      .data.slots[0]?.teacher_id;

  const shows: Record<string, (teacher: Teacher) => Promise<unknown>> = {
    is_active: ({ path }) => isActive(path),
    'teachers with is_active=false': ({ name }) => counted(`/api/teachers?search=${name}&is_active=false`),
    'class teacher': async ({ classId, id }) =>
      (await admin.get<{ class_teacher_id: number | null }>(`/api/classes/${classId}`)).data.class_teacher_id === id,
    'teacher of the lesson of today': async ({ classId, id }) => (await lesson(classId, 0)) === id,
    'teacher of the lesson of tomorrow': async ({ classId, id }) => (await lesson(classId, 1)) === id,
    'is active among the staff of the class': async ({ classId }) =>
      (await admin.get<{ is_active: boolean }[]>(`/api/classes/${classId}/teachers`)).data[0]?.is_active,
    'can be chosen for another class': async ({ id }) => {
      const other = await create('/api/classes', { name: unique('Class'), grade_id: grade, academic_year_id: year });
      const body = { teacher_id: id, subject: 'Music' };
      return (await admin.send('POST', `/api/classes/${other}/teachers`, { body })).status;
    },
    message: async ({ userId }) => {
      const body = { user_ids: [userId], title: 'Hello', message: 'Hello', channels: ['in_app'] };
      return (await admin.post<{ sent: number }>('/api/notifications/send', body)).data.sent;
    },
    login: async ({ credentials }) =>
      (await service.anonymous.send('POST', '/api/auth/login', { body: credentials })).status,
  };
  const rows: Record<string, unknown[]> = {
    is_active: [true, true, false],
    'teachers with is_active=false': [0, 0, 1],
    'class teacher': [true, true, false],
    'teacher of the lesson of today': [true, true, false],
    'teacher of the lesson of tomorrow': [true, false, false],
    'is active among the staff of the class': [true, true, false],
    'can be chosen for another class': [200, 200, 422],
    message: [1, 1, 0],
    login: [200, 200, 403],
  };

  test.each(Object.keys(employment) as Employment[])('%s', async (state) => {
    const person = await teacher();
    await employment[state](person.path);
    const shown: Record<string, unknown> = {};
    for (const [name, show] of Object.entries(shows)) shown[name] = await show(person);
    const place = Object.keys(employment).indexOf(state);
    expect(shown).toEqual(Object.fromEntries(Object.entries(rows).map(([name, row]) => [name, row[place]])));
  });
});

describe('what the consumers show of a driver who', () => {
  interface Driver {
    id: number;
    path: string;
    routeId: number;
  }
  async function driver(): Promise<Driver> {
    const fields = { name: unique('Driver'), license_number: unique('L'), license_expires_on: day(10) };
    const id = await create('/api/transport/drivers', fields);
    const bus_id = await create('/api/transport/buses', { registration_number: unique('BUS'), capacity: 9 });
    const routeId = await create('/api/transport/routes', { name: unique('Route'), bus_id, driver_id: id });
    return { id, path: `/api/transport/drivers/${id}`, routeId };
  }
  const drives = async ({ id, routeId }: Driver, offset: number) => {
    const query = `from_date=${day(offset)}&to_date=${day(offset)}&route_id=${routeId}`;
    const { data } = await admin.get<{ driver_id: number | null }[]>(`/api/transport/schedules?${query}`);
    return data[0]?.driver_id === id;
  };

  const shows: Record<string, (driver: Driver) => Promise<unknown>> = {
    is_active: ({ path }) => isActive(path),
    'drives today': (person) => drives(person, 0),
    'drives tomorrow': (person) => drives(person, 1),
    'expiring license': async ({ id }) =>
      (await admin.get<{ expiring: { driver_id: number | null }[] }>('/api/transport/dashboard')).data.expiring.some(
        ({ driver_id }) => driver_id === id,
      ),
    'assignment of today': async ({ id, routeId }) => (await assign(id, routeId, day(0))).status,
    'assignment of next week': async ({ id, routeId }) => (await assign(id, routeId, day(7))).status,
  };
  const assign = async (driver_id: number, route_id: number, date: string) => {
    const bus_id = await create('/api/transport/buses', { registration_number: unique('BUS'), capacity: 9 });
    const body = { bus_id, route_id, driver_id, starts_on: date, ends_on: date };
    return admin.send('POST', '/api/transport/bus-assignments', { body });
  };
  const rows: Record<string, unknown[]> = {
    is_active: [true, true, false],
    'drives today': [true, true, false],
    'drives tomorrow': [true, false, false],
    'expiring license': [true, true, false],
    'assignment of today': [201, 201, 409],
    'assignment of next week': [201, 409, 409],
  };

  test.each(Object.keys(employment) as Employment[])('%s', async (state) => {
    await service.database.query(`update ${schema}.timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
    const person = await driver();
    await employment[state](person.path);
    const shown: Record<string, unknown> = {};
    for (const [name, show] of Object.entries(shows)) shown[name] = await show(person);
    const place = Object.keys(employment).indexOf(state);
    expect(shown).toEqual(Object.fromEntries(Object.entries(rows).map(([name, row]) => [name, row[place]])));
  });
});
