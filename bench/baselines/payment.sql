-- $1 fee, $2 amount, $3 payment method, $4 today, $5 series of receipts
with fee as materialized (
  select id, student_id
  from school.student_fee
  where id = $1 and status <> 'waived' and amount - paid_amount >= $2
  for no key update
), number as (
  insert into school.counter as c (name, value)
    select $5, 1 from fee
    on conflict (name) do update set value = c.value + 1
    returning value
), added as (
  insert into school.payment (
      student_id, student_fee_id, amount, payment_date, payment_method, recorded_by, recorded_by_name, receipt_number)
    select fee.student_id, fee.id, $2, $4, $3, 1, 'Ada Admin', $5 || '-' || lpad(number.value::text, 6, '0')
    from fee, number
    returning *
)
select row_to_json(record)
from (
  select
    p.id, p.receipt_number, 'student_fee' as kind,
    p.student_id, s.first_name || ' ' || s.last_name as student_name, s.admission_number,
    c.id as class_id, c.name || coalesce(' ' || c.section, '') as class_name,
    p.student_fee_id, t.name as fee_structure_name, p.invoice_id, null as invoice_number,
    p.amount, p.payment_date, p.payment_method, p.payment_method as method, p.reference_number, p.notes,
    p.reversal_of, false as is_reversed, p.recorded_by, p.recorded_by_name, p.created_at, p.updated_at
  from added p
  join school.student s on s.id = p.student_id
  join school.student_fee f on f.id = p.student_fee_id
  join school.fee_structure t on t.id = f.fee_structure_id
  left join school.class c on c.id = f.class_id
) record
