-- /api/fees/invoices: invoices to students. A draft gets its number when it is issued. An issued invoice cannot be
-- deleted, only voided.

select core.define_operation('invoices_list', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management');
select core.define_operation('invoices_get', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management', p_record => 'invoice');
select core.define_operation('invoices_create', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_idempotent => true, p_record => 'invoice', p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('invoices_update', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_record => 'invoice', p_errors => '{invalid_state}');
select core.define_operation('invoices_delete', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_record => 'invoice', p_errors => '{invalid_state,in_use}');
select core.define_operation('invoices_issue', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_idempotent => true, p_record => 'invoice', p_errors => '{conflict,invalid_state}');
select core.define_operation('invoices_void', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_idempotent => true, p_record => 'invoice', p_errors => '{invalid_state}');
select core.define_operation('invoices_download', p_permission => 'fee.read', p_allows_own_rows => true,
  p_feature => 'fees_management');
select core.define_operation('invoices_send_reminder', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_idempotent => true, p_record => 'invoice', p_errors => '{invalid_state}');

-- Users who see only their own rows see no drafts. With left joins the planner can drop the joins when counting.
-- A search looks for the words in invoice numbers and in students separately, because each has its own index, and then
-- for words spread over both. Invoice numbers are uppercase, and the search uppercases its words instead of calling
-- lower(invoice_number): lower is not leakproof, so row-level security would keep the query from using an index.
select core.define_record('invoice', p_table => 'invoice', p_key => 'i.id', p_one_row_per_key => true,
  p_source => 'invoice i left join student s on s.id = i.student_id left join class c on c.id = i.class_id',
  p_columns => $$
    i.id, i.invoice_number, i.student_id, core.full_name(s.first_name, s.last_name) as student_name, s.admission_number,
    i.class_id, api.class_name(c.name, c.section) as class_name, i.due_date,
    (select coalesce(json_agg(json_build_object('id', t.id, 'description', t.description, 'amount', t.amount,
      'quantity', t.quantity, 'line_total', t.line_total)
       order by t.id), '[]') from invoice_item t where t.invoice_id = i.id) as items,
    i.amount as total, i.paid_amount, case when i.voided_at is null then i.amount - i.paid_amount else 0 end as balance,
    api.status_on(i.status, i.due_date, core.today()) as status, i.issued_at, i.notes, i.voided_at, i.void_reason,
    (select max(r.created_at) from invoice_reminder r where r.invoice_id = i.id) as last_reminded_at, i.created_at,
    i.updated_at
  $$,
  p_condition => '(i.issued_at is not null or core.has_whole_school_scope())',
  p_search => $$(i.student_id = any (array(
      select id from student where search_name like :pattern and search_name like all (:patterns)))
    or i.id = any (array(
      select id from invoice where invoice_number like upper(:pattern)
        and invoice_number like all (upper(:patterns)::text[])
      union all
      select n.id from invoice n join student o on o.id = n.student_id
      where cardinality(:patterns::text[]) > 1 and n.invoice_number like any (upper(:patterns)::text[])
        and o.search_name || ' ' || lower(n.invoice_number) like all (:patterns))))$$,
  p_ended => 'i.voided_at is not null',
  p_single_page_filters => '{student_id,is_in_scope}', p_narrow_filters => '{class_id}',
  p_own_student_scopes => '{taught,own,children}',
  p_equals => '{student_id,class_id}',
  p_default_sort => 'created_at', p_default_order => 'desc',
  p_writable => '{due_date,notes}',
  p_unversioned_fields => '{status}', p_volatile_fields => '{last_reminded_at}',
  p_derived_fields => '{paid_amount}', p_reader => 'invoice_with_payments');
select core.define_filter('invoice', 'is_in_scope', $$
  i.student_id = any ((select visible_student_ids())::bigint[])
$$);
select core.define_filter('invoice', 'status', $$
  case :value when 'overdue' then api.is_open(i.status) else i.status = :value end
    and api.status_on(i.status, i.due_date, (select core.today())) = :value
$$, p_is_literal => true);
select core.define_filter('invoice', 'only_open', $$(:value <> 'true' or api.is_open(i.status))$$,
  p_is_literal => true);
select core.define_filter('invoice', 'from_date', 'i.issued_at >= (select core.day_begins(:value::date))');
select core.define_filter('invoice', 'to_date', 'i.issued_at < (select core.day_begins(:value::date + 1))');
select core.define_filter('invoice', 'due_from', 'i.due_date >= :value::date');
select core.define_filter('invoice', 'due_to', 'i.due_date <= :value::date');
select core.define_sort('invoice', 'created_at', 'i.created_at');
select core.define_sort('invoice', 'issued_at', 'i.issued_at nulls last');
select core.define_sort('invoice', 'invoice_number', 'i.invoice_number nulls last');
select core.define_sort('invoice', 'due_date', 'i.due_date');
select core.define_sort('invoice', 'total', 'i.amount');
select core.define_sort('invoice', 'balance', 'case when i.voided_at is null then i.amount - i.paid_amount else 0 end');
select core.define_sort('invoice', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');

select core.define_functions('invoices', 'invoice',
  p_list =>
    'Invoices, latest first, void ones only with a status or include_ended. Searches number and student. Filters: '
    'student_id, class_id (at billing), status, only_open, from_date and to_date (of issue), due_from, due_to. A '
    'student sees only their own.',
  p_get => 'One invoice with its payments. Raises not_found.');

create function api.invoice_payments(p_id bigint) returns json language sql stable as $$
  select coalesce(json_agg(
    json_build_object(
      'id', p.id, 'receipt_number', p.receipt_number, 'amount', p.amount, 'payment_date', p.payment_date,
      'payment_method', p.payment_method,
      -- It may name who paid.
      'reference_number', case when not core.hides_contacts(p.student_id) then p.reference_number end,
      'reversal_of', p.reversal_of,
      'is_reversed', r.id is not null)
    order by p.id), '[]')
  from payment p
  left join payment r on r.reversal_of = p.id
  where p.invoice_id = p_id;
$$;
comment on function api.invoice_payments is
  'The payments of an invoice, oldest first. A reversal is a payment with a negative amount.';

create function api.invoice_with_payments(p_id bigint) returns json language sql stable as $$
  select (api.invoice_record(p_id)::jsonb || jsonb_build_object('payments', api.invoice_payments(p_id)))::json;
$$;
comment on function api.invoice_with_payments is 'One invoice with its payments. Raises not_found.';

create function api.require_valid_invoice(p_invoice json) returns void language plpgsql stable as $$
begin
  if p_invoice ->> 'voided_at' is not null then
    perform core.fail('invalid_state', 'This invoice is void and cannot be changed.');
  end if;
end $$;
comment on function api.require_valid_invoice is 'Raises invalid_state for a void invoice.';

create function api.require_unpaid_invoice(p_invoice json) returns void language plpgsql stable as $$
begin
  perform api.require_valid_invoice(p_invoice);
  if (p_invoice ->> 'paid_amount')::numeric <> 0 then
    perform core.fail('invalid_state',
      format('This invoice has payments of %s. Reverse them first.', p_invoice ->> 'paid_amount'));
  end if;
end $$;
comment on function api.require_unpaid_invoice is
  'Raises invalid_state for an invoice that is void or has payments: its items cannot change, and it cannot be voided.';

create function api.invoice_replace_items(p_id bigint, p_items jsonb) returns void language plpgsql as $$
declare
  v_decimals integer := core.currency_decimals(core.school_currency());
  v_fault record;
begin
  select position - 1 as index, item ->> 'id' as id, t.id is not null as is_own
    into v_fault
    from (
      select item, position, row_number() over (partition by item -> 'id' order by position) as occurrence
      from jsonb_array_elements(p_items) with ordinality given (item, position)
      where item ->> 'id' is not null
    ) given
    left join invoice_item t on t.id = (item ->> 'id')::bigint and t.invoice_id = p_id
    where t.id is null or occurrence > 1
    order by position
    limit 1;
  if found then
    perform core.refuse_field('validation_error', format('items.%s.id', v_fault.index), case
      when v_fault.is_own then 'is a duplicate'
      else format('The invoice has no item %s. Leave the id of a new item out.', v_fault.id)
    end);
  end if;
  -- In one statement, so that the total of the invoice changes only once.
  with deleted as (
    delete from invoice_item
      where invoice_id = p_id and id not in (
        select (item ->> 'id')::bigint from jsonb_array_elements(p_items) item where item ->> 'id' is not null)
  ), changed as (
    update invoice_item t
      set (description, amount, quantity) = (item ->> 'description',
        core.as_amount((item ->> 'amount')::numeric, v_decimals, t.amount),
        coalesce((item ->> 'quantity')::integer, 1))
      from jsonb_array_elements(p_items) item
      where t.invoice_id = p_id and t.id = (item ->> 'id')::bigint
  )
  insert into invoice_item (invoice_id, student_id, description, amount, quantity)
    select i.id, i.student_id, item ->> 'description', core.as_amount((item ->> 'amount')::numeric, v_decimals),
      coalesce((item ->> 'quantity')::integer, 1)
    from invoice i, jsonb_array_elements(p_items) with ordinality given (item, position)
    where i.id = p_id and item ->> 'id' is null
    order by position;
end $$;
comment on function api.invoice_replace_items is
  'Replaces all items of an invoice: [{id, description, amount, quantity}]. An item with an id keeps it. Raises '
  'validation_error for an id that is not one of an item of the invoice.';

create function api.invoice_issue(p_id bigint) returns void language plpgsql as $$
declare
  v_number text := api.number_next('INV');
begin
  update invoice set issued_at = now(), invoice_number = v_number where id = p_id;
end $$;
comment on function api.invoice_issue is
  'Issues an invoice with the next number of the year. The counter stays locked until the end of the '
  'transaction (api.number_next), and a rollback releases the number.';

create function api.invoices_create(p jsonb) returns json language plpgsql as $$
declare
  v_student_id bigint := (p ->> 'student_id')::bigint;
  v_left_on date;
  v_id bigint;
begin
  perform api.require_student(v_student_id, 'student_id');
  select left_on into v_left_on from student where id = v_student_id;
  if core.has_left(v_left_on, core.today()) then
    perform core.refuse_field('invalid_reference', 'student_id',
      format('Student %s left on %s and gets no more bills.', v_student_id, v_left_on));
  end if;
  insert into invoice (student_id, class_id, due_date, notes, created_by)
    select s.id, s.class_id, (p ->> 'due_date')::date, p ->> 'notes', core.user_id()
    from student s
    where s.id = v_student_id
    returning id into v_id;
  perform api.invoice_replace_items(v_id, (select jsonb_agg(item - 'id') from jsonb_array_elements(p -> 'items') item));
  if p ->> 'status' is distinct from 'draft' then
    perform api.invoice_issue(v_id);
  end if;
  return api.invoice_with_payments(v_id);
end $$;
comment on function api.invoices_create is
  'Creates an invoice for a student in their current class and issues it, unless status is draft: {student_id, '
  'due_date, items, notes, status}. Raises invalid_reference for an unknown or deleted student, and for one who has '
  'left.';

create function api.invoices_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_invoice json := api.invoice_record(v_id);
begin
  perform api.require_valid_invoice(v_invoice);
  perform core.record_update('invoice', p);
  if p ? 'items' and not (core.may_compare() and core.repeats(p -> 'items', (v_invoice -> 'items')::jsonb)) then
    perform api.require_unpaid_invoice(v_invoice);
    perform api.invoice_replace_items(v_id, p -> 'items');
  end if;
  return api.invoice_with_payments(v_id);
end $$;
comment on function api.invoices_update is
  'Updates {due_date, notes, items} of an invoice. Raises invalid_state for a void invoice, and for new items of one '
  'with payments.';

create function api.invoices_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_invoice json := api.invoice_record(v_id);
begin
  if v_invoice ->> 'issued_at' is null then
    delete from invoice where id = v_id;
  elsif v_invoice ->> 'voided_at' is not null then
    perform core.fail('not_found', format('There is no invoice %s. It was voided.', v_id));
  else
    perform api.require_unpaid_invoice(v_invoice);
    update invoice set voided_at = now(), void_reason = 'Deleted' where id = v_id;
  end if;
  return json_build_object('id', v_id);
end $$;
comment on function api.invoices_delete is
  'Deletes a draft. Voids an issued invoice instead, because its number must not disappear. Raises not_found for a '
  'void invoice, invalid_state for one with payments.';

create function api.invoices_issue(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_invoice json := api.invoice_record(v_id);
begin
  if v_invoice ->> 'issued_at' is not null then
    perform core.fail('invalid_state', format(
      'This invoice is %s. Only a draft can be issued.', replace(v_invoice ->> 'status', '_', ' ')));
  end if;
  perform api.invoice_issue(v_id);
  return api.invoice_with_payments(v_id);
end $$;
comment on function api.invoices_issue is
  'Issues a draft with the next invoice number. Raises invalid_state for any other invoice.';

create function api.invoices_void(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_invoice json := api.invoice_record(v_id);
begin
  if v_invoice ->> 'issued_at' is null then
    perform core.fail('invalid_state', 'This invoice is a draft. Delete it instead.');
  end if;
  perform api.require_unpaid_invoice(v_invoice);
  update invoice set voided_at = now(), void_reason = p ->> 'reason' where id = v_id;
  return api.invoice_with_payments(v_id);
end $$;
comment on function api.invoices_void is
  'Voids an issued invoice: {reason}. Raises invalid_state for a draft, a void invoice or one with payments.';

create function api.invoice_recipient(p_id bigint) returns json language sql stable as $$
  select json_build_object(
    'email', address.email, 'name', address.name, 'hides_contacts', address.hides_contacts)
  from invoice i
  join student s on s.id = i.student_id and s.deleted_at is null and not core.has_left(s.left_on, core.today())
  cross join lateral (
    select email, name, hides_contacts
    from (
      (
        select 1, coalesce(u.email, nullif(trim(g.email), '')), core.full_name(g.first_name, g.last_name),
          not l.can_see_contacts
        from student_guardian l
        join guardian g on g.id = l.guardian_id and g.deleted_at is null
        left join user_account u on u.id = g.user_id and l.can_see_records and u.is_active and u.deleted_at is null
        where l.student_id = s.id
          and l.receives_messages
          and core.is_linked(l.starts_on, l.ends_on, l.removed_at, core.today())
          and coalesce(u.email, nullif(trim(g.email), '')) is not null
          and not exists (
            select from guardian_muted_event m where m.guardian_id = g.id and m.event = 'invoice.reminder')
        order by l.is_primary desc, l.priority, l.id
        limit 1)
      union all
      select 2, nullif(trim(s.parent_email), ''),
        coalesce(s.parent_name, 'Parent of ' || core.full_name(s.first_name, s.last_name)), false
      where not exists (
        select
        from student_guardian l
        where l.student_id = s.id and l.removed_at is null and coalesce(l.starts_on <= core.today(), true))
      union all
      select 3, coalesce(nullif(trim(s.email), ''), (
          select u.email from user_account u where u.id = s.user_id and u.deleted_at is null)),
        core.full_name(s.first_name, s.last_name), false
    ) candidate (number, email, name, hides_contacts)
    where email is not null
    order by number
    limit 1
  ) address
  where i.id = p_id;
$$;
comment on function api.invoice_recipient is
  'The recipient of the reminder of an invoice, {email, name}: the primary guardian or, if they have no address or '
  'receive no messages, the next who does, or the contact of a student without guardians, else the student, else the '
  'user account of the student. Null without an address, and for a student who has left or was deleted.';

create function api.invoices_remind(p_ids bigint[], p_day date, p_requested_by bigint default null) returns integer
  language plpgsql as $$
declare
  v_reminded bigint[];
begin
  with added as (
    insert into invoice_reminder (invoice_id, sent_on, sent_to, requested_by)
      select id, p_day, recipient ->> 'email', p_requested_by
      from unnest(p_ids) id, api.invoice_recipient(id) recipient
      where recipient is not null
      on conflict (invoice_id, sent_on) do nothing
      returning invoice_id
  )
  select coalesce(array_agg(invoice_id order by invoice_id), '{}') into v_reminded from added;
  if v_reminded <> '{}' then
    perform core.enqueue_all('send_invoice_reminder',
      array(select jsonb_build_object('invoice_id', id, 'sent_on', p_day) from unnest(v_reminded) id),
      array(select format('%s:%s', id, p_day) from unnest(v_reminded) id));
    perform core.notify('invoice.reminder', jsonb_build_object('invoice_ids', v_reminded));
  end if;
  return cardinality(v_reminded);
end $$;
comment on function api.invoices_remind is
  'Queues the reminder emails of invoices and notifies their students. Leaves out invoices without a recipient and '
  'those that were reminded on that day already. Returns the number of queued reminders.';

create function api.invoices_send_reminder(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_status text := api.invoice_record(v_id) ->> 'status';
  v_email text := api.invoice_recipient(v_id) ->> 'email';
  v_left_on date := (select s.left_on from invoice i join student s on s.id = i.student_id where i.id = v_id);
begin
  if v_status = 'draft' then
    perform core.fail('invalid_state', 'This invoice is a draft. Issue it first.');
  elsif v_status in ('paid', 'void') then
    perform core.fail('invalid_state',
      format('This invoice is %s. Reminders are only sent for unpaid invoices.', v_status));
  elsif v_email is null and core.has_left(v_left_on, core.today()) then
    perform core.fail('invalid_state',
      format('The student left on %s. No reminders are sent about students who have left.', v_left_on));
  elsif v_email is null then
    perform core.fail('invalid_state',
      'Neither the parent nor the student has an email address. Add an address first.');
  end if;
  perform api.invoices_remind(array[v_id], core.today(), core.user_id());
  return api.invoice_with_payments(v_id);
end $$;
comment on function api.invoices_send_reminder is
  'Emails the invoice to its recipient and notifies the student, at most once a day. A second request on the same day '
  'has no effect. Raises invalid_state for a draft, a paid or void invoice, for a student who has left, and '
  'without an email address.';

create function api.invoice_document(p_id bigint, p_kind text) returns json language plpgsql stable as $$
declare
  v_invoice jsonb := api.invoice_with_payments(p_id);
  v_kind text := coalesce(p_kind, case v_invoice ->> 'status' when 'paid' then 'receipt' else 'invoice' end);
  v_currency text := core.school_currency();
begin
  if v_kind = 'receipt' and (v_invoice ->> 'paid_amount')::numeric = 0 then
    perform core.fail('not_found', format('Nothing has been paid on invoice %s, so there is no receipt.', p_id));
  end if;
  return json_build_object(
    'kind', v_kind, 'letterhead', api.letterhead(), 'printed_on', core.today(), 'currency', v_currency,
    'currency_decimals', core.currency_decimals(v_currency),
    'issued_on', core.day_at_school((v_invoice ->> 'issued_at')::timestamptz),
    'voided_on', core.day_at_school((v_invoice ->> 'voided_at')::timestamptz),
    'parent_name', api.contact_name((v_invoice ->> 'student_id')::bigint),
    'payment_details', (select payment_details from school),
    'invoice', v_invoice);
end $$;
comment on function api.invoice_document is
  'The content of the PDF of an invoice. p_kind: invoice or receipt, by default receipt if the invoice is paid. Raises '
  'not_found without the invoice, and for a receipt if nothing has been paid.';

create function api.invoices_download(p jsonb) returns json language sql stable as $$
  select api.invoice_document((p ->> 'id')::bigint, p ->> 'kind');
$$;
comment on function api.invoices_download is
  'The content of the PDF of an invoice: {id, kind}. Raises not_found without the invoice or the receipt.';
