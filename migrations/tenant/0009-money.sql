-- Money: what a fee structure is made of and whom it concerns, what each student owes, item by item, invoices, and one table
-- of payments for both. What is paid and the state that follows from it are derived here, by triggers; the rest only reads them.

alter table school add currency text not null default 'USD' constraint school_currency_check check (currency ~ '^[A-Z]{3}$');
comment on column school.currency is 'ISO 4217.';

create table fee_component (
  id bigserial primary key,
  fee_structure_id bigint not null references fee_structure (id) on delete cascade,
  name text not null constraint fee_component_name_check check (length(name) between 1 and 100),
  amount numeric(12,2) not null constraint fee_component_amount_check check (amount > 0),
  frequency text not null constraint fee_component_frequency_check check (frequency in ('one_time', 'monthly', 'quarterly', 'term', 'annual')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table fee_component is 'A part of a fee structure: how much, how often.';
create unique index fee_component_name_key on fee_component (fee_structure_id, lower(name));

create table fee_structure_class (
  fee_structure_id bigint not null references fee_structure (id) on delete cascade,
  class_id bigint not null references class (id) on delete restrict,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (fee_structure_id, class_id)
);
comment on table fee_structure_class is 'The classes whose students pay a fee structure.';
create index fee_structure_class_class_id_idx on fee_structure_class (class_id);

-- The state of what is owed, by student fee or invoice. Overdue is what is not paid when its day has passed, where the school is;
-- the daily job touches those that nobody else does.
create function derive_status() returns trigger language plpgsql set search_path from current as $$
declare
  v_row jsonb := to_jsonb(new);
begin
  new.status := case
    when v_row ->> 'waived_at' is not null then 'waived'
    when v_row ->> 'voided_at' is not null then 'void'
    when v_row -> 'issued_at' = 'null' then 'draft'
    when new.paid_amount >= new.amount then 'paid'
    when new.due_date < (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date then 'overdue'
    when new.paid_amount > 0 then 'partially_paid'
    else tg_argv[0]
  end;
  return new;
end $$;

alter table student_fee
  add class_id bigint references class (id) on delete restrict,
  add billed_on date not null default current_date,
  add waived_at timestamptz,
  add waived_by bigint references user_account (id) on delete set null,
  add waive_reason text,
  drop constraint student_fee_amount_check,
  add constraint student_fee_amount_check check (amount > 0),
  add constraint student_fee_waived_at_check check ((waived_at is not null) = (status = 'waived'));
comment on column student_fee.class_id is 'The class of the student when it was billed.';
comment on column student_fee.billed_on is 'The day whose month, quarter, term and year the items are for.';
create index student_fee_class_id_idx on student_fee (class_id);
create index student_fee_due_date_idx on student_fee (due_date, id);
create index student_fee_waived_by_idx on student_fee (waived_by);

create table student_fee_item (
  id bigserial primary key,
  student_fee_id bigint not null references student_fee (id) on delete cascade,
  student_id bigint not null references student (id) on delete restrict,
  fee_component_id bigint not null references fee_component (id) on delete restrict,
  name text not null,
  amount numeric(12,2) not null constraint student_fee_item_amount_check check (amount > 0),
  period_start date not null,
  period_end date not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint student_fee_item_period_end_check check (period_end >= period_start)
);
comment on table student_fee_item is e'What a student fee is made of: a component for one of its periods, with name and amount as they were. A one-time component has the academic year as its period.\n@grants select, insert, delete';
-- A component is billed once for a period, whoever bills it how often.
create unique index student_fee_item_period_key on student_fee_item (student_id, fee_component_id, period_start);
create index student_fee_item_student_fee_id_idx on student_fee_item (student_fee_id);
create index student_fee_item_fee_component_id_idx on student_fee_item (fee_component_id);
create policy students_see_themselves on student_fee_item as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint);

create trigger derive before insert or update on student_fee for each row execute function derive_status('pending');

create table invoice (
  id bigserial primary key,
  invoice_number text constraint invoice_number_check check (invoice_number ~ '^INV-\d{4}-\d{6,}$'),
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint references class (id) on delete restrict,
  due_date date not null,
  amount numeric(12,2) not null default 0 constraint invoice_amount_check check (amount >= 0),
  paid_amount numeric(12,2) not null default 0 constraint invoice_paid_amount_check check (paid_amount between 0 and amount),
  status text not null default 'draft' constraint invoice_status_check check (status in ('draft', 'sent', 'partially_paid', 'paid', 'overdue', 'void')),
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
comment on table invoice is 'A bill to a student. A draft has no number; with its number it is issued, and from then on voided at most, so that numbers have no gaps.';
create unique index invoice_number_key on invoice (invoice_number);
create index invoice_student_id_idx on invoice (student_id, id desc);
create index invoice_class_id_idx on invoice (class_id);
create index invoice_status_idx on invoice (status, due_date);
create index invoice_due_date_idx on invoice (due_date, id);
create index invoice_created_at_idx on invoice (created_at, id);
create index invoice_issued_at_idx on invoice (issued_at, id);
create index invoice_number_search_idx on invoice using gin (invoice_number public.gin_trgm_ops) with (fastupdate = off);
create index invoice_created_by_idx on invoice (created_by);
create policy students_see_themselves on invoice as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint);

create table invoice_item (
  id bigserial primary key,
  invoice_id bigint not null references invoice (id) on delete cascade,
  student_id bigint not null references student (id) on delete restrict,
  description text not null constraint invoice_item_description_check check (length(description) between 1 and 500),
  amount numeric(12,2) not null constraint invoice_item_amount_check check (amount >= 0),
  quantity integer not null default 1 constraint invoice_item_quantity_check check (quantity > 0),
  line_total numeric(12,2) not null generated always as (amount * quantity) stored,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table invoice_item is 'A line of an invoice; amount is the price of one.';
create index invoice_item_invoice_id_idx on invoice_item (invoice_id);
create index invoice_item_student_id_idx on invoice_item (student_id);
create policy students_see_themselves on invoice_item as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint);

create trigger derive before insert or update on invoice for each row execute function derive_status('sent');
insert into state_transition (entity, action, from_state, to_state)
  select 'invoice', action, from_state, to_state
  from (values
    ('issue', '{draft}', '{sent,overdue,paid}'), ('void', '{sent,overdue,paid}', '{void}'), ('change', '{sent,overdue,paid}', '{sent,overdue,paid}'),
    ('pay', '{sent,partially_paid,overdue}', '{partially_paid,overdue,paid}'), ('reverse', '{partially_paid,overdue,paid}', '{sent,partially_paid,overdue}'),
    ('pass its day', '{sent,partially_paid}', '{overdue}')
  ) steps (action, from_states, to_states), unnest(from_states::text[]) from_state, unnest(to_states::text[]) to_state
  where from_state <> to_state;
create trigger enforce_transition before update of status, issued_at, voided_at, amount, paid_amount, due_date on invoice
  for each row when (old.status is distinct from new.status) execute function enforce_transition('invoice');

-- The amount follows the items.
create function invoice_add_up() returns trigger language plpgsql set search_path from current as $$
begin
  update invoice i set amount = (select coalesce(sum(line_total), 0) from invoice_item where invoice_id = i.id) where i.id in (select invoice_id from changed);
  return null;
end $$;
create trigger add_up_added after insert on invoice_item referencing new table as changed for each statement execute function invoice_add_up();
create trigger add_up_changed after update on invoice_item referencing new table as changed for each statement execute function invoice_add_up();
create trigger add_up_removed after delete on invoice_item referencing old table as changed for each statement execute function invoice_add_up();

-- One table of payments, of student fees and of invoices.
alter table fee_payment rename to payment;
alter sequence fee_payment_id_seq rename to payment_id_seq;
alter index fee_payment_pkey rename to payment_pkey;
alter index fee_payment_student_id_idx rename to payment_student_id_idx;
alter index fee_payment_student_fee_id_idx rename to payment_student_fee_id_idx;
alter index fee_payment_reversal_of_key rename to payment_reversal_of_key;
alter index fee_payment_payment_date_idx rename to payment_payment_date_idx;
alter index fee_payment_recorded_by_idx rename to payment_recorded_by_idx;
alter table payment rename constraint fee_payment_amount_check to payment_amount_check;
alter table payment rename constraint fee_payment_reversal_of_check to payment_reversal_of_check;
alter table payment
  alter student_fee_id drop not null,
  add invoice_id bigint references invoice (id) on delete restrict,
  add receipt_number text,
  add notes text,
  add recorded_by_name text,
  add constraint payment_student_fee_id_check check (num_nonnulls(student_fee_id, invoice_id) = 1);
comment on table payment is e'A payment of a student fee or of an invoice; a reversal is a record of its own, with a negative amount. Never changed.\n@grants select, insert';
comment on column payment.recorded_by_name is 'Kept beside recorded_by, since students see no other user.';
create index payment_invoice_id_idx on payment (invoice_id);
drop index payment_payment_date_idx;
create index payment_payment_date_idx on payment (payment_date, id);
create unique index payment_receipt_number_key on payment (receipt_number);

-- A reversal takes back all of one payment, of what that was for.
create function payment_reverse() returns trigger language plpgsql set search_path from current as $$
begin
  select p.student_id, p.student_fee_id, p.invoice_id, -p.amount into new.student_id, new.student_fee_id, new.invoice_id, new.amount
    from payment p where p.id = new.reversal_of and p.reversal_of is null;
  if not found then
    raise exception using errcode = 'S409C', message = 'A reversal can''t be reversed; record the payment again.';
  end if;
  return new;
end $$;
create trigger reverse before insert on payment for each row when (new.reversal_of is not null) execute function payment_reverse();

-- What is paid is the sum of the payments. The checks of paid_amount refuse what is above the amount, and an invoice that
-- isn't issued or is void.
create function payment_apply() returns trigger language plpgsql set search_path from current as $$
begin
  update student_fee f set paid_amount = f.paid_amount + p.amount
    from (select student_fee_id, sum(amount) as amount from added where student_fee_id is not null group by student_fee_id) p where f.id = p.student_fee_id;
  update invoice i set paid_amount = i.paid_amount + p.amount
    from (select invoice_id, sum(amount) as amount from added where invoice_id is not null group by invoice_id) p where i.id = p.invoice_id;
  return null;
end $$;
create trigger apply after insert on payment referencing new table as added for each statement execute function payment_apply();

create table invoice_reminder (
  invoice_id bigint not null references invoice (id) on delete cascade,
  sent_on date not null,
  sent_to text not null,
  requested_by bigint references user_account (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (invoice_id, sent_on)
);
comment on table invoice_reminder is 'Reminders of invoices, at most one for an invoice and day; requested_by is null for the daily job.';
create index invoice_reminder_requested_by_idx on invoice_reminder (requested_by);
create policy students_see_themselves on invoice_reminder as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null);

create table daily_run (
  task text not null,
  run_on date not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (task, run_on)
);
comment on table daily_run is 'Which daily work of this school was done on which of its days; written in the transaction of that work, so that it is done once.';
