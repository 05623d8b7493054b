--! Previous: sha1:b3898c6cef1fa83a2bb7fd0eb1d2829874401276
--! Hash: sha1:b5657daa1187307ca1de51171d6bf35508712eb6
--! Message: facts about fees with discounts

-- The facts about fees with their discounts. The earlier release writes mart.fee_month and cannot write a table with
-- more columns, so this is a new table, which begins with the facts of the old one. The next release drops that.
create table mart.fee_amount (
  tenant_id bigint not null,
  academic_year_id bigint not null,
  month date not null,
  source text not null,
  component text not null,
  currency text not null,
  billed numeric not null,
  discounted numeric not null,
  waived numeric not null,
  collected numeric not null,
  overdue numeric not null,
  primary key (tenant_id, academic_year_id, month, source, component, currency)
);
comment on table mart.fee_amount is
  'Amounts billed in a month by component, and how much of them has been discounted, waived, collected or become '
  'overdue since. Invoices outside every academic year have the academic year 0.';
-- The policies of the table let its owner see one school at a time.
alter table mart.fee_month no force row level security;
insert into mart.fee_amount
  select tenant_id, academic_year_id, month, source, component, currency, billed, 0, waived, collected, overdue
  from mart.fee_month;
alter table mart.fee_month force row level security;
