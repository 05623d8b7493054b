-- The personal data of one student: their export and their erasure, for the command line. Only the owner of the
-- database may call these functions.

create function core.student_enter(p_tenant_id bigint, p_student_id bigint) returns text[]
  language plpgsql as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
  v_exists boolean := false;
begin
  if to_regclass(format('tenant_%s.student', p_tenant_id)) is not null then
    execute format('select exists (select from tenant_%s.student where id = $1)', p_tenant_id)
      into v_exists using p_student_id;
  end if;
  if not v_exists then
    perform core.fail('not_found', format('School %s has no student with the id %s.', p_tenant_id, p_student_id));
  end if;
  return v_before;
end $$;
comment on function core.student_enter is
  'core.enter_tenant, for work on one student. Deleted students exist too. Raises not_found.';

create function core.student_links(p_schema text) returns table (table_name text, condition text)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    with link as (
      select k.conrelid, k.confrelid::regclass::text as target, a.attname
      from core.foreign_keys_in(p_schema) k
      join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
      where cardinality(k.conkey) = 1
    )
    select r.relname::text, format(
      case split_part(l.target, '.', 2)
        when 'student' then '%I = $1'
        when 'user_account' then '%I = any ($2)'
        else '%I in (select id from invoice where student_id = $1)'
      end, l.attname)
    from link l
    join core.relations_in(p_schema) r on r.oid = l.conrelid
    where l.target = p_schema || '.student'
      -- Other columns name the user who recorded a row about somebody else.
      or (l.target = p_schema || '.user_account' and l.attname = 'user_id' and r.relname not in ('student', 'teacher'))
      or (l.target = p_schema || '.invoice' and r.relname = 'invoice_reminder')
    order by r.relname
  $$;
comment on function core.student_links is
  'The tables with rows about a student, and the condition that finds them: $1 is the student, $2 the logins of the '
  'student.';

create function core.student_user_ids(p_student_id bigint) returns bigint[] language sql stable as $$
  select array(
    select u.id
    from user_account u
    where u.id = s.user_id
      or (u.deleted_at is not null
        and (lower(u.email), u.first_name, u.last_name) = (lower(s.email), s.first_name, s.last_name))
    order by u.id)
  from student s
  where s.id = p_student_id
$$;
comment on function core.student_user_ids is
  'The logins of a student. A deleted login keeps its data but is no longer linked to the student, so it is found by '
  'its email address and name.';

-- An answer to an earlier request can contain the hash of a new API key.
create function core.without_secrets(p_row jsonb) returns jsonb language sql immutable as $$
  select case when jsonb_typeof(p_row -> 'answer') = 'object'
    then jsonb_set(shown, '{answer}', (p_row -> 'answer') - secrets) else shown end
  from (values (
    '{password_hash,search_text,search_name,token,token_hash,request_hash,key_hash,secret_hash}'::text[])) s (secrets)
  cross join lateral (select p_row - secrets) r (shown)
$$;
comment on function core.without_secrets is 'A row as jsonb without secrets, their hashes, and the text for searches.';

create function core.student_file_ids(p_student_id bigint, p_user_ids bigint[]) returns bigint[]
  language sql stable as $$
  select array(
    select file_id from student_document where student_id = p_student_id
    union
    select profile_picture_id from user_account where id = any (p_user_ids) and profile_picture_id is not null)
$$;
comment on function core.student_file_ids is 'The documents of a student and the pictures of their logins.';

create function core.student_export(p_tenant_id bigint, p_student_id bigint) returns jsonb
  language plpgsql set timezone = 'UTC' as $$
declare
  v_before text[] := core.student_enter(p_tenant_id, p_student_id);
  v_user_ids bigint[] := core.student_user_ids(p_student_id);
  v_answer jsonb;
  v_link record;
  v_rows jsonb;
begin
  select jsonb_build_object(
      'exported_at', now(),
      'school', (select jsonb_build_object('id', t.id, 'name', t.name) from platform.tenant t where t.id = p_tenant_id),
      'student', core.without_secrets(to_jsonb(s)),
      'user_account', (
        select core.without_secrets(to_jsonb(u))
        from user_account u
        where u.id = any (v_user_ids)
        order by u.deleted_at desc nulls first
        limit 1),
      'guardians', (
        select jsonb_agg(core.without_secrets(to_jsonb(g)) - '{address,user_id}'::text[] order by g.id)
        from guardian g
        where g.id in (
          select l.guardian_id from student_guardian l where l.student_id = s.id and l.removed_at is null)),
      'classes', (
        select jsonb_agg(jsonb_build_object('id', c.id, 'name', c.name, 'academic_year', y.name) order by c.id)
        from class c
        join academic_year y on y.id = c.academic_year_id
        where c.id in (select e.class_id from enrollment e where e.student_id = s.id)),
      'files', (
        select jsonb_agg(jsonb_build_object('id', f.id, 'name', f.name, 'content_type', f.content_type, 'size', f.size)
          order by f.id)
        from file f
        where f.id = any (core.student_file_ids(p_student_id, v_user_ids))),
      'sessions', (
        select jsonb_agg(jsonb_build_object('ip', e.ip, 'user_agent', e.user_agent, 'created_at', e.created_at,
          'last_used_at', e.last_used_at, 'ended_at', e.revoked_at) order by e.id)
        from platform.session e
        where e.tenant_id = p_tenant_id and e.user_id = any (v_user_ids)),
      'audit_log', (
        select jsonb_agg(to_jsonb(a) order by a.id)
        from platform.audit_log a
        where a.tenant_id = p_tenant_id
          and ((a.target_type = 'student' and a.target_id = p_student_id)
            or a.impersonated_user_id = any (v_user_ids))))
    into v_answer
    from student s
    where s.id = p_student_id;
  for v_link in select * from core.student_links('tenant_' || p_tenant_id) loop
    execute format('select jsonb_agg(core.without_secrets(to_jsonb(t))) from %I t where %s',
      v_link.table_name, v_link.condition)
      into v_rows using p_student_id, v_user_ids;
    if v_rows is not null then
      v_answer := v_answer || jsonb_build_object(v_link.table_name,
        coalesce(v_answer -> v_link.table_name, '[]') || v_rows);
    end if;
  end loop;
  perform core.leave_tenant(v_before);
  return v_answer;
end $$;
comment on function core.student_export is
  'All stored data of a student: the record, the login, and the rows of all tables that refer to either, by table. '
  'Without secrets and their hashes. Raises not_found.';

create function core.student_files(p_tenant_id bigint, p_student_id bigint)
  returns table (id bigint, name text, content_type text, content bytea) language plpgsql as $$
#variable_conflict use_column
declare
  v_before text[] := core.student_enter(p_tenant_id, p_student_id);
begin
  return query
    select f.id, f.name, f.content_type, f.content
    from file f
    where f.id = any (core.student_file_ids(p_student_id, core.student_user_ids(p_student_id)))
    order by f.id;
  perform core.leave_tenant(v_before);
end $$;
comment on function core.student_files is 'The files of a student with their content. Raises not_found.';

create function core.text_pattern(p_text text) returns text language sql immutable
  return '(?<![[:alnum:]-])' || regexp_replace(p_text, '([^[:alnum:][:space:]])', '\\\1', 'g') || '(?![[:alnum:]-])';
comment on function core.text_pattern is
  'A regular expression that matches exactly this text, where it is not part of a longer word or number.';

create function core.erase_text(p_text text, p_values text[], p_names jsonb) returns text
  language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_text text := p_text;
  v_name jsonb;
  v_value text;
begin
  foreach v_value in array p_values loop
    v_text := regexp_replace(v_text, core.text_pattern(v_value), 'erased', 'gi');
  end loop;
  for v_name in select jsonb_array_elements(p_names) loop
    if not exists (
      select from jsonb_array_elements_text(v_name) word
      where v_text !~* core.text_pattern(word)
    ) then
      for v_value in select jsonb_array_elements_text(v_name) loop
        v_text := regexp_replace(v_text, core.text_pattern(v_value), 'erased', 'gi');
      end loop;
    end if;
  end loop;
  return v_text;
end $$;
comment on function core.erase_text is
  'A text in which values (addresses, numbers) are replaced by "erased". p_names are [[first name, last name], …]: '
  'both are replaced in a text that has both; a first name alone may be that of somebody else, unless the person has '
  'no last name.';

create function core.run_without_triggers(p_table regclass, p_statement text, p_student_id bigint, p_user_ids bigint[])
  returns bigint language plpgsql as $$
declare
  v_count bigint;
begin
  -- Triggers would refuse a change of an issued invoice, or record the old values as a correction.
  execute format('alter table %s disable trigger user', p_table);
  execute p_statement using p_student_id, p_user_ids;
  get diagnostics v_count = row_count;
  execute format('alter table %s enable trigger user', p_table);
  return v_count;
end $$;
comment on function core.run_without_triggers is
  'Runs a statement that changes a table, with the parameters $1 and $2, without the triggers of the table. '
  'Returns the number of rows.';

create function core.student_erase(p_tenant_id bigint, p_student_id bigint) returns jsonb
  language plpgsql set timezone = 'UTC' set lock_timeout = '500ms' as $$
declare
  v_before text[] := core.student_enter(p_tenant_id, p_student_id);
  v_schema text := 'tenant_' || p_tenant_id;
  v_student record;
  v_user_ids bigint[];
  v_guardian_ids bigint[];
  v_files bigint[];
  v_emails text[];
  v_values text[];
  v_names jsonb;
  v_entries bigint[];
  v_step record;
  v_found boolean;
  v_count bigint;
  v_counts jsonb := '{}';
begin
  select * into v_student from student where id = p_student_id for update;
  -- Guardians of other students, too, stay.
  v_guardian_ids := array(
    select l.guardian_id
    from student_guardian l
    where l.student_id = p_student_id
      and not exists (
        select from student_guardian o where o.guardian_id = l.guardian_id and o.student_id <> p_student_id)
    order by l.guardian_id);
  v_user_ids := array(
    select id
    from (
      select unnest(core.student_user_ids(p_student_id))
      union
      select g.user_id
      from guardian g
      where g.id = any (v_guardian_ids)
        and not exists (
          select from user_role ur
          join role r on r.id = ur.role_id
          where ur.user_id = g.user_id and not (r.is_system and r.name = 'guardian'))
    ) login (id)
    -- The login of a person who is also a teacher, or of several students, is not the student's alone.
    where id is not null
      and not exists (select from teacher t where t.user_id = id)
      and not exists (select from student s where s.user_id = id and s.id <> p_student_id));
  v_files := core.student_file_ids(p_student_id, v_user_ids);
  -- Siblings have the same parents, whose values stay in messages about the siblings.
  v_emails := array(
    select distinct lower(value)
    from unnest(array(select email from user_account where id = any (v_user_ids))
      || array(
        select g.email
        from guardian g
        where g.id = any (v_guardian_ids)
          and not exists (
            select from guardian o
            where lower(o.email) = lower(g.email) and o.id <> all (v_guardian_ids) and o.deleted_at is null)
          and not exists (
            select from student s
            where lower(s.parent_email) = lower(g.email) and s.id <> p_student_id and s.deleted_at is null))
      || array[
      v_student.email,
      case when not exists (
        select from student s
        where lower(s.parent_email) = lower(v_student.parent_email) and s.id <> p_student_id and s.deleted_at is null
      ) then v_student.parent_email end]) value
    where value is not null);
  v_values := v_emails || array(
    select distinct value
    from unnest(array(select phone from user_account where id = any (v_user_ids))
      || array(
        select value
        from guardian g
        cross join unnest(array[g.phone, g.address]) value
        where g.id = any (v_guardian_ids)
          and not exists (
            select from guardian o
            where value in (o.phone, o.address) and o.id <> all (v_guardian_ids) and o.deleted_at is null)
          and not exists (
            select from student s
            where value in (s.parent_phone, s.address) and s.id <> p_student_id and s.deleted_at is null))
      || array[
      v_student.phone, v_student.admission_number, v_student.address,
      case when not exists (
        select from student s
        where s.parent_phone = v_student.parent_phone and s.id <> p_student_id and s.deleted_at is null
      ) then v_student.parent_phone end,
      case when not exists (
        select from student s
        where s.parent_name = v_student.parent_name and s.id <> p_student_id and s.deleted_at is null
      ) then v_student.parent_name end]) value
    -- Shorter ones would match parts of other numbers.
    where length(value) >= 5);
  v_names := (
    select jsonb_agg(distinct name)
    from (
      -- An empty last name would be found in every text.
      select to_jsonb(array_remove(array[v_student.first_name, v_student.last_name], ''))
      union
      select to_jsonb(array_remove(array[first_name, last_name], ''))
      from user_account
      where id = any (v_user_ids)
      union
      select to_jsonb(array_remove(array[first_name, last_name], ''))
      from guardian
      where id = any (v_guardian_ids)) given (name));

  -- Ends the enrollments and gives the place in the plan back, as the API does.
  update student set user_id = null where id = p_student_id;
  if v_student.deleted_at is null then
    perform api.students_delete(jsonb_build_object('id', p_student_id));
  end if;

  for v_step in
    select *
    from (values
      ('student', $sql$
        update student set
            admission_number = 'erased-' || id, roll_number = null, first_name = 'Erased', last_name = 'student',
            date_of_birth = null, gender = null, email = null, phone = null, religion_id = null, parent_name = null,
            parent_phone = null, parent_email = null, address = null,
            left_on = coalesce(left_on, core.today()), is_active = false, leaving_reason = null
          where id = $1
        $sql$),
      ('guardian', $sql$
        update guardian g set
            first_name = 'Erased', last_name = 'guardian', email = null, phone = null, address = null, user_id = null,
            deleted_at = coalesce(deleted_at, now())
          where id in (select guardian_id from student_guardian where student_id = $1)
            and not exists (select from student_guardian o where o.guardian_id = g.id and o.student_id <> $1)
        $sql$),
      ('student_guardian', 'delete from student_guardian where student_id = $1'),
      ('student_document', 'delete from student_document where student_id = $1'),
      ('student_external_id', 'delete from student_external_id where student_id = $1'),
      ('student_absence', 'delete from student_absence where student_id = $1'),
      ('attendance', 'update attendance set note = null where student_id = $1 and note is not null'),
      ('attendance_correction', $sql$
        update attendance_correction set note = null where student_id = $1 and note is not null
      $sql$),
      ('student_fee', $sql$
        update student_fee set waive_reason = null
          where student_id = $1 and waive_reason is not null
        $sql$),
      ('student_fee_discount', $sql$
        update student_fee_discount set reason = null
          where student_id = $1 and reason is not null
        $sql$),
      ('invoice', $sql$
        update invoice set notes = null, void_reason = null
          where student_id = $1 and num_nonnulls(notes, void_reason) > 0
        $sql$),
      ('invoice_reminder', $sql$
        update invoice_reminder set sent_to = 'erased'
          where invoice_id in (select id from invoice where student_id = $1)
        $sql$),
      ('payment', $sql$
        update payment set notes = null where student_id = $1 and notes is not null
        $sql$),
      ('transport_enrollment', $sql$
        update transport_enrollment set cancel_reason = null
          where student_id = $1 and cancel_reason is not null
        $sql$),
      ('webhook_event', $sql$
        delete from webhook_event
          where body is not null
            and ((type like 'student.%' and key ->> 'id' = $1::text) or body ~ format('"student_id": ?%s\M', $1))
        $sql$),
      ('notification_delivery', 'delete from notification_delivery where user_id = any ($2)'),
      ('notification', 'delete from notification where user_id = any ($2)'),
      ('device', 'delete from device where user_id = any ($2)'),
      ('api_key', 'delete from api_key where user_id = any ($2)'),
      ('calendar_feed', 'delete from calendar_feed where user_id = any ($2)'),
      ('idempotency_key', 'delete from idempotency_key where user_id = any ($2)'),
      -- A repeated request still creates nothing, but its answer is only the id.
      ('idempotency_key', $sql$
        update idempotency_key set answer = json_build_object('id', $1)
          where operation like 'students\_%' and answer ->> 'id' = $1::text
        $sql$),
      ('user_role', 'delete from user_role where user_id = any ($2)'),
      ('user_account', $sql$
        update user_account set
            email = format('erased-%s@erased.invalid', id), password_hash = null, first_name = 'Erased',
            last_name = 'student', phone = null, is_active = false, email_verified_at = null, profile_picture_id = null,
            last_login_at = null, deleted_at = coalesce(deleted_at, now())
          where id = any ($2)
        $sql$)) step (table_name, statement)
  loop
    v_count := core.run_without_triggers(format('%I.%I', v_schema, v_step.table_name)::regclass, v_step.statement,
      p_student_id, v_user_ids);
    v_counts := v_counts || jsonb_build_object(v_step.table_name,
      v_count + coalesce((v_counts ->> v_step.table_name)::bigint, 0));
  end loop;
  delete from notification_delivery where lower(address) = any (v_emails);
  delete from file where id = any (v_files);
  get diagnostics v_count = row_count;
  v_counts := v_counts || jsonb_build_object('file', v_count);

  -- Texts that others have written or the service has rendered. Not the records of other people, who may share a name.
  for v_step in
    select
      r.oid::regclass as on_table,
      a.attname as name,
      format_type(a.atttypid, a.atttypmod) as type,
      format('core.erase_text(%I::text, %L::text[], %L::jsonb)', a.attname, v_values, v_names) as erased
    from core.relations_in(v_schema) r
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    where r.relkind = 'r'
      and r.relname not in (
        'student', 'guardian', 'user_account', 'teacher', 'driver', 'transport_staff', 'webhook_secret', 'counter')
      and a.attname not in ('invoice_number', 'receipt_number')
      and a.atttypid in ('text'::regtype, 'json'::regtype, 'jsonb'::regtype, 'text[]'::regtype)
  loop
    execute format('select exists (select from %s where %I is not null and %I::text <> %s)', v_step.on_table,
      v_step.name, v_step.name, v_step.erased) into v_found;
    if v_found then
      v_count := core.run_without_triggers(v_step.on_table, format(
        'update %1$s set %2$I = %3$s::%4$s where %2$I::text <> %3$s',
        v_step.on_table, v_step.name, v_step.erased, v_step.type), p_student_id, v_user_ids);
      v_counts := v_counts || jsonb_build_object(split_part(v_step.on_table::text, '.', -1), v_count
        + coalesce((v_counts ->> split_part(v_step.on_table::text, '.', -1))::bigint, 0));
    end if;
  end loop;

  -- Messages that are not written yet: an erased address gets none.
  update platform.outbox
    set facts = replace(core.erase_text(facts::text, v_values, v_names), '"email": "erased"', '"email": null')::jsonb
    where tenant_id = p_tenant_id and facts::text <> core.erase_text(facts::text, v_values, v_names);
  delete from platform.session where tenant_id = p_tenant_id and user_id = any (v_user_ids);
  delete from platform.one_time_token where tenant_id = p_tenant_id and user_id = any (v_user_ids);
  delete from platform.second_factor where tenant_id = p_tenant_id and user_id = any (v_user_ids);
  -- Writes of all schools wait while the trigger is off, so the entries are found before.
  v_entries := array(
    select a.id
    from platform.audit_log a
    where a.tenant_id = p_tenant_id
      and (a.changes::text, a.actor_email, a.impersonated_email) is distinct from (
        core.erase_text(a.changes::text, v_values, v_names),
        core.erase_text(a.actor_email, v_values, v_names),
        core.erase_text(a.impersonated_email, v_values, v_names)));
  -- The log is append-only: the trigger is off for this statement, and entries are emptied instead of deleted.
  alter table platform.audit_log disable trigger append_only;
  update platform.audit_log a set
      changes = core.erase_text(a.changes::text, v_values, v_names)::jsonb,
      actor_email = core.erase_text(a.actor_email, v_values, v_names),
      impersonated_email = core.erase_text(a.impersonated_email, v_values, v_names),
      ip = case when lower(a.actor_email) = any (v_emails) then null else a.ip end,
      user_agent = case when lower(a.actor_email) = any (v_emails) then null else a.user_agent end
    where a.id = any (v_entries);
  get diagnostics v_count = row_count;
  alter table platform.audit_log enable trigger append_only;
  v_counts := (
    select jsonb_object_agg(key, value)
    from jsonb_each(v_counts || jsonb_build_object('audit_log', v_count))
    where value <> '0');
  perform core.leave_tenant(v_before), set_config('app.actor_email', 'command line', true);
  perform core.audit('student.erase', 'student', p_student_id, p_tenant_id, core.diff(null, v_counts));
  return v_counts;
end $$;
comment on function core.student_erase is
  'Erases the personal data of a student, and of guardians who care for no other: records and logins get placeholders; '
  'documents, pictures, messages, sessions, second factors and API keys are deleted; and the name, addresses and '
  'numbers are replaced in all other texts of the school and in its audit log. Amounts, numbers of invoices and '
  'receipts, marks and enrollments stay. Deletes the student first if that has not happened. Cannot be undone. Returns '
  'the number of changed rows by table. Audited. Raises not_found.';
