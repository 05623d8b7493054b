import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { feeSchool } from '../support/fixtures/fees.ts';
import { type School, serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const written = (date: string) =>
  new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' }).format(new Date(date));

interface Told {
  who: string;
  channel: string;
  title: string;
  message: string;
}
/** Who was told what since it was asked last, in the app (by user) and by e-mail (by address). */
async function told(of: School = school): Promise<Told[]> {
  const rows = await service.database.query<Told & Record<string, unknown>>(
    `select u.email as who, 'in_app' as channel, n.title, n.message, n.id as place from ${of.schema}.notification n join ${of.schema}.user_account u on u.id = n.user_id
     union all select d.address, d.channel, d.title, d.message, d.id from ${of.schema}.notification_delivery d where d.channel = 'email'
     order by channel desc, place`,
  );
  // Row by row: the worker is at work in these tables.
  await service.database.query(`delete from ${of.schema}.notification_delivery`);
  await service.database.query(`delete from ${of.schema}.notification`);
  return rows.map(({ who, channel, title, message }) => ({ who, channel, title, message }));
}
/** What was told, without the words. */
const whom = async (of: School = school) => (await told(of)).map(({ who, channel }) => `${channel} ${who}`);

let serial = 0;
const student = async (fields: Record<string, unknown> = {}, at = school) =>
  (
    await at.admin.post<{ id: number; user_id: number | null }>(
      '/api/students',
      { first_name: 'Stu', last_name: `Dent ${++serial}`, ...fields },
      201,
    )
  ).data;
const withLogin = (email: string) => ({ create_user_account: true, password: testPassword, email });

beforeEach(async () => {
  await told();
});

describe('a mark that says absent or late', () => {
  let classId: number;
  let teacher: Client;
  const mark = async (records: Record<number, string>, date = day(0), by: Client = school.admin) => {
    await by.post('/api/attendance/mark', {
      class_id: classId,
      date,
      records: Object.entries(records).map(([id, status]) => ({ student_id: Number(id), status })),
    });
  };
  beforeAll(async () => {
    classId = (await school.classroom('Grade 5 A')).classId;
    // In January too a week ago was in the year of the class.
    await service.database.query(`update ${school.schema}.academic_year set start_date = start_date - 100`);
    const user = await school.user(['teacher']);
    await school.insert('teacher', { first_name: 'T', last_name: 'T', user_id: user.id });
    await service.database.query(
      `update ${school.schema}.class set class_teacher_id = (select id from ${school.schema}.teacher where user_id = $1) where id = $2`,
      [user.id, classId],
    );
    teacher = user;
  });

  test('tells the student and the parent, also when a teacher marks who sees neither address', async () => {
    const ann = await student({
      first_name: 'Ann',
      last_name: '<A> {{date}}',
      class_id: classId,
      parent_email: 'Pat@home.example',
      parent_name: 'Pat',
      ...withLogin('ann@pupil.example'),
    });
    const ben = await student({ first_name: 'Ben', last_name: 'B', class_id: classId });
    const cat = await student({ class_id: classId, parent_email: 'cat@home.example' });
    await told();
    await mark({ [ann.id]: 'absent', [ben.id]: 'late', [cat.id]: 'present' }, day(0), teacher);
    const words = {
      title: 'Ann <A> {{date}} is absent',
      message: `Ann <A> {{date}} (Grade 5 A) was marked absent on ${written(day(0))}.`,
    };
    expect(await told()).toEqual([
      { who: 'ann@pupil.example', channel: 'in_app', ...words },
      { who: 'ann@pupil.example', channel: 'email', ...words },
      { who: 'pat@home.example', channel: 'email', ...words },
    ]);
  });

  test('does so once for a student and a day: not again for the same mark, nor when it comes back after a correction', async () => {
    const { id } = await student({ class_id: classId, parent_email: 'once@home.example' });
    const titles = async () => (await told()).map(({ title }) => title.split(' ').at(-1));
    await mark({ [id]: 'present' });
    expect(await titles()).toEqual([]);
    await mark({ [id]: 'absent' });
    expect(await titles()).toEqual(['absent']);
    await mark({ [id]: 'absent' });
    await mark({ [id]: 'present' });
    await mark({ [id]: 'absent' });
    expect(await titles()).toEqual([]);
    await mark({ [id]: 'late' });
    expect(await titles()).toEqual(['late']);
    await mark({ [id]: 'absent' });
    expect(await titles()).toEqual([]);
    await mark({ [id]: 'absent' }, day(-1));
    expect(await titles()).toEqual(['absent']);
  });

  test('is not told when a register of more than a week ago is entered', async () => {
    const { id } = await student({ class_id: classId, parent_email: 'old@home.example' });
    await service.database.query(
      `update ${school.schema}.enrollment set starts_on = current_date - 60 where student_id = $1`,
      [id],
    );
    await mark({ [id]: 'absent' }, day(-7));
    expect(await whom()).toEqual([]);
    await mark({ [id]: 'absent' }, day(-6));
    expect(await whom()).toEqual(['email old@home.example']);
  });

  test('is told once where the student logs in with the address of the parent, and not at all when the school switched it off', async () => {
    const { id } = await student({
      class_id: classId,
      parent_email: 'Same@home.example',
      ...withLogin('same@home.example'),
    });
    await told();
    await mark({ [id]: 'late' });
    expect(await whom()).toEqual(['in_app same@home.example', 'email same@home.example']);
    await service.database.query(
      `update ${school.schema}.user_account set is_active = false where email = 'same@home.example'`,
    );
    await mark({ [id]: 'late' }, day(-1));
    expect(await whom()).toEqual(['email same@home.example']);
    await service.database.query(
      `update ${school.schema}.user_account set is_active = true where email = 'same@home.example'`,
    );
    await school.admin.put('/api/notifications/events/attendance.absent', { is_enabled: false });
    await mark({ [id]: 'absent' });
    await school.admin.put('/api/notifications/events/attendance.absent', { is_enabled: true });
    expect(await whom()).toEqual([]);
  });

  test('is written whatever the words of the event become: a template that names nothing but what is empty', async () => {
    const { id } = await student({ class_id: classId, parent_email: 'empty@home.example' });
    await school.admin.post(
      '/api/notifications/templates',
      { name: 'attendance.absent', title: '{{last_name}}', message: '{{last_name}}' },
      201,
    );
    await mark({ [id]: 'absent' });
    expect(await told()).toEqual([
      { who: 'empty@home.example', channel: 'email', title: expect.stringMatching(/^School /), message: '' },
    ]);
  });
});

test('generating fees tells each student who was billed, and a dry run nobody; a payment tells of the balance', async () => {
  const fees = await feeSchool(service);
  const { admin } = fees.school;
  await admin.post('/api/school-setup/school-info', { name: 'S', phone: '1', currency: 'EUR' });
  const classId = await fees.addClass();
  const id = await fees.addStudent(classId, '2021-08-01', {
    first_name: 'Ann',
    last_name: 'Adams',
    parent_email: 'ann.parent@home.example',
    ...withLogin('ann@fees.example'),
  });
  await fees.addStudent(classId);
  const structure = await fees.addStructure([{ name: 'Tuition', amount: 1200, frequency: 'annual' }], [classId], {
    name: 'Tuition & more',
  });
  await told(fees.school);
  await fees.generate(structure, { dry_run: true });
  expect(await told(fees.school)).toEqual([]);
  const { due_date, created } = await fees.generate(structure);
  expect(created).toBe(2);
  const billed = {
    title: 'New fee: Tuition & more',
    message: `Ann Adams owes EUR 1,200.00 for Tuition & more, due on ${written(due_date)}.`,
  };
  expect(await told(fees.school)).toEqual([
    { who: 'ann@fees.example', channel: 'in_app', ...billed },
    { who: 'ann@fees.example', channel: 'email', ...billed },
    { who: 'ann.parent@home.example', channel: 'email', ...billed },
  ]);
  await fees.generate(structure);
  expect(await told(fees.school)).toEqual([]);

  const [fee] = await fees.feesOf(id);
  const { data: payment } = await fees.pay(fee?.id ?? 0, 200.5);
  const [first, ...others] = await told(fees.school);
  expect(first).toEqual({
    who: 'ann@fees.example',
    channel: 'in_app',
    title: 'Payment received: EUR 200.50',
    message: `We received EUR 200.50 for Ann Adams on ${written(day(0))} (receipt ${payment.receipt_number}). Open balance of Tuition & more: EUR 999.50.`,
  });
  expect(others).toHaveLength(2);
  await fees.pay(fee?.id ?? 0, 5000, 409);
  expect(await told(fees.school)).toEqual([]);
});

test('a reminder of an invoice tells the student in the app beside the e-mail, once a day', async () => {
  const { id } = await student(withLogin('inv@pupil.example'));
  const { data: invoice } = await school.admin.post<{ id: number; invoice_number: string }>(
    '/api/fees/invoices',
    { student_id: id, due_date: day(10), items: [{ description: 'Museum', amount: 12, quantity: 1 }] },
    201,
  );
  await told();
  for (let times = 0; times < 2; times++)
    await school.admin.post(`/api/fees/invoices/${invoice.id}/send-reminder`, undefined);
  expect(await told()).toEqual([
    {
      who: 'inv@pupil.example',
      channel: 'in_app',
      title: `Reminder of invoice ${invoice.invoice_number}`,
      message: `Please pay USD 12.00 for invoice ${invoice.invoice_number}, due on ${written(day(10))}.`,
    },
  ]);
  await school.admin.post('/api/fees/payments', { invoice_id: invoice.id, amount: 5, method: 'cash' }, 201);
  expect((await told()).map(({ who, channel, message }) => [who, channel, message.replace(/.*\)\. /, '')])).toEqual(
    ['in_app', 'email'].map((channel) => [
      'inv@pupil.example',
      channel,
      `Open balance of invoice ${invoice.invoice_number}: USD 7.00.`,
    ]),
  );
});

test('a decision on a leave tells the teacher, by e-mail alone where they have no log-in', async () => {
  const teacher = async (fields: object) =>
    (
      await school.admin.post<{ id: number }>(
        '/api/teachers',
        { first_name: 'Tia', last_name: 'Teacher', ...fields },
        201,
      )
    ).data.id;
  const decide = async (teacher_id: number, body: object) => {
    const { data } = await school.admin.post<{ id: number }>(
      '/api/teachers/leaves',
      { teacher_id, leave_type: 'sick', start_date: '2026-09-01', end_date: '2026-09-03' },
      201,
    );
    await told();
    await school.admin.put(`/api/teachers/leaves/${data.id}`, body);
    return told();
  };
  expect(
    await decide(await teacher(withLogin('tia@staff.example')), { status: 'approved', decision_note: 'Get well.' }),
  ).toEqual(
    ['in_app', 'email'].map((channel) => ({
      who: 'tia@staff.example',
      channel,
      title: 'Your leave is approved',
      message: 'Your leave from 1 September 2026 to 3 September 2026 was approved. Get well.',
    })),
  );
  expect(await decide(await teacher({ email: 'noa@staff.example' }), { status: 'rejected' })).toEqual([
    {
      who: 'noa@staff.example',
      channel: 'email',
      title: 'Your leave is rejected',
      message: 'Your leave from 1 September 2026 to 3 September 2026 was rejected.',
    },
  ]);
  expect(await decide(await teacher({}), { status: 'rejected' })).toEqual([]);
});

test('a timetable that was generated tells its teachers and students, and nobody when it was only tried', async () => {
  const mine = await service.school();
  await service.database.query('update platform.tenant set is_setup_complete = true where id = $1', [mine.id]);
  const { classId } = await mine.classroom('Grade 1');
  const { classId: otherId } = await mine.classroom('Grade 2');
  const teacher = (
    await mine.admin.post<{ id: number }>(
      '/api/teachers',
      { first_name: 'T', last_name: 'T', ...withLogin('t@plan.example') },
      201,
    )
  ).data.id;
  await student({ class_id: classId, ...withLogin('s@plan.example') }, mine);
  await student({ class_id: otherId, ...withLogin('o@plan.example') }, mine);
  const subject = await mine.insert('subject', { name: 'Art', code: 'A' });
  for (const class_id of [classId, otherId])
    await mine.insert('class_subject', { class_id, subject_id: subject, teacher_id: teacher, periods_per_week: 2 });
  await told(mine);
  await mine.admin.post('/api/timetable/generate', { time_limit_seconds: 1, dry_run: true });
  expect(await told(mine)).toEqual([]);
  await mine.admin.post('/api/timetable/generate', { time_limit_seconds: 1, class_ids: [classId] });
  expect((await told(mine)).map(({ who, message }) => [who, message]).sort()).toEqual([
    ['s@plan.example', 'There is a new timetable for Grade 1.'],
    ['t@plan.example', 'There is a new timetable for Grade 1.'],
  ]);
  await mine.admin.post('/api/timetable/generate', { time_limit_seconds: 1 });
  expect((await told(mine)).map(({ who, message }) => [who, message]).sort()).toEqual([
    ['o@plan.example', 'There is a new timetable for Grade 2.'],
    ['s@plan.example', 'There is a new timetable for Grade 1.'],
    ['t@plan.example', 'There is a new timetable for Grade 1, Grade 2.'],
  ]);
});

test('a holiday that is still to come tells everybody, a recurring one of when it comes next', async () => {
  const mine = await service.school();
  const user = await mine.user(['student']);
  await told(mine);
  const add = async (name: string, date: string, is_recurring = false) => {
    await mine.admin.post('/api/holidays', { name, date, is_recurring }, 201);
    return (await told(mine)).map(({ who, title, message }) => `${who} ${title} ${message}`);
  };
  expect(await add('Tomorrow', day(1))).toEqual(
    [mine.adminEmail, user.email].map(
      (who) => `${who} Holiday: Tomorrow There is no school on ${written(day(1))}: Tomorrow.`,
    ),
  );
  expect(await add('Far', '2090-01-01')).toHaveLength(2);
  expect(await add('Today', day(0))).toEqual([]);
  expect(await add('Past', '2020-01-01')).toEqual([]);
  const next = day(40);
  expect((await add('Every year', `2010-${next.slice(5)}`, true))[0]).toContain(
    `There is no school on ${written(next)}: Every year.`,
  );
});

test('a log-in that is new is welcomed in the app: of users, students, teachers, one by one or from a file', async () => {
  const email = (name: string) => `${name}@new.example`;
  const welcome = (name: string) => `in_app ${email(name)}`;
  await school.admin.post(
    '/api/users',
    { email: email('user'), first_name: 'Uma', last_name: 'U', password: testPassword },
    201,
  );
  expect(await told()).toMatchObject([
    {
      who: email('user'),
      channel: 'in_app',
      title: expect.stringMatching(/^Welcome to School/),
      message: expect.stringMatching(/^Hello Uma,/),
    },
  ]);
  await student(withLogin(email('student')));
  const { data: teacher } = await school.admin.post<{ id: number }>(
    '/api/teachers',
    { first_name: 'T', last_name: 'T', email: email('teacher') },
    201,
  );
  const { id } = await student({ email: email('later') });
  expect(await whom()).toEqual([welcome('student')]);
  await school.admin.put(`/api/teachers/${teacher.id}`, { create_user_account: true });
  await school.admin.put(`/api/students/${id}`, { create_user_account: true });
  await school.admin.put(`/api/students/${id}`, { phone: '1' });
  expect(await whom()).toEqual([welcome('teacher'), welcome('later')]);
  const form = new FormData();
  form.set(
    'file',
    new Blob([
      `first_name,last_name,email,create_user_account\nA,A,${email('a')},yes\nB,B,,no\nC,C,${email('c')},yes\n`,
    ]),
    'students.csv',
  );
  await school.admin.send('POST', '/api/students/import', { body: form }, 201);
  expect((await whom()).sort()).toEqual([welcome('a'), welcome('c')]);
});
