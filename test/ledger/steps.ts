import type { Acknowledged } from './invariants.ts';

/** A random number generator with a seed. */
export type Random = () => number;

/** @see https://github.com/bryc/code/blob/master/jshash/PRNGs.md (mulberry32) */
export function random(seed: number): Random {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The response. `status` is 503 when the database was not available in time. */
export interface Answer<T> {
  status: number;
  data: T;
  message: string;
}

/** The state of the school as far as the clients know it from responses. */
export interface World {
  students: number[];
  fees: number[];
  invoices: number[];
  payments: number[];
  structures: { id: number; yearId: number }[];
  years: { id: number; start: Date; classes: number[] }[];
  acknowledged: Acknowledged;
  /**
   * Sends a request, and retries it with its idempotency key until it gets a response. @throws for a status not in
   * `statuses`
   */
  ask<T>(statuses: number[], method: string, path: string, body?: object, key?: string): Promise<Answer<T>>;
  /** Returns a unique value. */
  unique(what: string): string;
}

/** One step of a client, with random numbers. */
type Step = (world: World, n: Random) => Promise<void>;

const pick = <T>(from: readonly T[], n: Random): T | undefined => from[Math.floor(n() * from.length)];
const upTo = (most: number, n: Random) => 1 + Math.floor(n() * most);
const round = (amount: number) => Math.round(amount * 100) / 100;
const day = (date: Date) => date.toISOString().slice(0, 10);
const inDays = (days: number) => day(new Date(Date.now() + days * 86_400_000));

interface Owed {
  id: number;
  balance: number;
}
interface Payment {
  id: number;
  amount: number;
  receipt_number: string;
}

const addStudent: Step = async (world, n) => {
  const class_id = pick(world.years[0]?.classes ?? [], n);
  const body = { first_name: 'Stu', last_name: world.unique('Dent'), class_id };
  const { status, data } = await world.ask<{ id: number }>([201], 'POST', '/students', body, world.unique('student'));
  if (status === 201) world.students.push(data.id);
};

const removeStudent: Step = async (world, n) => {
  const id = pick(world.students, n);
  if (!id) return;
  const { status } = await world.ask([200, 404], 'DELETE', `/students/${String(id)}`);
  if (status === 200) world.students.splice(world.students.indexOf(id), 1);
};

const promote: Step = async (world, n) => {
  const year = world.years[1];
  const student_ids = [...new Set(Array.from({ length: upTo(3, n) }, () => pick(world.students, n)))].filter(
    (id) => id !== undefined,
  );
  if (!year || student_ids.length === 0) return;
  const body = { student_ids, to_class_id: pick(year.classes, n), to_academic_year_id: year.id };
  await world.ask([200, 409, 422], 'POST', '/students/promote', body, world.unique('promote'));
};

const generate: Step = async (world, n) => {
  const structure = pick(world.structures, n);
  const year = world.years.find(({ id }) => id === structure?.yearId);
  if (!structure || !year) return;
  const date = new Date(year.start);
  date.setUTCMonth(date.getUTCMonth() + Math.floor(n() * 12), upTo(28, n));
  const body = {
    fee_structure_id: structure.id,
    date: day(date),
    due_date: n() < 0.5 ? '2020-01-01' : '2999-01-01',
    prorate: n() < 0.3,
    dry_run: n() < 0.1,
    ...(n() < 0.3 ? { class_ids: [pick(year.classes, n)] } : {}),
    ...(n() < 0.2 ? { student_ids: [pick(world.students, n) ?? 1] } : {}),
  };
  const { status, data } = await world.ask<{ created: number }>(
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
    const owed = await world.ask<Owed>(
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
      world.ask<Payment>(
        [201, 409, 422],
        'POST',
        kind === 'invoice' ? '/fees/payments' : '/finance/payments',
        body,
        reference,
      );
    // A double click must pay only once.
    const answers = await Promise.all(n() < 0.2 ? [once(), once()] : [once()]);
    const made = answers.filter(({ status }) => status === 201).map(({ data }) => data);
    if (new Set(made.map((payment) => payment.id)).size > 1)
      throw new Error(`One Idempotency-Key gave two payments: ${JSON.stringify(made)}`);
    const [payment] = made;
    if (!payment) return;
    world.payments.push(payment.id);
    world.acknowledged.paid.push({ reference, id: payment.id, amount, receipt_number: payment.receipt_number });
  };

const reverse: Step = async (world, n) => {
  const id = pick(world.payments, n);
  if (!id) return;
  const path = `/finance/payments/${String(id)}/reverse`;
  const { status, data } = await world.ask<Payment>(
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
  const { status } = await world.ask([200, 404, 409], 'POST', `/finance/student-fees/${String(id)}/waive`, {
    reason: 'Scholarship',
  });
  if (status === 200) world.acknowledged.waived.push(id);
};

const postpone: Step = async (world, n) => {
  const id = pick(world.fees, n);
  if (id)
    await world.ask([200, 404], 'PUT', `/finance/student-fees/${String(id)}`, {
      due_date: inDays(n() < 0.5 ? -30 : 30),
    });
};

const removeFee: Step = async (world, n) => {
  const id = pick(world.fees, n);
  if (!id) return;
  const { status } = await world.ask([200, 404, 409], 'DELETE', `/finance/student-fees/${String(id)}`);
  if (status === 503) world.acknowledged.mayBeRemoved.push(id);
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
  const { status, data } = await world.ask<Invoice>(
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
  const { status, data } = await world.ask<Invoice>(
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
  const { status } = await world.ask(
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
  if (id) await world.ask([200, 404, 409], 'PUT', `/fees/invoices/${String(id)}`, body);
};

const removeInvoice: Step = async (world, n) => {
  const id = pick(world.invoices, n);
  if (!id) return;
  const { status } = await world.ask([200, 404, 409], 'DELETE', `/fees/invoices/${String(id)}`);
  if (status === 503) world.acknowledged.draftsMayBeRemoved.push(id);
  if (status !== 200) return;
  // A draft is deleted, and an issued invoice is voided.
  const { status: after } = await world.ask<Invoice>([200, 404], 'GET', `/fees/invoices/${String(id)}`);
  if (after === 503) world.acknowledged.draftsMayBeRemoved.push(id);
  else world.acknowledged[after === 404 ? 'draftsRemoved' : 'voided'].push(id);
};

const changeStructure: Step = async (world, n) => {
  const structure = pick(world.structures, n);
  if (!structure) return;
  const path = `/finance/fee-structures/${String(structure.id)}`;
  const { status, data } = await world.ask<{
    components: { id: number; name: string; amount: number; frequency: string }[];
  }>([200], 'GET', path);
  if (status !== 200) return;
  const components = data.components.map((component) => ({
    ...component,
    name: n() < 0.2 ? component.name.replace(/( new)?$/, n() < 0.5 ? ' new' : '') : component.name,
    amount: n() < 0.4 ? round(1 + n() * 200) : component.amount,
  }));
  await world.ask([200, 409, 422], 'PUT', path, { components: n() < 0.2 ? components.slice(1) : components });
};

/** Lists records that other clients created. */
const look: Step = async (world, n) => {
  for (const [path, ids] of [
    ['/finance/student-fees', world.fees],
    ['/fees/invoices', world.invoices],
    ['/fees/payments', world.payments],
  ] as const) {
    const { status, data } = await world.ask<{ id: number }[]>(
      [200],
      'GET',
      `${path}?pageSize=100&page=${String(upTo(2, n))}`,
    );
    if (status !== 200) return;
    const known = new Set(ids);
    ids.push(...data.map(({ id }) => id).filter((id) => !known.has(id)));
  }
};

const steps = {
  ...{
    addStudent,
    removeStudent,
    promote,
    generate,
    payFee: pay('student_fee'),
    payInvoice: pay('invoice'),
    reverse,
    waive,
    postpone,
    removeFee,
  },
  ...{ invoice, issue, voidInvoice, editInvoice, removeInvoice, changeStructure, look },
};
export type StepName = keyof typeof steps;

/** Weights of the steps; about 100 in total. */
const shares: Record<StepName, number> = {
  ...{
    addStudent: 2,
    removeStudent: 1,
    promote: 2,
    generate: 8,
    payFee: 26,
    payInvoice: 14,
    reverse: 10,
    waive: 3,
    postpone: 2,
    removeFee: 4,
  },
  ...{ invoice: 10, issue: 4, voidInvoice: 3, editInvoice: 5, removeInvoice: 3, changeStructure: 3, look: 4 },
};
const lots = Object.entries(shares).flatMap(([name, share]) => Array<StepName>(share).fill(name as StepName));

/** Chooses the next step of a client. */
export const nextStep = (n: Random): StepName => pick(lots, n) ?? 'look';

export const perform = (name: StepName, world: World, n: Random): Promise<void> => steps[name](world, n);
