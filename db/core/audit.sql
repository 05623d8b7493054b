-- The audit log.

create function core.audit(p_action text, p_target_type text, p_target_id bigint, p_tenant_id bigint, p_changes jsonb)
  returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_actor_email text := nullif(current_setting('app.actor_email', true), '');
begin
  insert into platform.audit_log (actor_id, actor_email, impersonated_user_id, impersonated_email,
      action, tenant_id, target_type, target_id, changes, ip, user_agent, request_id)
    select
      coalesce(i.id, case when core.tenant_id() is null then core.user_id() end),
      coalesce(i.email, v_actor_email),
      case when i.id is not null then core.user_id() end,
      case when i.id is not null then v_actor_email end,
      p_action, p_tenant_id, p_target_type, p_target_id,
      coalesce(p_changes, '{}'),
      nullif(current_setting('app.ip', true), ''),
      nullif(current_setting('app.user_agent', true), ''),
      nullif(current_setting('app.request_id', true), '')
    from core.impersonator() i;
  perform set_config('app.audited', 'yes', true);
end $$;
comment on function core.audit is
  'Adds an entry to the audit log, in the transaction of the change. An actor with an id is an operator; users of a '
  'school have only an email. An impersonation has both. Security definer, because no role may write the table.';
