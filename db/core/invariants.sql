-- Rules about the stored data of a school that hold after every transaction. Each function core.invariant_… returns the
-- rows that violate one rule, and its comment states the rule. `school doctor` and the tests run all of them.

create function core.invariant_student_fee_amount() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student_fee', f.id, 'amount', f.amount, 'items', sum(i.amount))
  from student_fee f
  left join student_fee_item i on i.student_fee_id = f.id
  group by f.id
  having f.amount is distinct from sum(i.amount)
$$;
comment on function core.invariant_student_fee_amount is 'The amount of a student fee is the sum of its items.';

create function core.invariant_discount_amount() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student_fee', f.id, 'amount', f.amount, 'discount', f.discount_amount,
    'discounts', sum(d.amount), 'paid', f.paid_amount)
  from student_fee f
  left join student_fee_discount d on d.student_fee_id = f.id
  group by f.id
  having f.discount_amount <> coalesce(sum(d.amount), 0)
    or f.discount_amount not between 0 and f.amount - f.paid_amount
    or bool_or(d.student_id <> f.student_id)
$$;
comment on function core.invariant_discount_amount is
  'The discount amount of a student fee is the sum of its discounts, and at most what is not paid of its amount. The '
  'discounts belong to its student.';

create function core.invariant_invoice_amount() returns setof jsonb language sql stable as $$
  select jsonb_build_object('invoice', i.id, 'amount', i.amount, 'items', sum(t.amount * t.quantity))
  from invoice i
  left join invoice_item t on t.invoice_id = i.id
  group by i.id
  having i.amount is distinct from sum(t.amount * t.quantity) or bool_or(t.line_total <> t.amount * t.quantity)
$$;
comment on function core.invariant_invoice_amount is
  'The amount of an invoice is the sum of its items, each multiplied by its quantity.';

create function core.invariant_paid_amount() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student_fee', f.id, 'amount', f.amount, 'paid', f.paid_amount, 'payments', sum(p.amount))
  from student_fee f
  left join payment p on p.student_fee_id = f.id
  group by f.id
  having f.paid_amount <> coalesce(sum(p.amount), 0) or f.paid_amount not between 0 and f.amount
  union all
  select jsonb_build_object('invoice', i.id, 'amount', i.amount, 'paid', i.paid_amount, 'payments', sum(p.amount))
  from invoice i
  left join payment p on p.invoice_id = i.id
  group by i.id
  having i.paid_amount <> coalesce(sum(p.amount), 0) or i.paid_amount not between 0 and i.amount
$$;
comment on function core.invariant_paid_amount is
  'The paid amount of a student fee or an invoice is the sum of its payments, and at most its amount.';

-- "Today" is the date on which a row was written last, because its status is computed at that moment.
create function core.invariant_billing_status() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student_fee', id, 'status', status, 'amount', amount, 'discount', discount_amount,
    'paid', paid_amount, 'due', due_date)
  from student_fee
  where status <>
    case
      when waived_at is not null then 'waived'
      when paid_amount + discount_amount >= amount then 'paid'
      when due_date < (updated_at at time zone core.time_zone())::date then 'overdue'
      when paid_amount > 0 then 'partially_paid'
      else 'pending'
    end
  union all
  select jsonb_build_object('invoice', id, 'status', status, 'amount', amount, 'paid', paid_amount, 'due', due_date)
  from invoice
  where status <>
    case
      when voided_at is not null then 'void'
      when issued_at is null then 'draft'
      when paid_amount >= amount then 'paid'
      when due_date < (updated_at at time zone core.time_zone())::date then 'overdue'
      when paid_amount > 0 then 'partially_paid'
      else 'sent'
    end
$$;
comment on function core.invariant_billing_status is
  'The status of a student fee or an invoice follows from its amounts and dates.';

create function core.invariant_invoice_issue() returns setof jsonb language sql stable as $$
  select jsonb_build_object('invoice', id, 'status', status, 'number', invoice_number, 'issued_at', issued_at)
  from invoice
  where (invoice_number is null) <> (issued_at is null)
    or (paid_amount > 0 and status in ('draft', 'void'))
    or (voided_at is not null and issued_at is null)
$$;
comment on function core.invariant_invoice_issue is
  'An invoice has a number exactly if it was issued. A draft or a void invoice has no payments.';

create function core.invariant_gapless_numbers() returns setof jsonb language sql stable as $$
  with numbered as (
    select 'INV' as series, invoice_number as code from invoice where invoice_number is not null
    union all
    select 'RCT', receipt_number from payment where receipt_number is not null
  ), number as (
    select series, split_part(code, '-', 2) as year, split_part(code, '-', 3)::bigint as number from numbered
  ), used as (
    select series, year, count(*) as numbers, count(distinct number) as distinct_numbers, max(number) as last
    from number
    group by series, year
  ), counted as (
    select split_part(name, '-', 1) as series, split_part(name, '-', 2) as year, value
    from counter
    where name ~ '^(INV|RCT)-'
  )
  select to_jsonb(u) || jsonb_build_object('counter', c.value)
  from used u
  full join counted c using (series, year)
  where u.numbers is distinct from u.distinct_numbers
    or u.numbers is distinct from u.last
    or u.numbers is distinct from c.value
$$;
comment on function core.invariant_gapless_numbers is
  'Invoices and receipts are numbered without gaps in each year, up to the value of their counter.';

create function core.invariant_payment_student() returns setof jsonb language sql stable as $$
  select jsonb_build_object('payment', p.id, 'receipt', p.receipt_number, 'student', p.student_id,
    'debtor', coalesce(f.student_id, i.student_id))
  from payment p
  left join student_fee f on f.id = p.student_fee_id
  left join invoice i on i.id = p.invoice_id
  where p.receipt_number is null or p.student_id is distinct from coalesce(f.student_id, i.student_id)
$$;
comment on function core.invariant_payment_student is
  'Every payment has a receipt number and belongs to the student of the student fee or invoice that it pays.';

create function core.invariant_reversal() returns setof jsonb language sql stable as $$
  select jsonb_build_object('payment', r.id, 'amount', r.amount, 'reversal_of', r.reversal_of, 'reversed', p.amount)
  from payment r
  left join payment p on p.id = r.reversal_of
  where (r.amount > 0 and r.reversal_of is not null)
    or (
      r.amount < 0
      and (
        p.id is null
        or p.amount <> -r.amount
        or p.reversal_of is not null
        or (p.student_fee_id, p.invoice_id) is distinct from (r.student_fee_id, r.invoice_id)
        or exists (select from payment other where other.reversal_of = r.reversal_of and other.id <> r.id)
      )
    )
$$;
comment on function core.invariant_reversal is
  'A reversal takes back the whole amount of one payment of the same student fee or invoice, and only once.';

create function core.invariant_billing_period() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student', a.student_id, 'fee_component', a.fee_component_id, 'from', a.period_start,
    'again_from', b.period_start)
  from student_fee_item a
  join student_fee_item b on b.student_id = a.student_id
    and b.fee_component_id = a.fee_component_id
    and b.id > a.id
    and b.period_start <= a.period_end
    and b.period_end >= a.period_start
$$;
comment on function core.invariant_billing_period is 'A student is billed for a fee component once in a period.';

create function core.invariant_student_fee_items() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student_fee_item', i.id, 'student', i.student_id, 'student_of_fee', f.student_id)
  from student_fee_item i
  join student_fee f on f.id = i.student_fee_id
  join fee_component c on c.id = i.fee_component_id
  where i.student_id <> f.student_id or c.fee_structure_id <> f.fee_structure_id
  union all
  select jsonb_build_object('items_digest', items_digest, 'student_fees', count(*))
  from (
    select f.items_digest, array_agg(i.name || ' ' || i.amount order by i.id) as items
    from student_fee f
    join student_fee_item i on i.student_fee_id = f.id
    group by f.id
  ) fee
  group by items_digest
  having count(distinct items) > 1
$$;
comment on function core.invariant_student_fee_items is
  'The items of a student fee belong to its student and its fee structure. Fees with the same digest have the same '
  'items.';

create function core.invariant_enrollment() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student', s.id, 'class', s.class_id, 'enrolled_in', e.class_id)
  from student s
  left join enrollment e on e.student_id = s.id and core.has_not_ended(e.starts_on, e.ends_on, core.today())
  where case when s.deleted_at is null and not core.has_left(s.left_on, core.today()) then s.class_id end
      is distinct from e.class_id
    or e.ends_on is distinct from s.left_on and e.id is not null
    or (e.status = 'active') <> (s.left_on is null)
$$;
comment on function core.invariant_enrollment is
  'A student has one enrollment that covers today, in their class, until the day left_on. A student without a class, '
  'one who has left and a removed student have none.';

create function core.invariant_usage_counts() returns setof jsonb language sql stable as $$
  select jsonb_build_object('counted', to_jsonb(c), 'stored', to_jsonb(u), 'platform', to_jsonb(t))
  from (
    select
      (select count(*) from student where left_on is null and deleted_at is null)::integer as students,
      (select count(*) from teacher where left_on is null and deleted_at is null)::integer as teachers,
      (select count(*) from class)::integer as classes
  ) c
  cross join (select students, teachers, classes from school_usage) u
  cross join (select students, teachers, classes from platform.tenant_usage where tenant_id = core.tenant_id()) t
  cross join (
    select
      (select count(*) from student where left_on is not null and deleted_at is null) as students,
      (select count(*) from teacher where left_on is not null and deleted_at is null) as teachers
  ) leaving
  where c is distinct from u
    or t.classes <> c.classes
    -- Those who will leave count until the next write or daily measurement after that day.
    or t.students not between c.students and c.students + leaving.students
    or t.teachers not between c.teachers and c.teachers + leaving.teachers
$$;
comment on function core.invariant_usage_counts is
  'The stored numbers of students and teachers who have not left, and of classes, are right.';

create function core.invariant_attendance_totals() returns setof jsonb language sql stable as $$
  select jsonb_build_object('class', class_id, 'marks', a.marks, 'stored_marks', t.marks, 'attended', a.attended,
    'stored_attended', t.attended)
  from (
    select class_id, count(*) as marks, count(*) filter (where status <> 'absent') as attended
    from attendance
    group by class_id
  ) a
  full join attendance_total t using (class_id)
  where (coalesce(a.marks, 0), coalesce(a.attended, 0)) <> (coalesce(t.marks, 0), coalesce(t.attended, 0))
  union all
  select jsonb_build_object('class', class_id, 'date', date, 'marks', to_jsonb(a), 'stored_marks', to_jsonb(d))
  from (
    select
      class_id,
      date,
      count(*) filter (where status = 'present')::integer as present,
      count(*) filter (where status = 'absent')::integer as absent,
      count(*) filter (where status = 'late')::integer as late,
      count(*) filter (where status = 'absent' and is_excused)::integer as excused
    from attendance
    group by class_id, date
  ) a
  full join (
    select class_id, date, present, absent, late, excused from attendance_day where present + absent + late > 0
  ) d using (class_id, date)
  where (a.present, a.absent, a.late, a.excused) is distinct from (d.present, d.absent, d.late, d.excused)
$$;
comment on function core.invariant_attendance_totals is
  'The stored totals of marks, for each class and for each day, equal the marks.';

create function core.invariant_attendance_mark() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student', student_id, 'date', date, 'marks', count(*))
  from attendance
  group by student_id, date
  having count(*) > 1
$$;
comment on function core.invariant_attendance_mark is 'A student has at most one mark on a day.';

create function core.invariant_timetable() returns setof jsonb language sql stable as $$
  select jsonb_build_object('academic_year', academic_year_id, 'day', day_of_week, 'period', period,
    'teacher', teacher_id, 'classes', array_agg(class_id order by class_id))
  from timetable_slot
  where teacher_id is not null
  group by academic_year_id, day_of_week, period, teacher_id
  having count(*) > 1
  union all
  select jsonb_build_object('class', class_id, 'day', day_of_week, 'period', period, 'slots', count(*))
  from timetable_slot
  group by class_id, day_of_week, period
  having count(*) > 1
$$;
comment on function core.invariant_timetable is
  'At each time of the week, a class has at most one lesson and a teacher teaches at most one class.';

create function core.invariant_seats() returns setof jsonb language sql stable as $$
  select jsonb_build_object('route', r.id, 'seats', seats.number, 'pickup', riding.pickup, 'drop', riding.drop)
  from route r
  cross join lateral (
    select min(capacity) as number from bus where id in (select b.bus_id from route_buses(r.id) b)
  ) seats
  cross join lateral (
    select
      count(*) filter (where enrollment_type in ('pickup', 'both')) as pickup,
      count(*) filter (where enrollment_type in ('drop', 'both')) as drop
    from transport_enrollment
    where route_id = r.id and core.rides(cancelled_at, now())
  ) riding
  where greatest(riding.pickup, riding.drop) > seats.number
$$;
comment on function core.invariant_seats is 'No bus of a route has more passengers than seats, in either direction.';

create function core.invariant_transport_enrollment() returns setof jsonb language sql stable as $$
  select jsonb_build_object('student', student_id, 'active_enrollments', count(*))
  from transport_enrollment
  where core.rides(cancelled_at, now())
  group by student_id
  having count(*) > 1
$$;
comment on function core.invariant_transport_enrollment is 'A student has at most one active transport enrollment.';

create function core.invariant_stop_sequence() returns setof jsonb language sql stable as $$
  select jsonb_build_object('route', route_id, 'stops', count(*), 'last', max(sequence))
  from stop
  where deleted_at is null
  group by route_id
  having count(*) <> max(sequence) or count(*) <> count(distinct sequence)
$$;
comment on function core.invariant_stop_sequence is 'The stops of a route are numbered from 1 without gaps.';

create function core.invariant_delivery() returns setof jsonb language sql stable as $$
  select jsonb_build_object('delivery', id, 'status', status, 'sent_at', sent_at, 'attempts', attempts)
  from notification_delivery
  where (status = 'sent') <> (sent_at is not null) or (status = 'sent' and attempts = 0)
$$;
comment on function core.invariant_delivery is 'A delivery has a sending time exactly if it was sent.';

create function core.invariant_idempotency_key() returns setof jsonb language sql stable as $$
  select jsonb_build_object('operation', operation, 'created_at', created_at)
  from idempotency_key
  where answer is null
$$;
comment on function core.invariant_idempotency_key is 'Every stored Idempotency-Key has the response of its request.';

create function core.invariant_webhook() returns setof jsonb language sql stable as $$
  select jsonb_build_object('webhook', w.id, 'is_active', w.is_active)
  from webhook w
  where case
    when w.is_active then not exists (
      select from webhook_secret s where s.webhook_id = w.id and s.expires_at is null)
    else exists (select from webhook_delivery d where d.webhook_id = w.id and d.status = 'pending')
  end
$$;
comment on function core.invariant_webhook is
  'An active webhook has a secret, and a disabled one has no pending delivery.';

create function core.invariant_api_key() returns setof jsonb language sql stable as $$
  select jsonb_build_object('api_key', k.id, 'user', k.user_id)
  from api_key k
  join user_account u on u.id = k.user_id
  where u.deleted_at is not null
    or k.prefix not like 'sk\_' || core.tenant_id() || '\_%'
    or not k.permissions <@ array(select name from core.permission)
$$;
comment on function core.invariant_api_key is
  'An API key belongs to a user who is not deleted, names this school, and has only permissions that exist.';

create function core.keys_not_normalized(p_schema text)
  returns table (table_name text, column_name text, id bigint, value text, same_as bigint[])
  language plpgsql stable as $$
declare
  v_column record;
begin
  for v_column in
    select distinct r.oid::regclass as table_name, r.relname, a.attname
    from core.relations_in(p_schema) r
    join pg_index i on i.indrelid = r.oid and i.indisunique
    join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = i.indexrelid
      and d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid
    join pg_attribute a on a.attrelid = r.oid and a.attnum = d.refobjsubid and a.atttypid = 'text'::regtype
    join pg_attribute id on id.attrelid = r.oid and id.attname = 'id' and id.atttypid = 'bigint'::regtype
    order by r.relname, a.attname
  loop
    return query execute format(
      'select %1$L, %2$L, t.id, t.%2$I, '
      'array(select o.id from %3$s o where o.id <> t.id and lower(normalize(o.%2$I)) = lower(normalize(t.%2$I))) '
      'from %3$s t where octet_length(t.%2$I) <> length(t.%2$I) and t.%2$I is not normalized',
      v_column.relname, v_column.attname, v_column.table_name);
  end loop;
end $$;
comment on function core.keys_not_normalized is
  'The texts of a schema that must be unique and are not in the Unicode normalization form NFC, with the ids of the '
  'records that have the same text in that form.';

create function core.invariant_normalized_keys() returns setof jsonb language sql stable as $$
  select jsonb_build_object(k.table_name, k.id, 'column', k.column_name, 'same_as', k.same_as)
  from core.keys_not_normalized('tenant_' || core.tenant_id()) k;
$$;
comment on function core.invariant_normalized_keys is
  'A text that must be unique is in the Unicode normalization form NFC. The migration to it left out records that look '
  'the same as another one (same_as): change one of them, then save the other again.';

create function core.invariant_rows() returns setof jsonb language sql stable as $$
  select jsonb_build_object('state_transition', 0) where not exists (select from state_transition);
$$;
comment on function core.invariant_rows is
  'The tables have the rows that migrations add. After a restore of a dump that was made under row security they have '
  'none.';

create function core.find_violations(p_tenant_id bigint)
  returns table (invariant text, rule text, violations bigint, examples jsonb)
  language plpgsql set timezone = 'UTC' as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
  v_function record;
begin
  for v_function in
    select f.proname as name, obj_description(f.oid, 'pg_proc') as rule
    from core.functions_in('core') f
    where f.proname ~ '^invariant_'
    order by f.proname
  loop
    invariant := substr(v_function.name, 11);
    rule := v_function.rule;
    execute format(
      'select count(*), jsonb_agg(row) filter (where n <= 3) '
      'from (select row, row_number() over () as n from core.%I() row) found',
      v_function.name)
      into violations, examples;
    if violations > 0 then
      return next;
    end if;
  end loop;
  perform core.leave_tenant(v_before);
end $$;
comment on function core.find_violations is
  'Checks all invariants of a school. Returns the violated ones with their number of violations and three examples, '
  'which contain ids, dates and amounts but no names. Reads all rows of the school. For the owner of the database.';
