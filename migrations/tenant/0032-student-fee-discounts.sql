-- Discounts on student fees: a part of a fee that the student need not pay. The amount of the fee stays gross; the sum
-- of its discounts is stored beside it, as the sum of its payments is.

alter table student_fee
  add column discount_amount numeric not null default 0,
  add constraint student_fee_discount_amount_check check (
    discount_amount >= 0 and discount_amount = round(discount_amount, 4) and paid_amount + discount_amount <= amount
  ) not valid;
comment on column student_fee.discount_amount is 'The sum of the discounts. A trigger adds them up.';

create table student_fee_discount (
  id bigserial primary key,
  student_fee_id bigint not null references student_fee (id) on delete cascade,
  student_id bigint not null references student (id) on delete restrict,
  amount numeric not null
    constraint student_fee_discount_amount_check
      check (amount > 0 and amount < 10000000000 and amount = round(amount, 4)),
  percent numeric
    constraint student_fee_discount_percent_check
      check (percent > 0 and percent <= 100 and percent = round(percent, 4)),
  reason text
    constraint student_fee_discount_reason_check check (length(reason) between 1 and 500),
  created_by bigint references user_account (id) on delete set null,
  created_by_name text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table student_fee_discount is
  e'A discount on a student fee. It is never changed; deleting it undoes it.\n@grants select, insert, delete';
comment on column student_fee_discount.percent is
  'The part of the amount of the fee from which the amount was computed. Null if the amount was given.';
comment on column student_fee_discount.reason is 'Null only after the data of the student were erased.';
comment on column student_fee_discount.created_by_name is
  'A copy of the name of created_by, because students cannot read other users.';
create index student_fee_discount_student_fee_id_idx on student_fee_discount (student_fee_id);
create index student_fee_discount_student_id_idx on student_fee_discount (student_id);
create index student_fee_discount_created_by_idx on student_fee_discount (created_by);
create policy students_see_themselves on student_fee_discount as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );

-- The update locks the fee, so discounts and payments of a fee are applied one after the other. The check constraint of
-- discount_amount rejects the one that would exceed the amount of the fee.
create function student_fee_discount_apply() returns trigger language plpgsql set search_path from current as $$
begin
  update student_fee f
    set discount_amount = f.discount_amount + case tg_op when 'DELETE' then -d.amount else d.amount end
    from (select student_fee_id, sum(amount) as amount from changed group by student_fee_id) d
    where f.id = d.student_fee_id;
  return null;
end $$;
create trigger apply_insert after insert on student_fee_discount
  referencing new table as changed
  for each statement execute function student_fee_discount_apply();
create trigger apply_delete after delete on student_fee_discount
  referencing old table as changed
  for each statement execute function student_fee_discount_apply();

-- As before, and a fee is paid when payments and discounts add up to its amount. An invoice has no discounts.
-- @allow replace-function: without discounts it computes the same status as before.
create or replace function derive_status() returns trigger language plpgsql set search_path from current as $$
declare
  v_row jsonb := to_jsonb(new);
begin
  new.status := case
    when v_row ->> 'waived_at' is not null then 'waived'
    when v_row ->> 'voided_at' is not null then 'void'
    when v_row -> 'issued_at' = 'null' then 'draft'
    when new.paid_amount + coalesce((v_row ->> 'discount_amount')::numeric, 0) >= new.amount then 'paid'
    when new.due_date < (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date
      then 'overdue'
    when new.paid_amount > 0 then 'partially_paid'
    else tg_argv[0]
  end;
  return new;
end $$;
