-- Ready schools: their tables are created before they are needed. With many schools, creating them takes most of the
-- time of a new school. See docs/decisions/0058-ready-schools.md. core.ready_school_drop is in tenant.sql.

select core.define_job('ready_schools', '{ready_schools_step}',
  p_schedule => '* * * * * ?max=3&jobKey=ready_schools&jobKeyMode=replace');

create function core.is_ready(p_school platform.ready_school, p_version integer) returns boolean language sql stable
  return p_school.schema_version = p_version
    -- The home gives a node its ids.
    and (core.this_node()).id is null
    and to_regnamespace('tenant_' || p_school.id) is not null
    and not exists (select from platform.tenant t where t.id = p_school.id);
comment on function core.is_ready is
  'Whether a new school can take the id and the schema of a ready school: p_version is the latest tenant migration.';

-- Reads tenant_migration before it locks a row of ready_school. Publishing a migration takes the locks in the same
-- order; the other order could deadlock.
create function core.take_ready_school() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_version integer := (select max(version) from platform.tenant_migration);
  v_id bigint;
begin
  select r.id into v_id
    from platform.ready_school r
    where core.is_ready(r, v_version)
    order by r.id
    limit 1
    for update skip locked;
  if found then
    update platform.ready_school set id = new.id, schema_version = 0 where id = v_id;
    new.id := v_id;
    new.schema_version := v_version;
  end if;
  return new;
end $$;
comment on function core.take_ready_school is
  'Gives a new school the id and the schema of a ready school, if there is one. The row of the ready school gets the '
  'id of the new one. Security definer, since no role may read platform.ready_school.';

-- Before the insert, because triggers after it record the id. Only for a school that an operator creates: an imported
-- school needs tables of the version of its file.
create trigger take_ready_school before insert on platform.tenant
  for each row when (current_setting('app.takes_ready_school', true) = 'yes')
  execute function core.take_ready_school();

-- The time limit: while it waits for a lock, migrations and the installation of functions would wait for it.
create function core.ready_schools_step() returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  v_version integer := (select max(version) from platform.tenant_migration);
  v_id bigint;
begin
  -- An imported school brings its own id. Its schema must never be dropped.
  delete from platform.ready_school r using platform.tenant t where t.id = r.id;
  if (core.this_node()).id is not null then
    perform core.ready_school_drop(id) from platform.ready_school;
    return false;
  end if;
  insert into platform.ready_school (id, place)
    select nextval(pg_get_serial_sequence('platform.tenant', 'id')), wanted.place
    from generate_series(1, core.max_ready_schools()) wanted (place)
    where not exists (select from platform.ready_school r where r.place = wanted.place)
    on conflict (place) do nothing;
  select r.id into v_id
    from platform.ready_school r
    where not core.is_ready(r, v_version)
    order by r.id
    limit 1
    for update skip locked;
  if v_id is null then
    return false;
  elsif to_regnamespace('tenant_' || v_id) is not null then
    -- In a transaction of its own: each dropped and each created relation takes a lock until the end.
    execute format('drop schema %I cascade', 'tenant_' || v_id);
    update platform.ready_school set schema_version = 0 where id = v_id;
  else
    update platform.ready_school set schema_version = core.schema_migrate(v_id, 0) where id = v_id;
  end if;
  return true;
exception when lock_not_available then
  -- pg_dump, for example, locks the tables that would be dropped. The next run tries again.
  return false;
end $$;
comment on function core.ready_schools_step is
  'Creates the tables of one ready school, or drops those that lack a migration. Returns whether there may be more to '
  'do. On a node it drops them all. Security definer, because the worker may not create a schema.';
