-- /api/finance/student-fees: what each student owes of a fee structure, for which periods.

select core.define_operation('student_fees_list', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management');
select core.define_operation('student_fees_generate', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_idempotent => true, p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('student_fees_get', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management', p_record => 'student_fee');
select core.define_operation('student_fees_update', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_record => 'student_fee');
select core.define_operation('student_fees_delete', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_record => 'student_fee', p_errors => '{in_use}');
select core.define_operation('student_fees_waive', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_record => 'student_fee', p_errors => '{invalid_state}');

select core.define_record('student_fee', p_table => 'student_fee', p_key => 'f.id', p_one_row_per_key => true,
  p_source => $$
    student_fee f left join student s on s.id = f.student_id left join class c on c.id = f.class_id
      left join fee_structure fs on fs.id = f.fee_structure_id
  $$,
  p_columns => $$
    f.id, f.student_id, s.first_name || ' ' || s.last_name as student_name, s.admission_number,
    f.class_id, api.class_name(c.name, c.section) as class_name,
    f.fee_structure_id, fs.name as fee_structure_name, fs.academic_year_id,
    f.amount, f.paid_amount, case when f.status = 'waived' then 0 else f.amount - f.paid_amount end as balance,
    f.due_date, api.status_on(f.status, f.due_date, core.today()) as status,
    f.billed_on, f.waived_at, f.waive_reason, f.created_at, f.updated_at
  $$,
  p_search => $$
    f.student_id = any (array(select id from student where search_text like :pattern
      and search_text like all (:patterns)))
  $$,
  p_equals => '{student_id,class_id,fee_structure_id}',
  p_default_sort => 'due_date',
  p_writable => '{due_date}',
  p_unversioned_fields => '{status}', p_reader => 'student_fee_detail');
select core.define_filter('student_fee', 'status', $$
  case :value when 'overdue' then api.is_open(f.status) else f.status = :value end
    and api.status_on(f.status, f.due_date, (select core.today())) = :value
$$);
select core.define_filter('student_fee', 'only_open', $$(:value <> 'true' or api.is_open(f.status))$$);
select core.define_filter('student_fee', 'academic_year_id', $$
  f.fee_structure_id in (select id from fee_structure where academic_year_id = :value::bigint)
$$);
select core.define_filter('student_fee', 'due_from', 'f.due_date >= :value::date');
select core.define_filter('student_fee', 'due_to', 'f.due_date <= :value::date');
select core.define_sort('student_fee', 'due_date', 'f.due_date');
select core.define_sort('student_fee', 'amount', 'f.amount');
select core.define_sort('student_fee', 'balance',
  $$(case when f.status = 'waived' then 0 else f.amount - f.paid_amount end)$$);
select core.define_sort('student_fee', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');

-- One fee with its items and payments, or not_found.
create function api.student_fee_detail(p_id bigint) returns json language sql stable as $$
  select (api.student_fee_record(p_id)::jsonb || jsonb_build_object(
    'items', (
      select coalesce(jsonb_agg(jsonb_build_object('id', i.id, 'fee_component_id', i.fee_component_id, 'name', i.name, 'amount', i.amount,
        'period_start', i.period_start, 'period_end', i.period_end) order by i.id), '[]')
      from student_fee_item i where i.student_fee_id = p_id),
    'payments', core.record_page('payment', jsonb_build_object('student_fee_id', p_id, 'sort', 'payment_date', 'pageSize', 1000), false) -> 'data'))::json;
$$;
comment on function api.student_fee_detail is 'One student fee with its items and payments, or not_found.';

-- Student fees by due date; search over the student; filters student_id, class_id (that was billed), status, only_open, academic_year_id,
-- fee_structure_id, due_from, due_to. A student sees their own.
create function api.student_fees_list(p jsonb) returns json language sql stable as $$
  select core.record_page('student_fee', p);
$$;

-- One fee with its items and payments, or not_found.
create function api.student_fees_get(p jsonb) returns json language sql stable as $$
  select api.student_fee_detail((p ->> 'id')::bigint);
$$;

-- The period of each frequency that contains a day of an academic year. A month is clipped to the year, a quarter is three months
-- from its start on; a term may be none.
create function api.fee_periods(p_academic_year_id bigint, p_date date) returns table (frequency text, period_start date, period_end date) language sql stable as $$
  with year as (
    select id, start_date, end_date, date_trunc('month', p_date)::date as month,
      -- Months that have passed, in whole quarters; where month ends differ the next quarter may have begun.
      (extract(year from age(p_date, start_date)) * 12 + extract(month from age(p_date, start_date)))::integer / 3 as quarter
    from academic_year where id = p_academic_year_id
  )
  select 'monthly', greatest(month, start_date), least((month + interval '1 month')::date - 1, end_date) from year
  union all
  select 'quarterly', (start_date + make_interval(months => 3 * q.n))::date, least((start_date + make_interval(months => 3 * q.n + 3))::date - 1, end_date)
    from year, lateral (select max(n) as n from generate_series(quarter, quarter + 1) n where start_date + make_interval(months => 3 * n) <= p_date) q
  union all
  select frequency, start_date, end_date from year, unnest('{annual,one_time}'::text[]) frequency
  union all
  select 'term', t.start_date, t.end_date from year join term t on t.academic_year_id = year.id and p_date between t.start_date and t.end_date;
$$;
comment on function api.fee_periods is 'The period of each frequency that contains a day.';

-- Bills the students of a structure''s classes for the periods that contain a day, one fee each, and answers {created, skipped, reasons, amount,
-- date, due_date}; dry_run makes nothing. A component is billed once for a period: the structure is locked first, so that runs take turns, and a
-- period that shares more than half of the shorter of both with one that was billed is that one: so a mended year bills nothing again, and a
-- term whose beginning was mended is not taken for the term before. Who counts is who is enrolled in an assigned class of the year, or completed
-- it; who moved within the year, by the class of now; who left and came back joined on that day. class_ids and student_ids narrow that. Raises
-- invalid_reference for a class that isn''t assigned and an unknown student, validation_error for a day outside the year, invalid_state for a
-- structure without components or classes, or whose components come to more than a fee can. Tells who was billed. p_of_year: all classes of
-- the year count as assigned, the structure's or not. Of how many rows a part of its statement has the planner knows nothing, and would join
-- 20,000 items to 5,000 fees in a nested loop, which took 15 s.
create function api.bill_students(p jsonb, p_of_year boolean) returns json language plpgsql set enable_nestloop = off as $$
declare
  v_structure record;
  v_classes bigint[];
  v_students bigint[] := case when p ? 'student_ids' then array(select distinct jsonb_array_elements_text(p -> 'student_ids')::bigint) end;
  v_unknown bigint;
  v_date date := (p ->> 'date')::date;
  v_due date;
  v_answer json;
  v_currency text;
  v_billed jsonb;
begin
  select fs.id, fs.name, fs.academic_year_id, fs.due_date, y.start_date, y.end_date into v_structure
    from fee_structure fs join academic_year y on y.id = fs.academic_year_id where fs.id = (p ->> 'fee_structure_id')::bigint for no key update of fs;
  if not found then
    perform core.refuse_field('invalid_reference', 'fee_structure_id', format('There is no fee structure %s.', p ->> 'fee_structure_id'));
  end if;
  v_classes := case when p_of_year then array(select id from class where academic_year_id = v_structure.academic_year_id)
    else array(select class_id from fee_structure_class where fee_structure_id = v_structure.id) end;
  if p ? 'class_ids' then
    select i into v_unknown from jsonb_array_elements_text(p -> 'class_ids') e (id), lateral (select e.id::bigint as i) n where i <> all (v_classes) limit 1;
    if found then
      perform core.refuse_field('invalid_reference', 'class_ids', format('The fee structure is not assigned to a class %s.', v_unknown));
    end if;
    v_classes := array(select jsonb_array_elements_text(p -> 'class_ids')::bigint);
  end if;
  select i into v_unknown from unnest(v_students) i where not exists (select from student where id = i) limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'student_ids', format('There is no student %s.', v_unknown));
  elsif v_date not between v_structure.start_date and v_structure.end_date then
    perform core.refuse_field('validation_error', 'date', format('The academic year lasts from %s to %s.', v_structure.start_date, v_structure.end_date));
  elsif v_classes = '{}' then
    perform core.fail('invalid_state', 'This fee structure is assigned to no class.');
  elsif not exists (select from fee_component where fee_structure_id = v_structure.id) then
    perform core.fail('invalid_state', 'This fee structure has no components.');
  elsif (select sum(amount) from fee_component where fee_structure_id = v_structure.id) > 9999999999.99 then
    perform core.fail('invalid_state', 'The components of this fee structure come to more than a fee can: 9999999999.99.');
  end if;
  v_date := coalesce(v_date, least(greatest(core.today(), v_structure.start_date), v_structure.end_date));
  v_currency := api.currency();
  v_due := coalesce((p ->> 'due_date')::date, case when v_structure.due_date >= v_date then v_structure.due_date end, v_date + 30);

  with stay as (
    select e.*, case when lag(e.status) over history = 'withdrawn' and lag(e.ends_on) over history < e.starts_on then e.starts_on end as came_back_on
    from enrollment e
    where e.academic_year_id = v_structure.academic_year_id and (v_students is null or e.student_id = any (v_students))
    window history as (partition by e.student_id order by e.starts_on, e.id)
  ), enrolled as (
    select distinct on (e.student_id) e.student_id, e.class_id, e.status in ('active', 'completed') as is_there,
      coalesce(max(e.came_back_on) over (partition by e.student_id), min(e.starts_on) over (partition by e.student_id)) as joined_on
    from stay e
    order by e.student_id, e.status in ('active', 'completed') desc, e.starts_on desc, e.id desc
  ), candidate as (
    select e.student_id, e.class_id, e.joined_on,
      case when s.deleted_at is not null or not e.is_there then 'removed' when not s.is_active then 'inactive' end as reason
    from enrolled e join student s on s.id = e.student_id where e.class_id = any (v_classes)
    union all
    select i, null, null, 'not_in_class' from unnest(v_students) i where i not in (select student_id from enrolled where class_id = any (v_classes))
  ), component as materialized (
    select c.id, c.name, c.amount, period.period_start, period.period_end
    from fee_component c left join api.fee_periods(v_structure.academic_year_id, v_date) period on period.frequency = c.frequency
    where c.fee_structure_id = v_structure.id
  ), billed as materialized (
    select distinct i.student_id, i.fee_component_id
    from component c join student_fee_item i on i.fee_component_id = c.id and i.period_start <= c.period_end and i.period_end >= c.period_start
    where 2 * (least(i.period_end, c.period_end) - greatest(i.period_start, c.period_start) + 1) > least(i.period_end - i.period_start, c.period_end - c.period_start) + 1
  ), pair as (
    select k.student_id, k.class_id, c.id as fee_component_id, c.name, c.period_start, c.period_end,
      case when (p ->> 'prorate')::boolean and k.joined_on > c.period_start
        then round(c.amount * (c.period_end - k.joined_on + 1) / (c.period_end - c.period_start + 1), 2) else c.amount end as amount,
      case when c.period_start is null then 'no_term' when b.student_id is not null then 'already_billed' when k.joined_on > c.period_end then 'joined_later' end as reason
    from candidate k cross join component c left join billed b on b.student_id = k.student_id and b.fee_component_id = c.id
    where k.reason is null
  ), item as materialized (
    select * from pair where reason is null and amount > 0
  ), fee as (
    insert into student_fee (student_id, fee_structure_id, class_id, amount, due_date, billed_on, items_digest)
      select student_id, v_structure.id, class_id, sum(amount), v_due, v_date, md5(json_agg(json_build_array(name, amount) order by fee_component_id)::text)::uuid from item
      where (p ->> 'dry_run')::boolean is not true group by student_id, class_id order by class_id, student_id
      returning id, student_id, student_fee.amount
  ), made as (
    insert into student_fee_item (student_fee_id, student_id, fee_component_id, name, amount, period_start, period_end)
      select fee.id, i.student_id, i.fee_component_id, i.name, i.amount, i.period_start, i.period_end
      from item i join fee on fee.student_id = i.student_id order by fee.id, i.fee_component_id
  ), skipped as (
    select reason from candidate where reason is not null
    union all
    -- Whoever has nothing to pay of any component: by what comes first of already billed, joined later, no term.
    select coalesce(min(reason), 'nothing_due') from pair group by student_id having not coalesce(bool_or(reason is null and amount > 0), false)
  )
  select json_build_object(
      'fee_structure_id', v_structure.id, 'created', i.students, 'skipped', s.students, 'reasons', s.reasons, 'amount', i.amount,
      'date', v_date, 'due_date', v_due, 'dry_run', coalesce((p ->> 'dry_run')::boolean, false)),
      (select jsonb_agg(jsonb_build_object('student_id', student_id, 'fee_name', v_structure.name, 'amount', api.written_amount(amount, v_currency), 'due_date', api.written_day(v_due)))
       from fee)
    into v_answer, v_billed
    from (select count(distinct student_id) as students, coalesce(sum(amount), 0) as amount from item) i,
      (select coalesce(sum(count), 0) as students, coalesce(json_agg(json_build_object('reason', reason, 'count', count) order by count desc, reason), '[]') as reasons
       from (select reason, count(*) as count from skipped group by reason) r) s;
  perform core.notify('fee.generated', api.student_recipients(v_billed));
  return v_answer;
end $$;
comment on function api.bill_students is 'Bills students by a fee structure, of its classes or of all of its year.';

-- Bills the students of a structure's classes, as api.bill_students says.
create function api.student_fees_generate(p jsonb) returns json language sql as $$
  select api.bill_students(p, p_of_year => false);
$$;

-- Another due date; what is open follows it in its status.
create function api.student_fees_update(p jsonb) returns json language plpgsql as $$
begin
  perform core.record_update('student_fee', p);
  return api.student_fee_detail((p ->> 'id')::bigint);
end $$;

-- Removes a fee that was never paid; its periods may be billed again. in_use with payments, reversed ones too.
create function api.student_fees_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if exists (select from payment where student_fee_id = v_id) then
    perform core.fail('in_use', 'There are payments of this fee. Waive it instead.');
  end if;
  delete from student_fee where id = v_id;
  return json_build_object('id', v_id);
end $$;

-- Waives what is open of a fee, for a reason; what was paid stays paid, and its periods are not billed again. invalid_state when it is
-- paid or waived.
create function api.student_fees_waive(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_status text := (select status from student_fee where id = v_id);
begin
  if not api.is_open(v_status) then
    perform core.fail('invalid_state', format('This fee is %s: there is nothing to waive.', v_status));
  end if;
  update student_fee set waived_at = now(), waived_by = core.user_id(), waive_reason = p ->> 'reason' where id = v_id;
  return api.student_fee_detail(v_id);
end $$;
