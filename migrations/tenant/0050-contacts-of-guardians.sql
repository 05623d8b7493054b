-- The contact of a student, parent_name, parent_phone and parent_email, is a copy of the primary guardian. A student
-- without one has a contact of three texts, as before.

create function guardian_copy_contact() returns trigger language plpgsql set search_path from current as $$
declare
  v_scope text := coalesce(current_setting('app.scope', true), '');
  v_today date := (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date;
  v_guardian guardian;
begin
  perform set_config('app.scope', 'all', true);
  if tg_table_name = 'guardian' then
    v_guardian := new;
  else
    select * into v_guardian from guardian where id = new.guardian_id for share;
  end if;
  update student s
    set parent_name = btrim(v_guardian.first_name || ' ' || v_guardian.last_name),
      parent_phone = v_guardian.phone,
      parent_email = v_guardian.email
    where s.id in (
        select l.student_id
        from student_guardian l
        where l.guardian_id = v_guardian.id and l.is_primary and coalesce(l.ends_on >= v_today, true)
          and (tg_table_name = 'guardian' or l.student_id = (to_jsonb(new) ->> 'student_id')::bigint))
      and (s.parent_name, s.parent_phone, s.parent_email) is distinct from (
        btrim(v_guardian.first_name || ' ' || v_guardian.last_name), v_guardian.phone, v_guardian.email);
  perform set_config('app.scope', v_scope, true);
  return null;
end $$;
comment on function guardian_copy_contact() is
  'Copies the name, phone and email of a guardian to the students whose primary guardian it is, unless the link has '
  'ended.';
create trigger copy_contact after update of first_name, last_name, phone, email on guardian
  for each row when (
    (old.first_name, old.last_name, old.phone, old.email) is distinct from
    (new.first_name, new.last_name, new.phone, new.email))
  execute function guardian_copy_contact();
create trigger copy_contact after insert or update of is_primary on student_guardian
  for each row when (new.is_primary)
  execute function guardian_copy_contact();

create function student_change_contact() returns trigger language plpgsql set search_path from current as $$
declare
  v_scope text := coalesce(current_setting('app.scope', true), '');
  v_taught_ids bigint[] := taught_class_ids();
  v_visible_ids bigint[] := case when current_setting('app.scope', true) = 'taught' then visible_guardian_ids() end;
  v_name text := regexp_replace(btrim(new.parent_name), '\s+', ' ', 'g');
  v_email text := nullif(btrim(new.parent_email), '');
  -- A last word that is too long for a last name stays with the first one.
  v_first_name text := regexp_replace(v_name, '\s\S{1,100}$', '');
  v_last_name text := coalesce(substring(v_name from '\s(\S{1,100})$'), '');
  v_guardian guardian;
  v_other guardian;
  v_is_another boolean := false;
  v_priority integer;
  v_message text;
begin
  perform set_config('app.scope', 'all', true);
  select g.*
    into v_guardian
    from student_guardian l
    join guardian g on g.id = l.guardian_id
    where l.student_id = new.id and l.is_primary
    for no key update of g;
  if v_guardian.id is null
      or (new.parent_name, new.parent_phone, new.parent_email) is not distinct from (
        btrim(v_guardian.first_name || ' ' || v_guardian.last_name), v_guardian.phone, v_guardian.email) then
    perform set_config('app.scope', v_scope, true);
    return null;
  end if;
  if v_scope in ('own', 'children') then
    v_message := 'The contact is a guardian. Guardians change their own contact; the school decides who is one.';
    raise exception using errcode = 'S403A', message = v_message,
      detail = json_build_array(json_build_object('path', 'parent_name', 'message', v_message));
  elsif v_name is null or v_name = '' then
    v_message := format('The contact is guardian %s, who has a name. To take the guardian from the student, delete '
      '/api/students/%s/guardians/%s.', v_guardian.id, new.id, v_guardian.id);
    raise exception using errcode = 'S400A', message = v_message,
      detail = json_build_array(json_build_object('path', 'parent_name', 'message', v_message));
  end if;
  if lower(v_email) is distinct from lower(v_guardian.email) then
    select g.*
      into v_other
      from guardian g
      where lower(g.email) = lower(v_email)
        and g.deleted_at is null
        and public.search_form(btrim(g.first_name || ' ' || g.last_name)) = public.search_form(v_name)
        and (v_visible_ids is null or g.id = any (v_visible_ids))
      order by g.id
      limit 1;
    -- The first address of a guardian, or a correction of one without a login and other children, changes the guardian.
    v_is_another := v_other.id is not null or v_guardian.email is not null and v_email is not null and (
      public.search_form(btrim(v_guardian.first_name || ' ' || v_guardian.last_name)) <> public.search_form(v_name)
      or v_guardian.user_id is not null
      or exists (
        select from student_guardian l
        where l.guardian_id = v_guardian.id and l.student_id <> new.id and l.removed_at is null));
  end if;
  if v_is_another then
    -- Neither the login nor the other children of the guardian change.
    if v_other.id is null then
      insert into guardian (first_name, last_name, email, phone)
        values (v_first_name, v_last_name, v_email, new.parent_phone)
        returning * into v_other;
    end if;
    update student_guardian set is_primary = false
      where student_id = new.id and is_primary
      returning priority into v_priority;
    insert into student_guardian as l (student_id, guardian_id, is_primary, priority, can_see_records)
      values (new.id, v_other.id, true, v_priority, v_other.user_id is null)
      on conflict (student_id, guardian_id) do update
        set is_primary = true,
          removed_at = null,
          -- What was taken, by a switch, by removing the link or by its last day, does not come back.
          can_see_records = l.can_see_records and v_other.user_id is null and l.ends_on is null,
          receives_messages = l.receives_messages and l.ends_on is null,
          can_pick_up = l.can_pick_up and l.ends_on is null,
          starts_on = null,
          ends_on = null;
  else
    if v_scope = 'taught' and exists (
      select
      from student_guardian l
      join student s on s.id = l.student_id and s.deleted_at is null
      where l.guardian_id = v_guardian.id and l.removed_at is null and s.id <> new.id
        and (s.class_id = any (v_taught_ids)) is not true
    ) then
      v_message := 'The contact is also that of a student whom you may not change. Ask the office to change it.';
      raise exception using errcode = 'S403A', message = v_message,
        detail = json_build_array(json_build_object('path', 'parent_name', 'message', v_message));
    end if;
    update guardian g
      set first_name = case when v_name = btrim(g.first_name || ' ' || g.last_name) then g.first_name
          else v_first_name end,
        last_name = case when v_name = btrim(g.first_name || ' ' || g.last_name) then g.last_name
          else v_last_name end,
        phone = new.parent_phone,
        email = v_email
      where g.id = v_guardian.id;
  end if;
  perform set_config('app.scope', v_scope, true);
  return null;
end $$;
comment on function student_change_contact() is
  'Applies a contact that was written to a student to the primary guardian. Another email links the student to the '
  'guardian with this email and name, or to a new one, unless it only completes or corrects a guardian; a guardian '
  'with a login then does not see the student until the school allows it. Another name or phone changes the guardian, '
  'if the user may change all of their children.';
create trigger change_contact after update of parent_name, parent_phone, parent_email on student
  for each row when (
    (old.parent_name, old.parent_phone, old.parent_email) is distinct from
    (new.parent_name, new.parent_phone, new.parent_email))
  execute function student_change_contact();
