-- /api/finance/student-fees/:id/discounts: discounts on student fees. The amount of a fee stays gross. Triggers add its
-- discounts up and derive the status; decision 0013 has the rules.

select core.define_operation('student_fees_discounts_create', p_permission => 'fee.manage',
  p_feature => 'fees_management', p_idempotent => true, p_reader => 'student_fees_list',
  p_errors => '{conflict,invalid_state}');
select core.define_operation('student_fees_discounts_delete', p_permission => 'fee.manage',
  p_feature => 'fees_management', p_errors => '{invalid_state}');

create function api.student_fee_discounts(p_student_fee_id bigint) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(to_jsonb(d) - 'student_id' order by d.id), '[]')
  from student_fee_discount d
  where d.student_fee_id = p_student_fee_id;
$$;
comment on function api.student_fee_discounts is 'The discounts on a student fee, oldest first.';

create function api.audited_discount(p_discount jsonb) returns jsonb language sql immutable
  return p_discount - '{id,reason,created_by,created_by_name}'::text[];
comment on function api.audited_discount is
  'A discount as the audit log shows it: without the reason, which may be personal, and what each entry has anyway.';

create function api.discount_amount(p jsonb, p_fee_amount numeric, p_decimals integer) returns numeric
  language sql immutable
  return case
    when p ->> 'percent' is null then core.as_amount((p ->> 'amount')::numeric, p_decimals)
    else round(
      p_fee_amount * (p ->> 'percent')::numeric / 100, greatest(p_decimals, min_scale(p_fee_amount)))
  end;
comment on function api.discount_amount is
  'The amount of a discount {amount} or {percent} on a fee. A percentage is rounded half up to the decimals of the '
  'currency, or to those of the fee if it has more.';

create function api.student_fees_discounts_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_fee record;
  v_currency text := core.school_currency();
  v_decimals integer := core.currency_decimals(v_currency);
  v_amount numeric;
  v_decimals_fault text;
  v_discount jsonb;
begin
  perform core.record_lock('student_fee', v_id);
  select student_id, status, amount, amount - discount_amount - paid_amount as balance
    into v_fee
    from student_fee
    where id = v_id;
  if not api.is_open(v_fee.status) then
    perform core.fail('invalid_state',
      format('This fee is already %s. Only a fee with a balance can have another discount.', v_fee.status));
  end if;
  v_amount := api.discount_amount(p, v_fee.amount, v_decimals);
  if p ->> 'percent' is null then
    v_decimals_fault := api.bill_decimals_fault(v_amount, v_fee.balance, v_currency, v_decimals);
  end if;
  if v_amount = 0 then
    perform core.refuse_field('validation_error', 'percent', 'is too small: the discount would be rounded to 0');
  elsif v_decimals_fault is not null then
    perform core.refuse_field('validation_error', 'amount', v_decimals_fault);
  elsif v_amount > v_fee.balance then
    perform core.refuse_field('conflict', case when p ->> 'percent' is null then 'amount' else 'percent' end, case
      when not core.may_compare() then 'The discount is above the balance.'
      when p ->> 'percent' is null then format('The balance is %s.', v_fee.balance)
      else format('The discount would be %s, but the balance is %s.', v_amount, v_fee.balance)
    end);
  end if;
  insert into student_fee_discount (student_fee_id, student_id, amount, percent, reason, created_by, created_by_name)
    values (v_id, v_fee.student_id, v_amount, (p ->> 'percent')::numeric, p ->> 'reason', core.user_id(),
      api.user_name());
  -- The lock makes the new discount the last one.
  v_discount := api.student_fee_discounts(v_id) -> -1;
  perform core.audit_school(
    'student_fee_discount.create', (v_discount ->> 'id')::bigint, null, api.audited_discount(v_discount));
  return v_discount;
end $$;
comment on function api.student_fees_discounts_create is
  'Grants and returns a discount on a student fee: {id, reason} and {amount} or {percent} of the amount of the fee. '
  'Raises not_found for the fee, invalid_state for a paid or waived fee, validation_error for an amount with more '
  'decimals than the currency and the balance have or that is rounded to 0, conflict for a discount above the balance.';

create function api.student_fees_discounts_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_discount_id bigint := (p ->> 'discount_id')::bigint;
  v_discount jsonb;
begin
  perform core.record_lock('student_fee', v_id);
  select d into v_discount
    from jsonb_array_elements(api.student_fee_discounts(v_id)) d
    where (d ->> 'id')::bigint = v_discount_id;
  if not found then
    perform core.fail('not_found', format('This student fee has no discount %s.', v_discount_id));
  elsif exists (select from student_fee where id = v_id and waived_at is not null) then
    perform core.fail('invalid_state', 'This fee is waived, so its discounts cannot be deleted.');
  end if;
  delete from student_fee_discount where id = v_discount_id;
  perform core.audit_school(
    'student_fee_discount.delete', v_discount_id, api.audited_discount(v_discount), null);
  return json_build_object('id', v_discount_id);
end $$;
comment on function api.student_fees_discounts_delete is
  'Deletes a discount: {id, discount_id}. Its amount is owed again. Raises not_found for a discount of another fee, '
  'invalid_state for a waived fee.';
