-- Database functions of the job `deliver`: read the pending deliveries, store the result of each.

select core.define_job('deliver', '{deliveries_pending,delivery_save_result,replace_deliver_job}',
  p_takes_turns => true);

create function core.deliveries_pending(
    p_tenant_id bigint, p_from_id bigint, p_to_id bigint, p_only bigint[], p_platforms text[],
    p_limits_unconfirmed boolean default false) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant record;
  v_before text[];
  v_day_began_at timestamptz;
  v_day_ends_at timestamptz;
  v_answer json;
begin
  select
      t.name, t.subdomain, t.status, s.push, s.email, s.sender_name, s.emails_per_user_per_day,
      core.quiet_hours_end(s.quiet_from, s.quiet_until, t.time_zone, now()) is not null as is_quiet,
      'notifications' = any (core.enabled_features(p.features, t.feature_flags)) as has_feature
    into v_tenant
    from platform.tenant t
    join platform.plan p on p.id = t.plan_id
    cross join platform.notification_setting s
    where t.id = p_tenant_id;
  if v_tenant is null or to_regclass(format('tenant_%s.notification_delivery', p_tenant_id)) is null then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  v_day_began_at := core.day_begins(core.today());
  v_day_ends_at := core.day_begins(core.today() + 1);
  with pending as materialized (
    select d.*, v.token, v.platform,
      case
        when v_tenant.status <> 'active' then 'school_closed'
        when not v_tenant.has_feature
          and not core.is_mandatory((select n.type from notification n where n.id = d.notification_id))
          then 'feature_off'
        when not case d.channel when 'push' then v_tenant.push else v_tenant.email end then 'channel_off'
        when d.user_id is not null
          and not exists (select from user_account u where u.id = d.user_id and u.is_active and u.deleted_at is null)
          then 'user_inactive'
        when d.link_ids is not null and not core.may_receive(d.link_ids) then 'guardian_ended'
        when d.channel = 'push' and v.id is null then 'device_removed'
        when d.channel = 'push' and v.platform <> all (p_platforms) then 'push_not_configured'
      end as drop_reason,
      d.channel = 'email' and exists (
        select from user_account u where u.id = d.user_id and (u.email <> d.address or u.email_verified_at is null)
      ) as is_unconfirmed
    from notification_delivery d
    -- Firebase reaches a browser by its token in the same way as a phone. A subscription is stored as JSON.
    left join (
      select id, user_id, token,
        case when platform = 'web' and token not like '{%' then 'android' else platform end as platform
      from device
    ) v on v.id = d.device_id and v.user_id = d.user_id
    where d.id between p_from_id and p_to_id
      and d.status = 'pending'
      and (p_only is null or d.id = any (p_only))
  ), dropped as (
    update notification_delivery d
      set status = 'dropped', reason = p.drop_reason
      from pending p
      where p.id = d.id and p.drop_reason is not null
  ), waiting as materialized (
    select p.id, ceil(extract(epoch from coalesce(
        case when (
            select count(*) from notification_delivery d where d.address = p.address and d.sent_at >= v_day_began_at
          ) >= v_tenant.emails_per_user_per_day then v_day_ends_at
        end,
        core.unconfirmed_email_wait(p_tenant_id, p.address)) - now()))::integer as seconds
    -- In this order they are counted.
    from (select id, address, drop_reason, is_unconfirmed from pending order by id) p
    where p_limits_unconfirmed and p.is_unconfirmed and p.drop_reason is null and not v_tenant.is_quiet
  )
  select json_build_object(
      'school', v_tenant.name,
      'subdomain', v_tenant.subdomain,
      'known_hosts', (select coalesce(action_url_hosts, '{}') from (select) one_row left join school on true),
      'sender_name', v_tenant.sender_name,
      'is_quiet', v_tenant.is_quiet,
      'unconfigured', count(*) filter (where drop_reason = 'push_not_configured'),
      'deliveries', coalesce(json_agg(json_build_object(
        'id', id, 'notification_id', notification_id, 'channel', channel, 'platform', platform, 'token', token,
        'address', address, 'name', recipient_name, 'title', title, 'message', message, 'action_url', action_url,
        'attempts', attempts, 'wait_seconds', seconds) order by id) filter (where drop_reason is null), '[]'))
    into v_answer
    from pending
    left join waiting using (id);
  perform core.leave_tenant(v_before);
  return v_answer;
end $$;
comment on function core.deliveries_pending is
  'The pending deliveries of a range of ids (only those of p_only, if given): {school, subdomain, known_hosts, '
  'sender_name, is_quiet, unconfigured, deliveries: [...]}. known_hosts: action_url_hosts of the school info. In quiet '
  'hours the worker must postpone all of them (core.replace_deliver_job). Drops, with a reason, what must no longer be '
  'sent: the school is closed or has lost the feature, operators have closed the channel, the user can no longer log '
  'in, the school no longer writes to the guardian, the device was removed or belongs to another user, or its platform '
  'is not in p_platforms, those that the worker is configured for (unconfigured counts these). With '
  'p_limits_unconfirmed, an email to a user who has not confirmed the address is counted, or has wait_seconds: the '
  'worker must postpone it by so many seconds (core.unconfirmed_email_wait). Null if the school no longer exists.';

create function core.delivery_save_result(
    p_tenant_id bigint, p_id bigint, p_status text, p_reason text, p_is_gone boolean) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
begin
  -- The device is locked before the delivery that refers to it, in the same order as when a user removes a device.
  if p_is_gone then
    delete from device v using notification_delivery d where d.id = p_id and v.id = d.device_id;
  end if;
  update notification_delivery
    set status = p_status,
      reason = p_reason,
      attempts = attempts + 1,
      sent_at = case when p_status = 'sent' then clock_timestamp() end
    where id = p_id and status = 'pending';
  perform core.leave_tenant(v_before);
end $$;
comment on function core.delivery_save_result is
  'Stores the result of one attempt: sent, failed or dropped, or pending if it will be retried. With p_is_gone it '
  'also removes the device, because the push service no longer knows it.';

create function core.replace_deliver_job(p_job_id bigint, p_tenant_id bigint, p_jobs jsonb) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if core.delete_job(p_job_id, 'deliver') then
    perform core.add_jobs('deliver', array(
      select (
        jsonb_strip_nulls(to_jsonb(j) - 'run_at') || jsonb_build_object('tenant_id', p_tenant_id),
        null,
        coalesce(core.quiet_hours_end(s.quiet_from, s.quiet_until, t.time_zone, j.run_at), j.run_at)
      )::core.new_job
      from jsonb_to_recordset(p_jobs) j (
        from_id bigint, to_id bigint, "only" bigint[], limits_unconfirmed boolean, run_at timestamptz)
      cross join platform.notification_setting s
      join platform.tenant t on t.id = p_tenant_id));
  end if;
end $$;
comment on function core.replace_deliver_job is
  'Replaces a running job `deliver` by jobs for the deliveries that it could not send: [{from_id, to_id, only, '
  'limits_unconfirmed, run_at}]. Both happen in one transaction, so that after a crash no delivery is in two jobs. '
  'Jobs that would run in quiet hours run at the end of the quiet hours.';
