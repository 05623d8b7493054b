-- Amounts have as many decimals as the currency of the school: none in yen, three in Kuwaiti dinars. The columns had
-- two; now each check allows up to four, the most that ISO 4217 has, and the functions refuse what the currency does
-- not allow. The checks also keep the limit of numeric(12,2), less than ten billion. The next migration validates them.
-- A numeric without a scale stores the same bytes, so no table is written again. Postgres builds the indexes that have
-- an expression or a condition again: student_fee_balance_idx, student_fee_open_idx, invoice_open_idx.

-- @allow type-change: no row is written again, and the functions of the earlier release expect a numeric.
alter table fee_component
  drop constraint fee_component_amount_check,
  alter column amount type numeric,
  add constraint fee_component_amount_check
    check (amount > 0 and amount < 10000000000 and amount = round(amount, 4)) not valid;

-- @allow type-change: no row is written again, and the functions of the earlier release expect a numeric.
alter table student_fee
  drop constraint student_fee_amount_check,
  drop constraint student_fee_paid_amount_check,
  alter column amount type numeric,
  alter column paid_amount type numeric,
  add constraint student_fee_amount_check
    check (amount > 0 and amount < 10000000000 and amount = round(amount, 4)) not valid,
  add constraint student_fee_paid_amount_check
    check (paid_amount between 0 and amount and paid_amount = round(paid_amount, 4)) not valid;

-- @allow type-change: no row is written again, and the functions of the earlier release expect a numeric.
alter table student_fee_item
  drop constraint student_fee_item_amount_check,
  alter column amount type numeric,
  add constraint student_fee_item_amount_check
    check (amount > 0 and amount < 10000000000 and amount = round(amount, 4)) not valid;

-- The type of a column that a trigger names cannot change.
-- @allow drop: the trigger is created again below, and nobody uses the school meanwhile.
drop trigger enforce_transition on invoice;
-- @allow type-change: no row is written again, and the functions of the earlier release expect a numeric.
alter table invoice
  drop constraint invoice_amount_check,
  drop constraint invoice_paid_amount_check,
  alter column amount type numeric,
  alter column paid_amount type numeric,
  add constraint invoice_amount_check
    check (amount >= 0 and amount < 10000000000 and amount = round(amount, 4)) not valid,
  add constraint invoice_paid_amount_check
    check (paid_amount between 0 and amount and paid_amount = round(paid_amount, 4)) not valid;
create trigger enforce_transition
  before update of status, issued_at, voided_at, amount, paid_amount, due_date on invoice
  for each row when (old.status is distinct from new.status)
  execute function enforce_transition('invoice');

-- Postgres cannot change the type of a column that a stored expression reads. A trigger computes line_total instead.
alter table invoice_item
  drop constraint invoice_item_amount_check,
  alter column line_total drop expression;
-- @allow type-change: no row is written again, and the functions of the earlier release expect a numeric.
alter table invoice_item
  alter column amount type numeric,
  alter column line_total type numeric,
  add constraint invoice_item_amount_check
    check (amount >= 0 and amount < 10000000000 and amount = round(amount, 4)) not valid;
create function invoice_item_line_total() returns trigger language plpgsql set search_path from current as $$
begin
  new.line_total := new.amount * new.quantity;
  return new;
end $$;
create trigger line_total before insert or update on invoice_item
  for each row execute function invoice_item_line_total();

-- @allow type-change: no row is written again, and the functions of the earlier release expect a numeric.
alter table payment
  drop constraint payment_amount_check,
  alter column amount type numeric,
  add constraint payment_amount_check
    check (amount <> 0 and abs(amount) < 10000000000 and amount = round(amount, 4)) not valid;
