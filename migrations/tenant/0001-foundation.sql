-- What the tables of the other files share: trigger functions, running numbers, files.
--
-- Tenant migrations run with the search_path of one school. After them, core.tenant_secure adds the grants, the
-- isolation policy, forced row-level security and the `touch` trigger to every table. A line `@grants select, insert`
-- in the comment of a table limits its grants to these.
--
-- The policies in these files are restrictive: they limit users further, by settings of the dispatcher (core.call):
--   app.scope       all: every row of the school; taught: the classes that the user teaches, and their students; own:
--                   the rows of the user
--   app.class_ids   the classes of a taught or own scope, as text (',1,2,'): an array would be parsed for every row
--   app.user_id, app.teacher_id, app.student_id   who the user is
--   app.is_system   'yes' for the worker
-- Conditions are written nullif(<condition>, false) is not null. Postgres expects a plain comparison with a setting
-- to be rarely true, and then chooses nested loops for whole tables; it expects this form to be nearly always true.

create function touch_updated_at() returns trigger language plpgsql as $$
begin
  new.updated_at := now();
  return new;
end $$;

create table state_transition (
  entity text not null,
  action text not null,
  from_state text not null,
  to_state text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (entity, action, from_state, to_state)
);
comment on table state_transition is
  e'The allowed changes of each status column, and the action that makes each change.\n@grants select';

-- Rejects a status change of the entity tg_argv[0] that state_transition does not list.
create function enforce_transition() returns trigger language plpgsql set search_path from current as $$
begin
  if not exists (
    select from state_transition
    where entity = tg_argv[0] and from_state = old.status and to_state = new.status
  ) then
    raise exception using errcode = 'S409C',
      message = format('The %s cannot change from %s to %s.', tg_argv[0], old.status, new.status);
  end if;
  return new;
end $$;

-- An operator who is logged in as a user (app.impersonator_id) must not change how people log in, what they may do,
-- where their messages go, or what the school learns about such sessions. Triggers on those tables enforce it, so
-- that no endpoint can forget to.
create function refuse_impersonator() returns trigger language plpgsql set search_path from current as $$
begin
  raise exception using errcode = 'S403A',
    message = 'An operator cannot change logins, passwords, roles, devices, calendar feeds or notifications of '
      'operator logins during an impersonation.';
end $$;
comment on function refuse_impersonator is
  'Rejects a change that an operator who is logged in as a user must not make.';

create table counter (
  name text primary key,
  value bigint not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table counter is
  'Running numbers without gaps, such as invoice numbers. A number that is rolled back is used again.';

create table daily_run (
  task text not null,
  run_on date not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (task, run_on)
);
comment on table daily_run is
  'The daily tasks that have run on each day, written in the transaction of the task so that it runs once.';

create table file (
  id bigserial primary key,
  content bytea not null,
  content_type text not null,
  name text,
  size integer not null generated always as (length(content)) stored,
  digest text not null generated always as (md5(content)) stored,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table file is 'Pictures and documents. content_type was detected from the content.';
-- Most are compressed already.
alter table file alter column content set storage external;
