import type pg from 'pg';

/** The changes that the service has acknowledged. The database is compared with them. */
export interface Acknowledged {
  students: { id: number; last_name: string }[];
  /** The status of each mark, by student and date. */
  marks: Record<string, string>;
  slots: number[];
  slotsRemoved: number[];
  /** The response to the removal was lost. */
  slotsMayBeRemoved: number[];
  /** Notifications by title, with the number of their recipients. */
  notified: { title: string; recipients: number }[];
  /** Transport enrollments. */
  rides: number[];
  ridesCancelled: number[];
  /** Payments by reference number. */
  paid: { reference: string; id: number; amount: number; receipt_number: string }[];
  /** Reversals, by the reversed payment. */
  reversed: { id: number; reversal: number }[];
  /** Student fees by id. `mayBeRemoved`: the response to the removal was lost. */
  waived: number[];
  removed: number[];
  mayBeRemoved: number[];
  /** Total number of student fees created. */
  generated: number;
  /** Invoices; drafts have no number. */
  invoiced: { id: number; invoice_number: string | null }[];
  voided: number[];
  draftsRemoved: number[];
  draftsMayBeRemoved: number[];
}

export const nothing = (): Acknowledged => ({
  students: [],
  marks: {},
  slots: [],
  slotsRemoved: [],
  slotsMayBeRemoved: [],
  notified: [],
  rides: [],
  ridesCancelled: [],
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
});

/** Rules that compare the database with the acknowledged changes, `$1`. Each statement returns the violations. */
const comparisons: Record<string, string> = {
  'A student exists once if the creation or import was acknowledged, and otherwise not': `
    select coalesce(a.last_name, s.last_name) as last_name, a.id as acknowledged, s.id as found
    from jsonb_to_recordset($1::jsonb -> 'students') a (id bigint, last_name text)
    full join (select id, last_name from student where last_name ~ '^(Dent|Import)-') s on s.last_name = a.last_name
    where a.id is distinct from s.id`,
  'An attendance mark has the status that was acknowledged last, and there are no others': `
    select coalesce(a.key, m.key) as mark, a.value as acknowledged, m.status as found
    from jsonb_each_text($1::jsonb -> 'marks') a
    full join (select student_id || ' ' || date as key, status from attendance) m on m.key = a.key
    where a.value is distinct from m.status`,
  'A timetable slot exists if it was created and not removed, and otherwise not': `
    select a::bigint as acknowledged, s.id as found
    from jsonb_array_elements_text($1::jsonb -> 'slots') a
    full join timetable_slot s on s.id = a::bigint
    where a is null
      or (s.id is null) <> ($1::jsonb -> 'slotsRemoved' @> a::jsonb) and not $1::jsonb -> 'slotsMayBeRemoved' @> a::jsonb`,
  'A notification reached each recipient once if it was acknowledged, and otherwise nobody': `
    select coalesce(a.title, n.title) as title, a.recipients as acknowledged, n.recipients as found, n.notifications
    from jsonb_to_recordset($1::jsonb -> 'notified') a (title text, recipients integer)
    full join (
      select title, count(*) as notifications, count(distinct user_id) as recipients
      from notification where title ~ '^News-' group by title
    ) n on n.title = a.title
    where a.recipients is distinct from n.recipients or n.notifications <> n.recipients`,
  'A parent was told of a payment once, or not at all if it was reversed': `
    select p.receipt_number, count(d.id) as deliveries
    from payment p
    join student s on s.id = p.student_id and s.parent_email is not null
    left join notification_delivery d on substring(d.message from 'RCT-\\d+-\\d+') = p.receipt_number
    where p.reversal_of is null and $1::jsonb is not null
    group by p.id
    having count(d.id) > 1 or count(d.id) = 0 and not exists (select from payment r where r.reversal_of = p.id)`,
  'A transport enrollment exists if it was acknowledged, and a cancellation lasts': `
    select a::bigint as acknowledged, e.id as found, e.status
    from jsonb_array_elements_text($1::jsonb -> 'rides') a
    full join transport_enrollment e on e.id = a::bigint
    where a is null or e.id is null or ($1::jsonb -> 'ridesCancelled' @> a::jsonb and e.status <> 'cancelled')`,
  'An acknowledged payment is stored as it was returned': `
    select a.*
    from jsonb_to_recordset($1::jsonb -> 'paid') a (reference text, id bigint, amount numeric, receipt_number text)
    where not exists (
      select from payment p
      where p.id = a.id and p.reference_number = a.reference and p.amount = a.amount
        and p.receipt_number = a.receipt_number)`,
  'A payment is stored once if it was acknowledged, and otherwise not': `
    select p.reference_number, count(*)
    from payment p
    where p.reversal_of is null
    group by p.reference_number
    having count(*) > 1
      or p.reference_number not in (select a ->> 'reference' from jsonb_array_elements($1::jsonb -> 'paid') a)`,
  'A payment is reversed exactly if that was acknowledged': `
    select coalesce(a.reversal, p.id) as id, a.id as acknowledged, p.reversal_of
    from jsonb_to_recordset($1::jsonb -> 'reversed') a (id bigint, reversal bigint)
    full join (select id, reversal_of from payment where reversal_of is not null) p on p.id = a.reversal
    where a.id is distinct from p.reversal_of`,
  'There are as many student fees as were created and not removed': `
    select *
    from (
      select
        count(*) as fees,
        ($1::jsonb ->> 'generated')::bigint - jsonb_array_length($1::jsonb -> 'removed') as expected,
        jsonb_array_length($1::jsonb -> 'mayBeRemoved') as may_be_removed
      from student_fee
    ) counts
    where fees > expected or fees < expected - may_be_removed`,
  'A waived student fee stays waived, and a removed one is gone': `
    select a as id, f.status
    from jsonb_array_elements_text($1::jsonb -> 'waived') a
    left join student_fee f on f.id = a::bigint
    where f.waived_at is null
      and not coalesce(
        f.id is null and (($1::jsonb -> 'removed') || ($1::jsonb -> 'mayBeRemoved')) @> a::jsonb, false)
    union all
    select f.id::text, f.status from student_fee f where $1::jsonb -> 'removed' @> f.id::text::jsonb`,
  'An invoice keeps its number, a voided one is void, and a removed draft is gone': `
    select a.id, a.invoice_number, i.invoice_number as found, i.status
    from jsonb_to_recordset($1::jsonb -> 'invoiced') a (id bigint, invoice_number text)
    left join invoice i on i.id = a.id
    where (
        i.id is null
        and (
          a.invoice_number is not null
          or not (($1::jsonb -> 'draftsRemoved') || ($1::jsonb -> 'draftsMayBeRemoved')) @> a.id::text::jsonb
        )
      )
      or i.invoice_number is distinct from coalesce(a.invoice_number, i.invoice_number)
      or ($1::jsonb -> 'voided' @> a.id::text::jsonb and i.voided_at is null)
      or (i.id is not null and $1::jsonb -> 'draftsRemoved' @> a.id::text::jsonb)`,
};

/** Describes the differences between the database and the acknowledged changes, and the violated invariants. */
export async function findViolations(
  owner: pg.Client,
  tenantId: number,
  acknowledged: Acknowledged,
): Promise<string[]> {
  await owner.query(`set search_path = tenant_${String(tenantId)}, public; set timezone = 'UTC'`);
  const found: string[] = [];
  const add = (rule: string, count: number | string, examples: object[]) =>
    found.push(
      `${rule.replace(/\.$/, '')}. Violations: ${String(count)}, for example ${JSON.stringify(examples.slice(0, 3))}`,
    );
  for (const [rule, text] of Object.entries(comparisons)) {
    const { rows } = await owner.query<object>(text, [JSON.stringify(acknowledged)]);
    if (rows.length > 0) add(rule, rows.length, rows);
  }
  const { rows } = await owner.query<{ rule: string; violations: string; examples: object[] }>(
    'select * from core.find_violations($1)',
    [tenantId],
  );
  for (const { rule, violations, examples } of rows) add(rule, violations, examples);
  return found;
}

/** Amounts in cents, which can be added without rounding. */
type Cents = Record<'billed' | 'collected' | 'outstanding' | 'overdue' | 'waived' | 'discounted', bigint>;
export type Figures = Record<keyof Cents, number>;

/** The response of `GET /api/finance/summary`. */
export interface Summary extends Figures {
  by_class: (Figures & { class_id: number | null })[];
  by_component: (Figures & { name: string })[];
  by_source: { student_fees: Figures; invoices: Figures };
}

const cents = (amount: string | number) => BigInt(Math.round(Number(amount) * 100));
const names = ['billed', 'collected', 'outstanding', 'overdue', 'waived', 'discounted'] as const;

interface Owed {
  id: string;
  class_id: string | null;
  amount: string;
  paid_amount: string;
  discount_amount: string;
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
    `select f.id, f.class_id, f.amount, f.paid_amount, f.discount_amount, f.due_date < current_date as is_overdue, f.waived_at is not null as is_waived,
       (select json_agg(json_build_object('name', i.name, 'amount', i.amount) order by i.id) from student_fee_item i where i.student_fee_id = f.id) as items
     from student_fee f join fee_structure s on s.id = f.fee_structure_id where s.academic_year_id = $1
     union all
     select i.id, i.class_id, i.amount, i.paid_amount, 0, i.due_date < current_date, false, null
     from invoice i join academic_year y on y.id = $1 and i.issued_at::date between y.start_date and y.end_date where i.voided_at is null`,
    [yearId],
  );
  const sums = new Map<string, Cents>();
  const none: Cents = { billed: 0n, collected: 0n, outstanding: 0n, overdue: 0n, waived: 0n, discounted: 0n };
  const add = (to: string, billed: bigint, collected: bigint, discounted: bigint, { is_overdue, is_waived }: Owed) => {
    const sum = sums.get(to) ?? { ...none };
    const open = billed - discounted - collected;
    sum.billed += billed;
    sum.collected += collected;
    sum.discounted += discounted;
    sum[is_waived ? 'waived' : 'outstanding'] += open;
    if (is_overdue && !is_waived) sum.overdue += open;
    sums.set(to, sum);
  };
  for (const one of rows) {
    const [billed, paid, discounted] = [cents(one.amount), cents(one.paid_amount), cents(one.discount_amount)];
    for (const to of ['all', `class ${one.class_id ?? 'none'}`, one.items ? 'student_fees' : 'invoices'])
      add(to, billed, paid, discounted, one);
    // Payments are allocated to the items in order, discounts in the opposite order.
    let left = paid;
    let after = billed;
    for (const item of one.items ?? []) {
      const amount = cents(item.amount);
      const share = left < amount ? left : amount;
      left -= share;
      after -= amount;
      const rest = discounted > after ? discounted - after : 0n;
      add(`component ${item.name}`, amount, share, rest < amount ? rest : amount, one);
    }
  }
  const reported: [string, Figures][] = [
    ['all', summary],
    ['student_fees', summary.by_source.student_fees],
    ['invoices', summary.by_source.invoices],
    ...summary.by_class.map((one): [string, Figures] => [`class ${String(one.class_id ?? 'none')}`, one]),
    ...summary.by_component.map((one): [string, Figures] => [`component ${one.name}`, one]),
  ];
  const errors = reported.flatMap(([to, figures]) =>
    names
      .filter((name) => cents(figures[name]) !== (sums.get(to)?.[name] ?? 0n))
      .map(
        (name) =>
          `${name} of ${to} is ${String(figures[name])}, but the records add up to ${String(sums.get(to)?.[name] ?? 0n)} cents`,
      ),
  );
  const missing = [...sums.keys()]
    .filter((to) => !reported.some(([name]) => name === to))
    .map((to) => `${to} is missing`);
  const { billed, collected, outstanding, waived, discounted } = summary;
  if (cents(billed) !== cents(discounted) + cents(collected) + cents(outstanding) + cents(waived))
    errors.push('billed is not discounted + collected + outstanding + waived');
  return [...errors, ...missing].map((error) => `The summary of year ${String(yearId)}: ${error}`);
}
