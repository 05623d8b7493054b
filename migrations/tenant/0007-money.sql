-- Money: fee structures, the fees of students, invoices and payments. Triggers compute paid amounts and statuses; api
-- functions only read them.

-- The status of a student fee or an invoice. Unpaid means overdue after the due date in the time zone of the school;
-- the daily job updates rows that nothing else updates. tg_argv[0] is the status before the due date, with nothing
-- paid.
create function derive_status() returns trigger language plpgsql set search_path from current as $$
declare
  v_row jsonb := to_jsonb(new);
begin
  new.status := case
    when v_row ->> 'waived_at' is not null then 'waived'
    when v_row ->> 'voided_at' is not null then 'void'
    when v_row -> 'issued_at' = 'null' then 'draft'
    when new.paid_amount >= new.amount then 'paid'
    when new.due_date < (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date
      then 'overdue'
    when new.paid_amount > 0 then 'partially_paid'
    else tg_argv[0]
  end;
  return new;
end $$;

create table fee_structure (
  id bigserial primary key,
  name text not null
    constraint fee_structure_name_check check (length(name) between 1 and 100),
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  description text,
  due_date date,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table fee_structure is 'A set of fees for an academic year.';
create unique index fee_structure_name_key on fee_structure (academic_year_id, lower(name));

create table fee_structure_class (
  fee_structure_id bigint not null references fee_structure (id) on delete cascade,
  class_id bigint not null references class (id) on delete restrict,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (fee_structure_id, class_id)
);
comment on table fee_structure_class is 'The classes whose students pay a fee structure.';
create index fee_structure_class_class_id_idx on fee_structure_class (class_id);

create table fee_component (
  id bigserial primary key,
  fee_structure_id bigint not null references fee_structure (id) on delete cascade,
  name text not null
    constraint fee_component_name_check check (length(name) between 1 and 100),
  amount numeric(12,2) not null
    constraint fee_component_amount_check check (amount > 0),
  frequency text not null
    constraint fee_component_frequency_check
      check (frequency in ('one_time', 'monthly', 'quarterly', 'term', 'annual')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table fee_component is 'A component of a fee structure: its amount and how often it is billed.';
create unique index fee_component_name_key on fee_component (fee_structure_id, lower(name));

create table student_fee (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  fee_structure_id bigint not null references fee_structure (id) on delete restrict,
  class_id bigint references class (id) on delete restrict,
  amount numeric(12,2) not null
    constraint student_fee_amount_check check (amount > 0),
  paid_amount numeric(12,2) not null default 0
    constraint student_fee_paid_amount_check check (paid_amount between 0 and amount),
  billed_on date not null default current_date,
  due_date date not null,
  status text not null default 'pending'
    constraint student_fee_status_check
      check (status in ('pending', 'partially_paid', 'paid', 'overdue', 'waived')),
  waived_at timestamptz,
  waived_by bigint references user_account (id) on delete set null,
  waive_reason text,
  items_digest uuid not null default gen_random_uuid(),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint student_fee_waived_at_check check ((waived_at is not null) = (status = 'waived'))
);
comment on table student_fee is 'A fee that a student owes, billed from a fee structure.';
comment on column student_fee.class_id is 'The class of the student when the fee was billed.';
comment on column student_fee.billed_on is 'The items are for the month, quarter, term and year of this day.';
comment on column student_fee.items_digest is
  'Equal for fees whose items have the same names and amounts in the same order: totals then read the items of one '
  'of these fees.';
create index student_fee_student_id_idx on student_fee (student_id, due_date);
create index student_fee_fee_structure_id_idx on student_fee (fee_structure_id);
create index student_fee_class_id_idx on student_fee (class_id);
create index student_fee_status_idx on student_fee (status, due_date);
create index student_fee_due_date_idx on student_fee (due_date, id);
create index student_fee_amount_idx on student_fee (amount, id);
create index student_fee_balance_idx on student_fee
  ((case when status = 'waived' then 0 else amount - paid_amount end), id);
create index student_fee_waived_by_idx on student_fee (waived_by);
create policy students_see_themselves on student_fee as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );
create trigger derive before insert or update on student_fee
  for each row execute function derive_status('pending');

create table student_fee_item (
  id bigserial primary key,
  student_fee_id bigint not null references student_fee (id) on delete cascade,
  student_id bigint not null references student (id) on delete restrict,
  fee_component_id bigint not null references fee_component (id) on delete restrict,
  name text not null,
  amount numeric(12,2) not null
    constraint student_fee_item_amount_check check (amount > 0),
  period_start date not null,
  period_end date not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint student_fee_item_period_end_check check (period_end >= period_start)
);
comment on table student_fee_item is
  e'An item of a student fee: a component for one of its billing periods, with its name and amount at that time. The '
  'period of a one-time component is the academic year.\n@grants select, insert, delete';
-- A component is billed once per student and period, however often the fees are generated.
create unique index student_fee_item_period_key on student_fee_item (student_id, fee_component_id, period_start);
create index student_fee_item_student_fee_id_idx on student_fee_item (student_fee_id);
create index student_fee_item_fee_component_id_idx on student_fee_item (fee_component_id);
create policy students_see_themselves on student_fee_item as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );

create table invoice (
  id bigserial primary key,
  invoice_number text
    constraint invoice_number_check check (invoice_number ~ '^INV-\d{4}-\d{6,}$'),
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint references class (id) on delete restrict,
  due_date date not null,
  amount numeric(12,2) not null default 0
    constraint invoice_amount_check check (amount >= 0),
  paid_amount numeric(12,2) not null default 0
    constraint invoice_paid_amount_check check (paid_amount between 0 and amount),
  status text not null default 'draft'
    constraint invoice_status_check
      check (status in ('draft', 'sent', 'partially_paid', 'paid', 'overdue', 'void')),
  issued_at timestamptz,
  notes text,
  voided_at timestamptz,
  void_reason text,
  created_by bigint references user_account (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint invoice_issued_at_check check ((issued_at is null) = (invoice_number is null)),
  constraint invoice_paid_when_issued_check check (paid_amount = 0 or issued_at is not null),
  constraint invoice_voided_at_check check (voided_at is null or (issued_at is not null and paid_amount = 0))
);
comment on table invoice is
  'An invoice to a student. A draft has no number. Issuing it assigns the next number; from then on it can be '
  'voided but not deleted, so numbers have no gaps.';
create unique index invoice_number_key on invoice (invoice_number);
create index invoice_student_id_idx on invoice (student_id, id desc);
create index invoice_class_id_idx on invoice (class_id);
create index invoice_status_idx on invoice (status, due_date);
create index invoice_due_date_idx on invoice (due_date, id);
create index invoice_created_at_idx on invoice (created_at, id);
create index invoice_issued_at_idx on invoice (issued_at, id);
create index invoice_number_search_idx on invoice using gin (invoice_number public.gin_trgm_ops)
  with (fastupdate = off);
create index invoice_created_by_idx on invoice (created_by);
create policy students_see_themselves on invoice as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );
insert into state_transition (entity, action, from_state, to_state) values
  ('invoice', 'issue', 'draft', 'sent'),
  ('invoice', 'issue', 'draft', 'overdue'),
  ('invoice', 'issue', 'draft', 'paid'),
  ('invoice', 'pay', 'sent', 'partially_paid'),
  ('invoice', 'pay', 'sent', 'overdue'),
  ('invoice', 'pay', 'sent', 'paid'),
  ('invoice', 'pay', 'partially_paid', 'overdue'),
  ('invoice', 'pay', 'partially_paid', 'paid'),
  ('invoice', 'pay', 'overdue', 'partially_paid'),
  ('invoice', 'pay', 'overdue', 'paid'),
  ('invoice', 'reverse', 'partially_paid', 'sent'),
  ('invoice', 'reverse', 'partially_paid', 'overdue'),
  ('invoice', 'reverse', 'overdue', 'sent'),
  ('invoice', 'reverse', 'overdue', 'partially_paid'),
  ('invoice', 'reverse', 'paid', 'sent'),
  ('invoice', 'reverse', 'paid', 'partially_paid'),
  ('invoice', 'reverse', 'paid', 'overdue'),
  ('invoice', 'become_overdue', 'sent', 'overdue'),
  ('invoice', 'become_overdue', 'partially_paid', 'overdue'),
  -- A new due date or amount.
  ('invoice', 'change', 'sent', 'overdue'),
  ('invoice', 'change', 'sent', 'paid'),
  ('invoice', 'change', 'overdue', 'sent'),
  ('invoice', 'change', 'overdue', 'paid'),
  ('invoice', 'change', 'paid', 'sent'),
  ('invoice', 'change', 'paid', 'overdue'),
  ('invoice', 'void', 'sent', 'void'),
  ('invoice', 'void', 'overdue', 'void'),
  ('invoice', 'void', 'paid', 'void');
create trigger derive before insert or update on invoice
  for each row execute function derive_status('sent');
-- Triggers run in order of their names: this one sees the status that `derive` has set.
create trigger enforce_transition
  before update of status, issued_at, voided_at, amount, paid_amount, due_date on invoice
  for each row when (old.status is distinct from new.status)
  execute function enforce_transition('invoice');

create table invoice_item (
  id bigserial primary key,
  invoice_id bigint not null references invoice (id) on delete cascade,
  student_id bigint not null references student (id) on delete restrict,
  description text not null
    constraint invoice_item_description_check check (length(description) between 1 and 500),
  amount numeric(12,2) not null
    constraint invoice_item_amount_check check (amount >= 0),
  quantity integer not null default 1
    constraint invoice_item_quantity_check check (quantity > 0),
  line_total numeric(12,2) not null generated always as (amount * quantity) stored,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table invoice_item is 'A line of an invoice. amount is the unit price.';
create index invoice_item_invoice_id_idx on invoice_item (invoice_id);
create index invoice_item_student_id_idx on invoice_item (student_id);
create policy students_see_themselves on invoice_item as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );

-- The amount of an invoice is the sum of its items.
create function invoice_update_amount() returns trigger language plpgsql set search_path from current as $$
begin
  update invoice i
    set amount = (select coalesce(sum(line_total), 0) from invoice_item where invoice_id = i.id)
    where i.id in (select invoice_id from changed);
  return null;
end $$;
create trigger update_amount_of_insert after insert on invoice_item
  referencing new table as changed
  for each statement execute function invoice_update_amount();
create trigger update_amount_of_update after update on invoice_item
  referencing new table as changed
  for each statement execute function invoice_update_amount();
create trigger update_amount_of_delete after delete on invoice_item
  referencing old table as changed
  for each statement execute function invoice_update_amount();

create table invoice_reminder (
  invoice_id bigint not null references invoice (id) on delete cascade,
  sent_on date not null,
  sent_to text not null,
  requested_by bigint references user_account (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (invoice_id, sent_on)
);
comment on table invoice_reminder is
  'A reminder of an invoice, at most one per invoice and day. requested_by is null for a reminder from the daily job.';
create index invoice_reminder_requested_by_idx on invoice_reminder (requested_by);
create policy students_see_no_reminders on invoice_reminder as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null);

create table payment (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  student_fee_id bigint references student_fee (id) on delete restrict,
  invoice_id bigint references invoice (id) on delete restrict,
  receipt_number text,
  amount numeric(12,2) not null
    constraint payment_amount_check check (amount <> 0),
  payment_date date not null,
  payment_method text not null,
  reference_number text,
  notes text,
  reversal_of bigint references payment (id) on delete restrict,
  recorded_by bigint references user_account (id) on delete set null,
  recorded_by_name text,
  search_text text not null generated always as (
    platform.search_normal(coalesce(receipt_number, '') || ' ' || coalesce(reference_number, ''))
  ) stored,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint payment_student_fee_id_check check (num_nonnulls(student_fee_id, invoice_id) = 1),
  constraint payment_reversal_of_check check ((amount < 0) = (reversal_of is not null))
);
comment on table payment is
  e'A payment of a student fee or of an invoice. Payments are never changed: a reversal is a payment with a negative '
  'amount.\n@grants select, insert';
comment on column payment.recorded_by_name is
  'A copy of the name of recorded_by, because students cannot read other users.';
create unique index payment_receipt_number_key on payment (receipt_number);
create unique index payment_reversal_of_key on payment (reversal_of);
create index payment_student_id_idx on payment (student_id, payment_date);
create index payment_student_fee_id_idx on payment (student_fee_id);
create index payment_invoice_id_idx on payment (invoice_id);
create index payment_payment_date_idx on payment (payment_date, id);
create index payment_recorded_by_idx on payment (recorded_by);
create index payment_search_idx on payment using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off);
create policy students_see_themselves on payment as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );

-- A reversal takes back a whole payment.
create function payment_reverse() returns trigger language plpgsql set search_path from current as $$
begin
  select p.student_id, p.student_fee_id, p.invoice_id, -p.amount
    into new.student_id, new.student_fee_id, new.invoice_id, new.amount
    from payment p
    where p.id = new.reversal_of and p.reversal_of is null;
  if not found then
    raise exception using errcode = 'S409C',
      message = 'A reversal cannot be reversed. Record the payment again.';
  end if;
  return new;
end $$;
create trigger reverse before insert on payment
  for each row when (new.reversal_of is not null)
  execute function payment_reverse();

-- The paid amount is the sum of the payments. The check constraints of paid_amount reject a payment above the amount,
-- and a payment of an invoice that is a draft or void.
create function payment_apply() returns trigger language plpgsql set search_path from current as $$
begin
  update student_fee f
    set paid_amount = f.paid_amount + p.amount
    from (
      select student_fee_id, sum(amount) as amount from added where student_fee_id is not null group by student_fee_id
    ) p
    where f.id = p.student_fee_id;
  update invoice i
    set paid_amount = i.paid_amount + p.amount
    from (
      select invoice_id, sum(amount) as amount from added where invoice_id is not null group by invoice_id
    ) p
    where i.id = p.invoice_id;
  return null;
end $$;
create trigger apply after insert on payment
  referencing new table as added
  for each statement execute function payment_apply();
