import type { TestService } from '../../support/server/service.ts';
import { type Call, endpoints, type Login, nameOf, type SpecificationClient } from '../client.ts';
import { day } from './days.ts';

/** The ids of the school that daily life needs. */
interface People {
  admin: Login;
  teacher: Login;
  student: Login;
  yearId: number;
  gradeId: number;
  classId: number;
  subjectId: number;
  artId: number;
  teacherId: number;
  aminaId: number;
  bolaId: number;
  chidiId: number;
  studentRoleId: number;
}

/** The admin plans the lessons: by hand, then with the generator. */
export async function planLessons(client: SpecificationClient, people: People) {
  const { admin: as, teacher, student, yearId, gradeId, classId, subjectId, artId, teacherId } = people;
  const classSubject = { class_id: classId, subject_id: subjectId, periods_per_week: 4 };
  await client.call('POST /api/class-subjects', { as, body: classSubject });
  const { id: spare } = await client.call('POST /api/class-subjects', {
    as,
    body: { ...classSubject, subject_id: artId, periods_per_week: 2 },
  });
  await client.list('GET /api/class-subjects', {
    as,
    search: 'Mathematics',
    filters: [{ class_id: classId }, { academic_year_id: yearId }],
  });
  await client.call('POST /api/classes/subjects/by-grade', { as, body: { grade_id: gradeId, class_ids: [classId] } });

  await client.call('GET /api/timetable/config', { as });
  await client.call('PUT /api/timetable/config', {
    as,
    body: { total_periods: 6, lunch_start_period: 4, period_duration: 45, start_time: '08:00' },
  });
  await client.call('PUT /api/timetable/config', { as, body: { period_duration: 40 } });
  const slot = { class_id: classId, subject_id: subjectId, teacher_id: teacherId, day_of_week: 2, period: 1 };
  const { id } = await client.call('POST /api/timetable/slots', { as, body: slot });
  await client.call('PUT /api/timetable/slots/{id}', { as, path: { id }, body: { ...slot, period: 2 } });
  await client.call('PUT /api/timetable/slots/{id}', { as, path: { id }, body: { period: 3 } });
  await client.call('PATCH /api/timetable/slots/{id}/move', { as, path: { id }, body: { day_of_week: 3, period: 1 } });
  const check = 'POST /api/timetable/check-conflicts';
  const place = { class_id: classId, teacher_id: teacherId, day_of_week: 3, period: 1 };
  for (const exclude_slot_id of [null, id]) {
    const { record } = await client.call(check, { as, body: { ...place, exclude_slot_id } });
    client.check(
      check,
      record['has_conflict'] === (exclude_slot_id === null),
      `answers has_conflict ${String(record['has_conflict'])} with exclude_slot_id ${String(exclude_slot_id)}`,
    );
  }
  await client.call('DELETE /api/timetable/slots/{id}', { as, path: { id } });

  await client.call('POST /api/timetable/generate', { as });
  await client.list('GET /api/timetable/slots', {
    as,
    search: 'Mathematics',
    filters: [{ class_id: classId }, { teacher_id: teacherId }, { academic_year_id: yearId }],
  });
  await client.call('DELETE /api/class-subjects/{id}', { as, path: { id: spare } });
  await client.call('GET /api/schedule/today', { as: teacher });
  await client.call('GET /api/schedule/today', { as: student });
  await client.call('GET /api/schedule/class/{class_id}', {
    as,
    path: { class_id: classId },
    query: { date: day() },
  });
  await client.call('GET /api/teachers/me/today-schedule', { as: teacher });
}

/** The admin keeps the holidays. */
export async function keepHolidays(client: SpecificationClient, { admin: as, yearId }: People) {
  const holiday = { name: 'Founders Day', date: day(30), is_recurring: true };
  const { id } = await client.call('POST /api/holidays', { as, body: holiday });
  const spare = await client.call('POST /api/holidays', {
    as,
    body: { name: 'Bridge day', date: day(31), is_recurring: false },
  });
  for (const is_recurring of [true, false])
    await client.call('PUT /api/holidays/{id}', {
      as,
      path: { id },
      body: { ...holiday, is_recurring },
    });
  await client.call('PUT /api/holidays/{id}', { as, path: { id }, body: { name: 'Founder’s Day' } });
  await client.list('GET /api/holidays', {
    as,
    search: 'Founder',
    filters: [
      { academic_year_id: yearId },
      { from_date: day(29), to_date: day(32) },
      { from_date: day(29) },
      { to_date: day(32) },
    ],
  });
  await client.call('DELETE /api/holidays/{id}', { as, path: { id: spare.id } });
}

/** The teacher marks the attendance; the student and the admin read it. */
export async function markAttendance(client: SpecificationClient, people: People) {
  const { teacher, admin: as, student, yearId, classId, aminaId, bolaId, chidiId } = people;
  await client.list('GET /api/attendance/my-classes', { as: teacher, search: 'Class 1' });
  const mark = (...records: object[]) =>
    client.call('POST /api/attendance/mark', { as: teacher, body: { class_id: classId, date: day(), records } });
  const others = [
    { student_id: bolaId, status: 'absent' },
    { student_id: chidiId, status: 'late' },
  ];
  await mark({ student_id: aminaId, status: 'absent' }, ...others);
  await mark({ student_id: aminaId, status: 'present' }, ...others);
  const dates = { from_date: day(-1), to_date: day() };
  const register = 'GET /api/attendance/class/{class_id}';
  const { records } = await client.list(register, {
    as,
    path: { class_id: classId },
    search: 'Amina',
    filters: [{ date: day() }, dates, { from_date: day(-1) }, { to_date: day() }, { date: day(), ...dates, page: 1 }],
  });
  for (const [student_id, status] of [
    [aminaId, 'present'],
    [bolaId, 'absent'],
    [chidiId, 'late'],
  ])
    client.check(
      register,
      records.some((record) => record['student_id'] === student_id && record['status'] === status),
      `does not show the mark ${String(status)}`,
    );
  const path = { student_id: aminaId };
  await client.call('GET /api/attendance/student/{student_id}', { as, path });
  await client.call('GET /api/attendance/student/{student_id}', {
    as,
    path,
    query: { ...dates, academic_year_id: yearId },
  });
  await client.call('GET /api/attendance/me', { as: student });
  for (const query of [dates, { from_date: day(-1) }, { to_date: day() }])
    await client.call('GET /api/attendance/calendar-holidays', { as: student, query });
  await client.call('GET /api/attendance/calendar-holidays', { as });
}

/** The school sends notifications; the student reads them. */
export async function notify(client: SpecificationClient, service: TestService, people: People) {
  const { admin: as, student, studentRoleId } = people;
  const tokenOf = (platform: string) => `c5Zt/${platform}:APA91bH+x=`;
  for (const platform of ['android', 'iOS', 'web', 'Android'])
    await client.call('POST /api/devices/register', { as: student, body: { token: tokenOf(platform), platform } });
  await client.call('DELETE /api/devices/{token}', { as: student, path: { token: tokenOf('android') } });

  const send = (target: object, title: string, action_url: string) =>
    client.call('POST /api/notifications/send', {
      as,
      body: { ...target, title, message: 'Please read.', type: 'announcement', action_url },
    });
  const stream = 'GET /api/notifications/stream';
  const message = await client.firstMessage(stream, student, () =>
    send({ user_ids: [student.userId] }, 'To Amina', '/fees'),
  );
  client.check(stream, message['title'] === 'To Amina', `sends ${JSON.stringify(message)}`);
  await send({ role_ids: [studentRoleId] }, 'To students', '/news?id=1');
  await send({ all: true }, 'To all', '/fees');
  await send({ user_ids: [student.userId] }, 'With a relative address', 'fees/invoices');
  await send({ user_ids: [student.userId] }, 'With an address of the app itself', 'http://localhost:5173/fees');

  await service.settled();
  const list = 'GET /api/notifications';
  const { records } = await client.list(list, {
    as: student,
    search: 'Amina',
    filters: [{ is_read: false }],
    emptyFilters: [{ is_read: true }],
  });
  const idOf = (title: string) => Number(records.find((record) => record['title'] === title)?.['id'] ?? 0);
  for (const title of ['To Amina', 'To students', 'To all'])
    client.check('POST /api/notifications/send', idOf(title) > 0, `does not send "${title}"`);
  const unread = async () =>
    (await client.call(list, { as: student, query: { is_read: false } })).records.map(({ id }) => id);
  const read = 'POST /api/notifications/{id}/read';
  await client.call(read, { as: student, path: { id: idOf('To Amina') } });
  client.check(read, !(await unread()).includes(idOf('To Amina')), 'leaves the notification unread');
  await client.call('POST /api/notifications/read-all', { as: student });
  client.check('POST /api/notifications/read-all', (await unread()).length === 0, 'leaves notifications unread');
  await client.call('DELETE /api/notifications/{id}', { as: student, path: { id: idOf('To all') } });

  const template = { name: 'Welcome', title: 'Welcome', message: 'Welcome, {{first_name}}.' };
  const add = 'POST /api/notifications/templates';
  const { id } = await client.call(add, { as, bodyNotShown: template });
  const spare = await client.call(add, { as, bodyNotShown: { ...template, name: 'Spare' } });
  const change: Call = { as, path: { id }, bodyNotShown: { ...template, title: 'Welcome to school' } };
  await client.call('PUT /api/notifications/templates/{id}', change);
  await client.list('GET /api/notifications/templates', { as, search: 'Welcome' });
  await client.call('DELETE /api/notifications/templates/{id}', { as, path: { id: spare.id } });
}

/**
 * Users without permissions call the read-only endpoints whose access is `required`, which means a valid access token. A
 * student calls every GET; a teacher plans a promotion and a lesson.
 */
export async function readWithoutPermission(
  client: SpecificationClient,
  {
    student,
    teacher,
    nextYearId,
    toClassId,
    documentId,
    ...ids
  }: People & Record<'nextYearId' | 'toClassId' | 'documentId', number>,
) {
  const { classId: class_id, aminaId: student_id, teacherId: teacher_id } = ids;
  const calls: Record<string, Call> = {
    'POST /api/students/promotion/preview': {
      bodyNotShown: { student_ids: [student_id], to_class_id: toClassId, to_academic_year_id: nextYearId },
    },
    'GET /api/students/{student_id}/documents': { path: { student_id } },
    'GET /api/students/{student_id}/documents/{document_id}/file': { path: { student_id, document_id: documentId } },
    'GET /api/attendance/class/{class_id}': { path: { class_id } },
    'GET /api/attendance/student/{student_id}': { path: { student_id } },
    'POST /api/timetable/check-conflicts': {
      body: { class_id, teacher_id, day_of_week: 1, period: 1, exclude_slot_id: null },
    },
    'GET /api/schedule/class/{class_id}': { path: { class_id } },
  };
  const isReadOnly = (name: string) => name.startsWith('GET ') || name in calls;
  for (const { access, answer, ...endpoint } of endpoints)
    if (access === 'required' && answer.kind !== 'stream' && isReadOnly(nameOf(endpoint)))
      await client.call(nameOf(endpoint), {
        as: endpoint.method === 'POST' ? teacher : student,
        ...calls[nameOf(endpoint)],
      });
}

/** Every user opens the dashboard. Figures that the user may not see are 0. */
export async function openDashboards(client: SpecificationClient, { admin, teacher, student }: People) {
  for (const as of [admin, teacher, student]) await client.call('GET /api/dashboard', { as });
  await client.call('GET /api/students/me/dashboard', { as: student });
}
