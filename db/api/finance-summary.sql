-- /api/finance/summary: the fees and invoices of an academic year in figures.

insert into core.operation (name, access, permission, feature, writes, idempotent, record) values
  ('finance_summary', 'tenant', 'fee.read', 'fees_management', false, false, null);

-- What was billed in an academic year, one row for each student fee of its structures and each invoice issued in it (neither draft nor
-- void): billed = collected + outstanding + waived, and overdue is the part of outstanding whose day has passed.
create function api.finance_billed(p_academic_year_id bigint)
  returns table (kind text, id bigint, class_id bigint, billed numeric, collected numeric, outstanding numeric, overdue numeric, waived numeric) language sql stable as $$
  select 'student_fee', f.id, f.class_id, f.amount, f.paid_amount, case when f.status = 'waived' then 0 else f.amount - f.paid_amount end,
      case when f.status <> 'waived' and f.due_date < core.today() then f.amount - f.paid_amount else 0 end,
      case when f.status = 'waived' then f.amount - f.paid_amount else 0 end
    from student_fee f join fee_structure fs on fs.id = f.fee_structure_id where fs.academic_year_id = p_academic_year_id
  union all
  select 'invoice', i.id, i.class_id, i.amount, i.paid_amount, i.amount - i.paid_amount, case when i.due_date < core.today() then i.amount - i.paid_amount else 0 end, 0
    from (select start_date::timestamp at time zone z.name as begins, (end_date + 1)::timestamp at time zone z.name as ends
          from academic_year, (select coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC') as name) z where id = p_academic_year_id) y
    join invoice i on i.issued_at >= y.begins and i.issued_at < y.ends
    where i.status <> 'void';
$$;
comment on function api.finance_billed is 'What was billed in an academic year: student fees and invoices, and what became of them.';

-- The figures of a year, the current one unless academic_year_id names another: in all, by class that was billed, by component, by source. What
-- was paid of a fee fills its items in their order, so that components add up to the cent. not_found without the year, forbidden for who
-- reaches less than the whole school. Hash joins, since the planner can't know how many rows were billed: item by item it took 3 s for 200,000.
create function api.finance_summary(p jsonb) returns json language plpgsql stable set enable_nestloop = off as $$
declare
  v_year record;
  v_answer json;
begin
  perform core.require_whole_school();
  select id, name into v_year from academic_year where case when p ? 'academic_year_id' then id = (p ->> 'academic_year_id')::bigint else is_current end;
  if not found then
    perform core.fail('not_found', coalesce('There is no academic year ' || (p ->> 'academic_year_id') || '.', 'No academic year is the current one.'));
  end if;
  with billed as materialized (
    select * from api.finance_billed(v_year.id)
  ), figure as (
    select kind, class_id, grouping(kind) = 0 as is_source, grouping(class_id) = 0 as is_class, count(*) as count, sum(billed) as billed, sum(collected) as collected,
      sum(outstanding) as outstanding, sum(overdue) as overdue, sum(waived) as waived
    from billed group by grouping sets ((), (kind), (class_id))
  ), item as materialized (
    select i.name, i.amount, b.outstanding > 0 as is_open, b.overdue > 0 as is_overdue, case when b.collected = 0 then 0 else i.amount end as collected
    from billed b join student_fee_item i on i.student_fee_id = b.id where b.kind = 'student_fee' and b.collected in (0, b.billed)
    union all
    -- Only of what is paid in part does the order of the items matter.
    select i.name, i.amount, b.outstanding > 0, b.overdue > 0,
      least(i.amount, greatest(0, b.collected - (sum(i.amount) over (partition by i.student_fee_id order by i.id) - i.amount)))
    from billed b join student_fee_item i on i.student_fee_id = b.id where b.kind = 'student_fee' and b.collected not in (0, b.billed)
  ), component as (
    select name, sum(amount) as billed, sum(collected) as collected, coalesce(sum(amount - collected) filter (where is_open), 0) as outstanding,
      coalesce(sum(amount - collected) filter (where is_overdue), 0) as overdue, coalesce(sum(amount - collected) filter (where not is_open), 0) as waived
    from item group by name
  )
  select json_build_object(
      'academic_year_id', v_year.id, 'academic_year_name', v_year.name, 'currency', coalesce((select currency from school), 'USD'),
      'billed', coalesce(total.billed, 0), 'collected', coalesce(total.collected, 0), 'outstanding', coalesce(total.outstanding, 0),
      'overdue', coalesce(total.overdue, 0), 'waived', coalesce(total.waived, 0),
      'by_class', (
        select coalesce(json_agg(json_build_object('class_id', c.id, 'class_name', c.name || coalesce(' ' || c.section, ''), 'billed', f.billed, 'collected', f.collected,
          'outstanding', f.outstanding, 'overdue', f.overdue, 'waived', f.waived) order by g.sequence, platform.search_normal(concat_ws(' ', c.name, c.section)), c.id), '[]')
        from figure f left join class c on c.id = f.class_id left join grade g on g.id = c.grade_id where f.is_class),
      'by_component', (
        select coalesce(json_agg(json_build_object('name', name, 'billed', billed, 'collected', collected, 'outstanding', outstanding, 'overdue', overdue, 'waived', waived)
          order by platform.search_normal(name), name), '[]') from component),
      'by_source', (
        select json_object_agg(source.name, json_build_object('count', coalesce(f.count, 0), 'billed', coalesce(f.billed, 0), 'collected', coalesce(f.collected, 0),
          'outstanding', coalesce(f.outstanding, 0), 'overdue', coalesce(f.overdue, 0), 'waived', coalesce(f.waived, 0)))
        from (values ('student_fees', 'student_fee'), ('invoices', 'invoice')) source (name, kind) left join figure f on f.is_source and f.kind = source.kind))
    into v_answer
    from figure total where not total.is_source and not total.is_class;
  return v_answer;
end $$;
