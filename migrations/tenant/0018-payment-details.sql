-- How to pay the school, printed on invoices.

-- @allow check: the table has one row.
alter table school add column payment_details text
  constraint school_payment_details_check check (length(payment_details) between 1 and 1000);
comment on column school.payment_details is
  'How to pay, for example a bank account. It is printed on invoices that are not paid.';
