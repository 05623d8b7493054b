-- The job `send_email`: an email to one user with a link that works once.

create function core.email_prepare(p_tenant_id bigint, p_user_id bigint, p_kind text) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant record;
  v_user record;
  v_before text[];
begin
  select t.name, t.subdomain, t.status into v_tenant from platform.tenant t where t.id = p_tenant_id;
  if p_tenant_id is not null and v_tenant.status is distinct from 'active' then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  select email, first_name, last_name, password_hash, email_verified_at into v_user
    from user_account where id = p_user_id and deleted_at is null and is_active for no key update;
  perform core.leave_tenant(v_before);
  if v_user.email is null
     or (p_kind = 'email_verification' and v_user.email_verified_at is not null)
     or (p_kind = 'invitation' and v_user.password_hash is not null) then
    return null;
  end if;
  return json_build_object(
    'email', v_user.email,
    'first_name', v_user.first_name,
    'last_name', v_user.last_name,
    'school', coalesce(v_tenant.name, 'School management'),
    'subdomain', v_tenant.subdomain,
    'token', core.one_time_token_new(p_tenant_id, p_user_id, p_kind),
    'valid_hours', extract(epoch from core.one_time_token_lifetime(p_kind))::integer / 3600);
end $$;
comment on function core.email_prepare is
  'Prepares an email to a user: recipient, school and a new one-time token. Null if there is no longer a reason to '
  'send it: the user is gone, is verified already, or has a password already.';
