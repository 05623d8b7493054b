-- @optional: the dashboard shows the same sums without these indexes, only more slowly.
-- The dashboard adds up all open invoices and fees. It reads them in these indexes, which also have the column of the
-- row policy. The condition is that of api.is_open.
create index invoice_open_idx on invoice (student_id) include (amount, paid_amount)
  where status in ('pending', 'sent', 'partially_paid', 'overdue');
create index student_fee_open_idx on student_fee (student_id) include (amount, paid_amount)
  where status in ('pending', 'sent', 'partially_paid', 'overdue');
