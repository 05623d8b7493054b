-- API keys: programs act for the user who made the key, with a part of the user's permissions.

create table api_key (
  id bigserial primary key,
  user_id bigint not null references user_account (id) on delete cascade,
  name text not null
    constraint api_key_name_check check (length(name) between 1 and 100),
  permissions text[] not null
    constraint api_key_permissions_check check (cardinality(permissions) > 0),
  prefix text not null
    constraint api_key_prefix_check check (prefix ~ '^sk_[1-9][0-9]*_[0-9A-Za-z]{4}$'),
  key_hash text not null
    constraint api_key_key_hash_check check (key_hash ~ '^[0-9a-f]{64}$'),
  expires_at timestamptz,
  last_used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table api_key is
  'A key with which a program acts for a user. It is deleted when it is revoked. The export of a school leaves it out.';
comment on column api_key.permissions is
  'The names of the permissions that the key may use. A request has those of them that the user has at that time.';
comment on column api_key.prefix is 'The beginning of the key, so that users recognize it.';
comment on column api_key.key_hash is 'SHA-256 of the key in hex. The key itself is not stored.';
comment on column api_key.last_used_at is 'Updated at most once a minute.';
create unique index api_key_key_hash_key on api_key (key_hash);
create index api_key_user_id_idx on api_key (user_id, id);
create trigger refuse_impersonator before insert or update on api_key
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();

create function refuse_api_key() returns trigger language plpgsql set search_path from current as $$
begin
  raise exception using errcode = 'S403A',
    message = 'An API key cannot change the email address or the password of a user. Log in to do this.';
end $$;
comment on function refuse_api_key() is
  'Rejects a change with which the holder of an API key could log in as a user.';
create trigger refuse_api_key before update on user_account
  for each row when (
    nullif(current_setting('app.api_key', true), '') is not null
    and (old.email, old.password_hash) is distinct from (new.email, new.password_hash)
  )
  execute function refuse_api_key();

create or replace function refuse_impersonator() returns trigger language plpgsql set search_path from current as $$
begin
  raise exception using errcode = 'S403A',
    message = 'An operator cannot change logins, passwords, roles, devices, calendar feeds, webhooks, API keys or '
      'notifications of operator logins during an impersonation.';
end $$;
