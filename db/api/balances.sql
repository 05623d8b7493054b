-- /api/finance/balances: what each student owes of all that they were billed. Here stands too in what student fees and invoices are alike: their
-- state is written by the trigger `derive`, whenever one of them changes.

select core.define_operation('balances_export', p_permission => 'fee.read', p_feature => 'fees_management',
  p_errors => '{not_found}');

-- Whether something is still to be paid in a state of a student fee or an invoice. Immutable, as the next one is: both become part of the
-- statement that calls them, and use its indexes.
create function api.is_open(p_status text) returns boolean language sql immutable
  return p_status in ('pending', 'sent', 'partially_paid', 'overdue');
comment on function api.is_open is 'Whether something is still to be paid in a state of a student fee or an invoice.';

-- The state on a day: what is open when its due date has passed is overdue at once, also before the daily job has written so.
create function api.status_on(p_status text, p_due_date date, p_day date) returns text language sql immutable
  return case when api.is_open(p_status) and p_due_date < p_day then 'overdue' else p_status end;
comment on function api.status_on is 'The state of a student fee or an invoice on a day: overdue is what is open when its due date has passed.';

-- What was billed, in all or in one academic year (the fees of its structures, the invoices issued in it): no drafts, no void invoices. What is not
-- paid of a bill, amount - paid_amount, was waived where its status on p_day is so, and else is owed; overdue is a part of what is owed. Without
-- a day the status is the one that was written last.
create function api.bills(p_day date, p_academic_year_id bigint default null)
  returns table (kind text, id bigint, name text, student_id bigint, class_id bigint, items_digest uuid, due_date date, status text, amount numeric, paid_amount numeric)
  language sql stable as $$
  select 'student_fee', f.id, (select s.name from fee_structure s where s.id = f.fee_structure_id), f.student_id, f.class_id, f.items_digest, f.due_date,
      api.status_on(f.status, f.due_date, p_day), f.amount, f.paid_amount
    from student_fee f
    where p_academic_year_id is null or f.fee_structure_id = any (array(select s.id from fee_structure s where s.academic_year_id = p_academic_year_id))
  union all
  select 'invoice', i.id, i.invoice_number, i.student_id, i.class_id, null, i.due_date, api.status_on(i.status, i.due_date, p_day), i.amount, i.paid_amount
    from invoice i
    where i.issued_at is not null and i.voided_at is null
      and (p_academic_year_id is null
        or i.issued_at >= (select core.day_begins(y.start_date) from academic_year y where y.id = p_academic_year_id)
          and i.issued_at < (select core.day_begins(y.end_date + 1) from academic_year y where y.id = p_academic_year_id));
$$;
comment on function api.bills is 'What was billed, student fees and invoices, with what became of it on a day.';

-- A page of the export of balances, a row for each student who was billed, former ones too, by their number in the service: student fees and
-- invoices that were issued, without void ones, together; billed = paid + waived + balance, and overdue is the part of the balance whose day has
-- passed. academic_year_id (the fees of its structures, the invoices issued in it) and class_id (that it was billed for) narrow what counts, as
-- in the summary; only_open leaves out who owes nothing. Students come by their index, and each one's bills by theirs. not_found without
-- the year, forbidden for who reaches less than the whole school.
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
    select json_build_object('rows', coalesce(json_agg(cells), '[]'), 'next', (array_agg(id))[(p ->> 'limit')::integer], 'date', v_today)
    from (
      select s.id, json_build_array(s.admission_number, s.first_name || ' ' || s.last_name, api.class_name(c.name, c.section),
        b.billed, b.paid, b.waived, b.balance, b.overdue) as cells
      from student s
      left join class c on c.id = s.class_id
      cross join lateral (
        select sum(amount) as billed, sum(paid_amount) as paid, sum(amount - paid_amount) filter (where status = 'waived') as waived,
          sum(amount - paid_amount) filter (where api.is_open(status)) as balance, sum(amount - paid_amount) filter (where status = 'overdue') as overdue
        from api.bills(v_today, v_year_id) bill
        where student_id = s.id and (v_class_id is null or class_id = v_class_id)
      ) sums
      cross join lateral (
        select billed, paid, coalesce(waived, 0) as waived, coalesce(balance, 0) as balance, coalesce(overdue, 0) as overdue
      ) b (billed, paid, waived, balance, overdue)
      where s.id > coalesce((p ->> 'after')::bigint, 0) and b.billed is not null and ((p ->> 'only_open') is distinct from 'true' or b.balance > 0)
      order by s.id
      limit (p ->> 'limit')::integer
    ) page
  );
end $$;
