-- /api/guardians/:guardian_id/notification-preferences: of which events a guardian is notified.

select core.define_operation('guardians_preferences_get', p_permission => 'guardian.read', p_open_to => 'everyone',
  p_unversioned_fields => '{}');
select core.define_operation('guardians_preferences_update', p_permission => 'guardian.manage',
  p_allows_own_rows => true, p_present => 'guardians_preferences_get', p_locked_by => 'lock_guardian');

create function api.lock_guardian(p jsonb) returns void language plpgsql as $$
begin
  perform core.record_lock('guardian', (p ->> 'guardian_id')::bigint);
end $$;
comment on function api.lock_guardian is
  'Locks the guardian whose preferences change: {guardian_id}. Raises not_found.';

create function api.family_events() returns text[] language sql immutable return
  '{attendance.absent,attendance.late,fee.generated,payment.received,invoice.reminder,timetable.published,
    holiday.added}'::text[];
comment on function api.family_events is
  'The events of which guardians are notified, and which they can turn off. All others stay.';

create function api.guardians_preferences_get(p jsonb) returns json language plpgsql stable as $$
declare
  v_id bigint := (p ->> 'guardian_id')::bigint;
  v_scope text;
  v_events json;
begin
  perform api.guardian_record(v_id);
  if not core.sees_guardian_details(v_id) then
    perform core.fail('not_found', format('There is no guardian %s.', v_id));
  end if;
  v_scope := core.widen_scope();
  v_events := (
    select json_agg(json_build_object(
        'key', e.key,
        'is_enabled', not exists (
          select from guardian_muted_event m where m.guardian_id = v_id and m.event = e.key))
      order by e.key)
    from core.notification_event e
    where e.key = any (api.family_events()));
  perform core.restore_scope(v_scope);
  return json_build_object('guardian_id', v_id, 'events', v_events);
end $$;
comment on function api.guardians_preferences_get is
  'Of which events a guardian is notified: {guardian_id}, for staff and the guardian. Raises not_found.';

create function api.guardians_preferences_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'guardian_id')::bigint;
  v_scope text;
begin
  perform api.guardians_preferences_get(p);
  if current_setting('app.guardian_id', true) is distinct from v_id::text then
    perform api.require_changeable_children(array(select student_id from api.guardian_children(v_id)));
  end if;
  v_scope := core.widen_scope();
  delete from guardian_muted_event
    where guardian_id = v_id
      and event in (select e ->> 'key' from jsonb_array_elements(p -> 'events') e where (e ->> 'is_enabled')::boolean);
  insert into guardian_muted_event (guardian_id, event)
    select v_id, e ->> 'key' from jsonb_array_elements(p -> 'events') e where not (e ->> 'is_enabled')::boolean
    on conflict (guardian_id, event) do nothing;
  perform core.restore_scope(v_scope);
  return api.guardians_preferences_get(p);
end $$;
comment on function api.guardians_preferences_update is
  'Turns messages about events on or off for a guardian: {guardian_id, events: [{key, is_enabled}]}. Events that are '
  'not named stay as they are. Raises not_found; forbidden for a guardian of students whom the user may not change.';
