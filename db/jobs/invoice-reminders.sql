-- The job `send_invoice_reminder`: an email with an unpaid invoice.

select core.define_job('send_invoice_reminder', '{invoice_reminder_prepare}', p_takes_turns => true,
  p_for_requests => true);

create function core.invoice_reminder_prepare(p_tenant_id bigint, p_invoice_id bigint, p_sent_on date) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant record;
  v_before text[];
  v_recipient json;
  v_document jsonb;
  v_answer json;
begin
  select t.name, t.status into v_tenant from platform.tenant t where t.id = p_tenant_id;
  if v_tenant.status is distinct from 'active' then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  if exists (select from invoice where id = p_invoice_id and api.is_open(status)) then
    v_recipient := api.invoice_recipient(p_invoice_id);
  end if;
  if v_recipient is not null then
    update invoice_reminder
      set sent_to = v_recipient ->> 'email'
      where invoice_id = p_invoice_id and sent_on = p_sent_on;
    if (v_recipient ->> 'hides_contacts')::boolean then
      -- As the guardian would see the document in the service, with their own name.
      perform set_config('app.children_without_contacts', format(',%s,', (
        select student_id from invoice where id = p_invoice_id)), true);
      v_document := api.invoice_document(p_invoice_id, 'invoice')::jsonb
        || jsonb_build_object('parent_name', v_recipient -> 'name');
      perform set_config('app.children_without_contacts', '', true);
    else
      v_document := api.invoice_document(p_invoice_id, 'invoice');
    end if;
    v_answer := json_build_object(
      'school', v_tenant.name,
      'recipient', json_build_object('email', v_recipient -> 'email', 'name', v_recipient -> 'name'),
      'document', v_document);
  end if;
  perform core.leave_tenant(v_before);
  return v_answer;
end $$;
comment on function core.invoice_reminder_prepare is
  'Prepares the reminder of an invoice: recipient, school and document. Null if there is no longer a reason to send '
  'it: the invoice is paid or voided, the address is gone, the school is closed.';
