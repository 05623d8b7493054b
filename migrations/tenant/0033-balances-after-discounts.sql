-- The balance of a fee after its discounts, for lists sorted by it, and for the dashboard, which adds up open fees.

create index student_fee_net_balance_idx on student_fee
  ((case when status = 'waived' then 0 else amount - discount_amount - paid_amount end), id);
create index student_fee_open_balance_idx on student_fee (student_id) include (amount, discount_amount, paid_amount)
  where status in ('pending', 'sent', 'partially_paid', 'overdue');
