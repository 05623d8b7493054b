-- /api/finance/payments and /api/fees/payments: the payments of student fees and of invoices, in one table.

select core.define_operation('payments_list', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management');
select core.define_operation('payments_export', p_permission => 'fee.read', p_feature => 'fees_management');
select core.define_operation('payments_get', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management', p_record => 'payment');
select core.define_operation('payments_create', p_permission => 'payment.create', p_feature => 'fees_management',
  p_idempotent => true, p_record => 'payment', p_errors => '{conflict,invalid_state,invalid_reference}',
  p_needs_search_path => false);
select core.define_operation('payments_create_for_invoice', p_permission => 'payment.create',
  p_feature => 'fees_management', p_idempotent => true, p_record => 'payment',
  p_errors => '{conflict,invalid_state,invalid_reference}', p_needs_search_path => false);
select core.define_operation('payments_receipt', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management');
select core.define_operation('payments_reverse', p_permission => 'payment.create', p_feature => 'fees_management',
  p_reader => 'payments_get', p_idempotent => true, p_errors => '{conflict}');

select core.define_record('payment', p_table => 'payment', p_key => 'p.id', p_one_row_per_key => true,
  p_source => $$
    payment p left join student s on s.id = p.student_id left join student_fee f on f.id = p.student_fee_id
    left join fee_structure fs on fs.id = f.fee_structure_id left join invoice i on i.id = p.invoice_id
    left join class c on c.id = coalesce(f.class_id, i.class_id)
  $$,
  p_columns => $$
    p.id, p.receipt_number, case when p.invoice_id is null then 'student_fee' else 'invoice' end as kind,
    p.student_id, core.full_name(s.first_name, s.last_name) as student_name, s.admission_number,
    c.id as class_id, api.class_name(c.name, c.section) as class_name,
    p.student_fee_id, fs.name as fee_structure_name, p.invoice_id, i.invoice_number,
    p.amount, p.payment_date, p.payment_method, p.payment_method as method,
    -- They may name who paid.
    case when core.hides_contacts(p.student_id) then null else p.reference_number end as reference_number,
    case when core.hides_contacts(p.student_id) then null else p.notes end as notes,
    p.reversal_of, exists (select from payment r where r.reversal_of = p.id) as is_reversed,
    p.recorded_by, p.recorded_by_name, p.created_at, p.updated_at
  $$,
  p_search => $$(p.student_id = any (array(
      select id from student where search_name like :pattern and search_name like all (:patterns)))
    or p.invoice_id = any (array(select id from invoice where invoice_number like upper(:pattern)
      and invoice_number like all (upper(:patterns)::text[])))
    or p.id = any (array(
      select id from payment where search_text like :pattern and search_text like all (:patterns)
      union all
      select n.id from payment n join student o on o.id = n.student_id
      where cardinality(:patterns::text[]) > 1
        and (n.search_text like any (:patterns)
          or n.invoice_id = any (array(
            select id from invoice where invoice_number like any (upper(:patterns)::text[]))))
        and concat_ws(' ', o.search_name, n.search_text,
          (select lower(b.invoice_number) from invoice b where b.id = n.invoice_id)) like all (:patterns))))$$,
  p_single_page_filters => '{student_id,student_fee_id,invoice_id,is_in_scope}', p_narrow_filters => '{class_id}',
  p_own_student_scopes => '{taught,own,children}',
  p_equals => '{student_id,student_fee_id,invoice_id,payment_method}',
  p_default_sort => 'payment_date', p_default_order => 'desc');
-- For guardians who do not see the reference number (core.narrow_to_scope).
select core.define_filter('payment', 'matches_shown', $$
  (not core.hides_contacts(p.student_id) or (
    select public.search_form(concat_ws(' ', o.search_name, p.receipt_number, b.invoice_number))
    from student o
    left join invoice b on b.id = p.invoice_id
    where o.id = p.student_id
  ) like all (core.search_patterns(core.parameters() ->> 'search')))
$$, p_is_literal => true);
select core.define_filter('payment', 'is_in_scope', $$
  p.student_id = any ((select visible_student_ids())::bigint[])
$$);
select core.define_filter('payment', 'class_id', $$
  p.id in (select q.id from student_fee o join payment q on q.student_fee_id = o.id where o.class_id = :value::bigint
    union all select q.id from invoice o join payment q on q.invoice_id = o.id where o.class_id = :value::bigint)
$$);
select core.define_filter('payment', 'from_date', 'p.payment_date >= :value::date');
select core.define_filter('payment', 'to_date', 'p.payment_date <= :value::date');
select core.define_filter('payment', 'kind', $$(p.invoice_id is null) = (:value = 'student_fee')$$,
  p_is_literal => true);
select core.define_filter('payment', 'method', 'p.payment_method = :value', p_is_literal => true);
select core.define_sort('payment', 'payment_date', 'p.payment_date');
select core.define_sort('payment', 'amount', 'p.amount');
select core.define_sort('payment', 'receipt_number', 'p.receipt_number nulls last');
select core.define_sort('payment', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');

select core.define_functions('payments', 'payment',
  p_list =>
    'Payments, latest first, including reversals. Searches receipt, reference and invoice number and the student. '
    'Filters: student_id, student_fee_id, invoice_id, class_id (at billing), from_date, to_date, kind, '
    'payment_method (or method). A student sees only their own.',
  p_get => 'One payment of a student fee or an invoice. Raises not_found.');

create function api.number_next(p_series text) returns text language plpgsql as $$
begin
  return core.run_prepared($statement$
    insert into counter as c (name, value)
      select (core.parameters() #>> '{}') || to_char(core.today(), '-YYYY'), 1
      on conflict (name) do update set value = c.value + 1
      returning to_json(name || '-' || lpad(value::text, greatest(6, length(value::text)), '0'))
  $statement$, to_jsonb(p_series)) #>> '{}';
end $$;
comment on function api.number_next is
  'The next number of a series of this school in the current year, without gaps: RCT-2026-000001. Locks the counter '
  'until the transaction ends, so other transactions of the school that draw a number wait from here on. Call it as '
  'late as possible: after the locks on bills.';

-- The lock makes concurrent payments wait, so that each is checked against the balance that the other left.
create function api.lock_bill(p_table text, p_id bigint) returns json language plpgsql as $$
begin
  return core.run_prepared(format($statement$
    select row_to_json(bill)
    from (
      select b.student_id, b.status, %s as balance,
        core.today() as today,
        c.currency, core.currency_decimals(c.currency) as decimals,
        (select core.full_name(u.first_name, u.last_name) from user_account u where u.id = core.user_id()) as user_name
      from %I b, core.school_currency() c (currency)
      where b.id = (select (core.parameters() ->> 'id')::bigint)
      for no key update of b
    ) bill
  $statement$, case p_table
    when 'student_fee' then 'b.amount - b.discount_amount - b.paid_amount'
    else 'b.amount - b.paid_amount'
  end, p_table), jsonb_build_object('id', p_id));
end $$;
comment on function api.lock_bill is
  'Locks a row of invoice or student_fee (p_table) until the commit: {student_id, status, balance}, also {today, '
  'currency, decimals, user_name}, to save statements. Null if it does not exist.';

create function api.bill_decimals_fault(
  p_amount numeric, p_balance numeric, p_currency text, p_decimals integer
) returns text language sql immutable
  return case
    when min_scale(p_amount) <= greatest(p_decimals, min_scale(p_balance)) then null
    when min_scale(p_balance) > p_decimals
      then format('must have at most %s decimals, as the balance has', min_scale(p_balance))
    else core.decimals_fault(p_amount, p_currency, p_decimals)
  end;
comment on function api.bill_decimals_fault is
  'The message for a part of a balance that has more decimals than the currency and the balance have; else null.';

create function api.record_payment(p_kind text, p_id bigint, p jsonb) returns json language plpgsql as $$
declare
  v_kind_name text := replace(p_kind, '_', ' ');
  v_bill json := api.lock_bill(p_kind, p_id);
  v_status text := v_bill ->> 'status';
  v_balance numeric := v_bill ->> 'balance';
  v_currency text := v_bill ->> 'currency';
  v_decimals integer := v_bill ->> 'decimals';
  v_amount numeric := core.as_amount((p ->> 'amount')::numeric, v_decimals);
  v_decimals_fault text := api.bill_decimals_fault(v_amount, v_balance, v_currency, v_decimals);
  v_date date := coalesce(p ->> 'payment_date', v_bill ->> 'today');
  v_id bigint;
  v_payment json;
begin
  if v_bill is null then
    perform core.refuse_field('invalid_reference', p_kind || '_id', format('There is no %s %s.', v_kind_name, p_id));
  elsif v_date > (v_bill ->> 'today')::date then
    perform core.refuse_field('validation_error', 'payment_date', 'must not be in the future');
  elsif v_status = 'draft' then
    perform core.fail('invalid_state', 'This invoice is a draft. Issue it first.');
  elsif v_status in ('waived', 'void') then
    perform core.fail('invalid_state', format('This %s is %s and cannot be paid.', v_kind_name, v_status));
  elsif v_decimals_fault is not null then
    perform core.refuse_field('validation_error', 'amount', v_decimals_fault);
  elsif v_amount > v_balance then
    perform core.refuse_field('conflict', 'amount', case
      when core.may_compare() then format('The balance is %s.', v_balance)
      else 'The amount is above the balance.'
    end);
  end if;
  v_id := core.run_prepared($statement$
    insert into payment (
        student_id, student_fee_id, invoice_id, amount, payment_date, payment_method, reference_number, notes,
        recorded_by, recorded_by_name, receipt_number)
      select student_id, student_fee_id, invoice_id, amount, payment_date, payment_method, reference_number, notes,
        core.user_id(), user_name, receipt_number
      from jsonb_to_record((select core.parameters())) r (
        student_id bigint, student_fee_id bigint, invoice_id bigint, amount numeric, payment_date date,
        payment_method text, reference_number text, notes text, user_name text, receipt_number text)
      returning to_json(id)
  $statement$, jsonb_build_object(
    'student_id', v_bill -> 'student_id', p_kind || '_id', p_id, 'amount', v_amount, 'payment_date', v_date,
    'payment_method', coalesce(p ->> 'payment_method', p ->> 'method'), 'reference_number', p -> 'reference_number',
    'notes', p -> 'notes', 'user_name', v_bill -> 'user_name', 'receipt_number', api.number_next('RCT')))::text;
  v_payment := api.payment_record(v_id);
  perform core.notify('payment.received', jsonb_build_object('payment_id', v_id, 'balance', v_balance - v_amount));
  return v_payment;
end $$;
comment on function api.record_payment is
  'Records and returns a payment of a student fee or an invoice (p_kind), and notifies the student and the parent. '
  '{amount, payment_method or method}, optional {payment_date, reference_number, notes}. Raises invalid_reference for '
  'an unknown fee or invoice, validation_error for a future date, and for an amount with more decimals than the '
  'currency and the balance have; invalid_state for a waived fee, a void invoice or a draft, conflict for an amount '
  'above the balance.';

create function api.payment_recipients(p jsonb) returns jsonb language sql stable as $$
  select api.student_recipients('payment.received', jsonb_agg(jsonb_build_object(
    'student_id', paid.student_id,
    'amount', core.written_amount(paid.amount, c.currency, core.currency_decimals(c.currency)),
    'balance', core.written_amount((p ->> 'balance')::numeric, c.currency, core.currency_decimals(c.currency)),
    'date', core.written_day(paid.payment_date),
    'receipt_number', paid.receipt_number,
    'paid_for', coalesce(fs.name, 'invoice ' || i.invoice_number))))
  from payment paid
  left join student_fee f on f.id = paid.student_fee_id
  left join fee_structure fs on fs.id = f.fee_structure_id
  left join invoice i on i.id = paid.invoice_id
  cross join core.school_currency() c (currency)
  where paid.id = (p ->> 'payment_id')::bigint
    and not exists (select from payment r where r.reversal_of = paid.id)
$$;
comment on function api.payment_recipients is
  'The recipients of payment.received, {payment_id, balance}: the student and the parent. balance is the open balance '
  'after the payment. None if the payment has been reversed.';

create function api.payments_export(p jsonb) returns json language plpgsql stable as $$
begin
  perform core.require_whole_school();
  return core.record_export_page('payment', p, p_currency => core.school_currency(),
    p_keys => 'p.payment_date, p.id', p_cells => $cells$
    p.receipt_number, p.payment_date, s.admission_number, core.full_name(s.first_name, s.last_name),
    api.class_name(c.name, c.section), coalesce(fs.name, i.invoice_number), p.amount, p.payment_method,
    p.reference_number, p.notes, (select r.receipt_number from payment r where r.id = p.reversal_of),
    (select r.receipt_number from payment r where r.reversal_of = p.id), p.recorded_by_name
  $cells$);
end $$;
comment on function api.payments_export is
  'One page of the export of payments, oldest first, with the filters of the list. Raises forbidden for users who may '
  'not see the whole school.';

create function api.payments_create(p jsonb) returns json language plpgsql as $$
begin
  return api.record_payment('student_fee', (p ->> 'student_fee_id')::bigint, p);
end $$;
comment on function api.payments_create is
  'Records a payment of a student fee: {student_fee_id} and the parameters of record_payment. Raises its errors.';

create function api.payments_create_for_invoice(p jsonb) returns json language plpgsql as $$
begin
  return api.record_payment('invoice', (p ->> 'invoice_id')::bigint, p);
end $$;
comment on function api.payments_create_for_invoice is
  'Records a payment of an invoice: {invoice_id} and the parameters of record_payment. Raises its errors.';

create function api.payments_reverse(p jsonb) returns json language plpgsql as $$
declare
  v_payment record;
  v_id bigint := (p ->> 'id')::bigint;
begin
  select student_fee_id, invoice_id, reversal_of, payment_method, reference_number, student_id, amount
    into v_payment
    from payment
    where id = v_id;
  if not found then
    perform core.fail('not_found', format('There is no payment %s.', v_id));
  elsif v_payment.reversal_of is not null then
    perform core.fail('conflict', 'A reversal cannot be reversed. Record the payment again instead.');
  end if;
  -- record_payment takes the same lock, so payments and reversals of one bill run one after the other.
  if v_payment.invoice_id is null then
    perform api.lock_bill('student_fee', v_payment.student_fee_id);
  else
    perform api.lock_bill('invoice', v_payment.invoice_id);
  end if;
  if exists (select from payment where reversal_of = v_id) then
    perform core.fail('conflict', 'This payment has already been reversed.');
  end if;
  insert into payment (
      student_id, student_fee_id, invoice_id, amount, payment_date, payment_method, reference_number, notes,
      reversal_of, recorded_by, recorded_by_name, receipt_number)
    values (
      v_payment.student_id, v_payment.student_fee_id, v_payment.invoice_id, -v_payment.amount, core.today(),
      v_payment.payment_method, v_payment.reference_number, p ->> 'reason', v_id, core.user_id(), api.user_name(),
      api.number_next('RCT'))
    returning id into v_id;
  return api.payment_record(v_id);
end $$;
comment on function api.payments_reverse is
  'Reverses a payment in full: {id, reason}. Records and returns a payment of today with the negative amount, so that '
  'the fee or invoice is owed again. Raises not_found, conflict for a reversal or a payment that is already reversed.';

create function api.payments_receipt(p jsonb) returns json language plpgsql stable as $$
declare
  v_payment json := api.payment_record((p ->> 'id')::bigint);
  v_currency text := core.school_currency();
begin
  return json_build_object(
    'kind', 'payment', 'letterhead', api.letterhead(), 'printed_on', core.today(), 'currency', v_currency,
    'currency_decimals', core.currency_decimals(v_currency),
    'payment', v_payment, 'class_name', v_payment ->> 'class_name',
    'parent_name', api.contact_name((v_payment ->> 'student_id')::bigint),
    'fee', (
      -- A receipt that is printed again shows no later discounts.
      select json_build_object(
        'amount', f.amount, 'discount_amount', granted.amount, 'net_amount', f.amount - granted.amount)
      from student_fee f
      cross join lateral (
        select coalesce(sum(d.amount), 0) as amount
        from student_fee_discount d
        where d.student_fee_id = f.id and d.created_at <= (v_payment ->> 'created_at')::timestamptz
      ) granted
      where f.id = (v_payment ->> 'student_fee_id')::bigint),
    'reverses', (select receipt_number from payment where id = (v_payment ->> 'reversal_of')::bigint),
    'reversed_by', (select receipt_number from payment where reversal_of = (v_payment ->> 'id')::bigint));
end $$;
comment on function api.payments_receipt is
  'The content of the PDF of a payment of a student fee or an invoice: {id}. The amounts of a student fee are those '
  'after the discounts that it had at the payment. Raises not_found.';
