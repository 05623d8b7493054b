import { beforeEach, describe, expect, test } from '@jest/globals';
import { address } from '../support/fixtures/guardians.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { classId } = await school.classroom('Grade 5 A');
const today = new Date().toISOString().slice(0, 10);
await service.database.query(`update ${school.schema}.academic_year set start_date = start_date - 100`);

interface Message {
  recipient: string;
  channel: string;
  title: string;
  message: string;
}
/** The notifications and emails since the previous call, in the order in which they were written. */
async function takeMessages(): Promise<Message[]> {
  await service.settled();
  const rows = await school.database.query<Message & Record<string, unknown>>(
    `select u.email as recipient, 'in_app' as channel, n.title, n.message, n.id as position from ${school.schema}.notification n join ${school.schema}.user_account u on u.id = n.user_id
     union all select d.address, d.channel, d.title, d.message, d.id from ${school.schema}.notification_delivery d where d.channel = 'email'
     order by channel desc, position`,
  );
  await service.database.query(`delete from ${school.schema}.notification_delivery`);
  await service.database.query(`delete from ${school.schema}.notification`);
  return rows.map(({ recipient, channel, title, message }) => ({ recipient, channel, title, message }));
}
const takeRecipients = async () => (await takeMessages()).map(({ recipient, channel }) => `${channel} ${recipient}`);

const addStudent = async (first_name: string, fields: object = {}) =>
  (
    await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name, last_name: 'Okafor', class_id: classId, ...fields },
      201,
    )
  ).data.id;
async function addGuardian(children: object[], fields: object = {}): Promise<{ id: number; email: string }> {
  const email = address('guardian');
  const guardian = { first_name: 'Grace', last_name: 'Okafor', email, children, ...fields };
  return { id: (await school.admin.post<{ id: number }>('/api/guardians', guardian, 201)).data.id, email };
}
const withLogin = { create_user_account: true, password: testPassword };
const mark = (students: number[], status = 'absent') =>
  school.admin.post('/api/attendance/mark', {
    class_id: classId,
    date: today,
    records: students.map((student_id) => ({ student_id, status })),
  });

beforeEach(async () => {
  await takeMessages();
});

describe('a message about a student', () => {
  test('goes to the guardians who receive messages, in the order of their priority, and not to the contact', async () => {
    const child = await addStudent('Amina', { parent_name: 'Old Contact', parent_email: address('old') });
    const second = await addGuardian([{ student_id: child, priority: 2 }]);
    const first = await addGuardian([{ student_id: child, priority: 1 }]);
    const third = await addGuardian([{ student_id: child, priority: 3 }], withLogin);
    await addGuardian([{ student_id: child, receives_messages: false }], withLogin);
    await addGuardian([{ student_id: child, starts_on: '2020-01-01', ends_on: '2020-01-02' }]);
    await takeMessages();
    await mark([child]);
    const messages = await takeRecipients();
    expect(messages.toSorted()).toEqual(
      [`email ${first.email}`, `email ${second.email}`, `email ${third.email}`, `in_app ${third.email}`].toSorted(),
    );
    expect(messages.indexOf(`email ${first.email}`)).toBeLessThan(messages.indexOf(`email ${second.email}`));
  });

  test('goes to the contact of a student without guardians', async () => {
    const parent = address('contact');
    await mark([await addStudent('Ben', { parent_email: parent })]);
    expect(await takeRecipients()).toEqual([`email ${parent}`]);
  });

  test('is one for a family if the event concerns several of its children, with the sum of the amounts', async () => {
    const [a, b] = [await addStudent('Chi'), await addStudent('Dan')];
    const only = await addGuardian([{ student_id: b }]);
    const both = await addGuardian([{ student_id: a }, { student_id: b }]);
    await mark([a, b], 'late');
    expect(await takeMessages()).toMatchObject([
      { recipient: both.email, title: 'Chi Okafor and Dan Okafor was late' },
      { recipient: only.email, title: 'Dan Okafor was late' },
    ]);
    const years = await school.admin.get<{ id: number }[]>('/api/academics/years');
    const structure = await school.admin.post<{ id: number }>(
      '/api/finance/fee-structures',
      {
        name: 'Trip',
        academic_year_id: years.data[0]?.id,
        due_date: today,
        components: [{ name: 'Trip', amount: 20, frequency: 'one_time' }],
        class_ids: [classId],
      },
      201,
    );
    await school.admin.post('/api/finance/student-fees/generate', {
      fee_structure_id: structure.data.id,
      student_ids: [a, b],
    });
    const messages = await takeMessages();
    expect(messages.map(({ recipient }) => recipient)).toEqual([both.email, only.email]);
    expect(messages[0]?.message).toContain('Chi Okafor and Dan Okafor');
    expect(messages[0]?.message).toContain('40.00');
    expect(messages[1]?.message).toContain('20.00');
  });

  test('goes by email to a guardian with a login who may not see the records', async () => {
    const child = await addStudent('Eve');
    const guardian = await addGuardian([{ student_id: child, can_see_records: false }], withLogin);
    await takeMessages();
    await mark([child]);
    expect(await takeRecipients()).toEqual([`email ${guardian.email}`]);
  });

  test('does not go to a guardian who has turned the event off', async () => {
    const child = await addStudent('Fay');
    const guardian = await addGuardian([{ student_id: child }]);
    await school.admin.put(`/api/guardians/${guardian.id}/notification-preferences`, {
      events: [{ key: 'attendance.late', is_enabled: false }],
    });
    await mark([child], 'late');
    expect(await takeRecipients()).toEqual([]);
    await mark([child], 'absent');
    expect(await takeRecipients()).toEqual([`email ${guardian.email}`]);
  });

  test('that waits is not sent once the link has ended, and the other guardian gets nothing about that', async () => {
    const child = await addStudent('Gil');
    const father = await addGuardian([{ student_id: child }], withLogin);
    const mother = await addGuardian([{ student_id: child }]);
    await takeMessages();
    await service.database.query(
      `update platform.notification_setting set quiet_from = '00:00', quiet_until = '23:59:59'`,
    );
    await mark([child]);
    await service.settled();
    await school.admin.delete(`/api/students/${child}/guardians/${father.id}`);
    await service.database.query(`update platform.notification_setting set quiet_from = null, quiet_until = null`);
    const [range] = await school.database.query<{ first: number; last: number }>(
      `select min(id)::integer as first, max(id)::integer as last from ${school.schema}.notification_delivery`,
    );
    const [pending] = await school.database.query<{ answer: { deliveries: { address: string }[] } }>(
      `select core.deliveries_pending($1, $2, $3, null, '{}') as answer`,
      [school.id, range?.first, range?.last],
    );
    expect(pending?.answer.deliveries.map((delivery) => delivery.address)).toEqual([mother.email]);
    expect(
      await school.database.query(
        `select address, reason from ${school.schema}.notification_delivery where status = 'dropped'`,
      ),
    ).toEqual([{ address: father.email, reason: 'guardian_ended' }]);
    await takeMessages();
  });
});

describe('the reminder of an invoice', () => {
  test('goes to the first guardian who receives messages and has an address', async () => {
    const child = await addStudent('Hal');
    await addGuardian([{ student_id: child, receives_messages: false }]);
    const second = await addGuardian([{ student_id: child }]);
    const invoice = await school.admin.post<{ id: number }>(
      '/api/fees/invoices',
      { student_id: child, due_date: today, items: [{ description: 'Books', amount: 10 }] },
      201,
    );
    await school.admin.post(`/api/fees/invoices/${invoice.data.id}/send-reminder`, {});
    expect(
      await school.database.query(`select sent_to from ${school.schema}.invoice_reminder where invoice_id = $1`, [
        invoice.data.id,
      ]),
    ).toEqual([{ sent_to: second.email }]);
  });
});
