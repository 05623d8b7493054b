-- /api/finance/student-fees: the fees that students owe, created from fee structures by billing.

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
    f.id, f.student_id, core.full_name(s.first_name, s.last_name) as student_name, s.admission_number,
    f.class_id, api.class_name(c.name, c.section) as class_name,
    f.fee_structure_id, fs.name as fee_structure_name, fs.academic_year_id,
    f.amount, f.discount_amount, f.amount - f.discount_amount as net_amount, f.paid_amount,
    case when f.status = 'waived' then 0 else f.amount - f.discount_amount - f.paid_amount end as balance,
    f.due_date, api.status_on(f.status, f.due_date, core.today()) as status,
    f.billed_on, f.waived_at, f.waive_reason, f.created_at, f.updated_at
  $$,
  p_search => $$
    f.student_id = any (array(select id from student where search_name like :pattern
      and search_name like all (:patterns)))
  $$,
  p_single_page_filters => '{student_id,is_in_scope}', p_narrow_filters => '{class_id}',
  p_own_student_scopes => '{taught,own,children}',
  p_equals => '{student_id,class_id,fee_structure_id}',
  p_default_sort => 'due_date',
  p_writable => '{due_date}',
  p_unversioned_fields => '{status}', p_derived_fields => '{paid_amount,discount_amount}',
  p_reader => 'student_fee_detail');
select core.define_filter('student_fee', 'is_in_scope', $$
  f.student_id = any ((select visible_student_ids())::bigint[])
$$);
select core.define_filter('student_fee', 'status', $$
  case :value when 'overdue' then api.is_open(f.status) else f.status = :value end
    and api.status_on(f.status, f.due_date, (select core.today())) = :value
$$, p_is_literal => true);
select core.define_filter('student_fee', 'only_open', $$(:value <> 'true' or api.is_open(f.status))$$,
  p_is_literal => true);
select core.define_filter('student_fee', 'academic_year_id', $$
  f.fee_structure_id in (select id from fee_structure where academic_year_id = :value::bigint)
$$);
select core.define_filter('student_fee', 'due_from', 'f.due_date >= :value::date');
select core.define_filter('student_fee', 'due_to', 'f.due_date <= :value::date');
select core.define_sort('student_fee', 'due_date', 'f.due_date');
select core.define_sort('student_fee', 'amount', 'f.amount');
select core.define_sort('student_fee', 'balance',
  $$(case when f.status = 'waived' then 0 else f.amount - f.discount_amount - f.paid_amount end)$$);
select core.define_sort('student_fee', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');

select core.define_functions('student_fees', 'student_fee',
  p_list =>
    'Student fees by due date. Searches the student. Filters: student_id, class_id (at billing), status, only_open, '
    'academic_year_id, fee_structure_id, due_from, due_to. A student sees only their own.',
  p_get => 'One student fee with its items, discounts and payments. Raises not_found.');

create function api.student_fee_detail(p_id bigint) returns json language sql stable as $$
  select (api.student_fee_record(p_id)::jsonb || jsonb_build_object(
    'items', (
      select coalesce(jsonb_agg(
        jsonb_build_object(
          'id', i.id, 'fee_component_id', i.fee_component_id, 'name', i.name, 'amount', i.amount,
          'period_start', i.period_start, 'period_end', i.period_end)
        order by i.id), '[]')
      from student_fee_item i
      where i.student_fee_id = p_id),
    'discounts', api.student_fee_discounts(p_id),
    'payments', core.record_page('payment',
      jsonb_build_object('student_fee_id', p_id, 'sort', 'payment_date', 'pageSize', 1000), false) -> 'data'))::json;
$$;
comment on function api.student_fee_detail is
  'One student fee with its items, discounts and payments. Raises not_found.';

create function api.fee_periods(p_academic_year_id bigint, p_date date)
  returns table (frequency text, period_start date, period_end date) language sql stable as $$
  with year as (
    select id, start_date, end_date, date_trunc('month', p_date)::date as month,
      (extract(year from age(p_date, start_date)) * 12 + extract(month from age(p_date, start_date)))::integer
        as whole_months
    from academic_year
    where id = p_academic_year_id
  )
  select 'monthly', greatest(month, start_date), least((month + interval '1 month')::date - 1, end_date)
  from year
  union all
  select span.frequency, (start_date + make_interval(months => span.months * s.n))::date,
    least((start_date + make_interval(months => span.months * (s.n + 1)))::date - 1, end_date)
  from year,
    (values ('quarterly', 3), ('half_yearly', 6)) span (frequency, months),
    lateral (
      -- With months of unequal length the next period may already have begun.
      select max(n) as n
      from generate_series(whole_months / span.months, whole_months / span.months + 1) n
      where start_date + make_interval(months => span.months * n) <= p_date
    ) s
  union all
  select frequency, start_date, end_date
  from year, unnest('{annual,one_time}'::text[]) frequency
  union all
  select 'term', t.start_date, t.end_date
  from year
  join term t on t.academic_year_id = year.id and p_date between t.start_date and t.end_date;
$$;
comment on function api.fee_periods is
  'The period of each frequency that contains a day of an academic year. Months are cut at the limits of the year, '
  'quarters and half-years are three and six months long from its start. There is no term row if no term contains the '
  'day.';

create function api.billing_class_ids(
  p jsonb, p_fee_structure_id bigint, p_academic_year_id bigint, p_all_classes boolean
) returns bigint[] language plpgsql stable as $$
declare
  v_assigned_ids bigint[] := case
    when p_all_classes then array(select id from class where academic_year_id = p_academic_year_id)
    else array(select class_id from fee_structure_class where fee_structure_id = p_fee_structure_id)
  end;
  v_given_ids bigint[] := array(select jsonb_array_elements_text(p -> 'class_ids')::bigint);
  v_unknown_id bigint;
begin
  if not p ? 'class_ids' then
    return v_assigned_ids;
  end if;
  select i into v_unknown_id from unnest(v_given_ids) i where i <> all (v_assigned_ids) limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'class_ids',
      format('This fee structure is not assigned to class %s.', v_unknown_id));
  end if;
  return v_given_ids;
end $$;
comment on function api.billing_class_ids is
  'The classes to bill: {class_ids}, by default all classes to which the fee structure is assigned, or all of the '
  'academic year (p_all_classes). Raises invalid_reference for any other class.';

create function api.billing_student_ids(p jsonb) returns bigint[] language plpgsql stable as $$
declare
  v_student_ids bigint[] := case
    when p ? 'student_ids' then array(select distinct jsonb_array_elements_text(p -> 'student_ids')::bigint)
  end;
  v_unknown_id bigint;
begin
  select i into v_unknown_id from unnest(v_student_ids) i where not exists (select from student where id = i) limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'student_ids', format('There is no student %s.', v_unknown_id));
  end if;
  return v_student_ids;
end $$;
comment on function api.billing_student_ids is
  'The students to bill: {student_ids} without duplicates, null for all. Raises invalid_reference for an unknown '
  'student.';

create function api.require_billable(
  p_fee_structure_id bigint, p_class_ids bigint[], p_currency text, p_decimals integer
) returns void language plpgsql stable as $$
declare
  v_total numeric;
  v_misfits text;
begin
  select sum(amount), string_agg(name, ', ' order by id) filter (where min_scale(amount) > p_decimals)
    into v_total, v_misfits
    from fee_component
    where fee_structure_id = p_fee_structure_id;
  if p_class_ids = '{}' then
    perform core.fail('invalid_state', 'This fee structure is not assigned to any class. Assign it to a class first.');
  elsif v_total is null then
    perform core.fail('invalid_state', 'This fee structure has no components. Add a component first.');
  elsif v_total > 9999999999.99 then
    perform core.fail('invalid_state',
      'The components of this fee structure add up to more than 9999999999.99, the maximum of a fee. '
      'Reduce their amounts first.');
  elsif v_misfits is not null then
    perform core.fail('invalid_state', format(
      'These components have amounts with more decimals than %s: %s. Change the amounts first.',
      p_currency, v_misfits));
  end if;
end $$;
comment on function api.require_billable is
  'Raises invalid_state for a fee structure without classes or components, whose total exceeds the maximum, or with an '
  'amount from before a change of the currency that has more decimals than the new one.';

create function api.billing_candidates(
  p_academic_year_id bigint, p_class_ids bigint[], p_student_ids bigint[], p_date date
) returns table (student_id bigint, class_id bigint, joined_on date, left_on date, reason text)
  language sql stable as $$
  with stay as (
    select e.*, s.left_on,
      -- The last enrollment of a student who leaves is withdrawn.
      e.status in ('active', 'completed')
        or (s.left_on is not null and e.ends_on = greatest(s.left_on, e.starts_on)) as is_enrolled,
      case
        when lag(e.status) over history = 'withdrawn' and lag(e.ends_on) over history < e.starts_on then e.starts_on
      end as returned_on
    from enrollment e
    join student s on s.id = e.student_id
    where e.academic_year_id = p_academic_year_id and (p_student_ids is null or e.student_id = any (p_student_ids))
    window history as (partition by e.student_id order by e.starts_on, e.id)
  ),
  enrolled as (
    select distinct on (e.student_id) e.student_id, e.class_id, e.left_on, e.is_enrolled,
      coalesce(
        max(e.returned_on) over (partition by e.student_id),
        min(e.starts_on) over (partition by e.student_id)) as joined_on
    from stay e
    order by e.student_id, e.is_enrolled desc, e.starts_on desc, e.id desc
  )
  select e.student_id, e.class_id, e.joined_on, e.left_on,
    case
      when s.deleted_at is not null or not e.is_enrolled then 'removed'
      when core.has_left(e.left_on, p_date) then 'inactive'
    end
  from enrolled e
  join student s on s.id = e.student_id
  where e.class_id = any (p_class_ids)
  union all
  select i, null, null, null, 'not_in_class'
  from unnest(p_student_ids) i
  where i not in (select e.student_id from enrolled e where e.class_id = any (p_class_ids));
$$;
comment on function api.billing_candidates is
  'One row for each student of some classes and each student named, with their current class, the day on which they '
  'joined the school year, or returned after leaving, and the day on which they leave. reason: why the student cannot '
  'be billed for p_date, else null.';

create function api.billing_items(
  p_fee_structure_id bigint, p_academic_year_id bigint, p_class_ids bigint[], p_student_ids bigint[], p_date date,
  p_prorate boolean, p_decimals integer
) returns table (
  student_id bigint, class_id bigint, fee_component_id bigint, name text, period_start date, period_end date,
  amount numeric, reason text
) language sql stable as $$
  with candidate as materialized (
    select * from api.billing_candidates(p_academic_year_id, p_class_ids, p_student_ids, p_date)
  ),
  component as materialized (
    select c.id, c.name, c.amount, period.period_start, period.period_end
    from fee_component c
    left join api.fee_periods(p_academic_year_id, p_date) period on period.frequency = c.frequency
    where c.fee_structure_id = p_fee_structure_id
  ),
  -- The dates of a term or year may be corrected after billing. A period that overlaps a billed one by more than half
  -- of the shorter of the two is the same period.
  billed as materialized (
    select distinct i.student_id, i.fee_component_id
    from component c
    join student_fee_item i on i.fee_component_id = c.id
      and i.period_start <= c.period_end and i.period_end >= c.period_start
    where 2 * (least(i.period_end, c.period_end) - greatest(i.period_start, c.period_start) + 1)
      > least(i.period_end - i.period_start, c.period_end - c.period_start) + 1
  )
  select k.student_id, k.class_id, c.id, c.name, c.period_start, c.period_end,
    case
      when p_prorate and (k.joined_on > c.period_start or k.left_on <= c.period_end)
        then round(
          c.amount
            * greatest(least(c.period_end, k.left_on - 1) - greatest(c.period_start, k.joined_on) + 1, 0)
            / (c.period_end - c.period_start + 1),
          p_decimals)
      else c.amount
    end,
    case
      when c.period_start is null then 'no_term'
      when b.student_id is not null then 'already_billed'
      when k.joined_on > c.period_end then 'joined_later'
    end
  from candidate k
  cross join component c
  left join billed b on b.student_id = k.student_id and b.fee_component_id = c.id
  where k.reason is null
  union all
  select k.student_id, k.class_id, null, null, null, null, null, k.reason
  from candidate k
  where k.reason is not null;
$$;
comment on function api.billing_items is
  'The items of a billing run: one row for each student and component, with the period that contains p_date and the '
  'amount, prorated for students who joined or leave within the period if p_prorate, and then rounded half up to '
  'p_decimals. '
  'reason: why the item is not billed, else null. A student who cannot be billed has one row without a component.';

-- The planner does not know how many rows the inserts return. It would join 20,000 items to 5,000 fees in a nested
-- loop, which took 15 s.
create function api.bill_students(p jsonb, p_all_classes boolean)
  returns json language plpgsql set enable_nestloop = off as $$
declare
  v_structure record;
  v_class_ids bigint[];
  v_student_ids bigint[];
  v_is_dry_run boolean := coalesce((p ->> 'dry_run')::boolean, false);
  v_date date := (p ->> 'date')::date;
  v_due_date date;
  v_currency text := core.school_currency();
  v_decimals integer := core.currency_decimals(v_currency);
  v_answer json;
  v_fee_ids bigint[];
begin
  -- The lock makes concurrent runs wait, so that each finds what the other has billed.
  select fs.id, fs.name, fs.academic_year_id, fs.due_date, y.start_date, y.end_date
    into v_structure
    from fee_structure fs
    join academic_year y on y.id = fs.academic_year_id
    where fs.id = (p ->> 'fee_structure_id')::bigint
    for no key update of fs;
  if not found then
    perform core.refuse_field('invalid_reference', 'fee_structure_id',
      format('There is no fee structure %s.', p ->> 'fee_structure_id'));
  end if;
  v_class_ids := api.billing_class_ids(p, v_structure.id, v_structure.academic_year_id, p_all_classes);
  v_student_ids := api.billing_student_ids(p);
  if v_date not between v_structure.start_date and v_structure.end_date then
    perform core.refuse_field('validation_error', 'date', format(
      'must be within the academic year, from %s to %s', v_structure.start_date, v_structure.end_date));
  end if;
  perform api.require_billable(v_structure.id, v_class_ids, v_currency, v_decimals);
  v_date := coalesce(v_date, least(greatest(core.today(), v_structure.start_date), v_structure.end_date));
  v_due_date := coalesce(
    (p ->> 'due_date')::date, case when v_structure.due_date >= v_date then v_structure.due_date end, v_date + 30);

  with candidate_item as materialized (
    select *
    from api.billing_items(v_structure.id, v_structure.academic_year_id, v_class_ids, v_student_ids, v_date,
      (p ->> 'prorate')::boolean, v_decimals)
  ),
  item as materialized (
    select * from candidate_item where reason is null and amount > 0
  ),
  fee as (
    insert into student_fee (student_id, fee_structure_id, class_id, amount, due_date, billed_on, items_digest)
      select student_id, v_structure.id, class_id, sum(amount), v_due_date, v_date,
        md5(json_agg(json_build_array(name, amount) order by fee_component_id)::text)::uuid
      from item
      where not v_is_dry_run
      group by student_id, class_id
      order by class_id, student_id
      returning id, student_id, student_fee.amount
  ),
  fee_item as (
    insert into student_fee_item (student_fee_id, student_id, fee_component_id, name, amount, period_start, period_end)
      select fee.id, i.student_id, i.fee_component_id, i.name, i.amount, i.period_start, i.period_end
      from item i
      join fee on fee.student_id = i.student_id
      order by fee.id, i.fee_component_id
  ),
  skipped as (
    -- The alphabetical order of the reasons is their priority: already_billed, joined_later, no_term.
    select coalesce(min(reason), 'nothing_due') as reason
    from candidate_item
    group by student_id
    having not coalesce(bool_or(reason is null and amount > 0), false)
  )
  select
      json_build_object(
        'fee_structure_id', v_structure.id, 'created', i.students, 'skipped', s.students, 'reasons', s.reasons,
        'amount', i.amount, 'date', v_date, 'due_date', v_due_date, 'dry_run', v_is_dry_run),
      array(select id from fee order by id)
    into v_answer, v_fee_ids
    from (select count(distinct student_id) as students, coalesce(sum(amount), 0) as amount from item) i,
      (
        select coalesce(sum(count), 0) as students,
          coalesce(json_agg(json_build_object('reason', reason, 'count', count) order by count desc, reason), '[]')
            as reasons
        from (select reason, count(*) as count from skipped group by reason) r
      ) s;
  if v_fee_ids <> '{}' then
    perform core.notify('fee.generated', jsonb_build_object('fee_ids', v_fee_ids));
  end if;
  return v_answer;
end $$;
comment on function api.bill_students is
  'Creates one fee for each student of a fee structure, with an item for each component whose period contains {date}, '
  'and notifies the students. Each component is billed once per student and period. {fee_structure_id}, optional '
  '{class_ids, student_ids, date, due_date, prorate, dry_run}. p_all_classes: treats all classes of the academic year '
  'as assigned. Billed are students who are enrolled or completed the year, in their latest class. Raises '
  'invalid_reference for an unknown fee structure or student and for an unassigned class, validation_error for a day '
  'outside the academic year, invalid_state for a fee structure without classes or components or with too high a '
  'total.';

create function api.fee_recipients(p jsonb) returns jsonb language sql stable as $$
  select api.student_recipients('fee.generated', jsonb_agg(jsonb_build_object(
    'student_id', f.student_id,
    'fee_name', fs.name,
    'amount', f.amount - f.discount_amount,
    'due_date', core.written_day(f.due_date)) order by f.id), '{amount}')
  from student_fee f
  join fee_structure fs on fs.id = f.fee_structure_id
  where f.id = any (array(select jsonb_array_elements_text(p -> 'fee_ids')::bigint)) and f.status <> 'waived'
    and f.discount_amount < f.amount
$$;
comment on function api.fee_recipients is
  'The recipients of fee.generated, {fee_ids}: the students and their parents, with the amount after discounts. Leaves '
  'out fees that have been waived or deleted, and those of which discounts leave nothing.';

create function api.student_fees_generate(p jsonb) returns json language sql as $$
  select api.bill_students(p, p_all_classes => false);
$$;
comment on function api.student_fees_generate is
  'Bills the students of the classes to which a fee structure is assigned. Parameters and errors: see bill_students.';

create function api.student_fees_update(p jsonb) returns json language plpgsql as $$
begin
  perform core.record_update('student_fee', p);
  return api.student_fee_detail((p ->> 'id')::bigint);
end $$;
comment on function api.student_fees_update is
  'Updates the due date of a student fee: {due_date}. The status follows it.';

create function api.student_fees_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if exists (select from payment where student_fee_id = v_id) then
    perform core.fail('in_use', 'This fee has payments and cannot be deleted. Waive it instead.');
  end if;
  delete from student_fee where id = v_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.student_fees_delete is
  'Deletes a student fee, so that its periods can be billed again. Raises in_use with payments, even reversed ones.';

create function api.student_fees_waive(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_status text := (select status from student_fee where id = v_id);
begin
  if not api.is_open(v_status) then
    perform core.fail('invalid_state', format('This fee is already %s.', v_status));
  end if;
  update student_fee
    set waived_at = now(), waived_by = core.user_id(), waive_reason = p ->> 'reason'
    where id = v_id;
  return api.student_fee_detail(v_id);
end $$;
comment on function api.student_fees_waive is
  'Waives the balance of a student fee: {reason}. Payments remain, and its periods are not billed again. Raises '
  'invalid_state for a paid or waived fee.';
