import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { feeSchool } from '../support/fixtures/fees.ts';
import { type School, serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({}, 4);
const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const longDate = (date: string) =>
  new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' }).format(new Date(date));

interface Message {
  recipient: string;
  channel: string;
  title: string;
  message: string;
}
/** Returns the notifications (by email of the user) and emails since the previous call, and deletes them. */
async function takeMessages(of: School = school): Promise<Message[]> {
  await service.settled();
  const rows = await service.database.query<Message & Record<string, unknown>>(
    `select u.email as recipient, 'in_app' as channel, n.title, n.message, n.id as position from ${of.schema}.notification n join ${of.schema}.user_account u on u.id = n.user_id
     union all select d.address, d.channel, d.title, d.message, d.id from ${of.schema}.notification_delivery d where d.channel = 'email'
     order by channel desc, position`,
  );
  // No truncate: it would wait for the worker, which uses these tables at the same time.
  await service.database.query(`delete from ${of.schema}.notification_delivery`);
  await service.database.query(`delete from ${of.schema}.notification`);
  return rows.map(({ recipient, channel, title, message }) => ({ recipient, channel, title, message }));
}
/** The same as `channel recipient`, without the texts. */
const takeRecipients = async (of: School = school) =>
  (await takeMessages(of)).map(({ recipient, channel }) => `${channel} ${recipient}`);

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
  await takeMessages();
});

describe('marking a student absent or late', () => {
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
    // The tests mark days of the past week. In January, those would be outside the academic year.
    await service.database.query(`update ${school.schema}.academic_year set start_date = start_date - 100`);
    const user = await school.user(['teacher']);
    await school.insert('teacher', { first_name: 'T', last_name: 'T', user_id: user.id });
    await service.database.query(
      `update ${school.schema}.class set class_teacher_id = (select id from ${school.schema}.teacher where user_id = $1) where id = $2`,
      [user.id, classId],
    );
    teacher = user;
  });

  test('notifies the student and the parent, even if a teacher marks who cannot see their addresses', async () => {
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
    await takeMessages();
    await mark({ [ann.id]: 'absent', [ben.id]: 'late', [cat.id]: 'present' }, day(0), teacher);
    const text = {
      title: 'Ann <A> {{date}} is absent',
      message: `Ann <A> {{date}} (Grade 5 A) was marked absent on ${longDate(day(0))}.`,
    };
    expect(await takeMessages()).toEqual([
      { recipient: 'ann@pupil.example', channel: 'in_app', ...text },
      { recipient: 'ann@pupil.example', channel: 'email', ...text },
      { recipient: 'pat@home.example', channel: 'email', ...text },
    ]);
  });

  test.each([
    [['email'], ['in_app', 'email']],
    [['in_app', 'email'], ['in_app']],
    [['push'], ['in_app', 'email']],
    [
      ['in_app', 'email'],
      ['in_app', 'email'],
    ],
  ])(
    'sends the texts of absent and of late students on their own channels, %j and %j, absences first',
    async (absent, late) => {
      const add = async (name: string, status: string) => ({
        status,
        id: (
          await student({
            first_name: name,
            class_id: classId,
            parent_email: 'both@home.example',
            ...withLogin(`${name.toLowerCase()}-${serial + 1}@pupil.example`),
          })
        ).id,
      });
      const students = [await add('Lou', 'late'), await add('Abe', 'absent'), await add('Liv', 'late')];
      await takeMessages();
      for (const [event, channels] of Object.entries({ absent, late }))
        await school.admin.put(`/api/notifications/events/attendance.${event}`, { is_enabled: true, channels });
      await mark(Object.fromEntries(students.map(({ id, status }) => [id, status])));
      await service.settled();
      const types = await service.database.query<{ type: string; title: string }>(
        `select type, title from ${school.schema}.notification order by id`,
      );
      const deliveries = await service.database.query<{ title: string; notification: string | null }>(
        `select d.title, n.title as notification from ${school.schema}.notification_delivery d
         left join ${school.schema}.notification n on n.id = d.notification_id where d.user_id is not null`,
      );
      // A delivery belongs to the notification of the same recipient, if there is one.
      for (const { title, notification } of deliveries)
        expect(notification).toBe((title.includes('absent') ? absent : late).includes('in_app') ? title : null);
      const sent = (channel: string) => [
        ...(absent.includes(channel) ? ['Abe is absent'] : []),
        ...(late.includes(channel) ? ['Lou was late', 'Liv was late'] : []),
      ];
      const short = (title: string) => title.replace(/ Dent \d+/, '');
      expect(types.map(({ type, title }) => [type, short(title)])).toEqual(
        sent('in_app').map((title) => [`attendance.${title.split(' ').at(-1) ?? ''}`, title]),
      );
      const emails = (await takeMessages()).filter(({ channel }) => channel === 'email');
      const to = (parent: boolean) =>
        emails
          .filter(({ recipient }) => (recipient === 'both@home.example') === parent)
          .map(({ title }) => short(title));
      expect([to(true), to(false)]).toEqual([sent('email'), sent('email')]);
      await service.database.query(`delete from ${school.schema}.notification_event where event like 'attendance.%'`);
    },
  );

  test('notifies of a mark once, even if it is repeated or corrected back, until another status is announced', async () => {
    const { id } = await student({ class_id: classId, parent_email: 'once@home.example' });
    const titles = async () => (await takeMessages()).map(({ title }) => title.split(' ').at(-1));
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
    expect(await titles()).toEqual(['absent']);
    await mark({ [id]: 'absent' }, day(-1));
    expect(await titles()).toEqual(['absent']);
  });

  test('notifies nobody about a day more than six days ago', async () => {
    const { id } = await student({ class_id: classId, parent_email: 'old@home.example' });
    await service.database.query(
      `update ${school.schema}.enrollment set starts_on = current_date - 60 where student_id = $1`,
      [id],
    );
    await mark({ [id]: 'absent' }, day(-7));
    expect(await takeRecipients()).toEqual([]);
    await mark({ [id]: 'absent' }, day(-6));
    expect(await takeRecipients()).toEqual(['email old@home.example']);
  });

  test('sends one email if student and parent share an address, and nothing if the school disabled the event', async () => {
    const { id } = await student({
      class_id: classId,
      parent_email: 'Same@home.example',
      ...withLogin('same@home.example'),
    });
    await takeMessages();
    await mark({ [id]: 'late' });
    expect(await takeRecipients()).toEqual(['in_app same@home.example', 'email same@home.example']);
    await service.database.query(
      `update ${school.schema}.user_account set is_active = false where email = 'same@home.example'`,
    );
    await mark({ [id]: 'late' }, day(-1));
    expect(await takeRecipients()).toEqual(['email same@home.example']);
    await service.database.query(
      `update ${school.schema}.user_account set is_active = true where email = 'same@home.example'`,
    );
    await school.admin.put('/api/notifications/events/attendance.absent', { is_enabled: false });
    await mark({ [id]: 'absent' });
    await service.settled();
    await school.admin.put('/api/notifications/events/attendance.absent', { is_enabled: true });
    expect(await takeRecipients()).toEqual([]);
  });

  test('sends the email even if the template has only placeholders with empty values', async () => {
    const { id } = await student({ class_id: classId, parent_email: 'empty@home.example' });
    await school.admin.post(
      '/api/notifications/templates',
      { name: 'attendance.absent', title: '{{last_name}}', message: '{{last_name}}' },
      201,
    );
    await mark({ [id]: 'absent' });
    expect(await takeMessages()).toEqual([
      { recipient: 'empty@home.example', channel: 'email', title: expect.stringMatching(/^School /), message: '' },
    ]);
  });
});

test('generating fees notifies each billed student, a dry run notifies nobody, and a payment notifies of the balance', async () => {
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
  await takeMessages(fees.school);
  await fees.generate(structure, { dry_run: true });
  expect(await takeMessages(fees.school)).toEqual([]);
  const { due_date, created } = await fees.generate(structure);
  expect(created).toBe(2);
  const billed = {
    title: 'New fee: Tuition & more',
    message: `Ann Adams owes EUR 1,200.00 for Tuition & more, due on ${longDate(due_date)}.`,
  };
  expect(await takeMessages(fees.school)).toEqual([
    { recipient: 'ann@fees.example', channel: 'in_app', ...billed },
    { recipient: 'ann@fees.example', channel: 'email', ...billed },
    { recipient: 'ann.parent@home.example', channel: 'email', ...billed },
  ]);
  await fees.generate(structure);
  expect(await takeMessages(fees.school)).toEqual([]);

  const [fee] = await fees.feesOf(id);
  const { data: payment } = await fees.pay(fee?.id ?? 0, 200.5);
  const [first, ...others] = await takeMessages(fees.school);
  expect(first).toEqual({
    recipient: 'ann@fees.example',
    channel: 'in_app',
    title: 'Payment received: EUR 200.50',
    message: `We received EUR 200.50 for Ann Adams on ${longDate(day(0))} (receipt ${payment.receipt_number}). Open balance of Tuition & more: EUR 999.50.`,
  });
  expect(others).toHaveLength(2);
  await fees.pay(fee?.id ?? 0, 5000, 409);
  expect(await takeMessages(fees.school)).toEqual([]);
});

test('an invoice reminder also notifies the student in the app, once a day', async () => {
  const { id } = await student(withLogin('inv@pupil.example'));
  const { data: invoice } = await school.admin.post<{ id: number; invoice_number: string }>(
    '/api/fees/invoices',
    { student_id: id, due_date: day(10), items: [{ description: 'Museum', amount: 12, quantity: 1 }] },
    201,
  );
  await takeMessages();
  for (let times = 0; times < 2; times++)
    await school.admin.post(`/api/fees/invoices/${invoice.id}/send-reminder`, undefined);
  expect(await takeMessages()).toEqual([
    {
      recipient: 'inv@pupil.example',
      channel: 'in_app',
      title: `Reminder of invoice ${invoice.invoice_number}`,
      message: `Please pay USD 12.00 for invoice ${invoice.invoice_number}, due on ${longDate(day(10))}.`,
    },
  ]);
  await school.admin.post('/api/fees/payments', { invoice_id: invoice.id, amount: 5, method: 'cash' }, 201);
  expect(
    (await takeMessages()).map(({ recipient, channel, message }) => [
      recipient,
      channel,
      message.replace(/.*\)\. /, ''),
    ]),
  ).toEqual(
    ['in_app', 'email'].map((channel) => [
      'inv@pupil.example',
      channel,
      `Open balance of invoice ${invoice.invoice_number}: USD 7.00.`,
    ]),
  );
});

test('a decision on a leave notifies the teacher, only by email if the teacher has no login', async () => {
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
    await takeMessages();
    await school.admin.put(`/api/teachers/leaves/${data.id}`, body);
    return takeMessages();
  };
  expect(
    await decide(await teacher(withLogin('tia@staff.example')), { status: 'approved', decision_note: 'Get well.' }),
  ).toEqual(
    ['in_app', 'email'].map((channel) => ({
      recipient: 'tia@staff.example',
      channel,
      title: 'Your leave is approved',
      message: 'Your leave from 1 September 2026 to 3 September 2026 was approved. Get well.',
    })),
  );
  expect(await decide(await teacher({ email: 'noa@staff.example' }), { status: 'rejected' })).toEqual([
    {
      recipient: 'noa@staff.example',
      channel: 'email',
      title: 'Your leave is rejected',
      message: 'Your leave from 1 September 2026 to 3 September 2026 was rejected.',
    },
  ]);
  expect(await decide(await teacher({}), { status: 'rejected' })).toEqual([]);
});

test('generating a timetable notifies its teachers and students, and a dry run notifies nobody', async () => {
  const mine = await service.school();
  await mine.database.query('update platform.tenant set is_setup_complete = true where id = $1', [mine.id]);
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
  await takeMessages(mine);
  await mine.admin.post('/api/timetable/generate', { time_limit_seconds: 1, dry_run: true });
  expect(await takeMessages(mine)).toEqual([]);
  await mine.admin.post('/api/timetable/generate', { time_limit_seconds: 1, class_ids: [classId] });
  expect((await takeMessages(mine)).map(({ recipient, message }) => [recipient, message]).sort()).toEqual([
    ['s@plan.example', 'There is a new timetable for Grade 1.'],
    ['t@plan.example', 'There is a new timetable for Grade 1.'],
  ]);
  await mine.admin.post('/api/timetable/generate', { time_limit_seconds: 1 });
  expect((await takeMessages(mine)).map(({ recipient, message }) => [recipient, message]).sort()).toEqual([
    ['o@plan.example', 'There is a new timetable for Grade 2.'],
    ['s@plan.example', 'There is a new timetable for Grade 1.'],
    ['t@plan.example', 'There is a new timetable for Grade 1, Grade 2.'],
  ]);
});

test('a new future holiday notifies all users, and a recurring one with its next date', async () => {
  const mine = await service.school();
  const user = await mine.user(['student']);
  await takeMessages(mine);
  const add = async (name: string, date: string, is_recurring = false) => {
    await mine.admin.post('/api/holidays', { name, date, is_recurring }, 201);
    return (await takeMessages(mine)).map(({ recipient, title, message }) => `${recipient} ${title} ${message}`);
  };
  expect(await add('Tomorrow', day(1))).toEqual(
    [mine.adminEmail, user.email].map(
      (recipient) => `${recipient} Holiday: Tomorrow There is no school on ${longDate(day(1))}: Tomorrow.`,
    ),
  );
  expect(await add('Far', '2034-01-01')).toHaveLength(2);
  expect(await add('Today', day(0))).toEqual([]);
  expect(await add('Past', '2020-01-01')).toEqual([]);
  expect((await add('Yearly from 2034', '2034-01-02', true))[0]).toContain(
    `There is no school on ${longDate('2034-01-02')}: Yearly from 2034.`,
  );
  const next = day(40);
  expect((await add('Every year', `2010-${next.slice(5)}`, true))[0]).toContain(
    `There is no school on ${longDate(next)}: Every year.`,
  );
});

test('every new login gets a welcome notification in the app, however the user, student or teacher was created', async () => {
  const email = (name: string) => `${name}@new.example`;
  const welcome = (name: string) => `in_app ${email(name)}`;
  await school.admin.post(
    '/api/users',
    { email: email('user'), first_name: 'Uma', last_name: 'U', password: testPassword },
    201,
  );
  expect(await takeMessages()).toMatchObject([
    {
      recipient: email('user'),
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
  expect(await takeRecipients()).toEqual([welcome('student')]);
  await school.admin.put(`/api/teachers/${teacher.id}`, { create_user_account: true });
  await school.admin.put(`/api/students/${id}`, { create_user_account: true });
  await school.admin.put(`/api/students/${id}`, { phone: '1' });
  expect(await takeRecipients()).toEqual([welcome('teacher'), welcome('later')]);
  const form = new FormData();
  form.set(
    'file',
    new Blob([
      `first_name,last_name,email,create_user_account\nA,A,${email('a')},yes\nB,B,,no\nC,C,${email('c')},yes\n`,
    ]),
    'students.csv',
  );
  await school.admin.send('POST', '/api/students/import', { body: form }, 201);
  expect((await takeRecipients()).sort()).toEqual([welcome('a'), welcome('c')]);
});
