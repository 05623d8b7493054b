import { day, inDays, pick, type Random, upTo } from '../random.ts';
import type { Step } from '../world.ts';

const round = (amount: number) => Math.round(amount * 100) / 100;

interface Owed {
  id: number;
  balance: number;
}
interface Payment {
  id: number;
  amount: number;
  receipt_number: string;
}

const generate: Step = async (world, n) => {
  const structure = pick(world.structures, n);
  const year = world.years.find(({ id }) => id === structure?.yearId);
  if (!structure || !year) return;
  const date = new Date(year.start);
  date.setUTCMonth(date.getUTCMonth() + Math.floor(n() * 12), upTo(28, n));
  const body = {
    fee_structure_id: structure.id,
    date: day(date),
    due_date: n() < 0.5 ? `${String(new Date().getUTCFullYear() - 1)}-01-01` : '2034-01-01',
    prorate: n() < 0.3,
    dry_run: n() < 0.1,
    ...(n() < 0.3 ? { class_ids: [pick(year.classes, n)] } : {}),
    ...(n() < 0.2 ? { student_ids: [pick(world.students, n) ?? 1] } : {}),
  };
  const { status, data } = await world.request<{ created: number }>(
    [200, 409],
    'POST',
    '/finance/student-fees/generate',
    body,
    world.unique('generate'),
  );
  if (status === 200 && !body.dry_run) world.acknowledged.generated += data.created;
};

/** An amount to pay: the balance, a share, a cent, and sometimes more than the balance. */
function amountOf(balance: number, n: Random): number {
  const how = n();
  if (how < 0.35) return Math.max(0.01, balance);
  if (how < 0.45) return 0.01;
  if (how < 0.55) return round(balance + 0.01);
  return Math.max(0.01, round(balance * n()));
}

const pay =
  (kind: 'student_fee' | 'invoice'): Step =>
  async (world, n) => {
    const id = pick(kind === 'invoice' ? world.invoices : world.fees, n);
    if (!id) return;
    const owed = await world.request<Owed>(
      [200, 404],
      'GET',
      kind === 'invoice' ? `/fees/invoices/${String(id)}` : `/finance/student-fees/${String(id)}`,
    );
    const amount = amountOf(owed.status === 200 ? owed.data.balance : 10, n);
    const reference = world.unique('paid');
    const body = {
      amount,
      reference_number: reference,
      ...(kind === 'invoice' ? { invoice_id: id, method: 'card' } : { student_fee_id: id, payment_method: 'cash' }),
    };
    const once = () =>
      world.request<Payment>(
        [201, 409, 422],
        'POST',
        kind === 'invoice' ? '/fees/payments' : '/finance/payments',
        body,
        reference,
      );
    // A double click must pay only once.
    const answers = await Promise.all(n() < 0.2 ? [once(), once()] : [once()]);
    const created = answers.filter(({ status }) => status === 201).map(({ data }) => data);
    if (new Set(created.map((payment) => payment.id)).size > 1)
      throw new Error(`One Idempotency-Key gave two payments: ${JSON.stringify(created)}`);
    const [payment] = created;
    if (!payment) return;
    world.payments.push(payment.id);
    world.acknowledged.paid.push({ reference, id: payment.id, amount, receipt_number: payment.receipt_number });
  };

const reverse: Step = async (world, n) => {
  const id = pick(world.payments, n);
  if (!id) return;
  const path = `/finance/payments/${String(id)}/reverse`;
  const { status, data } = await world.request<Payment>(
    [200, 409],
    'POST',
    path,
    { reason: 'The cheque bounced' },
    world.unique('reverse'),
  );
  if (status === 200) world.acknowledged.reversed.push({ id, reversal: data.id });
};

const waive: Step = async (world, n) => {
  const id = pick(world.fees, n);
  if (!id) return;
  const { status } = await world.request([200, 404, 409], 'POST', `/finance/student-fees/${String(id)}/waive`, {
    reason: 'Scholarship',
  });
  if (status === 200) world.acknowledged.waived.push(id);
};

const discount: Step = async (world, n) => {
  const id = pick(world.fees, n);
  if (!id) return;
  const path = `/finance/student-fees/${String(id)}/discounts`;
  const body = { percent: 1 + Math.floor(n() * 40), reason: 'A sibling' };
  const { status, data } = await world.request<{ id: number }>(
    [201, 400, 404, 409],
    'POST',
    path,
    body,
    world.unique('discount'),
  );
  if (status === 201 && n() < 0.3) await world.request([200, 404, 409], 'DELETE', `${path}/${String(data.id)}`);
};

const postpone: Step = async (world, n) => {
  const id = pick(world.fees, n);
  if (id)
    await world.request([200, 404], 'PUT', `/finance/student-fees/${String(id)}`, {
      due_date: inDays(n() < 0.5 ? -30 : 30),
    });
};

const removeFee: Step = async (world, n) => {
  const id = pick(world.fees, n);
  if (!id) return;
  const { status } = await world.request([200, 404, 409], 'DELETE', `/finance/student-fees/${String(id)}`);
  if (status === 0) world.acknowledged.mayBeRemoved.push(id);
  if (status === 200) world.acknowledged.removed.push(id);
};

const lines = (n: Random) =>
  Array.from({ length: upTo(3, n) }, () => ({
    description: 'Trip',
    amount: n() < 0.1 ? 0 : round(n() * 100),
    quantity: upTo(3, n),
  })).map((line) => ({
    ...line,
    amount: Math.max(0.01, line.amount),
  }));

interface Invoice {
  id: number;
  invoice_number: string | null;
  voided_at: string | null;
}

const invoice: Step = async (world, n) => {
  const body = {
    student_id: pick(world.students, n) ?? 1,
    due_date: inDays(n() < 0.4 ? -10 : 10),
    items: lines(n),
    ...(n() < 0.3 ? { status: 'draft' } : {}),
  };
  const { status, data } = await world.request<Invoice>(
    [201, 422],
    'POST',
    '/fees/invoices',
    body,
    world.unique('invoice'),
  );
  if (status !== 201) return;
  world.invoices.push(data.id);
  world.acknowledged.invoiced.push({ id: data.id, invoice_number: data.invoice_number });
};

const issue: Step = async (world, n) => {
  const id = pick(world.invoices, n);
  if (!id) return;
  const { status, data } = await world.request<Invoice>(
    [200, 404, 409],
    'POST',
    `/fees/invoices/${String(id)}/issue`,
    {},
    world.unique('issue'),
  );
  const known = world.acknowledged.invoiced.find((one) => one.id === id);
  if (status === 200 && known) known.invoice_number = data.invoice_number;
};

const voidInvoice: Step = async (world, n) => {
  const id = pick(world.invoices, n);
  if (!id) return;
  const { status } = await world.request(
    [200, 404, 409],
    'POST',
    `/fees/invoices/${String(id)}/void`,
    { reason: 'Wrong student' },
    world.unique('void'),
  );
  if (status === 200) world.acknowledged.voided.push(id);
};

const editInvoice: Step = async (world, n) => {
  const id = pick(world.invoices, n);
  const body = {
    ...(n() < 0.7 ? { items: lines(n) } : {}),
    ...(n() < 0.5 ? { due_date: inDays(n() < 0.5 ? -5 : 5) } : {}),
  };
  if (id) await world.request([200, 404, 409], 'PUT', `/fees/invoices/${String(id)}`, body);
};

const removeInvoice: Step = async (world, n) => {
  const id = pick(world.invoices, n);
  if (!id) return;
  const { status } = await world.request([200, 404, 409], 'DELETE', `/fees/invoices/${String(id)}`);
  if (status === 0) world.acknowledged.draftsMayBeRemoved.push(id);
  if (status !== 200) return;
  // A draft is deleted, and an issued invoice is voided.
  const { status: after } = await world.request<Invoice>([200, 404], 'GET', `/fees/invoices/${String(id)}`);
  if (after === 0) world.acknowledged.draftsMayBeRemoved.push(id);
  else world.acknowledged[after === 404 ? 'draftsRemoved' : 'voided'].push(id);
};

const changeStructure: Step = async (world, n) => {
  const structure = pick(world.structures, n);
  if (!structure) return;
  const path = `/finance/fee-structures/${String(structure.id)}`;
  const { status, data } = await world.request<{
    components: { id: number; name: string; amount: number; frequency: string }[];
  }>([200], 'GET', path);
  if (status !== 200) return;
  const components = data.components.map((component) => ({
    ...component,
    name: n() < 0.2 ? component.name.replace(/( new)?$/, n() < 0.5 ? ' new' : '') : component.name,
    amount: n() < 0.4 ? round(1 + n() * 200) : component.amount,
  }));
  await world.request([200, 409, 422], 'PUT', path, { components: n() < 0.2 ? components.slice(1) : components });
};

/** Lists records that other clients created. */
const look: Step = async (world, n) => {
  for (const [path, ids] of [
    ['/finance/student-fees', world.fees],
    ['/fees/invoices', world.invoices],
    ['/fees/payments', world.payments],
  ] as const) {
    const { status, data } = await world.request<{ id: number }[]>(
      [200],
      'GET',
      `${path}?pageSize=100&page=${String(upTo(2, n))}`,
    );
    if (status !== 200) return;
    const known = new Set(ids);
    ids.push(...data.map(({ id }) => id).filter((id) => !known.has(id)));
  }
};

/** The steps, each with its weight. */
export const moneySteps: Record<string, [Step, number]> = {
  generate: [generate, 8],
  payFee: [pay('student_fee'), 26],
  payInvoice: [pay('invoice'), 14],
  reverse: [reverse, 10],
  waive: [waive, 3],
  discount: [discount, 5],
  postpone: [postpone, 2],
  removeFee: [removeFee, 4],
  invoice: [invoice, 10],
  issue: [issue, 4],
  voidInvoice: [voidInvoice, 3],
  editInvoice: [editInvoice, 5],
  removeInvoice: [removeInvoice, 3],
  changeStructure: [changeStructure, 3],
  look: [look, 4],
};
