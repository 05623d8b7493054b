import type pg from 'pg';

/** The changes that the service has acknowledged. The database is compared with them. */
export interface Acknowledged {
  /** Payments by reference number. */
  paid: { reference: string; id: number; amount: number; receipt_number: string }[];
  /** Reversals, by the reversed payment. */
  reversed: { id: number; reversal: number }[];
  /** Fees by id. `may`: the response to a removal was lost, so the fee may be gone. */
  waived: number[];
  removed: number[];
  mayBeRemoved: number[];
  /** Total number of fees created. */
  generated: number;
  /** Invoices; drafts have no number. */
  invoiced: { id: number; invoice_number: string | null }[];
  voided: number[];
  draftsRemoved: number[];
  draftsMayBeRemoved: number[];
}

export const nothing = (): Acknowledged => ({
  ...{
    paid: [],
    reversed: [],
    waived: [],
    removed: [],
    mayBeRemoved: [],
    generated: 0,
    invoiced: [],
    voided: [],
    draftsRemoved: [],
    draftsMayBeRemoved: [],
  },
});

const owed = (table: 'student_fee' | 'invoice') =>
  `select o.id, o.amount, o.paid_amount, sum(p.amount) as payments from ${table} o left join payment p on p.${table}_id = o.id
   group by o.id having o.paid_amount <> coalesce(sum(p.amount), 0) or o.paid_amount not between 0 and o.amount`;

/** The status is computed when a row is written, so "today" is the date of that write. */
const status = (table: 'student_fee' | 'invoice', first: string, otherwise: string) =>
  `select id, status, amount, paid_amount, due_date from ${table}
   where status <> case ${first} when paid_amount >= amount then 'paid' when due_date < updated_at::date then 'overdue' when paid_amount > 0 then 'partially_paid' else '${otherwise}' end`;

const gapless = (table: string, column: string, series: string) =>
  `select year, count(number) as numbers, max(number) as last, min(c.value) as counter
   from (select split_part(${column}, '-', 2) as year, split_part(${column}, '-', 3)::bigint as number from ${table} where ${column} is not null) n
   full join (select substring(name from 5) as year, value from counter where name like '${series}-%') c using (year)
   group by year having count(number) <> count(distinct number) or count(number) is distinct from max(number) or count(number) is distinct from min(c.value)`;

/** The invariants. Each statement returns the rows that violate it. `$1` is what was acknowledged. */
const invariants: Record<string, string> = {
  'A fee comes to the sum of its items': `select f.id, f.amount, sum(i.amount) as items from student_fee f left join student_fee_item i on i.student_fee_id = f.id
     group by f.id having f.amount is distinct from sum(i.amount)`,
  'An invoice comes to the sum of its lines': `select i.id, i.amount, sum(t.amount * t.quantity) as lines from invoice i left join invoice_item t on t.invoice_id = i.id
     group by i.id having i.amount is distinct from sum(t.amount * t.quantity) or bool_or(t.line_total <> t.amount * t.quantity)`,
  'What is paid of a fee is the sum of its payments, and no more than it comes to': owed('student_fee'),
  'What is paid of an invoice is the sum of its payments, and no more than it comes to': owed('invoice'),
  'The status of a fee follows from its amounts and dates': status(
    'student_fee',
    "when waived_at is not null then 'waived'",
    'pending',
  ),
  'The status of an invoice follows from its amounts and dates': status(
    'invoice',
    "when voided_at is not null then 'void' when issued_at is null then 'draft'",
    'sent',
  ),
  'An invoice has its number from when it is issued on, and what is paid of a draft or a void one is nothing': `select id, status, invoice_number, issued_at, paid_amount from invoice
     where (invoice_number is null) <> (issued_at is null) or (paid_amount > 0 and status in ('draft', 'void')) or (voided_at is not null and issued_at is null)`,
  'Invoices are numbered without gaps': gapless('invoice', 'invoice_number', 'INV'),
  'Receipts are numbered without gaps': gapless('payment', 'receipt_number', 'RCT'),
  'Every payment has its receipt, and is of the student who owes it': `select p.id, p.receipt_number, p.student_id, coalesce(f.student_id, i.student_id) as owes
     from payment p left join student_fee f on f.id = p.student_fee_id left join invoice i on i.id = p.invoice_id
     where p.receipt_number is null or p.student_id is distinct from coalesce(f.student_id, i.student_id)`,
  'A reversal takes back one payment, all of it, of what that was for, and once': `select r.id, r.reversal_of, r.amount, p.amount as paid from payment r left join payment p on p.id = r.reversal_of
     where r.amount < 0 and (p.id is null or p.amount <> -r.amount or p.reversal_of is not null
       or row(p.student_fee_id, p.invoice_id) is distinct from row(r.student_fee_id, r.invoice_id)
       or exists (select from payment o where o.reversal_of = r.reversal_of and o.id <> r.id)) or (r.amount > 0 and r.reversal_of is not null)`,
  'A component is billed once for a period': `select a.student_id, a.fee_component_id, a.period_start, b.period_start as again
     from student_fee_item a join student_fee_item b on b.student_id = a.student_id and b.fee_component_id = a.fee_component_id and b.id > a.id
       and b.period_start <= a.period_end and b.period_end >= a.period_start`,
  'The items of a fee are of its student and its structure': `select i.id, i.student_id, f.student_id as owes from student_fee_item i join student_fee f on f.id = i.student_fee_id
     join fee_component c on c.id = i.fee_component_id where i.student_id <> f.student_id or c.fee_structure_id <> f.fee_structure_id`,
  'Fees of one digest have the same items': `select items_digest, count(*) from (
       select f.items_digest, array_agg(i.name || ' ' || i.amount order by i.id) as items from student_fee f join student_fee_item i on i.student_fee_id = f.id group by f.id
     ) fee group by items_digest having count(distinct items) > 1`,
  'A student is in one class at a time': `select student_id from enrollment where status = 'active' group by student_id having count(*) > 1`,
  'An Idempotency-Key that is kept has its answer': `select key, operation from idempotency_key where answer is null`,
  'A payment that was acknowledged is there as it was answered': `select a.* from jsonb_to_recordset($1::jsonb -> 'paid') a (reference text, id bigint, amount numeric, receipt_number text)
     where not exists (select from payment p where p.id = a.id and p.reference_number = a.reference and p.amount = a.amount and p.receipt_number = a.receipt_number)`,
  'A payment is recorded once when it was acknowledged, and else not': `select p.reference_number, count(*) from payment p where p.reversal_of is null group by p.reference_number
     having count(*) > 1 or p.reference_number not in (select a ->> 'reference' from jsonb_array_elements($1::jsonb -> 'paid') a)`,
  'A payment was reversed exactly when that was acknowledged': `select coalesce(a.reversal, p.id) as id, a.id as acknowledged, p.reversal_of
     from jsonb_to_recordset($1::jsonb -> 'reversed') a (id bigint, reversal bigint) full join (select id, reversal_of from payment where reversal_of is not null) p on p.id = a.reversal
     where a.id is distinct from p.reversal_of`,
  'There are as many fees as were made and not removed': `select * from (select count(*) as fees, ($1::jsonb ->> 'generated')::bigint - jsonb_array_length($1::jsonb -> 'removed') as most,
       jsonb_array_length($1::jsonb -> 'mayBeRemoved') as less from student_fee) c where fees > most or fees < most - less`,
  'A fee that was waived is waived, and one that was removed is gone': `select a as id, f.status from jsonb_array_elements_text($1::jsonb -> 'waived') a left join student_fee f on f.id = a::bigint
     where f.waived_at is null and not coalesce(f.id is null and (($1::jsonb -> 'removed') || ($1::jsonb -> 'mayBeRemoved')) @> a::jsonb, false)
     union all select f.id::text, f.status from student_fee f where $1::jsonb -> 'removed' @> f.id::text::jsonb`,
  'An invoice that was made is there with its number, one that was voided is void, a draft that was removed is gone': `select a.id, a.invoice_number, i.invoice_number as found, i.status
     from jsonb_to_recordset($1::jsonb -> 'invoiced') a (id bigint, invoice_number text) left join invoice i on i.id = a.id
     where (i.id is null and (a.invoice_number is not null or not (($1::jsonb -> 'draftsRemoved') || ($1::jsonb -> 'draftsMayBeRemoved')) @> a.id::text::jsonb))
       or i.invoice_number is distinct from coalesce(a.invoice_number, i.invoice_number) or ($1::jsonb -> 'voided' @> a.id::text::jsonb and i.voided_at is null)
       or (i.id is not null and $1::jsonb -> 'draftsRemoved' @> a.id::text::jsonb)`,
};

/** Describes the violated invariants of a school, with their rows. */
export async function findViolations(owner: pg.Client, schema: string, acknowledged: Acknowledged): Promise<string[]> {
  await owner.query(`set search_path = ${schema}, public; set timezone = 'UTC'`);
  const found: string[] = [];
  for (const [rule, text] of Object.entries(invariants)) {
    const { rows } = await owner.query<object>(text, text.includes('$1') ? [JSON.stringify(acknowledged)] : []);
    if (rows.length > 0)
      found.push(`${rule}: not so ${String(rows.length)} times, ${JSON.stringify(rows.slice(0, 3))}`);
  }
  return found;
}

/** Amounts in hundredths, which add up exactly. */
type Cents = Record<'billed' | 'collected' | 'outstanding' | 'overdue' | 'waived', bigint>;
export type Figures = Record<keyof Cents, number>;

/** The answer of `GET /api/finance/summary`. */
export interface Summary extends Figures {
  by_class: (Figures & { class_id: number | null })[];
  by_component: (Figures & { name: string })[];
  by_source: { student_fees: Figures; invoices: Figures };
}

const cents = (amount: string | number) => BigInt(Math.round(Number(amount) * 100));
const names = ['billed', 'collected', 'outstanding', 'overdue', 'waived'] as const;

interface Owed {
  id: string;
  class_id: string | null;
  amount: string;
  paid_amount: string;
  is_overdue: boolean;
  is_waived: boolean;
  items: { name: string; amount: number }[] | null;
}

/** Describes errors in the summary of a year, by computing it again from the records. */
export async function summaryErrors(
  owner: pg.Client,
  schema: string,
  yearId: number,
  summary: Summary,
): Promise<string[]> {
  await owner.query(`set search_path = ${schema}, public; set timezone = 'UTC'`);
  const { rows } = await owner.query<Owed>(
    `select f.id, f.class_id, f.amount, f.paid_amount, f.due_date < current_date as is_overdue, f.waived_at is not null as is_waived,
       (select json_agg(json_build_object('name', i.name, 'amount', i.amount) order by i.id) from student_fee_item i where i.student_fee_id = f.id) as items
     from student_fee f join fee_structure s on s.id = f.fee_structure_id where s.academic_year_id = $1
     union all
     select i.id, i.class_id, i.amount, i.paid_amount, i.due_date < current_date, false, null
     from invoice i join academic_year y on y.id = $1 and i.issued_at::date between y.start_date and y.end_date where i.voided_at is null`,
    [yearId],
  );
  const sums = new Map<string, Cents>();
  const add = (to: string, billed: bigint, collected: bigint, { is_overdue, is_waived }: Owed) => {
    const sum = sums.get(to) ?? { billed: 0n, collected: 0n, outstanding: 0n, overdue: 0n, waived: 0n };
    sum.billed += billed;
    sum.collected += collected;
    sum[is_waived ? 'waived' : 'outstanding'] += billed - collected;
    if (is_overdue && !is_waived) sum.overdue += billed - collected;
    sums.set(to, sum);
  };
  for (const one of rows) {
    const [billed, paid] = [cents(one.amount), cents(one.paid_amount)];
    for (const to of ['all', `class ${one.class_id ?? 'none'}`, one.items ? 'student_fees' : 'invoices'])
      add(to, billed, paid, one);
    // Payments are allocated to the items in order.
    let left = paid;
    for (const item of one.items ?? []) {
      const amount = cents(item.amount);
      const share = left < amount ? left : amount;
      left -= share;
      add(`component ${item.name}`, amount, share, one);
    }
  }
  const said: [string, Figures][] = [
    ['all', summary],
    ['student_fees', summary.by_source.student_fees],
    ['invoices', summary.by_source.invoices],
    ...summary.by_class.map((one): [string, Figures] => [`class ${String(one.class_id ?? 'none')}`, one]),
    ...summary.by_component.map((one): [string, Figures] => [`component ${one.name}`, one]),
  ];
  const wrong = said.flatMap(([to, figures]) =>
    names
      .filter((name) => cents(figures[name]) !== (sums.get(to)?.[name] ?? 0n))
      .map(
        (name) =>
          `${name} of ${to} is ${String(figures[name])}, and by the records ${String(sums.get(to)?.[name] ?? 0n)} cents`,
      ),
  );
  const unsaid = [...sums.keys()].filter((to) => !said.some(([name]) => name === to)).map((to) => `${to} is missing`);
  const { billed, collected, outstanding, waived } = summary;
  if (cents(billed) !== cents(collected) + cents(outstanding) + cents(waived))
    wrong.push('billed is not collected + outstanding + waived');
  return [...wrong, ...unsaid].map((what) => `The summary of year ${String(yearId)}: ${what}`);
}
