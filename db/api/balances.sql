-- /api/finance/balances: what each student owes of everything that they were billed. Also the functions that student
-- fees and invoices share. Their status is written by the trigger `derive` whenever one of them changes.

select core.define_operation('balances_export', p_permission => 'fee.read', p_feature => 'fees_management',
  p_errors => '{not_found}');

-- is_open and status_on are immutable, so that the planner inlines them and uses indexes on their arguments.
create function api.is_open(p_status text) returns boolean language sql immutable
  return p_status in ('pending', 'sent', 'partially_paid', 'overdue');
comment on function api.is_open is 'Whether a student fee or an invoice with this status is still to be paid.';

create function api.status_on(p_status text, p_due_date date, p_day date) returns text language sql immutable
  return case when api.is_open(p_status) and p_due_date < p_day then 'overdue' else p_status end;
comment on function api.status_on is
  'The status of a student fee or an invoice on a day: overdue if it is open after its due date, even if the daily job '
  'has not written that yet.';

create function api.bills(p_day date, p_academic_year_id bigint default null)
  returns table (
    kind text, id bigint, name text, student_id bigint, class_id bigint, items_digest uuid,
    due_date date, status text, amount numeric, discount_amount numeric, paid_amount numeric, remainder numeric
  )
  language sql stable as $$
  select 'student_fee', f.id, (select s.name from fee_structure s where s.id = f.fee_structure_id),
    f.student_id, f.class_id, f.items_digest,
    f.due_date, api.status_on(f.status, f.due_date, p_day), f.amount, f.discount_amount, f.paid_amount,
    f.amount - f.discount_amount - f.paid_amount
  from student_fee f
  where p_academic_year_id is null
    or f.fee_structure_id = any (array(
      select s.id from fee_structure s where s.academic_year_id = p_academic_year_id))
  union all
  select 'invoice', i.id, i.invoice_number,
    i.student_id, i.class_id, null,
    i.due_date, api.status_on(i.status, i.due_date, p_day), i.amount, 0, i.paid_amount,
    i.amount - i.paid_amount
  from invoice i
  where i.issued_at is not null and i.voided_at is null
    and (p_academic_year_id is null
      or (
        i.issued_at >= (select core.day_begins(y.start_date) from academic_year y where y.id = p_academic_year_id)
        and i.issued_at < (
          select core.day_begins(y.end_date + 1) from academic_year y where y.id = p_academic_year_id)));
$$;
comment on function api.bills is
  'Student fees and invoices, in all or of one academic year (the fees of its structures, the invoices issued in it), '
  'without drafts and void invoices, with their status on p_day, or as last written if p_day is null. '
  'remainder = amount - discount_amount - paid_amount is waived if the status is waived, else it is owed; overdue '
  'amounts are part of what is owed. Only student fees have discounts.';

create function api.balances_export(p jsonb) returns json language plpgsql stable as $$
declare
  v_today date := core.today();
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_year_id bigint := (p ->> 'academic_year_id')::bigint;
begin
  perform core.require_whole_school();
  if v_year_id is not null and not exists (select from academic_year where id = v_year_id) then
    perform core.fail('not_found', format('There is no academic year %s.', v_year_id));
  end if;
  return (
    select json_build_object(
      'rows', coalesce(json_agg(cells), '[]'),
      'next', (array_agg(id))[(p ->> 'limit')::integer],
      'date', v_today,
      'currency_decimals', core.currency_decimals(core.school_currency()))
    from (
      -- Reads students by their primary key, and the bills of each student by an index: a page costs the same in a
      -- large school.
      select s.id,
        json_build_array(
          s.admission_number, core.full_name(s.first_name, s.last_name), api.class_name(c.name, c.section),
          -- An earlier release ignores cells after its last column.
          b.billed, b.paid, b.waived, b.balance, b.overdue, b.discounted) as cells
      from student s
      left join class c on c.id = s.class_id
      cross join lateral (
        select sum(amount) as billed,
          sum(paid_amount) as paid,
          sum(remainder) filter (where status = 'waived') as waived,
          sum(remainder) filter (where api.is_open(status)) as balance,
          sum(remainder) filter (where status = 'overdue') as overdue,
          sum(discount_amount) as discounted
        from api.bills(v_today, v_year_id) bill
        where student_id = s.id and (v_class_id is null or class_id = v_class_id)
      ) sums
      cross join lateral (
        select billed, paid, coalesce(waived, 0), coalesce(balance, 0), coalesce(overdue, 0), discounted
      ) b (billed, paid, waived, balance, overdue, discounted)
      where s.id > coalesce((p ->> 'after')::bigint, 0) and b.billed is not null
        and ((p ->> 'only_open') is distinct from 'true' or b.balance > 0)
      order by s.id
      limit (p ->> 'limit')::integer
    ) page
  );
end $$;
comment on function api.balances_export is
  'A page of the export of balances: {after, limit, academic_year_id, class_id, only_open}. One row for each student '
  'who was billed, including former students, by id: billed = discounted + paid + waived + balance, where overdue is '
  'part of the balance. academic_year_id and class_id limit which bills count (see api.bills); only_open leaves out '
  'students who owe nothing. Raises not_found for an unknown academic year, forbidden unless the user may see the '
  'whole school.';
