import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { inOrder, walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { manyConnections, serviceWithSchool, type School } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { InvoiceWithPayments as InvoiceWithPaymentsSchema } from '../../src/endpoints/invoices.ts';
import type { Payment as PaymentSchema } from '../../src/endpoints/payments.ts';

const { service, school } = await serviceWithSchool(manyConnections, 5);
const path = '/api/fees/invoices';

type Payment = OutputOf<typeof PaymentSchema>;
type Invoice = OutputOf<typeof InvoiceWithPaymentsSchema>;

const year = new Date().getUTCFullYear();
const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const [yesterday, today, dueDate] = [day(-1), day(0), day(10)];

let serial = 0;
const addStudent = async (fields: Record<string, unknown> = {}, at = school) =>
  (
    await at.admin.post<{ id: number; admission_number: string; class_id: number | null }>(
      '/api/students',
      { first_name: 'Sade', last_name: `Student${++serial}`, ...fields },
      201,
    )
  ).data;

let student: { id: number };
beforeAll(async () => {
  student = await addStudent();
});

const item = { description: 'Museum', amount: 12.5, quantity: 2 };
const createInvoice = async (fields: Record<string, unknown> = {}, at = school): Promise<Invoice> =>
  (await at.admin.post<Invoice>(path, { student_id: student.id, due_date: dueDate, items: [item], ...fields }, 201))
    .data;
const getInvoice = async (id: number, client: Client = school.admin) =>
  (await client.get<Invoice>(`${path}/${id}`)).data;
const pay = (invoice_id: number, amount: number, at = school) =>
  at.admin.post<Payment>('/api/fees/payments', { invoice_id, amount, method: 'cash', reference_number: 'C-1' }, 201);
const reverse = (id: number) =>
  school.admin.post(`/api/finance/payments/${id}/reverse`, { reason: 'The check bounced' });

/** Creates an invoice in each state. */
const factoryByState: Record<string, () => Promise<Invoice>> = {
  draft: () => createInvoice({ status: 'draft' }),
  sent: () => createInvoice(),
  overdue: () => createInvoice({ due_date: yesterday }),
  partially_paid: async () => {
    const { id } = await createInvoice();
    await pay(id, 10);
    return getInvoice(id);
  },
  'overdue and paid in part': async () => {
    const { id } = await createInvoice({ due_date: yesterday });
    await pay(id, 10);
    return getInvoice(id);
  },
  paid: async () => {
    const { id } = await createInvoice();
    await pay(id, 25);
    return getInvoice(id);
  },
  void: async () => {
    const { id } = await createInvoice();
    return (await school.admin.post<Invoice>(`${path}/${id}/void`, { reason: 'Wrong student' })).data;
  },
  'reversed in full': async () => {
    const { id } = await createInvoice();
    await reverse((await pay(id, 25)).data.id);
    return getInvoice(id);
  },
};
const createInState = (state: string) => factoryByState[state]?.() ?? Promise.reject(new Error(state));

describe('an invoice', () => {
  test('is issued on creation with the next number of the year, its items and their total, in the current class of the student', async () => {
    const { classId } = await school.classroom('Invoiced');
    const one = await addStudent({ first_name: 'Zoë', last_name: 'Núñez', class_id: classId });
    const items = [
      { description: 'Uniform', amount: 0.1, quantity: 3 },
      { description: 'Trip', amount: 1234.56 },
    ];
    const answer = await school.admin.post<Invoice>(
      path,
      { student_id: one.id, due_date: dueDate, items, notes: ' Pay soon. ' },
      201,
    );
    expect(answer.headers.get('location')).toBe(`${path}/${answer.data.id}`);
    expect(answer.data).toMatchObject({
      student_id: one.id,
      student_name: 'Zoë Núñez',
      admission_number: one.admission_number,
      class_id: classId,
      class_name: 'Invoiced',
      due_date: dueDate,
      items: [
        { description: 'Uniform', amount: 0.1, quantity: 3, line_total: 0.3 },
        { description: 'Trip', amount: 1234.56, quantity: 1, line_total: 1234.56 },
      ],
      total: 1234.86,
      paid_amount: 0,
      balance: 1234.86,
      status: 'sent',
      notes: 'Pay soon.',
      voided_at: null,
      void_reason: null,
      payments: [],
    });
    expect(answer.data.invoice_number).toMatch(new RegExp(`^INV-${year}-\\d{6}$`));
    expect(answer.data.issued_at).not.toBeNull();
    const { payments, ...listed } = await getInvoice(answer.data.id);
    expect(payments).toEqual([]);
    expect((await school.admin.get<Invoice[]>(`${path}?student_id=${one.id}`)).data).toEqual([listed]);
  });

  test('gets its number when the draft is issued, and can be issued only once', async () => {
    const draft = await createInvoice({ status: 'draft' });
    expect(draft).toMatchObject({ invoice_number: null, issued_at: null, status: 'draft', total: 25 });
    const { data } = await school.admin.post<Invoice>(`${path}/${draft.id}/issue`);
    expect(data).toMatchObject({ id: draft.id, status: 'sent' });
    expect(data.invoice_number).toMatch(/^INV-/);
    const again = await school.admin.post(`${path}/${draft.id}/issue`, undefined, 409);
    expect([again.error, again.message]).toEqual([
      'invalid_state',
      'This invoice is sent. Only a draft can be issued.',
    ]);
  });

  test('can be updated until it has payments: items are replaced, other fields and the number stay', async () => {
    const before = await createInvoice({ notes: 'Before' });
    const items = [
      { description: 'B', amount: 3, quantity: 1 },
      { description: 'A', amount: 4, quantity: 2 },
    ];
    const { data } = await school.admin.put<Invoice>(`${path}/${before.id}`, { items });
    expect(data).toMatchObject({
      invoice_number: before.invoice_number,
      notes: 'Before',
      due_date: dueDate,
      total: 11,
      balance: 11,
      status: 'sent',
    });
    expect(data.items.map(({ description, line_total }) => [description, line_total])).toEqual([
      ['B', 3],
      ['A', 8],
    ]);
    const { data: late } = await school.admin.put<Invoice>(`${path}/${before.id}`, {
      due_date: yesterday,
      notes: null,
    });
    expect(late).toMatchObject({ status: 'overdue', notes: null, items: data.items });
    expect((await school.admin.put<Invoice>(`${path}/${before.id}`, { due_date: dueDate })).data.status).toBe('sent');
  });

  test('keeps the ids of items that come back with them, ignores totals, and gives new items new ids', async () => {
    const before = await createInvoice({ items: [item, { ...item, description: 'Bus' }] });
    const [museum, bus] = before.items;
    if (!museum || !bus) throw new Error('The invoice lacks its items.');
    const items = [
      { ...bus, amount: 1, line_total: 24.99 },
      { description: 'Lunch', amount: 5 },
    ];
    const { data } = await school.admin.put<Invoice>(`${path}/${before.id}`, { ...before, total: 1, items });
    expect(data).toMatchObject({ total: 2 + 5, items: [{ id: bus.id, line_total: 2 }, { description: 'Lunch' }] });
    expect([museum.id, bus.id]).not.toContain(data.items[1]?.id);
    const other = await createInvoice();
    for (const [wrong, index, message] of [
      [[other.items[0]], 0, `The invoice has no item ${String(other.items[0]?.id)}. Leave the id of a new item out.`],
      [[bus, bus], 1, 'is a duplicate'],
    ] as const)
      expect((await school.admin.put(`${path}/${before.id}`, { items: wrong }, 400)).details).toEqual([
        { path: `items.${String(index)}.id`, message },
      ]);
    expect((await getInvoice(before.id)).items).toEqual(data.items);
    expect((await getInvoice(other.id)).items).toEqual(other.items);
  });

  test('is accepted as it was read in every state; with payments its due date and notes can change, void nothing', async () => {
    const same = async (one: Invoice) => {
      const { data } = await school.admin.put<Invoice>(`${path}/${one.id}`, one);
      expect(data).toEqual(one);
    };
    const draft = await createInvoice({ status: 'draft' });
    await same(draft);
    const invoice = await createInvoice();
    await pay(invoice.id, 5);
    const partly = await getInvoice(invoice.id);
    await same(partly);
    // Read before the payment.
    const changed = { ...invoice, due_date: yesterday, notes: 'By installments' };
    const { data } = await school.admin.put<Invoice>(`${path}/${invoice.id}`, changed);
    expect(data).toMatchObject({ due_date: yesterday, notes: 'By installments', paid_amount: 5, status: 'overdue' });
    for (const items of [[{ ...partly.items[0], amount: 1 }], [...partly.items, item]])
      await school.admin.put(`${path}/${invoice.id}`, { items }, 409);
    const refused = await school.admin.put(`${path}/${invoice.id}`, { ...data, status: 'paid' }, 400);
    expect(refused.details.map((detail) => detail.path)).toEqual(['status']);
    await pay(invoice.id, 20);
    await same(await getInvoice(invoice.id));
    const { data: voided } = await school.admin.post<Invoice>(`${path}/${draft.id}/issue`);
    await school.admin.post(`${path}/${voided.id}/void`, { reason: 'Wrong' });
    const ended = await getInvoice(voided.id);
    await same(ended);
    await school.admin.put(`${path}/${voided.id}`, { ...ended, notes: 'New' }, 409);
  });

  test('is overdue after its due date even before the stored status is updated, and keeps its version', async () => {
    const one = await createInvoice({ student_id: (await addStudent()).id });
    const version = async () => (await school.admin.get(`${path}/${one.id}`)).headers.get('etag')?.split('.')[0];
    const found = async (status: string) =>
      (await school.admin.get<Invoice[]>(`${path}?student_id=${one.student_id}&status=${status}`)).data.map(
        ({ id, status }) => [id, status],
      );
    const withoutTriggers = async (sql: string) => {
      await service.database.query(`set session_replication_role = replica; ${sql}; reset session_replication_role`);
    };
    await withoutTriggers(`update ${school.schema}.invoice set due_date = current_date - 2 where id = ${one.id}`);
    expect(await found('overdue')).toEqual([[one.id, 'overdue']]);
    expect(await found('sent')).toEqual([]);
    expect((await getInvoice(one.id)).status).toBe('overdue');
    const before = await version();
    await withoutTriggers(`update ${school.schema}.invoice set status = 'overdue' where id = ${one.id}`);
    expect(await version()).toBe(before);
    expect(await found('overdue')).toEqual([[one.id, 'overdue']]);
  });

  test.each([
    [{ amount: 1e308 }, 'items.0.amount'],
    [{ amount: 1e20, quantity: 3 }, 'items.0.amount'],
    [{ amount: 1, quantity: 1e300 }, 'items.0.quantity'],
    [{ amount: 9_999_999_999.99, quantity: 2 }, 'items'],
  ])('with the item %j is a 400', async (line, where) => {
    const answer = await school.admin.post(
      path,
      { student_id: student.id, due_date: dueDate, items: [{ ...item, quantity: 1, ...line }] },
      400,
    );
    expect(answer.details.map((detail) => detail.path)).toContain(where);
  });

  test('is not changed if it has changed since the version in If-Match; a payment is such a change', async () => {
    const { id } = await createInvoice();
    const etag = (await school.admin.get(`${path}/${id}`)).headers.get('etag') ?? '';
    await school.admin.with({ 'If-Match': etag }).put(`${path}/${id}`, { notes: 'First' });
    await school.admin.with({ 'If-Match': etag }).put(`${path}/${id}`, { notes: 'Second' }, 412);
    const newer = (await school.admin.get(`${path}/${id}`)).headers.get('etag') ?? '';
    await pay(id, 1);
    await school.admin.with({ 'If-Match': newer }).post(`${path}/${id}/void`, { reason: 'No' }, 412);
  });
});

test('issuing, voiding and reversing twice with the same Idempotency-Key happens once, and the second answer equals the first', async () => {
  const paid = await pay((await createInvoice()).id, 5);
  const steps: [string, object | undefined][] = [
    [`${path}/${(await createInState('draft')).id}/issue`, undefined],
    [`${path}/${(await createInState('sent')).id}/void`, { reason: 'Wrong' }],
    [`/api/finance/payments/${paid.data.id}/reverse`, { reason: 'Wrong' }],
  ];
  for (const [at, body] of steps) {
    const client = school.admin.with({ 'Idempotency-Key': `step-${++serial}` });
    const { data } = await client.post(at, body);
    expect((await client.post(at, body)).data).toEqual(data);
    await school.admin.post(at, body, 409);
  }
});

describe('creating an invoice', () => {
  test.each([
    ['without a student', { student_id: undefined }, ['student_id']],
    ['without items', { items: [] }, ['items']],
    ['with 501 items', { items: Array(501).fill(item) }, ['items']],
    ['with a price of 0', { items: [{ ...item, amount: 0 }] }, ['items.0.amount']],
    ['with a negative price', { items: [{ ...item, amount: -1 }] }, ['items.0.amount']],
    ['with a price with three decimals', { items: [{ ...item, amount: 0.125 }] }, ['items.0.amount']],
    ['with a price that is not a number', { items: [{ ...item, amount: 'one' }] }, ['items.0.amount']],
    ['with a quantity of 0', { items: [{ ...item, quantity: 0 }] }, ['items.0.quantity']],
    ['with a fractional quantity', { items: [{ ...item, quantity: 0.5 }] }, ['items.0.quantity']],
    ['with a blank item description', { items: [{ ...item, description: ' ' }] }, ['items.0.description']],
    [
      'with more than the maximum total',
      { items: [{ ...item, amount: 9_999_999_999.99, quantity: 1 }, item] },
      ['items'],
    ],
    ['with the status paid', { status: 'paid' }, ['status']],
    ['with an invoice number', { invoice_number: 'INV-2026-000001' }, ['invoice_number']],
    ['with an invalid due date', { due_date: '2026-02-30' }, ['due_date']],
  ])('%s is a 400 that names the field, and uses no number', async (_name, fields, paths) => {
    const counter = () => service.database.query(`select value from ${school.schema}.counter where name like 'INV-%'`);
    const before = await counter();
    const body = { student_id: student.id, due_date: dueDate, items: [item], ...fields };
    expect((await school.admin.post(path, body, 400)).details.map((detail) => detail.path)).toEqual(paths);
    expect(await counter()).toEqual(before);
  });

  test('with the maximum total is allowed', async () => {
    expect(
      (await createInvoice({ items: [{ description: 'All', amount: 9_999_999_999.99, quantity: 1 }] })).total,
    ).toBe(9_999_999_999.99);
  });

  test('for an unknown or deleted student is a 422', async () => {
    const gone = await addStudent();
    await school.admin.delete(`/api/students/${gone.id}`);
    for (const student_id of [gone.id, 999_999]) {
      const answer = await school.admin.post(path, { student_id, due_date: dueDate, items: [item] }, 422);
      expect(answer).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: 'student_id', message: `There is no student ${student_id}.` }],
      });
    }
  });
});

describe('the status of an invoice', () => {
  const statesWithPayments = ['partially_paid', 'overdue and paid in part', 'paid'];

  test.each([
    ['draft', 'draft', 'draft'],
    ['sent', 'sent', 'sent'],
    ['overdue', 'overdue', 'overdue'],
    ['partially_paid', 'partially_paid', 'partially paid'],
    ['overdue and paid in part', 'overdue', 'overdue'],
    ['paid', 'paid', 'paid'],
    ['void', 'void', 'void'],
    ['reversed in full', 'sent', 'sent'],
  ])('%s: is %s, and allows only the actions of that state', async (state, status, words) => {
    const isPaid = statesWithPayments.includes(state);
    const one = await createInState(state);
    expect(one.status).toBe(status);
    const attempt = async (method: string, below: string, body?: unknown) => {
      const before = await createInState(state);
      const answer = await school.admin.send<Invoice>(
        method,
        `${path}/${before.id}${below}`,
        body === undefined ? {} : { body },
      );
      if (answer.status >= 400) {
        expect(answer.error).toBe(method === 'DELETE' && state === 'void' ? 'not_found' : 'invalid_state');
        expect({ ...(await getInvoice(before.id)), updated_at: '' }).toEqual({ ...before, updated_at: '' });
      }
      return answer.status === 200 ? 'yes' : answer.message.replace(` ${before.id}`, '');
    };
    const change = isPaid
      ? `This invoice has payments of ${one.paid_amount}.00. Reverse them first.`
      : state === 'void'
        ? 'This invoice is void and cannot be changed.'
        : 'yes';
    expect({
      edit: await attempt('PUT', '', { notes: 'Changed', items: [item, item] }),
      issue: await attempt('POST', '/issue'),
      void: await attempt('POST', '/void', { reason: 'Wrong' }),
      delete: await attempt('DELETE', ''),
    }).toEqual({
      edit: change,
      issue: state === 'draft' ? 'yes' : `This invoice is ${words}. Only a draft can be issued.`,
      void: state === 'draft' ? 'This invoice is a draft. Delete it instead.' : change,
      delete: state === 'void' ? 'There is no invoice. It was voided.' : change,
    });
  });

  test('is overdue after its due date even before the stored status is updated, but never for paid, void and draft invoices', async () => {
    const { id: student_id } = await addStudent();
    const created = [];
    for (const state of ['sent', 'partially_paid', 'paid', 'void', 'draft'])
      created.push((await createInState(state)).id);
    await service.database.query(
      `alter table ${school.schema}.invoice disable trigger derive;
       update ${school.schema}.invoice set student_id = ${student_id}, due_date = current_date - 2 where id in (${created.join()});
       alter table ${school.schema}.invoice enable trigger derive`,
    );
    const found = async (query: string) =>
      (await school.admin.get<Invoice[]>(`${path}?student_id=${student_id}&sort=due_date${query}`)).data;
    expect((await found('')).map(({ status }) => status)).toEqual(['overdue', 'overdue', 'paid', 'draft']);
    const all = ['overdue', 'overdue', 'paid', 'void', 'draft'];
    expect((await found('&include_ended=true')).map(({ status }) => status)).toEqual(all);
    expect((await found('&status=void')).map(({ status }) => status)).toEqual(['void']);
    expect((await found('&status=overdue')).map(({ id }) => id)).toEqual(created.slice(0, 2));
    for (const status of ['sent', 'partially_paid']) expect(await found(`&status=${status}`)).toEqual([]);
    const one = await getInvoice(created[0] ?? 0);
    expect(one.status).toBe('overdue');
    expect((await school.admin.put<Invoice>(`${path}/${one.id}`, { ...one, notes: 'Sent back' })).data).toMatchObject({
      status: 'overdue',
      notes: 'Sent back',
    });
  });

  test('a status set by an update is a 400 that names it, alone and in the whole invoice', async () => {
    const invoice = await createInState('sent');
    const at = `${path}/${invoice.id}`;
    for (const body of [{ status: 'paid' }, { ...(await getInvoice(invoice.id)), status: 'paid' }]) {
      const refused = await school.admin.put(at, body, 400);
      expect([refused.error, refused.details]).toEqual([
        'validation_error',
        [{ path: 'status', message: expect.stringMatching(/^This field is read-only\./) }],
      ]);
    }
    expect((await getInvoice(invoice.id)).status).toBe('sent');
    expect((await school.admin.put<Invoice>(at, { status: 'sent', notes: 'Same' })).data.notes).toBe('Same');
  });

  test('after deletion: a draft is gone, an issued invoice is void', async () => {
    const [draft, issued] = [await createInState('draft'), await createInState('sent')];
    expect((await school.admin.delete(`${path}/${draft.id}`)).data).toEqual({ id: draft.id });
    await school.admin.get(`${path}/${draft.id}`, 404);
    expect((await school.admin.delete(`${path}/${issued.id}`)).data).toEqual({ id: issued.id });
    expect(await getInvoice(issued.id)).toMatchObject({
      status: 'void',
      void_reason: 'Deleted',
      invoice_number: issued.invoice_number,
      total: 25,
      balance: 0,
    });
  });

  test('void has a reason and a balance of 0; void invoices and drafts cannot be paid', async () => {
    const gone = await createInState('void');
    expect(gone).toMatchObject({ status: 'void', void_reason: 'Wrong student', balance: 0 });
    expect(gone.voided_at).not.toBeNull();
    // Null is what the field could have had, so it is not ignored.
    expect((await school.admin.put(`${path}/${gone.id}`, { voided_at: null }, 400)).details).toMatchObject([
      { path: 'voided_at' },
    ]);
    for (const { id } of [gone, await createInState('draft')]) {
      const refused = await school.admin.post('/api/fees/payments', { invoice_id: id, amount: 1, method: 'cash' }, 409);
      expect(refused.error).toBe('invalid_state');
    }
  });

  test('follows payments and reversals; a payment above the balance is a 409 that names the balance', async () => {
    const { id } = await createInvoice();
    const { data: first, headers } = await pay(id, 10.01);
    expect(first).toMatchObject({
      invoice_id: id,
      amount: 10.01,
      payment_method: 'cash',
      method: 'cash',
      kind: 'invoice',
      payment_date: today,
    });
    expect((await school.admin.get(headers.get('location') ?? '')).data).toEqual(first);
    expect(await getInvoice(id)).toMatchObject({ status: 'partially_paid', paid_amount: 10.01, balance: 14.99 });
    const above = await school.admin.post('/api/fees/payments', { invoice_id: id, amount: 15, method: 'cash' }, 409);
    expect([above.error, above.message]).toEqual(['conflict', 'The balance is 14.99.']);
    const { data: last } = await pay(id, 14.99);
    expect(await getInvoice(id)).toMatchObject({
      status: 'paid',
      balance: 0,
      payments: [{ receipt_number: first.receipt_number }, { receipt_number: last.receipt_number }],
    });
    await reverse(first.id);
    const { payments, ...back } = await getInvoice(id);
    expect(back).toMatchObject({ status: 'partially_paid', paid_amount: 14.99, balance: 10.01 });
    expect(payments.map(({ amount, is_reversed, reversal_of }) => [amount, is_reversed, reversal_of])).toEqual([
      [10.01, true, null],
      [14.99, false, null],
      [-10.01, false, first.id],
    ]);
  });

  test('stays consistent when a payment and an update or voiding run concurrently: only one succeeds', async () => {
    for (const step of [
      (id: number) => school.admin.send('PUT', `${path}/${id}`, { body: { items: [{ ...item, amount: 1 }] } }),
      (id: number) => school.admin.send('POST', `${path}/${id}/void`, { body: { reason: 'x' } }),
    ]) {
      const { id } = await createInvoice();
      const answers = await race(
        service.database,
        `select from ${school.schema}.invoice where id = ${id} for update`,
        2,
        () => [
          step(id),
          school.admin.send('POST', '/api/fees/payments', { body: { invoice_id: id, amount: 25, method: 'cash' } }),
        ],
      );
      expect(answers.map(({ status }) => status).filter((status) => status < 300)).toHaveLength(1);
      const { status, total, paid_amount } = await getInvoice(id);
      expect([status, total, paid_amount]).toEqual(
        answers[1]?.status === 201
          ? ['paid', 25, 25]
          : answers[0]?.status === 200 && status === 'void'
            ? ['void', 25, 0]
            : ['sent', 2, 0],
      );
    }
  });
});

describe('invoice numbers', () => {
  test('have no gaps when invoices are created concurrently and some transactions fail at the end', async () => {
    const racing = await service.school();
    const { database } = service;
    const one = await addStudent({}, racing);
    // Fails after the number was assigned, as with a full disk or a lost connection.
    await database.query(`
      create function ${racing.schema}.fail_late() returns trigger language plpgsql as $$
      begin
        if new.notes = 'fails' and new.issued_at is not null then raise exception using errcode = 'S409A', message = 'Late failure'; end if;
        return null;
      end $$;
      create trigger zz_fail_late after update on ${racing.schema}.invoice for each row execute function ${racing.schema}.fail_late()`);
    const drafts = await Promise.all(
      [1, 2, 3, 4].map(() => createInvoice({ student_id: one.id, status: 'draft' }, racing)),
    );
    await createInvoice({ student_id: one.id }, racing);
    const body = (n: number) => ({
      student_id: one.id,
      due_date: dueDate,
      items: [item],
      notes: n % 3 === 0 ? 'fails' : `number ${n}`,
    });
    const answers = await race(
      database,
      `select from ${racing.schema}.counter where name like 'INV-%' for update`,
      8,
      () => [
        ...Array.from({ length: 36 }, (_, n) => racing.admin.send<Invoice>('POST', path, { body: body(n) })),
        ...drafts.map(({ id }) => racing.admin.send<Invoice>('POST', `${path}/${id}/issue`)),
      ],
    );
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(12);
    const created = answers.filter(({ status }) => status < 300);
    expect(created).toHaveLength(28);
    const all = await walk<Invoice>(racing.admin, `${path}?sort=invoice_number`, 10);
    expect(all.map(({ invoice_number }) => invoice_number)).toEqual(
      all.map((_, n) => `INV-${year}-${String(n + 1).padStart(6, '0')}`),
    );
    expect(all).toHaveLength(29);
  });

  test('have a separate counter for each year in the time zone of the school', async () => {
    const far = await service.school();
    const one = await addStudent({}, far);
    await service.database.query(
      `insert into ${far.schema}.counter (name, value) values ('INV-' || extract(year from now()), 999999)`,
    );
    expect((await createInvoice({ student_id: one.id }, far)).invoice_number).toBe(`INV-${year}-1000000`);
    const counters = await service.database.query<{ name: string; value: string }>(
      `select name, value from ${far.schema}.counter where name like 'INV%'`,
    );
    expect(counters).toEqual([{ name: `INV-${year}`, value: '1000000' }]);
    // The year comes from core.today(), which uses the time zone.
    const [{ years } = { years: [] as string[] }] = await service.database.query<{ years: string[] }>(`
      select array(select (set_config('app.time_zone', zone, true) is not null)::text || ' ' || (extract(year from core.today()) = extract(year from now() at time zone zone))::text
        from unnest('{Pacific/Kiritimati,Pacific/Pago_Pago}'::text[]) zone) as years`);
    expect(years).toEqual(['true true', 'true true']);
  });
});

describe('the list', () => {
  let lists: School;
  let all: Invoice[];
  let students: { id: number; class_id: number | null }[];

  beforeAll(async () => {
    lists = await service.school();
    const { classId } = await lists.classroom('Year 5');
    students = [
      await addStudent({ first_name: 'Łukasz', last_name: 'Zieliński', class_id: classId }, lists),
      await addStudent({ first_name: 'Amina', last_name: 'Öberg', parent_name: 'Björk Quill' }, lists),
      await addStudent({ first_name: 'amina', last_name: 'oberg' }, lists),
    ];
    for (const [n, { id: student_id }] of students.entries()) {
      for (const status of ['sent', 'draft', 'sent'] as const) {
        const { id } = await createInvoice(
          {
            student_id,
            status,
            due_date: day(n * 7),
            items: [{ description: 'One', amount: 10 * (n + 1), quantity: 1 }],
          },
          lists,
        );
        if (n === 1 && status === 'sent') await pay(id, 5, lists);
      }
    }
    await service.database.query(
      `update ${lists.schema}.invoice set issued_at = issued_at - interval '40 days' where id = 1`,
    );
    all = await walk<Invoice>(lists.admin, path, 100);
  });

  test('is sorted by creation time by default, latest first', () => {
    expect(all).toEqual(inOrder(all, (one) => [one.created_at], 'desc'));
    expect(all).toHaveLength(9);
  });

  test('applies each filter, and several together', async () => {
    const [a, b] = students;
    const filters: [string, (one: Invoice) => boolean, number][] = [
      [`student_id=${a?.id}`, (one) => one.student_id === a?.id, 3],
      [`class_id=${a?.class_id}`, (one) => one.class_id === a?.class_id, 3],
      ['status=draft', (one) => one.status === 'draft', 3],
      ['only_open=true', (one) => ['sent', 'partially_paid', 'overdue'].includes(one.status), 6],
      ['only_open=false', () => true, 9],
      ['status=partially_paid', (one) => one.status === 'partially_paid', 2],
      [`from_date=${day(-2)}`, (one) => one.issued_at !== null && one.id !== 1, 5],
      [`to_date=${day(-2)}`, (one) => one.id === 1, 1],
      [`from_date=${day(-41)}&to_date=${day(1)}`, (one) => one.issued_at !== null, 6],
      [`due_from=${day(6)}`, (one) => one.due_date >= day(6), 6],
      [`due_from=${day(1)}&due_to=${day(8)}`, (one) => one.student_id === b?.id, 3],
      [`student_id=${a?.id}&status=draft`, (one) => one.student_id === a?.id && one.status === 'draft', 1],
    ];
    for (const [query, fits, count] of filters) {
      const { data } = await lists.admin.get<Invoice[]>(`${path}?pageSize=100&${query}`);
      expect([query, data.map(({ id }) => id)]).toEqual([query, all.filter(fits).map(({ id }) => id)]);
      expect(data).toHaveLength(count);
    }
  });

  test('searches invoice numbers and students word by word, ignoring case and accents', async () => {
    const found = async (words: string) =>
      (await lists.admin.get<Invoice[]>(`${path}?sort=invoice_number&search=${encodeURIComponent(words)}`)).data.map(
        ({ student_name, invoice_number }) => `${student_name} ${invoice_number}`,
      );
    expect(await found('lukasz')).toHaveLength(3);
    expect(await found('AMINA oberg')).toHaveLength(6);
    // The name of a parent, which the list does not show.
    expect(await found('quill')).toEqual([]);
    expect(await found(`inv-${year}-000002`)).toEqual([`Łukasz Zieliński INV-${year}-000002`]);
    expect(await found('zielinski 000002')).toEqual([`Łukasz Zieliński INV-${year}-000002`]);
    expect(await found(`amina inv-${year}-000002`)).toEqual([]);
    expect(await found('%')).toEqual([]);
    for (const mark of [':pattern', ':patterns', ':pattern :patterns', '%1$L', "';"])
      expect(await found(mark)).toEqual([]);
  });

  test.each([
    'sort=items',
    'status=late',
    'student_id=x',
    'from_date=yesterday',
    'academic_year_id=1',
    'due_to=2026-01-01&due_from=2026-01-02',
    'to_date=2026-01-01&from_date=2026-01-02',
  ])('%s is a 400 that names the parameter', async (query) => {
    expect((await lists.admin.get(`${path}?${query}`, 400)).details.map((detail) => detail.path)).toEqual([
      query.split('=')[0],
    ]);
  });
});

describe('permissions', () => {
  test('a student reads their own issued invoices, but no drafts and none of other students', async () => {
    const pupil = await school.user(['student']);
    const own = await addStudent();
    await service.database.query(`update ${school.schema}.student set user_id = $1 where id = $2`, [pupil.id, own.id]);
    const client = await service.anonymous.login({
      tenant_id: school.id,
      email: pupil.email,
      password: 'test-password',
    });
    const [issued, draft, other] = [
      await createInvoice({ student_id: own.id }),
      await createInvoice({ student_id: own.id, status: 'draft' }),
      await createInvoice(),
    ];
    expect((await client.get<Invoice[]>(path)).data.map(({ id }) => id)).toEqual([issued.id]);
    expect((await client.get<Invoice[]>(`${path}?search=inv`)).data.map(({ id }) => id)).toEqual([issued.id]);
    expect(await getInvoice(issued.id, client)).toMatchObject({ items: [item], total: 25 });
    await client.get(`${path}/${issued.id}/download`);
    for (const { id } of [draft, other]) {
      await client.get(`${path}/${id}`, 404);
      await client.get(`${path}/${id}/download`, 404);
    }
    for (const [method, below] of [
      ['PUT', ''],
      ['DELETE', ''],
      ['POST', '/issue'],
      ['POST', '/send-reminder'],
    ] as const) {
      await client.send(method, `${path}/${issued.id}${below}`, method === 'PUT' ? { body: {} } : {}, 403);
    }
    await client.post('/api/fees/payments', { invoice_id: issued.id, amount: 1, method: 'cash' }, 403);
    const { data: paid } = await pay(issued.id, 5);
    const { data: others } = await pay(other.id, 5);
    await client.get(`/api/finance/payments/${paid.id}/receipt`);
    await client.get(`/api/finance/payments/${others.id}/receipt`, 404);
  });

  test('an accountant creates invoices and records payments; a teacher gets a 403', async () => {
    const [accountant, teacher] = [await school.user(['accountant']), await school.user(['teacher'])];
    const { data } = await accountant.post<Invoice>(
      path,
      { student_id: student.id, due_date: dueDate, items: [item] },
      201,
    );
    await accountant.post('/api/fees/payments', { invoice_id: data.id, amount: 25, method: 'card' }, 201);
    await teacher.get(path, 403);
    await teacher.post(path, { student_id: student.id, due_date: dueDate, items: [item] }, 403);
  });

  test('a school without fees_management gets a 403', async () => {
    const poor = await service.school({ feature_flags: { fees_management: false } });
    expect((await poor.admin.get(path, 403)).error).toBe('feature_disabled');
  });
});
