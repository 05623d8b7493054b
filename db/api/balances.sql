-- /api/finance/balances: what each student owes of all that they were billed.

insert into core.operation (name, access, permission, feature, writes, idempotent, record) values
  ('balances_export', 'tenant', 'fee.read', 'fees_management', false, false, null);

-- A page of the export of balances, a row for each student who was billed, former ones too, by their number in the service: student fees and
-- invoices that were issued, without void ones, together; billed = paid + waived + balance, and overdue is the part of the balance whose day has
-- passed. academic_year_id (the fees of its structures, the invoices issued in it) and class_id (that it was billed for) narrow what counts, as
-- in the summary; only_open leaves out who owes nothing. Students come by their index, and each one's bills by theirs. not_found without
-- the year, forbidden for who reaches less than the whole school.
create function api.balances_export(p jsonb) returns json language plpgsql stable as $$
declare
  v_today date := core.today();
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_structures bigint[];
  v_begins timestamptz;
  v_ends timestamptz;
begin
  perform core.require_whole_school();
  if p ? 'academic_year_id' then
    select core.day_begins(start_date), core.day_begins(end_date + 1), array(select fs.id from fee_structure fs where fs.academic_year_id = y.id)
      into v_begins, v_ends, v_structures
      from academic_year y where y.id = (p ->> 'academic_year_id')::bigint;
    if not found then
      perform core.fail('not_found', format('There is no academic year %s.', p ->> 'academic_year_id'));
    end if;
  end if;
  return (
    select json_build_object('rows', coalesce(json_agg(cells), '[]'), 'next', (array_agg(id))[(p ->> 'limit')::integer], 'date', v_today)
    from (
      select s.id, json_build_array(s.admission_number, s.first_name || ' ' || s.last_name, api.class_name(c.name, c.section),
        b.billed, b.paid, b.waived, b.balance, b.overdue) as cells
      from student s
      left join class c on c.id = s.class_id
      cross join lateral (
        select sum(amount) as billed, sum(paid) as paid, sum(amount - paid) filter (where is_waived) as waived,
          sum(amount - paid) filter (where not is_waived) as balance, sum(amount - paid) filter (where not is_waived and due_date < v_today) as overdue
        from (
          select f.amount, f.paid_amount as paid, f.status = 'waived' as is_waived, f.due_date
            from student_fee f
            where f.student_id = s.id and (v_structures is null or f.fee_structure_id = any (v_structures)) and (v_class_id is null or f.class_id = v_class_id)
          union all
          select i.amount, i.paid_amount, false, i.due_date
            from invoice i
            where i.student_id = s.id and i.issued_at is not null and i.voided_at is null
              and (v_begins is null or (i.issued_at >= v_begins and i.issued_at < v_ends)) and (v_class_id is null or i.class_id = v_class_id)
        ) bill
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
