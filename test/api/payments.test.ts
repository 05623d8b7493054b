import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Answer } from '../support/client/client.ts';
import { feeSchool, type StudentFee } from '../support/fixtures/fees.ts';
import { race } from '../support/client/race.ts';
import { testService } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Payment as PaymentSchema } from '../../src/endpoints/payments.ts';

const service = await testService({}, 4);
afterAll(() => service.close());
const path = '/api/finance/payments';

type Payment = OutputOf<typeof PaymentSchema>;

let world: Awaited<ReturnType<typeof feeSchool>>;
let classId: number;
beforeAll(async () => {
  world = await feeSchool(service);
  classId = await world.addClass();
});

/** A fee of 100 for a new student. */
async function createFee(at = world, inClass = classId) {
  const studentId = await at.addStudent(inClass);
  await at.generate(await at.addStructure([{ name: 'Tuition', amount: 100, frequency: 'annual' }], [inClass]), {
    student_ids: [studentId],
  });
  const [one] = await at.feesOf(studentId);
  if (!one) throw new Error('no fee was created');
  return one;
}
const reverse = (id: number, status = 200) =>
  world.school.admin.post<Payment>(`${path}/${id}/reverse`, { reason: 'The check bounced' }, status);
const getFee = async (id: number) => (await world.school.admin.get<StudentFee>(`/api/finance/student-fees/${id}`)).data;
const statuses = (answers: { status: number }[]) => answers.map(({ status }) => status).sort();
const lockFee = (id: number) => `select from ${world.school.schema}.student_fee where id = ${id} for update`;
const today = async () =>
  (await service.database.query<{ day: string }>("select (now() at time zone 'UTC')::date::text as day"))[0]?.day ?? '';

describe('a payment of a student fee', () => {
  test('gets a receipt number, can be read, and reduces the balance', async () => {
    const { id, student_id } = await createFee();
    const sent = {
      amount: 40.5,
      payment_date: '2021-09-01',
      payment_method: 'check',
      reference_number: 'C-1',
      notes: 'From grandmother',
    };
    const recorded = await world.school.admin.post<Payment>(path, { student_fee_id: id, ...sent }, 201);
    expect(recorded.headers.get('location')).toBe(`${path}/${recorded.data.id}`);
    expect(recorded.data).toMatchObject({
      ...sent,
      method: 'check',
      kind: 'student_fee',
      student_fee_id: id,
      student_id,
      class_id: classId,
      class_name: expect.any(String),
      invoice_id: null,
      reversal_of: null,
      is_reversed: false,
      recorded_by_name: expect.any(String),
      receipt_number: expect.stringMatching(/^RCT-\d{4}-\d{6}$/),
    });
    expect((await world.school.admin.get<Payment>(`${path}/${recorded.data.id}`)).data).toEqual(recorded.data);
    expect(await getFee(id)).toMatchObject({ paid_amount: 40.5, balance: 59.5, payments: [recorded.data] });
  });

  test('is dated today by default, and cannot be in the future', async () => {
    const { id } = await createFee();
    const { data } = await world.pay(id, 1);
    expect(data).toMatchObject({ payment_date: await today() });
    const tomorrow = new Date(Date.now() + 2 * 86_400_000).toISOString().slice(0, 10);
    expect((await world.pay(id, 1, 400, { payment_date: tomorrow })).details).toMatchObject([{ path: 'payment_date' }]);
  });

  test('is dated by the time zone of the school, where today may be another day than in UTC', async () => {
    // One of these two zones always has another date than UTC.
    const [{ zone, is_ahead: isAhead } = { zone: '', is_ahead: false }] = await service.database.query<{
      zone: string;
      is_ahead: boolean;
    }>(
      `select case when ahead then 'Pacific/Kiritimati' else 'Pacific/Pago_Pago' end as zone, ahead as is_ahead
       from (select extract(hour from now() at time zone 'UTC') >= 12) utc (ahead)`,
    );
    const far = await feeSchool(service);
    await far.school.database.query('update platform.tenant set time_zone = $1 where id = $2', [zone, far.school.id]);
    const { id } = await createFee(far, await far.addClass());
    const day = new Intl.DateTimeFormat('en-CA', { timeZone: zone }).format(new Date());
    expect(day > (await today())).toBe(isAhead);
    expect((await far.pay(id, 1, 201, { payment_date: day })).data).toMatchObject({ payment_date: day });
    expect((await far.pay(id, 1)).data).toMatchObject({ payment_date: day });
    const next = new Date(Date.parse(day) + 86_400_000).toISOString().slice(0, 10);
    expect((await far.pay(id, 1, 400, { payment_date: next })).details).toMatchObject([{ path: 'payment_date' }]);
  });

  test('above the balance is a 409 that names the balance to the cent', async () => {
    const { id } = await createFee();
    expect(await world.pay(id, 100.01, 409)).toMatchObject({
      error: 'conflict',
      message: 'The balance is 100.00.',
      details: [{ path: 'amount' }],
    });
    await world.pay(id, 99.99);
    expect(await world.pay(id, 0.02, 409)).toMatchObject({ message: 'The balance is 0.01.' });
    await world.pay(id, 0.01);
    expect(await getFee(id)).toMatchObject({ status: 'paid', balance: 0 });
    expect(await world.pay(id, 0.01, 409)).toMatchObject({ message: 'The balance is 0.00.' });
  });

  test.each([[0], [-5], [1.005], [1e10], ['ten']])('with the amount %p is a 400', async (amount) => {
    const body = { student_fee_id: 1, amount, payment_method: 'cash' };
    expect((await world.school.admin.post(path, body, 400)).details).toMatchObject([{ path: 'amount' }]);
  });

  test('requires an existing fee, an amount and a payment method', async () => {
    expect((await world.pay(999_999, 1, 422)).details).toMatchObject([{ path: 'student_fee_id' }]);
    expect((await world.school.admin.post(path, {}, 400)).details.map((detail) => detail.path).sort()).toEqual([
      'amount',
      'payment_method',
      'student_fee_id',
    ]);
  });

  test('can be recorded by an accountant but not by a teacher, who cannot reverse it either', async () => {
    const { id } = await createFee();
    const accountant = await world.school.user(['accountant']);
    const { data } = await accountant.post<Payment>(
      path,
      { student_fee_id: id, amount: 1, payment_method: 'cash' },
      201,
    );
    expect(data).toMatchObject({ recorded_by: accountant.id, recorded_by_name: 'Uma User' });
    const teacher = await world.school.user(['teacher']);
    await teacher.post(path, { student_fee_id: id, amount: 1, payment_method: 'cash' }, 403);
    await teacher.post(`${path}/${data.id}/reverse`, { reason: 'No' }, 403);
  });

  test('is recorded once for two concurrent requests with the same Idempotency-Key', async () => {
    const { id } = await createFee();
    const send = () =>
      world.school.admin.send<Payment>('POST', path, {
        body: { student_fee_id: id, amount: 60, payment_method: 'cash' },
        headers: { 'Idempotency-Key': `pay-${id}` },
      });
    const [one, two] = await Promise.all([send(), send()]);
    expect([one.status, two.status]).toEqual([201, 201]);
    expect(one.data).toEqual(two.data);
    expect(await getFee(id)).toMatchObject({ paid_amount: 60 });
  });
});

describe('a reversal', () => {
  test('is a payment with the negative amount, which is then owed again', async () => {
    const { id } = await createFee();
    const { data: paid } = await world.pay(id, 100, 201, { payment_method: 'check', payment_date: '2021-09-01' });
    const { data } = await reverse(paid.id);
    expect(data).toMatchObject({
      amount: -100,
      reversal_of: paid.id,
      student_fee_id: id,
      payment_method: 'check',
      payment_date: await today(),
      notes: 'The check bounced',
      is_reversed: false,
    });
    expect((await world.school.admin.get<Payment>(`${path}/${paid.id}`)).data.is_reversed).toBe(true);
    expect(await getFee(id)).toMatchObject({ paid_amount: 0, balance: 100, status: 'overdue' });
    await world.pay(id, 100);
  });

  test('requires a reason, and is refused for a reversal or a payment that is already reversed', async () => {
    const { id } = await createFee();
    const { data: paid } = await world.pay(id, 10);
    await world.school.admin.post(`${path}/${paid.id}/reverse`, {}, 400);
    const { data } = await reverse(paid.id);
    expect((await reverse(paid.id, 409)).error).toBe('conflict');
    expect((await reverse(data.id, 409)).error).toBe('conflict');
    await expect(
      service.database.query(
        `insert into ${world.school.schema}.payment (student_id, amount, payment_date, payment_method, reversal_of) select student_id, 10, now(), 'cash', id
         from ${world.school.schema}.payment where id = $1`,
        [data.id],
      ),
    ).rejects.toThrow('A reversal cannot be reversed');
    await reverse(999_999, 404);
  });

  test('of a payment of a waived fee leaves the fee waived', async () => {
    const { id } = await createFee();
    const { data: paid } = await world.pay(id, 30);
    await world.school.admin.post(`/api/finance/student-fees/${id}/waive`, { reason: 'Hardship' });
    await reverse(paid.id);
    expect(await getFee(id)).toMatchObject({ status: 'waived', paid_amount: 0, balance: 0 });
  });
});

describe('concurrent requests', () => {
  test('two payments that together exceed the balance of a fee: one is recorded, the other gets a 409 that names the balance', async () => {
    const { id } = await createFee();
    const answers = await race<Answer<unknown>>(service.database, lockFee(id), 2, () =>
      [1, 2].map(() =>
        world.school.admin.send('POST', path, { body: { student_fee_id: id, amount: 70, payment_method: 'cash' } }),
      ),
    );
    expect(statuses(answers)).toEqual([201, 409]);
    expect(answers.find(({ status }) => status === 409)).toMatchObject({
      error: 'conflict',
      message: 'The balance is 30.00.',
    });
    expect(await getFee(id)).toMatchObject({ paid_amount: 70 });
  });

  test('two reversals of one payment: one is recorded', async () => {
    const { id } = await createFee();
    const { data: paid } = await world.pay(id, 70);
    const answers = await race<Answer<unknown>>(service.database, lockFee(id), 2, () =>
      [1, 2].map(() => world.school.admin.send('POST', `${path}/${paid.id}/reverse`, { body: { reason: 'Twice' } })),
    );
    expect(statuses(answers)).toEqual([200, 409]);
    // The message shows that the second request waited for the first and was not just refused by the unique index.
    expect(answers.find(({ status }) => status === 409)).toMatchObject({
      error: 'conflict',
      message: 'This payment has already been reversed.',
    });
    expect(await getFee(id)).toMatchObject({ paid_amount: 0 });
  });

  test('a payment and a reversal: both are recorded', async () => {
    const { id } = await createFee();
    const { data: paid } = await world.pay(id, 30);
    const answers = await race<Answer<unknown>>(service.database, lockFee(id), 2, () => [
      world.school.admin.send('POST', path, { body: { student_fee_id: id, amount: 50, payment_method: 'cash' } }),
      world.school.admin.send('POST', `${path}/${paid.id}/reverse`, { body: { reason: 'Race' } }),
    ]);
    expect(statuses(answers)).toEqual([200, 201]);
    expect(await getFee(id)).toMatchObject({ paid_amount: 50 });
  });

  test('two payments that together exceed the balance of an invoice: one is recorded, the other gets a 409 that names the balance', async () => {
    const { student_id } = await createFee();
    const body = { student_id, due_date: '2034-01-01', items: [{ description: 'Book', amount: 100 }] };
    const { data: invoice } = await world.school.admin.post<{ id: number }>('/api/fees/invoices', body, 201);
    const lock = `select from ${world.school.schema}.invoice where id = ${invoice.id} for update`;
    const answers = await race<Answer<Payment>>(service.database, lock, 2, () =>
      [1, 2].map(() =>
        world.school.admin.send<Payment>('POST', '/api/fees/payments', {
          body: { invoice_id: invoice.id, amount: 70, method: 'cash' },
        }),
      ),
    );
    expect(statuses(answers)).toEqual([201, 409]);
    expect(answers.find(({ status }) => status === 409)).toMatchObject({
      error: 'conflict',
      message: 'The balance is 30.00.',
    });
    const paid = answers.find(({ status }) => status === 201)?.data.id ?? 0;
    const back = await race<Answer<unknown>>(service.database, lock, 2, () =>
      [1, 2].map(() => world.school.admin.send('POST', `${path}/${paid}/reverse`, { body: { reason: 'Twice' } })),
    );
    expect(statuses(back)).toEqual([200, 409]);
    expect(back.find(({ status }) => status === 409)).toMatchObject({
      message: 'This payment has already been reversed.',
    });
  });

  test('a payment and a waiver: the second one gets a 409 invalid_state', async () => {
    const { id } = await createFee();
    const answers = await race<Answer<unknown>>(service.database, lockFee(id), 2, () => [
      world.school.admin.send('POST', path, { body: { student_fee_id: id, amount: 100, payment_method: 'cash' } }),
      world.school.admin.send('POST', `/api/finance/student-fees/${id}/waive`, { body: { reason: 'Race' } }),
    ]);
    const refused = answers.filter(({ status }) => status === 409);
    expect(refused).toMatchObject([{ error: 'invalid_state' }]);
    const { status, paid_amount } = await getFee(id);
    expect(status === 'paid' ? paid_amount : 100 - paid_amount).toBe(100);
  });
});

test('payment.create does not allow billing, and fee.manage does not allow recording payments', async () => {
  const { id, student_id } = await createFee();
  const { data: paid } = await world.pay(id, 1);
  const { data: invoice } = await world.school.admin.post<{ id: number }>(
    '/api/fees/invoices',
    { student_id, due_date: '2034-01-01', items: [{ description: 'Book', amount: 5 }] },
    201,
  );
  const paymentRequests: [string, string, object?][] = [
    ['POST', path, { student_fee_id: id, amount: 1, payment_method: 'cash' }],
    ['POST', `${path}/${paid.id}/reverse`, { reason: 'x' }],
    ['POST', '/api/fees/payments', { invoice_id: invoice.id, amount: 1, method: 'cash' }],
  ];
  const billingRequests: [string, string, object?][] = [
    ['POST', '/api/finance/fee-structures', { name: 'x', academic_year_id: world.yearId }],
    ['PUT', '/api/finance/fee-structures/1', { name: 'x' }],
    ['DELETE', '/api/finance/fee-structures/1'],
    ['POST', '/api/finance/fee-structures/1/components', { name: 'x', amount: 1, frequency: 'annual' }],
    ['DELETE', '/api/finance/fee-structures/1/components/1'],
    ['POST', '/api/finance/fee-structures/1/assign-classes', { class_ids: [] }],
    ['POST', '/api/finance/student-fees/generate', { fee_structure_id: 1 }],
    ['PUT', `/api/finance/student-fees/${id}`, { due_date: '2034-01-01' }],
    ['DELETE', `/api/finance/student-fees/${id}`],
    ['POST', `/api/finance/student-fees/${id}/waive`, { reason: 'x' }],
    ['POST', '/api/fees/invoices', { student_id, due_date: '2034-01-01', items: [{ description: 'Book', amount: 5 }] }],
    ['PUT', `/api/fees/invoices/${invoice.id}`, { notes: 'x' }],
    ['DELETE', `/api/fees/invoices/${invoice.id}`],
    ['POST', `/api/fees/invoices/${invoice.id}/issue`],
    ['POST', `/api/fees/invoices/${invoice.id}/void`, { reason: 'x' }],
    ['POST', `/api/fees/invoices/${invoice.id}/send-reminder`],
  ];
  const { school } = world;
  const [cashier, office] = [
    await school.user([await school.role('fee.read', 'payment.create')]),
    await school.user([await school.role('fee.read', 'fee.manage')]),
  ];
  for (const [client, steps, permission] of [
    [cashier, billingRequests, 'fee.manage'],
    [office, paymentRequests, 'payment.create'],
  ] as const)
    for (const [method, at, body] of steps) {
      const { status, message } = await client.send(method, at, body ? { body } : {});
      expect([method, at, status, message]).toEqual([method, at, 403, `This needs the permission ${permission}.`]);
    }
});

test('receipt numbers of a year have no gaps after concurrent payments, reversals and refused payments', async () => {
  const school = await feeSchool(service);
  const inClass = await school.addClass();
  const fees = [await createFee(school, inClass), await createFee(school, inClass), await createFee(school, inClass)];
  const { data: first } = await school.pay(fees[0]?.id ?? 0, 1);
  await school.pay(fees[0]?.id ?? 0, 500, 409);
  await school.school.admin.post(`${path}/${first.id}/reverse`, { reason: 'Wrong' });
  await Promise.all(Array.from({ length: 12 }, (_, n) => school.pay(fees[n % 3]?.id ?? 0, 1)));
  const { data } = await school.school.admin.get<Payment[]>('/api/fees/payments?pageSize=100&sort=receipt_number');
  expect(data.map(({ receipt_number }) => Number(receipt_number?.slice(9)))).toEqual(
    Array.from({ length: 14 }, (_, n) => n + 1),
  );
});

test('the list contains payments of student fees and invoices, latest first, and sorts, filters and searches them', async () => {
  const school = await feeSchool(service);
  const { admin, schema } = school.school;
  const [a, b] = [await school.addClass('A'), await school.addClass('B')];
  const [one, two] = [await createFee(school, a), await createFee(school, b)];
  await school.pay(one.id, 20, 201, { payment_date: '2021-09-01', payment_method: 'Cash' });
  await school.pay(two.id, 10, 201, {
    payment_date: '2021-09-03',
    payment_method: 'card',
    reference_number: 'Überweisung 7',
  });
  const { data: reversed } = await school.pay(one.id, 30, 201, { payment_date: '2021-09-02' });
  await admin.post(`${path}/${reversed.id}/reverse`, { reason: 'Wrong' });
  await service.database.query(
    `with i as (insert into ${schema}.invoice (student_id, class_id, due_date, invoice_number, issued_at) values ($1, $2, '2021-10-01', 'INV-2021-000001', now()) returning id),
     t as (insert into ${schema}.invoice_item (invoice_id, student_id, description, amount) select id, $1, 'Book', 5 from i) select 1`,
    [two.student_id, b],
  );
  await service.database.query(
    `insert into ${schema}.payment (student_id, invoice_id, amount, payment_date, payment_method) select student_id, id, 5, '2021-09-04', 'card' from ${schema}.invoice`,
  );
  const found = async (query: string) =>
    (await admin.get<(Payment & { invoice_number: string | null })[]>(`/api/fees/payments?${query}`)).data.map(
      ({ amount }) => amount,
    );
  expect(await found('')).toEqual([-30, 5, 10, 30, 20]);
  expect(await found('sort=amount')).toEqual([-30, 5, 10, 20, 30]);
  expect(await found('kind=invoice')).toEqual([5]);
  expect(await found(`kind=student_fee&class_id=${b}`)).toEqual([10]);
  expect(await found(`class_id=${b}`)).toEqual([5, 10]);
  expect(await found(`student_id=${one.student_id}`)).toEqual([-30, 30, 20]);
  expect(await found(`student_fee_id=${two.id}`)).toEqual([10]);
  expect(await found('from_date=2021-09-02&to_date=2021-09-03')).toEqual([10, 30]);
  for (const below of ['', '/export']) {
    const { details } = await admin.get(`/api/fees/payments${below}?from_date=2021-09-03&to_date=2021-09-02`, 400);
    expect(details).toEqual([{ path: 'to_date', message: 'must not be before from_date' }]);
  }
  expect(await found('payment_method=cash&to_date=2021-09-30')).toEqual([30, 20]);
  expect(await found('search=uberweisung')).toEqual([10]);
  expect(await found('search=inv-2021-000001')).toEqual([5]);
  const [{ invoice_id: invoiceId } = { invoice_id: 0 }] = (
    await admin.get<{ invoice_id: number }[]>('/api/fees/payments?kind=invoice')
  ).data;
  expect(await found(`invoice_id=${invoiceId}`)).toEqual([5]);
  expect(await found(`invoice_id=${invoiceId + 1}`)).toEqual([]);
  const { data } = await admin.get<unknown[]>('/api/fees/payments?kind=invoice');
  expect(data).toMatchObject([
    {
      kind: 'invoice',
      invoice_number: 'INV-2021-000001',
      class_id: b,
      class_name: expect.any(String),
      student_fee_id: null,
      fee_structure_name: null,
    },
  ]);
});
