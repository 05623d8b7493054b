import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { extractText, getDocumentProxy } from 'unpdf';
import { type Component, feeSchool, type StudentFee } from '../support/fixtures/fees.ts';
import { race } from '../support/client/race.ts';
import { testPassword, testService } from '../support/server/service.ts';

const service = await testService({}, 5);
afterAll(() => service.close());
const path = '/api/finance/student-fees';

let world: Awaited<ReturnType<typeof feeSchool>>;
beforeAll(async () => {
  world = await feeSchool(service);
});

type Discount = StudentFee['discounts'][number];
const inOneYear = new Date(Date.now() + 365 * 86_400_000).toISOString().slice(0, 10);

/** A student with one fee of this amount, by default due in a year. */
async function createFee(amount = 100, fields: object = {}, school = world, components: Component[] = []) {
  const classId = await school.addClass();
  const studentId = await school.addStudent(classId);
  const tuition = { name: 'Tuition', amount, frequency: 'annual' };
  await school.generate(await school.addStructure([tuition, ...components], [classId]), {
    date: '2021-10-10',
    due_date: inOneYear,
    ...fields,
  });
  const [fee] = await school.feesOf(studentId);
  if (!fee) throw new Error('no fee was created');
  return fee;
}
const grant = (id: number, body: object, status = 201, school = world) =>
  school.school.admin.post<Discount>(`${path}/${id}/discounts`, { reason: 'Sibling', ...body }, status);
const remove = (id: number, discount: number, status = 200) =>
  world.school.admin.delete(`${path}/${id}/discounts/${discount}`, status);
const read = async (id: number, school = world) => (await school.school.admin.get<StudentFee>(`${path}/${id}`)).data;
const figures = ({ amount, discount_amount, net_amount, paid_amount, balance, status }: StudentFee) => [
  amount,
  discount_amount,
  net_amount,
  paid_amount,
  balance,
  status,
];

describe('a discount on a student fee', () => {
  test('of an amount or a percentage leaves the amount gross and lowers the net amount and the balance', async () => {
    const { id } = await createFee(250);
    expect(figures(await read(id))).toEqual([250, 0, 250, 0, 250, 'pending']);
    const { data: sibling } = await grant(id, { percent: 10, reason: 'Second child' });
    expect(sibling).toEqual({
      id: expect.any(Number),
      student_fee_id: id,
      amount: 25,
      percent: 10,
      reason: 'Second child',
      created_by: expect.any(Number),
      created_by_name: expect.any(String),
      created_at: expect.any(String),
      updated_at: expect.any(String),
    });
    const { data: scholarship } = await grant(id, { amount: 60.5, reason: 'Scholarship' });
    expect(scholarship).toMatchObject({ amount: 60.5, percent: null });
    const fee = await read(id);
    expect(figures(fee)).toEqual([250, 85.5, 164.5, 0, 164.5, 'pending']);
    expect(fee.discounts).toEqual([sibling, scholarship]);
    expect(fee.items).toMatchObject([{ amount: 250 }]);
    const { data: list } = await world.school.admin.get<StudentFee[]>(`${path}?student_id=${fee.student_id}`);
    expect(list).toMatchObject([{ id, amount: 250, discount_amount: 85.5, net_amount: 164.5, balance: 164.5 }]);
  });

  test('in percent is of the gross amount, also after payments and other discounts, and rounded half up', async () => {
    const { id } = await createFee(100);
    const amounts = [];
    for (const percent of [33.33, 33.33, 0.005]) amounts.push((await grant(id, { percent })).data.amount);
    expect(amounts).toEqual([33.33, 33.33, 0.01]);
    expect((await grant(id, { percent: 0.0049 }, 400)).details).toMatchObject([{ path: 'percent' }]);
    await world.pay(id, 3.33);
    expect((await grant(id, { percent: 30 })).data.amount).toBe(30);
    expect(figures(await read(id))).toEqual([100, 96.67, 3.33, 3.33, 0, 'paid']);
    const third = await createFee(0.05);
    for (const percent of [33.33, 33.33]) await grant(third.id, { percent });
    expect(figures(await read(third.id)).slice(0, 3)).toEqual([0.05, 0.04, 0.01]);
  });

  test.each([
    ['JPY', 1005, [33.33, 335], 670, 0.5],
    ['KWD', 10.005, [33.33, 3.335], 6.67, 0.0005],
  ] as const)(
    'in %s is rounded to the decimals of the currency',
    async (currency, amount, [percent, part], left, more) => {
      const other = await feeSchool(service);
      await other.school.admin.post('/api/school-setup/school-info', { currency });
      const { id } = await createFee(amount, {}, other);
      expect((await grant(id, { percent }, 201, other)).data).toMatchObject({ percent, amount: part });
      expect(await read(id, other)).toMatchObject({ net_amount: left, balance: left });
      expect((await grant(id, { amount: more }, 400, other)).details).toMatchObject([{ path: 'amount' }]);
      await grant(id, { percent: 100 }, 409, other);
      await grant(id, { amount: left }, 201, other);
      expect(await read(id, other)).toMatchObject({ net_amount: 0, status: 'paid' });
    },
  );

  test('of a fee from before a change of the currency has the decimals of the fee', async () => {
    const other = await feeSchool(service);
    const { id } = await createFee(10.55, {}, other);
    await other.school.admin.post('/api/school-setup/school-info', { currency: 'JPY' });
    expect((await grant(id, { percent: 50 }, 201, other)).data.amount).toBe(5.28);
    expect((await grant(id, { amount: 5.27 }, 201, other)).data.amount).toBe(5.27);
    expect(await read(id, other)).toMatchObject({ status: 'paid', balance: 0 });
  });

  test('is never more than the balance; the error names the balance', async () => {
    const { id } = await createFee(100);
    await world.pay(id, 40);
    expect(await grant(id, { amount: 60.01 }, 409)).toMatchObject({
      error: 'conflict',
      message: 'The balance is 60.00.',
      details: [{ path: 'amount' }],
    });
    expect(await grant(id, { percent: 61 }, 409)).toMatchObject({
      error: 'conflict',
      message: 'The discount would be 61.00, but the balance is 60.00.',
      details: [{ path: 'percent' }],
    });
    await grant(id, { amount: 50 });
    expect((await grant(id, { percent: 11 }, 409)).message).toBe(
      'The discount would be 11.00, but the balance is 10.00.',
    );
    expect((await world.pay(id, 10.01, 409)).message).toBe('The balance is 10.00.');
    await world.pay(id, 10);
    expect(figures(await read(id))).toEqual([100, 50, 50, 50, 0, 'paid']);
  });

  test.each([
    [{}, 'amount'],
    [{ amount: 1, percent: 1 }, 'amount'],
    [{ amount: 0 }, 'amount'],
    [{ amount: -1 }, 'amount'],
    [{ amount: 1.005 }, 'amount'],
    [{ percent: 0 }, 'percent'],
    [{ percent: 100.01 }, 'percent'],
    [{ percent: 1.00001 }, 'percent'],
    [{ percent: 0.0001 }, 'percent'],
    [{ amount: 1, reason: '' }, 'reason'],
    [{ amount: 1, reason: undefined }, 'reason'],
  ])('of %j is refused, and the error names %s', async (body, field) => {
    const { id } = await createFee(10);
    expect((await grant(id, body, 400)).details).toMatchObject([{ path: field }]);
    expect((await read(id)).discounts).toEqual([]);
  });

  test('settles a fee together with the payments; a fee without a balance is paid and gets no further discount', async () => {
    const { id } = await createFee(100);
    await grant(id, { percent: 100, reason: 'Staff child' });
    const fee = await read(id);
    expect(figures(fee)).toEqual([100, 100, 0, 0, 0, 'paid']);
    expect(fee).toMatchObject({ waived_at: null, payments: [] });
    expect(await grant(id, { amount: 1 }, 409)).toMatchObject({
      error: 'invalid_state',
      message: 'This fee is already paid. Only a fee with a balance can have another discount.',
    });
    expect((await world.pay(id, 1, 409)).message).toBe('The balance is 0.00.');
    expect((await world.school.admin.post(`${path}/${id}/waive`, { reason: 'x' }, 409)).error).toBe('invalid_state');
  });

  test('is refused on a paid and a waived fee, and its deletion on a waived one', async () => {
    const [paid, waived] = [await createFee(10), await createFee(10)];
    await world.pay(paid.id, 10);
    expect((await grant(paid.id, { amount: 1 }, 409)).error).toBe('invalid_state');
    const { data } = await grant(waived.id, { amount: 4 });
    await world.pay(waived.id, 1);
    await world.school.admin.post(`${path}/${waived.id}/waive`, { reason: 'Hardship' });
    expect(figures(await read(waived.id))).toEqual([10, 4, 6, 1, 0, 'waived']);
    expect((await grant(waived.id, { amount: 1 }, 409)).message).toContain('This fee is already waived.');
    expect((await remove(waived.id, data.id, 409)).error).toBe('invalid_state');
    expect((await read(waived.id)).discounts).toEqual([data]);
  });

  test('is undone by deleting it: the fee is pending, partially paid or overdue again', async () => {
    const fees = [await createFee(10), await createFee(10), await createFee(10, { due_date: '2025-12-01' })];
    const statuses = [];
    for (const [n, { id }] of fees.entries()) {
      if (n === 1) await world.pay(id, 4);
      const { data } = await grant(id, { amount: n === 1 ? 6 : 10 });
      const before = await read(id);
      await remove(id, data.id);
      const after = await read(id);
      expect(after).toMatchObject({ discounts: [], discount_amount: 0, net_amount: 10 });
      statuses.push([before.status, after.status, after.balance]);
      await remove(id, data.id, 404);
    }
    expect(statuses).toEqual([
      ['paid', 'pending', 10],
      ['paid', 'partially_paid', 6],
      ['paid', 'overdue', 10],
    ]);
  });

  test('on another fee is not found', async () => {
    const [one, other] = [await createFee(10), await createFee(10)];
    const { data } = await grant(one.id, { amount: 1 });
    expect((await remove(other.id, data.id, 404)).message).toBe(`This student fee has no discount ${data.id}.`);
    await grant(999_999, { amount: 1 }, 404);
    expect((await read(one.id)).discounts).toHaveLength(1);
  });

  test('stays when a payment is reversed, and goes with a fee that is deleted', async () => {
    const { id } = await createFee(10);
    await grant(id, { amount: 3 });
    const { data: payment } = await world.pay(id, 7);
    await world.school.admin.post(`/api/finance/payments/${payment.id}/reverse`, { reason: 'Bounced' });
    expect(figures(await read(id))).toEqual([10, 3, 7, 0, 7, 'pending']);
    const other = await createFee(10);
    await grant(other.id, { amount: 3 });
    await world.school.admin.delete(`${path}/${other.id}`);
    expect(
      await service.database.query(
        `select from ${world.school.schema}.student_fee_discount where student_fee_id = $1`,
        [other.id],
      ),
    ).toEqual([]);
  });

  test('twice with the same Idempotency-Key is granted once', async () => {
    const { id } = await createFee(10);
    const send = () =>
      world.school.admin.send<Discount>(
        'POST',
        `${path}/${id}/discounts`,
        { body: { amount: 2, reason: 'Sibling' }, headers: { 'Idempotency-Key': `discount-${id}` } },
        201,
      );
    const [first, second] = [await send(), await send()];
    expect(second.data).toEqual(first.data);
    expect(await read(id)).toMatchObject({ discount_amount: 2, discounts: [first.data] });
  });

  test('is granted by users who may waive; a student sees the discounts on their own fee only', async () => {
    const [own, other] = [await createFee(10), await createFee(10)];
    const body = { amount: 1, reason: 'Sibling' };
    const accountant = await world.school.user(['accountant']);
    await accountant.post(`${path}/${own.id}/discounts`, body, 201);
    await accountant.post(`${path}/${other.id}/discounts`, body, 201);
    const teacher = await world.school.user(['teacher']);
    await teacher.post(`${path}/${own.id}/discounts`, body, 403);
    const email = 'own@discounts.example';
    await world.school.admin.put(`/api/students/${own.student_id}`, {
      create_user_account: true,
      email,
      password: testPassword,
    });
    const student = await service.anonymous.login({ tenant_id: world.school.id, email, password: testPassword });
    const { data } = await student.get<StudentFee>(`${path}/${own.id}`);
    expect(data).toMatchObject({ discount_amount: 1, discounts: [{ amount: 1, reason: 'Sibling' }] });
    await student.get(`${path}/${other.id}`, 404);
    await student.post(`${path}/${own.id}/discounts`, body, 403);
    await student.delete(`${path}/${own.id}/discounts/${data.discounts[0]?.id}`, 403);
  });

  test('answers a user without fee.read only the id, and tells them no amounts', async () => {
    const { id } = await createFee(10);
    const clerk = await world.school.user([await world.school.role('fee.manage')]);
    const { data } = await clerk.post<Discount>(`${path}/${id}/discounts`, { percent: 10, reason: 'Sibling' }, 201);
    expect(data).toEqual({ id: (await read(id)).discounts[0]?.id });
    for (const discount of [{ percent: 95 }, { amount: 9.5 }])
      expect((await clerk.post(`${path}/${id}/discounts`, { ...discount, reason: 'x' }, 409)).message).toBe(
        'The discount is above the balance.',
      );
  });

  test('and its deletion are in the audit log of the school, without the reason', async () => {
    const { id } = await createFee(10);
    const { data } = await grant(id, { percent: 10 });
    await remove(id, data.id);
    const { data: entries } = await world.school.admin.get<{ action: string; changes: object }[]>(
      `/api/audit-logs?target_type=student_fee_discount&target_id=${data.id}`,
    );
    expect(entries).toMatchObject([
      { action: 'student_fee_discount.delete', changes: { amount: { before: 1, after: null } } },
      {
        action: 'student_fee_discount.create',
        changes: { amount: { before: null, after: 1 }, student_fee_id: { before: null, after: id } },
      },
    ]);
    expect(JSON.stringify(entries)).not.toContain('Sibling');
  });
});

describe('payments and discounts of a fee at the same time', () => {
  const pay = (student_fee_id: number, amount: number) =>
    world.school.admin.send('POST', '/api/finance/payments', {
      body: { student_fee_id, amount, payment_method: 'cash' },
    });
  const discount = (id: number, amount: number) =>
    world.school.admin.send('POST', `${path}/${id}/discounts`, { body: { amount, reason: 'Sibling' } });
  const lockOf = (id: number) => `select from ${world.school.schema}.student_fee where id = ${id} for update`;

  test.each([
    ['a payment and a discount', (id: number) => [pay(id, 60), discount(id, 60)]],
    ['two discounts', (id: number) => [discount(id, 60), discount(id, 60)]],
  ])('%s that exceed the amount together: one is refused', async (_, send) => {
    const { id } = await createFee(100);
    const answers = await race(service.database, lockOf(id), 2, () => send(id));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    const fee = await read(id);
    expect(fee.paid_amount + fee.discount_amount).toBe(60);
    expect(fee.balance).toBe(40);
  });
  test('a payment and two discounts that fit all succeed', async () => {
    const { id } = await createFee(100);
    const answers = await race(service.database, lockOf(id), 3, () => [
      pay(id, 40),
      discount(id, 30),
      discount(id, 30),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([201, 201, 201]);
    expect(figures(await read(id))).toEqual([100, 60, 40, 40, 0, 'paid']);
  });

  test('the database refuses what exceeds the amount even without the checks of the service', async () => {
    const { schema } = world.school;
    const { id, student_id: studentId } = await createFee(100);
    const insertDiscount = (amount: number) =>
      service.database.query(
        `insert into ${schema}.student_fee_discount (student_fee_id, student_id, amount) values ($1, $2, $3)`,
        [id, studentId, amount],
      );
    const insertPayment = (amount: number) =>
      service.database.query(
        `insert into ${schema}.payment (student_id, student_fee_id, amount, payment_date, payment_method)
         values ($2, $1, $3, '2026-01-01', 'cash')`,
        [id, studentId, amount],
      );
    await insertDiscount(60);
    await expect(insertPayment(40.01)).rejects.toThrow('student_fee_discount_amount_check');
    await insertPayment(30);
    await expect(insertDiscount(10.01)).rejects.toThrow('student_fee_discount_amount_check');
    const results = await Promise.allSettled([insertPayment(10), insertDiscount(10), insertDiscount(10)]);
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect((await read(id)).balance).toBe(0);
  });
});

test('the receipt of a payment shows the discounts that the fee had then, and no later ones', async () => {
  const { id } = await createFee(100);
  const receiptOf = async (payment: number) => {
    const { data } = await world.school.admin.get<Buffer>(`/api/finance/payments/${payment}/receipt`);
    const { text } = await extractText(await getDocumentProxy(new Uint8Array(data)), { mergePages: true });
    return text.replaceAll(/\s+/g, ' ');
  };
  const { data: first } = await world.pay(id, 10);
  await grant(id, { percent: 15 });
  const { data: second } = await world.pay(id, 20);
  await grant(id, { amount: 1 });
  expect(await receiptOf(first.id)).not.toContain('Discount');
  expect(await receiptOf(second.id)).toMatch(/Fee US\$100\.00 Discount -US\$15\.00 Net fee US\$85\.00/);
});

describe('discounts count', () => {
  test('in the summary, the overview, the balances and both dashboards', async () => {
    const other = await feeSchool(service);
    const { admin } = other.school;
    await admin.put(`/api/academics/years/${other.yearId}`, { is_current: true });
    const bus = { name: 'Bus', amount: 40, frequency: 'annual' };
    const fee = await createFee(100, { due_date: '2025-12-01' }, other, [bus]);
    await grant(fee.id, { amount: 50 }, 201, other);
    await other.pay(fee.id, 30);
    const totals = { billed: 140, discounted: 50, collected: 30, outstanding: 60, overdue: 60, waived: 0 };
    const { data: summary } = await admin.get<object>(`/api/finance/summary?academic_year_id=${other.yearId}`);
    expect(summary).toMatchObject({
      ...totals,
      by_class: [totals],
      // Payments fill the items from the first one on, discounts from the last one on.
      by_component: [
        { name: 'Bus', billed: 40, discounted: 40, collected: 0, outstanding: 0, overdue: 0, waived: 0 },
        { name: 'Tuition', billed: 100, discounted: 10, collected: 30, outstanding: 60, overdue: 60, waived: 0 },
      ],
      by_source: { student_fees: { count: 1, ...totals }, invoices: { count: 0, discounted: 0 } },
    });
    const overview = await admin.get<{ fees: object }>(`/api/academics/overview?academic_year_id=${other.yearId}`);
    expect(overview.data.fees).toEqual({ billed: 90, collected: 30 });
    const { data: csv } = await admin.get<Buffer>('/api/finance/balances/export?format=csv');
    const [header = '', row] = csv.toString().trim().split(/\r?\n/);
    expect(header).toMatch(/,Billed,Paid,Waived,Balance,Overdue,Discounted$/);
    expect(row).toMatch(/,140,30,0,60,60,50$/);
    expect((await admin.get<{ fee_summary: object }>('/api/dashboard')).data.fee_summary).toMatchObject({
      pending: 60,
    });
    const email = 'pupil@discounts.example';
    await admin.put(`/api/students/${fee.student_id}`, { create_user_account: true, email, password: testPassword });
    const student = await service.anonymous.login({ tenant_id: other.school.id, email, password: testPassword });
    expect((await student.get<{ fees: object }>('/api/students/me/dashboard')).data.fees).toEqual({
      total: 140,
      discounted: 50,
      paid: 30,
      waived: 0,
      pending: 60,
      overdue: 60,
      next_due: null,
    });
  });

  test('in lists: a fee that they settle is not open, and fees are sorted by what is left', async () => {
    const other = await feeSchool(service);
    const [one, two, three] = [
      await createFee(100, {}, other),
      await createFee(90, {}, other),
      await createFee(80, {}, other),
    ];
    await grant(one.id, { percent: 100 }, 201, other);
    await grant(two.id, { amount: 85 }, 201, other);
    const ids = async (query: string) =>
      (await other.school.admin.get<StudentFee[]>(`${path}?${query}`)).data.map(({ id }) => id);
    expect((await ids('only_open=true')).sort((a, b) => a - b)).toEqual([two.id, three.id]);
    expect(await ids('status=paid')).toEqual([one.id]);
    expect(await ids('sort=balance&order=desc')).toEqual([three.id, two.id, one.id]);
    expect(await ids('sort=amount&order=desc')).toEqual([one.id, two.id, three.id]);
  });
});
