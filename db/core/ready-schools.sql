-- The tables of a school are created before they are needed: with many schools, creating them takes most of the time of
-- a new school. See docs/decisions/0058-ready-schools.md. core.ready_school_drop is in tenant.sql.

-- Reads platform.tenant_migration before it locks a row of platform.ready_school, as core.ready_school_make does: a
-- migration that is published locks them in this order.
create function core.take_ready_school() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_version integer := (select max(version) from platform.tenant_migration);
  v_ready platform.ready_school;
begin
  select * into v_ready
    from platform.ready_school
    where schema_version = v_version and to_regnamespace('tenant_' || id) is not null
    order by id
    limit 1
    for update skip locked;
  if found then
    update platform.ready_school set id = new.id, schema_version = 0 where id = v_ready.id;
    new.id := v_ready.id;
    new.schema_version := v_version;
  end if;
  return new;
end $$;
comment on function core.take_ready_school is
  'Gives a new school the id and the tables of a ready one, if there is one with all migrations. Security definer, '
  'since no role may read platform.ready_school.';

-- Only for a school that an operator creates. An imported school needs tables of the version of its file.
create trigger take_ready_school before insert on platform.tenant
  for each row when (current_setting('app.takes_ready_school', true) = 'yes')
  execute function core.take_ready_school();

create function core.ready_school_make() returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_version integer := (select max(version) from platform.tenant_migration);
  v_id bigint;
begin
  -- The home gives a node its ids.
  if (core.this_node()).id is not null then
    perform core.ready_school_drop(id) from platform.ready_school;
    return false;
  end if;
  insert into platform.ready_school (id, place)
    select nextval(pg_get_serial_sequence('platform.tenant', 'id')), wanted.place
    from generate_series(1, core.ready_schools()) wanted (place)
    where not exists (select from platform.ready_school r where r.place = wanted.place)
    on conflict (place) do nothing;
  select id into v_id
    from platform.ready_school
    where schema_version <> v_version
    order by id
    limit 1
    for update skip locked;
  if v_id is null then
    return false;
  elsif exists (select from platform.tenant where id = v_id) then
    delete from platform.ready_school where id = v_id;
  elsif to_regnamespace('tenant_' || v_id) is not null then
    execute format('drop schema %I cascade', 'tenant_' || v_id);
    update platform.ready_school set schema_version = 0 where id = v_id;
  else
    update platform.ready_school set schema_version = core.schema_migrate(v_id, 0) where id = v_id;
  end if;
  return true;
end $$;
comment on function core.ready_school_make is
  'Creates the tables of a ready school, or drops those that are not of the latest migration. Returns whether there '
  'may be more to do. On a node it drops them all. Security definer, because the worker may not create a schema.';
