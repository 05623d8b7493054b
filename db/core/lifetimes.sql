-- Lifetimes, intervals and limits. Postgres inlines these functions, so they cost nothing in a query.

create function core.session_lifetime() returns interval language sql immutable return interval '30 days';
comment on function core.session_lifetime is 'How long a session and its refresh token last after the last refresh.';

create function core.remembered_device_lifetime() returns interval language sql immutable return interval '30 days';
comment on function core.remembered_device_lifetime is
  'How long logins from a remembered device need no second factor.';

create function core.max_sessions_per_user() returns integer language sql immutable return 20;
comment on function core.max_sessions_per_user is
  'How many sessions a user or operator can have at the same time. The next login ends the oldest one.';

create function core.refresh_token_grace() returns interval language sql immutable return interval '10 seconds';
comment on function core.refresh_token_grace is
  'How long the unused successors of a refresh token still work after one of them was used. Browser tabs that refresh '
  'at the same moment get one successor each.';

create function core.impersonation_lifetime() returns interval language sql immutable return interval '10 minutes';
comment on function core.impersonation_lifetime is 'How long an impersonation lasts.';

create function core.login_lockout() returns interval language sql immutable return interval '15 minutes';
comment on function core.login_lockout is
  'The window in which login attempts at an account from one address are counted, and after which it is unlocked.';

create function core.login_hour() returns interval language sql immutable return interval '1 hour';
comment on function core.login_hour is
  'The window of the budgets that limit the login attempts at an account over a longer time.';

create function core.max_accounts_of_address() returns integer language sql immutable return 20000;
comment on function core.max_accounts_of_address is
  'How many accounts an API process remembers of an address that sends too many failing logins.';

create function core.email_interval() returns interval language sql immutable return interval '2 minutes';
comment on function core.email_interval is 'The shortest time between two emails to a user for the same purpose.';

create function core.idempotency_key_lifetime() returns interval language sql immutable return interval '24 hours';
comment on function core.idempotency_key_lifetime is 'How long the answer to an Idempotency-Key is kept.';

create function core.feed_use_interval() returns interval language sql immutable return interval '1 hour';
comment on function core.feed_use_interval is 'How often last_used_at of a calendar feed is updated at most.';

create function core.api_key_use_interval() returns interval language sql immutable return interval '1 minute';
comment on function core.api_key_use_interval is 'How often last_used_at of an API key is updated at most.';

create function core.max_api_keys_per_user() returns integer language sql immutable return 20;
comment on function core.max_api_keys_per_user is 'How many API keys a user can have.';

create function core.timetable_lease() returns interval language sql immutable return interval '20 seconds';
comment on function core.timetable_lease is 'How long the lease of a timetable generator lasts without a renewal.';

create function core.subscription_period() returns interval language sql immutable return interval '1 month';
comment on function core.subscription_period is 'The length of a paid period of a subscription.';

create function core.revoked_session_retention() returns interval language sql immutable return interval '30 days';
comment on function core.revoked_session_retention is 'How long ended sessions are kept.';

create function core.used_token_retention() returns interval language sql immutable return interval '1 day';
comment on function core.used_token_retention is 'How long one-time tokens are kept after they expire.';

create function core.delivery_retention() returns interval language sql immutable return interval '90 days';
comment on function core.delivery_retention is 'How long deliveries are kept.';

create function core.notification_retention() returns interval language sql immutable return interval '365 days';
comment on function core.notification_retention is 'How long notifications are kept.';

create function core.audit_retention() returns interval language sql immutable return interval '730 days';
comment on function core.audit_retention is 'How long entries of the audit log are kept.';

create function core.usage_retention() returns interval language sql immutable return interval '1095 days';
comment on function core.usage_retention is 'How long the daily usage of schools is kept.';

create function core.failed_job_retention() returns interval language sql immutable return interval '90 days';
comment on function core.failed_job_retention is
  'How long jobs and events of the outbox that have no attempts left are kept.';

create function core.one_time_token_lifetime(p_purpose text) returns interval language sql immutable
  return case p_purpose
    when 'password_reset' then interval '1 hour'
    when 'invitation' then interval '168 hours'
    when 'second_factor' then interval '10 minutes'
    when 'second_factor_enrollment' then interval '10 minutes'
    when 'passkey' then interval '10 minutes'
    else interval '24 hours'
  end;
comment on function core.one_time_token_lifetime is 'How long a one-time token for a purpose works.';

create function core.unconfirmed_address_pause() returns interval language sql immutable return interval '10 minutes';
comment on function core.unconfirmed_address_pause is
  'How long a school sends no other invitation, confirmation or text of a person to an address that nobody has '
  'confirmed.';

create function core.max_unconfirmed_emails_per_day() returns integer language sql immutable return 2000;
comment on function core.max_unconfirmed_emails_per_day is
  'How many invitations, confirmations and texts of people a school sends in a day to addresses that nobody has '
  'confirmed. The others wait for the next day.';

create function core.max_ready_schools() returns integer language sql immutable return 2;
comment on function core.max_ready_schools is
  'The number of ready schools that the worker keeps, of 2.3 MB each. Lowering it removes none.';
