--! Previous: sha1:0002d6f06b1771b0105893784fbce75e1d5e8d9a
--! Hash: sha1:7c29459635b612ab0c943415adc007efc5c43e2b
--! Message: two factor login

-- Second factors of users and operators: authenticator apps, recovery codes, passkeys, and remembered devices.

create table platform.second_factor (
  id bigserial primary key,
  tenant_id bigint references platform.tenant (id) on delete cascade,
  user_id bigint not null,
  secret text,
  new_secret text,
  last_step bigint,
  enabled_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint second_factor_enabled_at_check check ((secret is null) = (enabled_at is null))
);
comment on table platform.second_factor is
  'The authenticator app of a user. A user with a secret needs a second factor to log in.';
comment on column platform.second_factor.tenant_id is 'The school of the user; null for an operator.';
comment on column platform.second_factor.secret is
  'The TOTP secret, encrypted by the API with a key that the database does not have; null until it is confirmed.';
comment on column platform.second_factor.new_secret is
  'The encrypted secret of an app that is being set up. A code of the app makes it the secret.';
comment on column platform.second_factor.last_step is
  'The time step of the last accepted code. Codes of this step and of earlier ones are refused, so that each code '
  'works once.';
comment on column platform.second_factor.enabled_at is 'When the current app was confirmed.';
create unique index second_factor_user_key on platform.second_factor (coalesce(tenant_id, 0), user_id);
create index second_factor_tenant_id_idx on platform.second_factor (tenant_id);
create trigger touch before update on platform.second_factor
  for each row execute function platform.touch_updated_at();

create table platform.recovery_code (
  id bigserial primary key,
  second_factor_id bigint not null references platform.second_factor (id) on delete cascade,
  hash bytea not null,
  used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.recovery_code is
  'The recovery codes of a user, by SHA-256. Each replaces one code of the authenticator app.';
create unique index recovery_code_hash_key on platform.recovery_code (second_factor_id, hash);
create trigger touch before update on platform.recovery_code
  for each row execute function platform.touch_updated_at();

create table platform.passkey (
  id bigserial primary key,
  second_factor_id bigint not null references platform.second_factor (id) on delete cascade,
  credential_id text not null
    constraint passkey_credential_id_check check (length(credential_id) between 1 and 2000),
  public_key text not null,
  counter bigint not null,
  transports text[] not null,
  name text not null
    constraint passkey_name_check check (length(name) between 1 and 100),
  last_used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.passkey is 'The passkeys (WebAuthn) of an operator.';
comment on column platform.passkey.credential_id is 'The id that the authenticator gave the passkey, in base64url.';
comment on column platform.passkey.public_key is 'The public key (COSE) in base64url.';
comment on column platform.passkey.counter is
  'The signature counter of the last login. A lower one shows that the passkey was copied.';
comment on column platform.passkey.transports is 'How browsers reach the authenticator, for example usb or internal.';
create unique index passkey_credential_id_key on platform.passkey (credential_id);
create index passkey_second_factor_id_idx on platform.passkey (second_factor_id);
create trigger touch before update on platform.passkey
  for each row execute function platform.touch_updated_at();

alter table platform.session add column remembered_until timestamptz;
comment on column platform.session.remembered_until is
  'Until then logins from the device of this session need no second factor; null if the user did not ask for it.';

alter table platform.tenant add column is_second_factor_required boolean not null default false;
comment on column platform.tenant.is_second_factor_required is
  'Whether users with any role besides student need a second factor.';

alter table platform.one_time_token
  drop constraint one_time_token_purpose_check,
  add constraint one_time_token_purpose_check check (purpose in (
    'password_reset', 'invitation', 'email_verification', 'second_factor', 'second_factor_enrollment', 'passkey'));
comment on table platform.one_time_token is
  'One-time tokens by SHA-256: of links in emails, of logins that still need a second factor, and of new passkeys.';

-- The functions of core name the budgets.
alter table platform.login_throttle
  drop constraint login_throttle_budget_check,
  add constraint login_throttle_budget_check check (budget ~ '^[a-z_]{1,40}$');
