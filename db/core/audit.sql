-- The audit log.

create function core.audit_insert(
    p_operator_id bigint, p_operator_email text, p_user_id bigint, p_user_email text, p_action text,
    p_tenant_id bigint, p_target_type text, p_target_id bigint, p_changes jsonb, p_context jsonb) returns void
  language sql as $$
  insert into platform.audit_log (actor_id, actor_email, impersonated_user_id, impersonated_email,
      action, tenant_id, target_type, target_id, changes, ip, user_agent, request_id)
    values (
      p_operator_id, p_operator_email, p_user_id, p_user_email,
      p_action, p_tenant_id, p_target_type, p_target_id, coalesce(p_changes, '{}'),
      p_context ->> 'ip', p_context ->> 'user_agent', p_context ->> 'request_id');
$$;
comment on function core.audit_insert is
  'Inserts an entry of the audit log. p_user_id and p_user_email name the user whom the actor impersonates; '
  'p_context is {ip, user_agent, request_id}. Not granted to request roles.';

create function core.audit(p_action text, p_target_type text, p_target_id bigint, p_tenant_id bigint, p_changes jsonb)
  returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_actor_email text := nullif(current_setting('app.actor_email', true), '');
begin
  perform set_config('app.audited', 'yes', true);
  if p_action like '%.update' and p_changes = '{}' then
    return;
  end if;
  perform core.audit_insert(
      coalesce(i.id, case when core.tenant_id() is null then core.user_id() end),
      coalesce(i.email, v_actor_email),
      case when i.id is not null then core.user_id() end,
      case when i.id is not null then v_actor_email end,
      p_action, p_tenant_id, p_target_type, p_target_id,
      coalesce(p_changes, '{}') || case when core.api_key_id() is null then '{}'
        else core.diff(null, jsonb_build_object('api_key',
          current_setting('app.api_key')::jsonb - '{role,tenant_ids,is_read_only}'::text[])) end,
      core.client_context())
    from core.impersonator() i;
end $$;
comment on function core.audit is
  'Adds an entry to the audit log, in the transaction of the change, unless an update has changed nothing. An actor '
  'with an id is an operator; users of a school have only an email. An impersonation has both. With an API key, the '
  'changes also have its id and name, as `api_key`. Security definer, because no role may write the table.';

create function core.audit_school(p_action text, p_id bigint, p_before jsonb, p_after jsonb) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_changes jsonb := core.diff(p_before, p_after);
begin
  if v_changes <> '{}' or p_before is null and p_after is null then
    perform core.audit(p_action, split_part(p_action, '.', 1), p_id, core.tenant_id(), v_changes);
  end if;
end $$;
comment on function core.audit_school is
  'Adds the audit entry of a change by a user of this school, unless nothing changed. p_action is <record>.<verb>. '
  'p_before is null for a new record, p_after for a deleted one, both for an action that changes no field. Neither may '
  'have a secret.';
