-- The guardians of students, such as their parents, and which students each of them cares for.

-- A role that the school has made under this name makes room for the system role.
update role set name = format('%s (%s)', name, id) where lower(name) = 'guardian' and not is_system;

create table guardian (
  id bigserial primary key,
  user_id bigint references user_account (id) on delete set null,
  first_name text not null
    constraint guardian_first_name_check check (length(first_name) between 1 and 200),
  last_name text not null
    constraint guardian_last_name_check check (length(last_name) <= 100),
  email text,
  phone text,
  address text,
  search_text text not null generated always as (
    public.search_form(
      first_name || ' ' || last_name || ' ' || coalesce(email, '') || ' ' || coalesce(phone, '')
    )
  ) stored,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table guardian is
  'A person who cares for students, such as a parent. email is where the school writes to; the login of user_id has an '
  'address of its own.';
comment on column guardian.first_name is 'Up to 200 characters, because the contact of a student is one text.';
create unique index guardian_user_id_key on guardian (user_id);
create index guardian_email_idx on guardian (lower(email)) where deleted_at is null;
create index guardian_name_idx on guardian
  (platform.search_normal(last_name), platform.search_normal(first_name), id)
  where deleted_at is null;
create index guardian_search_text_idx on guardian using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off);

create table student_guardian (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  guardian_id bigint not null references guardian (id) on delete restrict,
  relationship text
    constraint student_guardian_relationship_check check (relationship in (
      'mother', 'father', 'parent', 'stepparent', 'grandparent', 'sibling', 'relative', 'foster_parent', 'guardian',
      'other')),
  is_primary boolean not null default false,
  priority integer not null default 1
    constraint student_guardian_priority_check check (priority between 1 and 100),
  can_see_records boolean not null default true,
  can_see_contacts boolean not null default false,
  receives_messages boolean not null default true,
  can_pick_up boolean not null default true,
  starts_on date,
  ends_on date,
  removed_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint student_guardian_ends_on_check check (ends_on >= starts_on),
  constraint student_guardian_removed_at_check check (
    removed_at is null or not (is_primary or can_see_records or can_see_contacts or receives_messages or can_pick_up))
);
comment on table student_guardian is
  'A guardian of a student. A link that is removed stays, so that another one between the two does not restore what '
  'the school had taken from the guardian.';
comment on column student_guardian.is_primary is
  'The contact of the student: student.parent_name, parent_phone and parent_email are copies of this guardian.';
comment on column student_guardian.priority is 'The order in which the school calls and writes: 1 comes first.';
comment on column student_guardian.can_see_records is 'Whether the guardian sees the student in the service.';
comment on column student_guardian.can_see_contacts is
  'Whether the guardian also sees the other guardians and the address of the student, and what notes and references '
  'payments have.';
comment on column student_guardian.starts_on is 'The first day of the link; null: none.';
comment on column student_guardian.ends_on is 'The last day of the link.';
create unique index student_guardian_guardian_id_key on student_guardian (student_id, guardian_id);
create unique index student_guardian_is_primary_key on student_guardian (student_id) where is_primary;
create index student_guardian_guardian_id_idx on student_guardian (guardian_id, student_id);

create function child_ids() returns bigint[] language sql stable parallel safe
  return string_to_array(btrim(current_setting('app.child_ids', true), ','), ',')::bigint[];
comment on function child_ids is
  'The students of whom the user is a guardian and whose records they may see in this request.';

create function children_without_contacts() returns bigint[] language sql stable parallel safe
  return string_to_array(btrim(current_setting('app.children_without_contacts', true), ','), ',')::bigint[];
comment on function children_without_contacts is
  'Those of child_ids() whose address and other guardians the user does not see.';

create function visible_student_ids() returns bigint[] language sql stable parallel safe
  return array_remove(
    case when current_setting('app.scope', true) <> 'children'
      then nullif(current_setting('app.student_id', true), '')::bigint end
      || coalesce(child_ids(), '{}'),
    null);
comment on function visible_student_ids is
  'The students whose rows a user sees who sees neither the whole school nor their class: the user as a student, '
  'except in the scope children, and the children of the user.';

-- In a function, because the policy of guardian would depend on student_guardian, which depends on guardian.
create function visible_guardian_ids() returns bigint[] language sql stable set search_path from current as $$
  select array(
    select l.guardian_id
    from student_guardian l
    where l.removed_at is null
      and l.student_id in (
        select s.id
        from student s
        where s.class_id = any ((select taught_class_ids())::bigint[])
          or s.id = any ((select child_ids())::bigint[])));
$$;
comment on function visible_guardian_ids is
  'The guardians of the students whom a user sees who does not see the whole school, as far as the user sees the '
  'links.';

grant execute on function child_ids, children_without_contacts, visible_student_ids, visible_guardian_ids
  to school_tenant;

-- Guardians see themselves, and the other guardians of a child if the school shows them. Teachers see those of the
-- students whom they teach. Students see none: a parent who uses the login of a child must not see the other one.
create policy people_see_their_guardians on student_guardian as restrictive
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or guardian_id = (select nullif(current_setting('app.guardian_id', true), '')::bigint)
    or (
      not coalesce(student_id = any ((select children_without_contacts())::bigint[]), false)
      and (
        student_id = any ((select child_ids())::bigint[])
        or (
          (select nullif(current_setting('app.scope', true) = 'taught', false)) is not null
          and exists (select from student s where s.id = student_id)
        )
      )
    )
  )
  with check (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or exists (
      select from student s where s.id = student_id and s.class_id = any ((select taught_class_ids())::bigint[]))
  );
create policy people_change_guardians_of_students_they_teach on student_guardian as restrictive for update
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or exists (
      select from student s where s.id = student_id and s.class_id = any ((select taught_class_ids())::bigint[]))
  );
create policy people_delete_guardians_of_students_they_teach on student_guardian as restrictive for delete
  using ((select nullif(current_setting('app.scope', true) = 'all', false)) is not null);

-- The policy of student_guardian applies in the function.
create policy people_see_their_guardians on guardian as restrictive
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or id = (select nullif(current_setting('app.guardian_id', true), '')::bigint)
    or id = any ((select visible_guardian_ids())::bigint[])
  )
  with check (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or id = (select nullif(current_setting('app.guardian_id', true), '')::bigint)
  );
create policy guardians_change_themselves on guardian as restrictive for update
  using (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or id = (select nullif(current_setting('app.guardian_id', true), '')::bigint)
  );
create policy guardians_delete_nobody on guardian as restrictive for delete
  using ((select nullif(current_setting('app.scope', true) = 'all', false)) is not null);

do $do$
declare
  v_change record;
begin
  for v_change in
    select *
    from (values ('guardian', 'guardian, '''''), ('student_guardian', 'guardian, children_changed, guardian_id'))
        subject (table_name, arguments)
    cross join (values
      ('insert', 'announce_added', 'new table as added'),
      ('update', 'announce_changed', 'old table as removed new table as added'),
      ('delete', 'announce_removed', 'old table as removed')
    ) change (verb, trigger_name, transition)
  loop
    execute format(
      'create trigger %I after %s on %I referencing %s for each statement execute function record_webhook_events(%s)',
      v_change.trigger_name, v_change.verb, v_change.table_name, v_change.transition, v_change.arguments);
  end loop;
end $do$;
