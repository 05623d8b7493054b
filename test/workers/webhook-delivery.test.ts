import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import type {
  WebhookDelivery as WebhookDeliverySchema,
  Webhook as WebhookSchema,
} from '../../src/endpoints/parts/webhooks.ts';
import { webhookSignature } from '../../workers/webhooks.ts';
import type { OutputOf } from '../support/client/output.ts';
import { until } from '../support/client/until.ts';
import { type ReceivedWebhook, webhookReceiver } from '../support/fakes/webhook-receiver.ts';
import { attendanceHelpers, today } from '../support/fixtures/attendance.ts';
import { fileForm } from '../support/fixtures/pictures.ts';
import { transportSchool } from '../support/fixtures/transport.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';

const receiver = await webhookReceiver();
const { service, school } = await serviceWithSchool(
  { WEBHOOK_PRIVATE_ORIGINS: receiver.url, WEBHOOK_TIMEOUT_MS: '60000' },
  6,
);
// Runs after the service has been closed, because its afterAll was registered first.
afterAll(() => receiver.close());
// A school can have 10 webhooks, and each receives the events of all tests.
afterEach(() => service.database.query(`delete from ${school.schema}.webhook`));

type Webhook = OutputOf<typeof WebhookSchema> & { secret: string };
type Delivery = OutputOf<typeof WebhookDeliverySchema>;

const allEvents = (
  await service.database.query<{ name: string }>(
    'select name from core.webhook_event_type where permission is not null',
  )
).map(({ name }) => name);

/** Creates a webhook with a path of its own at the receiver. */
async function listen(events: string[] = allEvents, at: School = school) {
  const path = `/${unique('hook')}`;
  const { data } = await at.admin.post<Webhook>('/api/webhooks', { url: receiver.url + path, events }, 201);
  const api = `/api/webhooks/${data.id}`;
  return {
    ...data,
    path,
    api,
    messages: () => receiver.messagesTo(path),
    /** Waits for a message of this type that has the value in its data. */
    message: (type: string, data: Record<string, unknown>) =>
      until(() =>
        receiver
          .messagesTo(path)
          .find(
            ({ body }) =>
              body.type === type && Object.entries(data).every(([field, value]) => body.data[field] === value),
          ),
      ),
    deliveries: async (query = '') => (await at.admin.get<Delivery[]>(`${api}/deliveries?${query}`)).data,
    /** Waits until the newest delivery is in this state. */
    delivery: (state: Partial<Delivery>) =>
      until(async () => {
        const [newest] = (await at.admin.get<Delivery[]>(`${api}/deliveries`)).data;
        const isReached = Object.entries(state).every(([key, value]) => newest?.[key as keyof Delivery] === value);
        return isReached ? newest : undefined;
      }),
    read: async () => (await at.admin.get<Webhook>(api)).data,
    /** Makes the waiting deliveries due, as if the time until then had passed. */
    async skipDelay(age = '0 hours') {
      await service.database.query(
        `update ${at.schema}.webhook set retry_at = null, failing_since = failing_since - $2::interval where id = $1`,
        [data.id, age],
      );
      await service.database.query(
        `update ${at.schema}.webhook_delivery set next_attempt_at = now(), first_attempt_at = first_attempt_at - $2::interval
         where webhook_id = $1 and status = 'pending'`,
        [data.id, age],
      );
      await service.database.query(
        `select graphile_worker.add_job('deliver_webhooks', json_build_object('tenant_id', $1::bigint),
           queue_name => 't' || $1::bigint || ':deliver_webhooks')`,
        [at.id],
      );
    },
  };
}

const addStudent = async (fields: Record<string, unknown> = {}, at: School = school) =>
  (
    await at.admin.post<{ id: number; last_name: string }>(
      '/api/students',
      { first_name: 'Amina', last_name: unique('García'), ...fields },
      201,
    )
  ).data;
const typesOf = (messages: ReceivedWebhook[]) => messages.map(({ body }) => body.type);
const eventsOf = (at: School) =>
  service.database.query<{ type: string }>(`select type from ${at.schema}.webhook_event order by id`);

describe('the signature', () => {
  test('is that of the Standard Webhooks specification', () => {
    const message = { message_id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', body: '{"test": 2432232314}' };
    const secrets = ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'];
    expect(webhookSignature({ ...message, secrets }, 1614265330)).toBe(
      'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    );
  });
});

describe('an event', () => {
  test('is sent with a valid signature, and has the record as the API returns it', async () => {
    const hook = await listen(['student.created']);
    const student = await addStudent();
    const message = await hook.message('student.created', { id: student.id });
    expect(message.isSignedBy(hook.secret)).toBe(true);
    expect(message.isSignedBy(`whsec_${Buffer.alloc(24).toString('base64')}`)).toBe(false);
    const { data } = await school.admin.get<object>(`/api/students/${student.id}`);
    expect({ ...message.body.data, leaving_reason: null }).toEqual(data);
    expect(message.body.data).not.toHaveProperty('leaving_reason');
    expect(Math.abs(Date.parse(message.body.timestamp) - Date.now())).toBeLessThan(60_000);
    expect(await hook.delivery({ status: 'sent' })).toMatchObject({
      message_id: message.id,
      event: 'student.created',
      attempts: 1,
      status_code: 204,
      reason: null,
      next_attempt_at: null,
      sent_at: expect.any(String) as unknown,
    });
  });

  test('follows each change of students, teachers and classes', async () => {
    const hook = await listen();
    const { data: teacher } = await school.admin.post<{ id: number }>(
      '/api/teachers',
      { first_name: 'Tia', last_name: 'Cher' },
      201,
    );
    await hook.message('teacher.created', { id: teacher.id });
    await school.admin.put(`/api/teachers/${teacher.id}`, { last_name: 'Chair' });
    await hook.message('teacher.updated', { id: teacher.id, last_name: 'Chair' });
    await school.admin.delete(`/api/teachers/${teacher.id}`);
    expect((await hook.message('teacher.deleted', { id: teacher.id })).body.data).toEqual({ id: teacher.id });

    const { gradeId, yearId } = await school.classroom(unique('Class'));
    const body = { name: unique('Class'), grade_id: gradeId, academic_year_id: yearId };
    const { data: one } = await school.admin.post<{ id: number }>('/api/classes', body, 201);
    await hook.message('class.created', { id: one.id });
    const student = await addStudent({ class_id: one.id });
    await hook.message('student.created', { id: student.id, class_id: one.id });
    await school.admin.put(`/api/students/${student.id}`, { last_name: 'Smith' });
    await hook.message('student.updated', { id: student.id, last_name: 'Smith' });
    await school.admin.delete(`/api/students/${student.id}`);
    await hook.message('student.deleted', { id: student.id });
    await school.admin.put(`/api/students/${student.id}`, { deleted_at: null });
    await until(() =>
      hook.messages().filter(({ body }) => body.type === 'student.created' && body.data['id'] === student.id).length ===
      2
        ? true
        : undefined,
    );
  });

  test('follows each step of an invoice and its payments', async () => {
    const hook = await listen();
    const { classId } = await school.classroom(unique('Class'));
    const { id: student_id } = await addStudent({ class_id: classId });
    const items = [{ description: 'Book', amount: 20, quantity: 2 }];
    const { data: draft } = await school.admin.post<{ id: number }>(
      '/api/fees/invoices',
      { student_id, due_date: '2034-01-01', items, status: 'draft' },
      201,
    );
    const { id } = draft;
    expect((await hook.message('invoice.created', { id })).body.data).toMatchObject({ total: 40, status: 'draft' });
    await school.admin.put(`/api/fees/invoices/${id}`, { notes: 'By bus' });
    await hook.message('invoice.updated', { id, notes: 'By bus' });
    await school.admin.post(`/api/fees/invoices/${id}/issue`);
    await hook.message('invoice.issued', { id, status: 'sent' });
    const { data: payment } = await school.admin.post<{ id: number }>(
      '/api/fees/payments',
      { invoice_id: id, amount: 40, payment_method: 'cash' },
      201,
    );
    await hook.message('invoice.paid', { id, status: 'paid' });
    await hook.message('payment.created', { id: payment.id, amount: 40 });
    const { data: reversal } = await school.admin.post<{ id: number }>(`/api/finance/payments/${payment.id}/reverse`, {
      reason: 'Bounced',
    });
    await hook.message('payment.reversed', { id: reversal.id, reversal_of: payment.id, amount: -40 });
    await school.admin.post(`/api/fees/invoices/${id}/void`, { reason: 'Mistake' });
    await hook.message('invoice.voided', { id, status: 'void' });
    const { data: other } = await school.admin.post<{ id: number }>(
      '/api/fees/invoices',
      { student_id, due_date: '2034-01-01', items },
      201,
    );
    await hook.message('invoice.created', { id: other.id });
    await hook.message('invoice.issued', { id: other.id });
  });

  test('follows a change by the daily job', async () => {
    const hook = await listen(['invoice.updated']);
    const { id: student_id } = await addStudent();
    const { data: invoice } = await school.admin.post<{ id: number }>(
      '/api/fees/invoices',
      { student_id, due_date: '2034-01-01', items: [{ description: 'Book', amount: 20 }] },
      201,
    );
    // As if time had passed.
    await service.database.query(`alter table ${school.schema}.invoice disable trigger user`);
    await service.database.query(`update ${school.schema}.invoice set due_date = '2020-01-01' where id = $1`, [
      invoice.id,
    ]);
    await service.database.query(`alter table ${school.schema}.invoice enable trigger user`);
    await service.database.query('select core.daily_step($1, current_date, 0, 100)', [school.id]);
    await hook.message('invoice.updated', { id: invoice.id, status: 'overdue' });
  });

  test('of attendance has the marks of the class on that day, once for each request', async () => {
    const { addClass, mark } = attendanceHelpers(service, school);
    const { classId, students } = await addClass(3);
    const hook = await listen(['attendance.marked']);
    const [a = 0, b = 0, c = 0] = students;
    await mark(classId, today, { [a]: 'present', [b]: 'absent', [c]: 'late' });
    const { body } = await hook.message('attendance.marked', { class_id: classId, date: today });
    expect(body.data['marks']).toMatchObject([
      { student_id: a, status: 'present' },
      { student_id: b, status: 'absent' },
      { student_id: c, status: 'late' },
    ]);
    // Repeating the request changes nothing.
    await mark(classId, today, { [a]: 'present', [b]: 'absent', [c]: 'late' });
    await mark(classId, today, { [a]: 'late' });
    await until(() => (hook.messages().length === 2 ? true : undefined));
    expect(await hook.deliveries()).toHaveLength(2);
  });

  test('of a timetable has the lessons of the class', async () => {
    const hook = await listen(['timetable.changed']);
    const { classId: class_id } = await school.classroom(unique('Class'));
    const subject_id = await school.insert('subject', { name: unique('Subject'), code: unique('C') });
    const slot = { class_id, subject_id, day_of_week: 1, period: 1 };
    const { data } = await school.admin.post<{ id: number }>('/api/timetable/slots', slot, 201);
    const { body } = await hook.message('timetable.changed', { class_id });
    expect(body.data['slots']).toMatchObject([{ id: data.id, ...slot }]);
    await school.admin.delete(`/api/timetable/slots/${data.id}`);
    const last = await until(() => hook.messages()[1]);
    expect(last.body.data).toEqual({ class_id, slots: [] });
  });

  test('follows a transport enrollment', async () => {
    const fleet = await transportSchool(service);
    const hook = await listen(allEvents, fleet.school);
    const { enrollments } = await fleet.ridden(1);
    const id = enrollments[0]?.id;
    await hook.message('transport_enrollment.created', { id, status: 'active' });
    await fleet.admin.delete(`/api/transport/enroll/${String(id)}`);
    await hook.message('transport_enrollment.cancelled', { id, status: 'cancelled' });
  });

  test('of each imported student is sent, more than one job can send', async () => {
    const hook = await listen(['student.created']);
    const rows = Array.from({ length: 120 }, (_, n) => `Sam,Import${n}`);
    const form = fileForm(
      Buffer.from(['first_name,last_name', ...rows].join('\n')),
      'people.csv',
      'application/octet-stream',
      'file',
    );
    await school.admin.send('POST', '/api/students/import', { body: form }, 201);
    await until(() => (hook.messages().length >= 120 ? true : undefined));
    expect(new Set(hook.messages().map(({ body }) => body.data['last_name'])).size).toBe(120);
    expect(hook.messages()).toHaveLength(120);
  });

  test('is not recorded if the change is refused, or if no active webhook wants it', async () => {
    const at = await service.school();
    await addStudent({}, at);
    const hook = await listen(['student.created'], at);
    const { id } = await addStudent({ admission_number: 'A-1' }, at);
    await hook.message('student.created', { id });
    await at.admin.post('/api/students', { first_name: 'A', last_name: 'B', admission_number: 'A-1' }, 409);
    await at.admin.put(`/api/students/${id}`, { last_name: 'Unwanted' });
    await at.admin.put(hook.api, { is_active: false });
    await addStudent({}, at);
    expect(await eventsOf(at)).toEqual([{ type: 'student.created' }]);
    expect(await hook.deliveries()).toHaveLength(1);
  });

  test('goes to every webhook of its own school that wants it, and to no other', async () => {
    const other = await service.school();
    const [one, two, students, foreign] = [
      await listen(['class.created', 'student.created']),
      await listen(['student.created']),
      await listen(['student.deleted']),
      await listen(allEvents, other),
    ];
    const { id } = await addStudent();
    const messages = await Promise.all([one, two].map((hook) => hook.message('student.created', { id })));
    expect(messages[0]?.id).toBe(messages[1]?.id);
    expect(students.messages()).toEqual([]);
    expect(foreign.messages()).toEqual([]);
  });

  test('has all records, also if the user who caused it sees only some of the school', async () => {
    const { addClass, addClassTeacher, mark } = attendanceHelpers(service, school);
    const { classId, students } = await addClass(2);
    const teacher = await addClassTeacher(classId);
    const hook = await listen(['attendance.marked']);
    await mark(classId, today, Object.fromEntries(students.map((id) => [id, 'present'])), teacher);
    const { body } = await hook.message('attendance.marked', { class_id: classId });
    expect(body.data['marks']).toHaveLength(2);
  });
});

describe('a delivery', () => {
  test('that fails is repeated with the same id and body, after a growing delay', async () => {
    const hook = await listen(['student.created']);
    receiver.respondWith(hook.path, { status: 500, body: 'Out of \0 order' }, { isCut: true }, { status: 201 });
    const { id } = await addStudent();
    const first = await hook.delivery({ attempts: 1, status: 'pending' });
    expect(first).toMatchObject({ status_code: 500, reason: 'http_500', response_body: 'Out of  order' });
    const secondsUntilNext = ({ next_attempt_at, last_attempt_at }: Delivery) =>
      (Date.parse(next_attempt_at ?? '') - Date.parse(last_attempt_at ?? '')) / 1000;
    expect(secondsUntilNext(first)).toBeCloseTo(10);
    expect((await hook.read()).failing_since).not.toBeNull();
    await hook.skipDelay();
    const second = await hook.delivery({ attempts: 2, status: 'pending' });
    expect(second).toMatchObject({ status_code: null, reason: 'ECONNRESET', response_body: null });
    expect(secondsUntilNext(second)).toBeCloseTo(30);
    await hook.skipDelay();
    await hook.delivery({ attempts: 3, status: 'sent', status_code: 201 });
    expect((await hook.read()).failing_since).toBeNull();
    const [one, two, three, ...more] = hook.messages();
    expect([two, three].map((each) => [each?.id, each?.body])).toEqual([
      [one?.id, one?.body],
      [one?.id, one?.body],
    ]);
    expect(one?.body.data['id']).toBe(id);
    expect(more).toEqual([]);
  });

  test('waits as long as the receiver asks for', async () => {
    const hook = await listen(['student.created']);
    receiver.respondWith(hook.path, { status: 429, headers: { 'Retry-After': '1800' } });
    await addStudent();
    const { next_attempt_at, last_attempt_at } = await hook.delivery({ attempts: 1, status: 'pending' });
    expect(Date.parse(next_attempt_at ?? '') - Date.parse(last_attempt_at ?? '')).toBe(1800_000);
  });

  test('does not follow redirects', async () => {
    const hook = await listen(['student.created']);
    const target = `/${unique('target')}`;
    receiver.respondWith(hook.path, { status: 307, headers: { Location: receiver.url + target } });
    await addStudent();
    expect(await hook.delivery({ attempts: 1 })).toMatchObject({ status: 'pending', reason: 'http_307' });
    expect(receiver.messagesTo(target)).toEqual([]);
  });

  test('is not sent to a private address, neither to one that a name resolves to nor to one in an older URL', async () => {
    const { port } = new URL(receiver.url);
    const { data } = await school.admin.post<Webhook>(
      '/api/webhooks',
      { url: `https://localhost:${port}/in`, events: ['student.created'] },
      201,
    );
    const list = `/api/webhooks/${data.id}/deliveries`;
    const reasonOf = (id: number) =>
      until(async () => {
        const found = (await school.admin.get<Delivery[]>(list)).data.find((delivery) => delivery.id === id);
        return found?.attempts === 1 ? found.reason : undefined;
      });
    const { data: byName } = await school.admin.post<Delivery>(`/api/webhooks/${data.id}/test`);
    expect(await reasonOf(byName.id)).toBe('EPRIVATE');
    await service.database.query(
      `update ${school.schema}.webhook set url = 'https://127.0.0.1:${port}/in', retry_at = null where id = ${data.id}`,
    );
    const { data: byAddress } = await school.admin.post<Delivery>(`/api/webhooks/${data.id}/test`);
    expect(await reasonOf(byAddress.id)).toBe('url_not_allowed');
  });

  test('has a signature of both secrets for 24 hours after a rotation', async () => {
    const hook = await listen(['student.created']);
    const { data } = await school.admin.post<{ secret: string }>(`${hook.api}/rotate-secret`);
    const during = await hook.message('student.created', { id: (await addStudent()).id });
    expect([hook.secret, data.secret].map(during.isSignedBy)).toEqual([true, true]);
    await service.database.query(
      `update ${school.schema}.webhook_secret set expires_at = now() where webhook_id = ${hook.id} and expires_at is not null`,
    );
    const after = await hook.message('student.created', { id: (await addStudent()).id });
    expect([hook.secret, data.secret].map(after.isSignedBy)).toEqual([false, true]);
  });

  test('can be replayed, with the same id and body', async () => {
    const hook = await listen(['student.created']);
    const { id } = await addStudent();
    const original = await hook.delivery({ status: 'sent' });
    await school.admin.delete(`/api/students/${id}`);
    const { data: replay } = await school.admin.post<Delivery>(`${hook.api}/deliveries/${original.id}/replay`);
    expect(replay).toMatchObject({ status: 'pending', attempts: 0, message_id: original.message_id });
    await hook.delivery({ id: replay.id, status: 'sent' });
    const [first, second] = hook.messages();
    expect([second?.id, second?.body]).toEqual([first?.id, first?.body]);
    await school.admin.post(`${hook.api}/deliveries/999999/replay`, undefined, 404);
    const other = await listen(['student.created']);
    await school.admin.post(`${other.api}/deliveries/${original.id}/replay`, undefined, 404);
  });

  test('of a test event is sent to one webhook, and not to a disabled one', async () => {
    const [hook, other] = [await listen(['class.created']), await listen()];
    const { data } = await school.admin.post<Delivery>(`${hook.api}/test`);
    expect(data).toMatchObject({ event: 'webhook.test', status: 'pending' });
    const message = await hook.message('webhook.test', { webhook_id: hook.id });
    expect(message.isSignedBy(hook.secret)).toBe(true);
    expect(typesOf(other.messages())).toEqual([]);
    await school.admin.put(hook.api, { is_active: false });
    expect(await school.admin.post(`${hook.api}/test`, undefined, 409)).toMatchObject({ error: 'invalid_state' });
  });

  test('is listed by status and event', async () => {
    const hook = await listen(['student.created', 'student.deleted']);
    receiver.respondWith(hook.path, { status: 204 }, { status: 400, body: 'x'.repeat(5000) });
    const { id } = await addStudent();
    await hook.delivery({ status: 'sent' });
    await school.admin.delete(`/api/students/${id}`);
    const failing = await hook.delivery({ attempts: 1, status: 'pending' });
    expect(failing.response_body).toBe('x'.repeat(1000));
    const events = async (query: string) => (await hook.deliveries(query)).map(({ event }) => event);
    expect(await events('')).toEqual(['student.deleted', 'student.created']);
    expect(await events('status=sent')).toEqual(['student.created']);
    expect(await events('event=student.deleted&status=pending')).toEqual(['student.deleted']);
    expect(await events('search=http_400')).toEqual(['student.deleted']);
    expect(await events('sort=id&pageSize=1')).toEqual(['student.created']);
  });
});

describe('a webhook', () => {
  test('to which nothing could be delivered for a day is disabled, and the admins are notified', async () => {
    const hook = await listen(['student.created']);
    receiver.respondWith(hook.path, { status: 503 });
    await addStudent();
    await hook.delivery({ attempts: 1, status: 'pending' });
    await hook.skipDelay('12 hours');
    await hook.delivery({ attempts: 2, status: 'pending' });
    await hook.skipDelay('12 hours');
    await hook.delivery({ attempts: 3, status: 'failed', reason: 'http_503', next_attempt_at: null });
    expect(await hook.read()).toMatchObject({ is_active: false, disabled_at: expect.any(String) as unknown });
    await service.settled();
    const { data: notifications } = await school.admin.get<{ type: string; message: string }[]>('/api/notifications');
    expect(notifications.find(({ type }) => type === 'webhook.disabled')?.message).toContain(receiver.url + hook.path);
    const { data: enabled } = await school.admin.put<Webhook>(hook.api, { is_active: true });
    expect(enabled).toMatchObject({ is_active: true, disabled_at: null, failing_since: null });
    receiver.respondWith(hook.path, { status: 204 });
    await hook.message('student.created', { id: (await addStudent()).id });
  });

  test('that accepts other messages stays active when one message fails for a day', async () => {
    const hook = await listen(['student.created']);
    receiver.respondWith(hook.path, { status: 500 }, { status: 204 }, { status: 500 });
    await addStudent();
    await hook.delivery({ attempts: 1, status: 'pending' });
    await service.database.query(`update ${school.schema}.webhook set retry_at = null where id = ${hook.id}`);
    await school.admin.post(`${hook.api}/test`);
    await hook.delivery({ event: 'webhook.test', status: 'sent' });
    await hook.skipDelay('25 hours');
    await until(async () => ((await hook.deliveries('status=failed')).length > 0 ? true : undefined));
    expect((await hook.read()).is_active).toBe(true);
  });

  test('that answers 410 is disabled at once', async () => {
    const hook = await listen(['student.created']);
    receiver.respondWith(hook.path, { status: 410 });
    await addStudent();
    await hook.delivery({ attempts: 1, status: 'failed', status_code: 410 });
    expect((await hook.read()).is_active).toBe(false);
  });

  test('that does not work receives one attempt, and its other messages wait', async () => {
    const hook = await listen(['student.created']);
    receiver.respondWith(hook.path, { status: 500 });
    await addStudent();
    await hook.delivery({ attempts: 1 });
    await service.database.query(
      `update ${school.schema}.webhook set retry_at = now() + interval '1 hour' where id = ${hook.id}`,
    );
    const works = await listen(['student.created']);
    const { id } = await addStudent();
    await works.message('student.created', { id });
    expect(await hook.delivery({ attempts: 0 })).toMatchObject({ status: 'pending' });
    expect(hook.messages()).toHaveLength(1);
  });

  test('that is disabled ends its pending deliveries', async () => {
    const hook = await listen(['student.created']);
    receiver.respondWith(hook.path, { status: 500 });
    await addStudent();
    await hook.delivery({ attempts: 1, status: 'pending' });
    await school.admin.put(hook.api, { is_active: false });
    expect(await hook.deliveries()).toMatchObject([{ status: 'failed', reason: 'webhook_disabled' }]);
  });
});

describe('slow receivers', () => {
  /** Imports students in one request. */
  async function importStudents(many: number, at: School) {
    const rows = Array.from({ length: many }, (_, n) => `Sam,${unique('Import')}${n}`);
    const content = Buffer.from(['first_name,last_name', ...rows].join('\n'));
    const form = fileForm(content, 'people.csv', 'application/octet-stream', 'file');
    await at.admin.send('POST', '/api/students/import', { body: form }, 201);
  }

  test.each([1, 5, 9])(
    'of which a school has %i, do not keep its other webhooks from any message, and get all of theirs',
    async (slowOnes) => {
      const { promise, resolve } = Promise.withResolvers<undefined>();
      const at = await service.school();
      const slow = await Promise.all(Array.from({ length: slowOnes }, () => listen(['student.created'], at)));
      for (const { path } of slow) receiver.respondWith(path, { until: promise });
      const fast = await listen(['student.created'], at);
      try {
        await importStudents(60, at);
        // No slow receiver has answered yet.
        await until(() => fast.messages().length === 60 || undefined);
        // Neither has one when the next events happen.
        const { id } = await addStudent({}, at);
        await fast.message('student.created', { id });
        for (const hook of slow) {
          expect(hook.messages().length).toBeGreaterThan(0);
          expect(hook.messages().length).toBeLessThanOrEqual(5);
        }
      } finally {
        resolve(undefined);
      }
      for (const hook of [...slow, fast]) {
        await until(() => hook.messages().length === 61 || undefined);
        expect(new Set(hook.messages().map((message) => message.id)).size).toBe(61);
      }
    },
  );

  test('have at most ten messages in flight together, however many events a school has', async () => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const at = await service.school();
    const { gradeId: grade_id, yearId: academic_year_id } = await at.classroom();
    const eight = await Promise.all(Array.from({ length: 8 }, () => listen(['class.created'], at)));
    const ninth = await listen(['student.created'], at);
    const fast = await listen(['student.created'], at);
    const slow = [...eight, ninth];
    for (const { path } of slow) receiver.respondWith(path, { until: promise });
    try {
      await at.admin.post('/api/classes', { name: unique('Class'), grade_id, academic_year_id }, 201);
      await until(() => eight.every((hook) => hook.messages().length === 1) || undefined);
      await importStudents(20, at);
      await until(() => fast.messages().length === 20 || undefined);
      const inFlight = slow.flatMap((hook) => hook.messages());
      expect(inFlight.length).toBeGreaterThanOrEqual(9);
      expect(inFlight.length).toBeLessThanOrEqual(10);
    } finally {
      resolve(undefined);
    }
    await until(() => ninth.messages().length === 20 || undefined);
  });

  test('that fail get no more than their share, while the other webhooks of the school get all their messages', async () => {
    const at = await service.school();
    const broken = await listen(['student.created'], at);
    receiver.respondWith(broken.path, { status: 500 });
    await service.database.query(`update ${at.schema}.webhook set retry_at = now() + interval '1 hour'`);
    const fast = await listen(['student.created'], at);
    await importStudents(60, at);
    await until(() => fast.messages().length === 60 || undefined);
    expect(broken.messages()).toEqual([]);
    await service.database.query(`update ${at.schema}.webhook set retry_at = null`);
    const { id } = await addStudent({}, at);
    await fast.message('student.created', { id });
    await until(() => broken.messages()[0]);
    expect(broken.messages().length).toBeLessThanOrEqual(5);
  });

  test('do not keep the other webhooks of the school from new messages when the time of a job is up', async () => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const { jobLimit } = shared;
    const { maxMs } = jobLimit;
    const at = await service.school();
    const slow = await listen(['student.created'], at);
    const fast = await listen(['student.created'], at);
    receiver.respondWith(slow.path, { until: promise });
    try {
      await addStudent({}, at);
      await until(() => slow.messages()[0] && fast.messages()[0]);
      jobLimit.maxMs = 0;
      const { id } = await addStudent({}, at);
      await fast.message('student.created', { id });
      expect(slow.messages()).toHaveLength(1);
    } finally {
      jobLimit.maxMs = maxMs;
      resolve(undefined);
    }
    await until(() => slow.messages().length === 2 || undefined);
  });

  test('get no further message from a job whose time is up, so that the next school has its turn', async () => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const { jobLimit } = shared;
    const { maxMs } = jobLimit;
    const at = await service.school();
    const slow = await listen(['student.created'], at);
    receiver.respondWith(slow.path, { until: promise });
    const running = () =>
      service.database.query<{ id: string }>(
        'select id from graphile_worker.jobs where locked_at is not null and queue_name = $1',
        [`t${at.id}:deliver_webhooks`],
      );
    try {
      await importStudents(12, at);
      await until(() => slow.messages().length === 5 || undefined);
      const [job] = await running();
      expect(job).toBeDefined();
      jobLimit.maxMs = 0;
      resolve(undefined);
      await until(async () => (await running()).every(({ id }) => id !== job?.id) || undefined);
      expect(slow.messages()).toHaveLength(5);
    } finally {
      jobLimit.maxMs = maxMs;
      resolve(undefined);
    }
    await until(() => slow.messages().length === 12 || undefined);
  });

  test('do not keep the worker from sending email, however many schools have one', async () => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const other = await service.school();
    const one = await listen(['student.created']);
    const two = await listen(['student.created'], other);
    for (const { path } of [one, two]) receiver.respondWith(path, { until: promise });
    try {
      await addStudent();
      await until(() => one.messages()[0]);
      await addStudent({}, other);
      const before = (await service.outbox(0)).length;
      await service.anonymous.post('/api/auth/password/forgot', { tenant_id: other.id, email: other.adminEmail });
      await service.outbox(before + 1);
      expect(two.messages()).toEqual([]);
    } finally {
      resolve(undefined);
    }
    await until(() => two.messages()[0]);
  });
});

describe('the clean-up', () => {
  test('deletes events and deliveries after 90 days, and queues a job that was lost', async () => {
    const hook = await listen(['student.created']);
    await addStudent();
    await hook.delivery({ status: 'sent' });
    await service.database.query(`update ${school.schema}.webhook_event set created_at = now() - interval '91 days'`);
    await service.database.query(
      `insert into ${school.schema}.webhook_event (type, key) values ('student.created', '{"id": 0}')`,
    );
    await service.database.query(`select graphile_worker.add_job('clean_up', '{}')`);
    expect((await hook.message('student.created', { id: 0 })).body.data).toEqual({ id: 0 });
    expect(await hook.deliveries()).toHaveLength(1);
  });
});
