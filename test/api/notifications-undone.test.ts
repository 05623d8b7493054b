import { beforeAll, expect, test } from '@jest/globals';
import { feeSchool } from '../support/fixtures/fees.ts';
import { until } from '../support/client/until.ts';
import { serviceOfFile } from '../support/server/service.ts';

// A request stores an event, and the worker writes its notifications later. These tests delay the worker until a second
// request has undone the event.

const service = await serviceOfFile();
const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const fees = await feeSchool(service, { name: 'This year', start_date: day(-300), end_date: day(60) }, []);
const { school } = fees;
const { admin } = school;
let classId: number;
let student: number;

beforeAll(async () => {
  classId = await fees.addClass();
  student = await fees.addStudent(classId, day(-300), {
    first_name: 'Ann',
    last_name: 'Adams',
    parent_email: 'ann.parent@home.example',
  });
});

/** Runs `work` while the worker cannot write notifications. @returns the messages that the worker writes afterwards */
async function beforeWriting(work: () => Promise<unknown>): Promise<string[]> {
  await service.settled();
  await school.database.query(`delete from ${school.schema}.notification_delivery`);
  await school.database.query(`delete from ${school.schema}.notification`);
  const client = new shared.pg.Client({
    connectionString: await school.database.addressFor(`select from ${school.schema}.student`),
  });
  await client.connect();
  try {
    await client.query("select pg_advisory_lock(core.lock_key('notifications', $1))", [school.id]);
    await work();
  } finally {
    await client.end();
  }
  await service.settled();
  const rows = await school.database.query<{ message: string }>(
    `select message from ${school.schema}.notification_delivery where channel = 'email'
     union all select message from ${school.schema}.notification order by 1`,
  );
  return rows.map(({ message }) => message);
}

const mark = (status: string) =>
  admin.post('/api/attendance/mark', { class_id: classId, date: day(0), records: [{ student_id: student, status }] });

test('a mark is announced if it still stands, and not again unless another status was announced meanwhile', async () => {
  const [absent, late] = ['absent', 'late'].map((status) => [expect.stringContaining(`was marked ${status}`)]);
  const marked = (...statuses: string[]) =>
    beforeWriting(async () => {
      for (const status of statuses) await mark(status);
    });
  expect(await marked('absent', 'present')).toEqual([]);
  expect(await marked('late', 'present', 'late', 'present')).toEqual([]);
  // Nobody has been told of the first absence.
  expect(await marked('absent')).toEqual(absent);
  expect(await marked('present')).toEqual([]);
  expect(await marked('absent', 'present', 'absent')).toEqual([]);
  expect(await marked('absent', 'late')).toEqual(late);
  expect(await marked('absent')).toEqual(absent);
});

test('events about a deleted student send no notifications', async () => {
  const { data } = await admin.post<{ id: number }>(
    '/api/students',
    { first_name: 'Gone', last_name: 'Soon', class_id: classId, parent_email: 'gone.parent@home.example' },
    201,
  );
  expect(
    await beforeWriting(async () => {
      await admin.post('/api/attendance/mark', {
        class_id: classId,
        date: day(0),
        records: [{ student_id: data.id, status: 'absent' }],
      });
      await admin.delete(`/api/students/${data.id}`);
    }),
  ).toEqual([]);
});

test('a payment that is reversed and a fee that is waived or discounted in full before their notifications are written notify nobody', async () => {
  const structure = await fees.addStructure([{ name: 'Tuition', amount: 100, frequency: 'annual' }], [classId]);
  expect(
    await beforeWriting(async () => {
      await fees.generate(structure);
      const [fee] = await fees.feesOf(student);
      await admin.post(`/api/finance/student-fees/${fee?.id}/waive`, { reason: 'Scholarship' });
    }),
  ).toEqual([]);
  const sport = await fees.addStructure([{ name: 'Sport', amount: 80, frequency: 'annual' }], [classId]);
  const music = await fees.addStructure([{ name: 'Music', amount: 60, frequency: 'annual' }], [classId]);
  const discount = async (structureId: number, percent: number) => {
    await fees.generate(structureId);
    const fee = (await fees.feesOf(student)).find(({ fee_structure_id: id }) => id === structureId);
    await admin.post(`/api/finance/student-fees/${fee?.id}/discounts`, { percent, reason: 'Sibling' }, 201);
  };
  const announced = await beforeWriting(async () => {
    await discount(sport, 100);
    await discount(music, 25);
  });
  // With the amount after discounts, and not at all if they leave nothing.
  expect(announced).not.toEqual([]);
  expect(announced.filter((message) => !message.includes('owes USD 45.00'))).toEqual([]);
  const other = await fees.addStructure([{ name: 'Lunch', amount: 50, frequency: 'annual' }], [classId], {
    name: 'Lunch',
  });
  await fees.generate(other);
  const fee = (await fees.feesOf(student)).find(({ fee_structure_id: id }) => id === other);
  expect(
    await beforeWriting(async () => {
      const { data } = await fees.pay(fee?.id ?? 0, 10);
      await admin.post(`/api/finance/payments/${data.id}/reverse`, { reason: 'Wrong student' });
      await fees.pay(fee?.id ?? 0, 20);
      await fees.pay(fee?.id ?? 0, 30);
    }),
  ).toEqual([
    // With the balance after each payment.
    expect.stringContaining('Open balance of Lunch: USD 30.00.'),
    expect.stringContaining('Open balance of Lunch: USD 0.00.'),
  ]);
});

test('a holiday or leave that is deleted and a user who is deactivated before the notification is written notify nobody', async () => {
  const { data: teacher } = await admin.post<{ id: number }>(
    '/api/teachers',
    { first_name: 'Noa', last_name: 'T', email: 'noa@staff.example' },
    201,
  );
  expect(
    await beforeWriting(async () => {
      const { data: holiday } = await admin.post<{ id: number }>(
        '/api/holidays',
        { name: 'Off', date: '2034-01-01' },
        201,
      );
      await admin.delete(`/api/holidays/${holiday.id}`);
      const { data: leave } = await admin.post<{ id: number }>(
        '/api/teachers/leaves',
        { teacher_id: teacher.id, leave_type: 'sick', start_date: '2026-09-01', end_date: '2026-09-03' },
        201,
      );
      await admin.put(`/api/teachers/leaves/${leave.id}`, { status: 'rejected' });
      await school.database.query(`delete from ${school.schema}.teacher_leave where id = $1`, [leave.id]);
      const { data: user } = await admin.post<{ id: number }>(
        '/api/users',
        { email: 'gone@staff.example', first_name: 'G', last_name: 'One', password: 'test-password' },
        201,
      );
      await admin.put(`/api/users/${user.id}`, { is_active: false });
    }),
  ).toEqual([]);
});

/** Stores an event as a job or the timetable generator does. */
const happened = (event: string, facts: object) =>
  school.database.query('insert into platform.outbox (tenant_id, event, facts) values ($1, $2, $3)', [
    school.id,
    event,
    facts,
  ]);

/** Adds a student who can log in. */
async function addPupil(class_id: number, first_name: string): Promise<{ id: number; userId: number }> {
  const id = await fees.addStudent(class_id, day(-300), { first_name });
  const { id: userId } = await school.user(['student']);
  await school.database.query(`update ${school.schema}.student set user_id = $1 where id = $2`, [userId, id]);
  return { id, userId };
}

test('of three invoices, only the one that is neither paid nor voided before the reminder is written has a reminder', async () => {
  const pupil = await addPupil(classId, 'Ivy');
  const invoice = async () => {
    const items = [{ description: 'Museum', amount: 12, quantity: 1 }];
    const body = { student_id: pupil.id, due_date: day(10), items };
    return (await admin.post<{ id: number; invoice_number: string }>('/api/fees/invoices', body, 201)).data;
  };
  const [paid, voided, open] = [await invoice(), await invoice(), await invoice()];
  const messages = await beforeWriting(async () => {
    for (const { id } of [paid, voided, open]) await admin.post(`/api/fees/invoices/${id}/send-reminder`, undefined);
    await admin.post('/api/fees/payments', { invoice_id: paid.id, amount: 12, method: 'cash' }, 201);
    await admin.post(`/api/fees/invoices/${voided.id}/void`, { reason: 'Cancelled' });
  });
  expect(messages.filter((message) => message.startsWith('Please pay'))).toEqual([
    expect.stringContaining(open.invoice_number),
  ]);
});

test('a fee that is deleted before it is announced is not announced, and another of the same run is', async () => {
  const twoStudents = await fees.addClass();
  const [dan] = [
    await fees.addStudent(twoStudents, day(-300), { first_name: 'Dan', parent_email: 'dan.parent@home.example' }),
    await fees.addStudent(twoStudents, day(-300), { first_name: 'Kim', parent_email: 'kim.parent@home.example' }),
  ];
  const structure = await fees.addStructure([{ name: 'Swim', amount: 10, frequency: 'annual' }], [twoStudents]);
  const messages = await beforeWriting(async () => {
    await fees.generate(structure);
    const [fee] = await fees.feesOf(dan);
    await admin.delete(`/api/finance/student-fees/${fee?.id}`);
  });
  expect(messages).toEqual([expect.stringMatching(/^Kim .* owes USD 10\.00/)]);
});

test('a new timetable is announced to the students who are in its class when the notification is written', async () => {
  const [before, after] = [await fees.addClass(), await fees.addClass()];
  const [gone, stays, comes] = [
    await addPupil(before, 'Gone'),
    await addPupil(before, 'Stays'),
    await addPupil(after, 'Comes'),
  ];
  await beforeWriting(async () => {
    await happened('timetable.published', { class_ids: [before] });
    await admin.put(`/api/students/${gone.id}`, { class_id: after });
    await admin.put(`/api/students/${comes.id}`, { class_id: before });
  });
  const told = await school.database.query<{ user_id: number }>(
    `select user_id::integer from ${school.schema}.notification where type = 'timetable.published' order by 1`,
  );
  expect(told.map(({ user_id }) => user_id)).toEqual([stays.userId, comes.userId]);
});

test('a holiday that is moved to a past day and a webhook that is enabled again notify nobody, and others do', async () => {
  const holiday = async (name: string) =>
    (await admin.post<{ id: number }>('/api/holidays', { name, date: day(20) }, 201)).data.id;
  const webhook = async (name: string) => {
    const body = { url: `https://${name}.example.org/in`, events: ['student.created'] };
    const { data } = await admin.post<{ id: number }>('/api/webhooks', body, 201);
    await admin.put(`/api/webhooks/${data.id}`, { is_active: false });
    return data.id;
  };
  const [enabled, deleted, disabled] = [await webhook('enabled'), await webhook('deleted'), await webhook('disabled')];
  const messages = await beforeWriting(async () => {
    await holiday('Stays');
    await admin.put(`/api/holidays/${await holiday('Moved')}`, { date: day(-1) });
    for (const webhook_id of [enabled, deleted, disabled]) await happened('webhook.disabled', { webhook_id });
    await admin.put(`/api/webhooks/${enabled}`, { is_active: true });
    await admin.delete(`/api/webhooks/${deleted}`);
  });
  const named = (word: RegExp) => [...new Set(messages.flatMap((message) => word.exec(message)?.[0] ?? []))];
  expect(named(/Stays|Moved/)).toEqual(['Stays']);
  expect(named(/(enabled|deleted|disabled)\.example/)).toEqual(['disabled.example']);
});

test('a document of a bus that is renewed before the reminder is written has no reminder', async () => {
  const bus = async (registration_number: string) =>
    (
      await admin.post<{ id: number }>(
        '/api/transport/buses',
        { registration_number, capacity: 10, insurance_expires_on: day(5) },
        201,
      )
    ).data.id;
  const renewed = await bus('RENEWED');
  await bus('EXPIRING');
  // It is 12:00 at the school: reminders are stored from 7:00 on.
  await service.database.query('update platform.tenant set time_zone = $2 where id = $1', [
    school.id,
    `<X>${new Date().getUTCHours() - 12}`,
  ]);
  const messages = await beforeWriting(async () => {
    await school.database.query('select core.notify_documents_expiring($1)', [school.id]);
    await admin.put(`/api/transport/buses/${renewed}`, { insurance_expires_on: day(300) });
  });
  await service.database.query("update platform.tenant set time_zone = 'UTC' where id = $1", [school.id]);
  expect(messages).not.toEqual([]);
  expect(messages.filter((message) => !message.includes('EXPIRING'))).toEqual([]);
});

test('an absence is announced after a message to a thousand users, and after an attempt that failed', async () => {
  const { schema, database } = school;
  const absent = [expect.stringContaining('was marked absent')];
  await mark('present');
  await database.query(`delete from ${schema}.announced_mark`);
  await database.query(
    `insert into ${schema}.user_account (email, first_name, last_name)
     select 'many' || n || '@staff.example', 'M', 'Any' from generate_series(1, 1000) n`,
  );
  const messages = await beforeWriting(async () => {
    const message = { all: true, title: 'Snow', message: 'Snow', channels: ['in_app'] };
    await admin.post('/api/notifications/send', message);
    await mark('absent');
  });
  expect(messages.filter((message) => message !== 'Snow')).toEqual(absent);

  await mark('present');
  await database.query(`delete from ${schema}.announced_mark`);
  await database.query(`alter table ${schema}.notification_delivery add constraint none check (false) not valid`);
  await service.settled();
  await mark('absent');
  const postponed = async () =>
    database.query<{ error: string }>(`select error from platform.outbox where tenant_id = $1 and attempts > 0`, [
      school.id,
    ]);
  expect(await until(async () => ((await postponed()).length > 0 ? postponed() : undefined))).toEqual([
    { error: expect.stringContaining('none') },
  ]);
  await database.query(`alter table ${schema}.notification_delivery drop constraint none`);
  await database.query(`delete from ${schema}.notification_delivery`);
  await database.query('update platform.outbox set retry_at = null');
  await service.settled();
  const sent = await database.query<{ message: string }>(`select message from ${schema}.notification_delivery`);
  expect(sent.map(({ message }) => message)).toEqual(absent);
});
