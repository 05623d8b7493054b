--! Previous: sha1:a8b2b33ef847b021e54b3b70792fd37fc8e0cfbe
--! Hash: sha1:1fb560665651b85518fa92b6cbae495d268a361d
--! Message: sessions-and-login-budgets

-- Sessions tell when they were last used and from which device, and login attempts are counted per address.

alter table platform.session
  add column last_used_at timestamptz not null default now(),
  add column device_hash bytea;
-- A refresh has always set expires_at to 30 days later.
update platform.session set last_used_at = greatest(created_at, expires_at - interval '30 days')
  where impersonator_id is null;
comment on column platform.session.last_used_at is 'The time of the login or of the last refresh.';
comment on column platform.session.ip is 'The address of the login or of the last refresh.';
comment on column platform.session.user_agent is 'The program of the login, at most 200 characters.';
comment on column platform.session.device_hash is
  'SHA-256 of the token by which the device of the login is known; null if the device was forgotten. Ended sessions '
  'keep it, so that a device is known as long as one of its sessions is stored.';
-- Queries for the sessions of a user. Operators have no school, and no index finds null by "is not distinct from".
create index session_user_idx on platform.session (coalesce(tenant_id, 0), user_id);

alter table platform.login_throttle
  add column login bytea,
  add column budget text not null default 'account'
    constraint login_throttle_budget_check
      check (budget in ('account', 'address', 'address_per_hour', 'known_devices', 'own_password'));
comment on table platform.login_throttle is
  'Login attempts per account and per source. A row whose budget is spent refuses more attempts until its window ends '
  '(core.login_attempt).';
comment on column platform.login_throttle.account is
  'SHA-256 of the school, the email address, the budget and, for an address, the address. Rows of earlier versions '
  'have only the first two.';
comment on column platform.login_throttle.login is
  'SHA-256 of the school and the email address, to delete all rows of an account; null in rows of earlier versions.';
create index login_throttle_login_idx on platform.login_throttle (login);
