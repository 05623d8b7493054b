-- /api/guardians/from-contacts: guardians from the contacts of students who were imported.

select core.define_operation('guardians_from_contacts', p_permission => 'guardian.manage', p_idempotent => true);

create function api.contacts_to_link() returns jsonb language sql stable as $$
  with contact as (
    select s.id as student_id,
      nullif(regexp_replace(btrim(s.parent_name), '\s+', ' ', 'g'), '') as name,
      nullif(btrim(s.parent_email), '') as email,
      nullif(btrim(s.parent_phone), '') as phone
    from student s
    where s.deleted_at is null
      and coalesce(s.parent_name, s.parent_email, s.parent_phone) is not null
      and not exists (select from student_guardian l where l.student_id = s.id and l.removed_at is null)
  ), person as (
    -- Without an email, two students have the same contact if name and phone are the same.
    select *, public.search_form(name) as name_form,
      coalesce(lower(email), public.search_form(name) || ' ' || phone, 'student ' || student_id) as key
    from contact
  ), grouped as (
    select
      min(name) as name, min(email) as email, min(phone) as phone,
      array_agg(student_id order by student_id) as student_ids,
      count(distinct name_form) as names,
      count(distinct phone) as phones,
      count(*) as children,
      bool_or(name is null) as lacks_name,
      min(name_form) as name_form
    from person
    group by key
  ), known as (
    select c.*, g.id as guardian_id, g.has_login,
      coalesce((
        select count(*) from student_guardian l where l.guardian_id = g.id and l.removed_at is null), 0) as linked
    from grouped c
    left join lateral (
      select g.id, g.user_id is not null as has_login
      from guardian g
      where lower(g.email) = lower(c.email)
        and g.deleted_at is null
        and public.search_form(core.full_name(g.first_name, g.last_name)) = c.name_form
      order by g.id
      limit 1
    ) g on c.names = 1
  )
  select coalesce(jsonb_agg(jsonb_build_object(
      'name', name, 'email', email, 'phone', phone, 'student_ids', student_ids, 'guardian_id', guardian_id,
      'has_login', coalesce(has_login, false),
      'reason', case
        when lacks_name then 'The contact has no name.'
        when names > 1 then 'The contacts with this email have different names.'
        when phones > 1 then 'The contacts with this email have different phone numbers.'
        when exists (
          select from student_guardian l where l.guardian_id = known.guardian_id and l.student_id = any (student_ids)
        ) then 'The guardian was removed from one of the students.'
        when children + linked > 8 then 'More than eight students have this contact.'
      end)
    order by student_ids), '[]')
  from known;
$$;
comment on function api.contacts_to_link is
  'The contacts of students without guardians, one for each person: {name, email, phone, student_ids, guardian_id, '
  'has_login, reason}. guardian_id is a guardian with this email and name. With a reason, a person has to decide.';

create function api.guardians_from_contacts(p jsonb) returns json language plpgsql as $$
declare
  v_contacts jsonb;
begin
  perform core.require_whole_school();
  if not coalesce((p ->> 'dry_run')::boolean, false) then
    -- A concurrent request waits, and then finds no contacts.
    perform pg_advisory_xact_lock(core.lock_key('guardians', core.tenant_id()));
    -- A request that changes a contact or links a guardian waits, too.
    perform
      from student s
      where s.deleted_at is null
        and not exists (select from student_guardian l where l.student_id = s.id and l.removed_at is null)
      order by s.id
      for no key update;
  end if;
  v_contacts := api.contacts_to_link();
  if not coalesce((p ->> 'dry_run')::boolean, false) then
    with contact as materialized (
      select c.*, row_number() over (partition by c.guardian_id is null order by c.student_ids) as number
      from jsonb_to_recordset(v_contacts) c (
        name text, email text, phone text, student_ids bigint[], guardian_id bigint, has_login boolean, reason text)
      where c.reason is null
    ), added as (
      insert into guardian (first_name, last_name, email, phone)
        select regexp_replace(name, '\s\S{1,100}$', ''), coalesce(substring(name from '\s(\S{1,100})$'), ''), email,
          phone
        from contact
        where guardian_id is null
        order by number
        returning id
    ), numbered as (
      -- The ids are in the order of the rows.
      select id, row_number() over (order by id) as number from added
    )
    insert into student_guardian (student_id, guardian_id, is_primary, can_see_records)
      select student_id, coalesce(c.guardian_id, a.id), true, not c.has_login
      from contact c
      left join numbered a on c.guardian_id is null and a.number = c.number
      cross join unnest(c.student_ids) student_id
      order by student_id
      on conflict (student_id, guardian_id) do update set is_primary = true, removed_at = null;
  end if;
  return (
    select json_build_object(
      'created', count(*) filter (where contact -> 'reason' = 'null' and contact -> 'guardian_id' = 'null'),
      'linked', coalesce(
        sum(jsonb_array_length(contact -> 'student_ids')) filter (where contact -> 'reason' = 'null'), 0),
      'skipped', coalesce(
        json_agg(json_build_object(
            'name', contact -> 'name', 'email', contact -> 'email', 'phone', contact -> 'phone',
            'student_ids', contact -> 'student_ids', 'reason', contact -> 'reason')
          order by (contact #>> '{student_ids,0}')::bigint) filter (where contact -> 'reason' <> 'null'),
        '[]'))
    from jsonb_array_elements(v_contacts) contact);
end $$;
comment on function api.guardians_from_contacts is
  'Makes guardians of the contacts of students who have none, and links them: {dry_run}. A guardian with a login who '
  'has the same email and name is linked, but does not see the student until the school allows it. Returns {created: '
  'guardians, linked: students, skipped: [{name, email, phone, student_ids, reason}]}. Raises forbidden for users who '
  'do not see the whole school.';
