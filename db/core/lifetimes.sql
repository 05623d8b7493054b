-- Lifetimes and intervals. Postgres inlines these functions, so they cost nothing in a query.

create function core.session_lifetime() returns interval language sql immutable return interval '30 days';
comment on function core.session_lifetime is 'How long a session and its refresh token last after the last refresh.';

create function core.refresh_token_grace() returns interval language sql immutable return interval '10 seconds';
comment on function core.refresh_token_grace is
  'How long the unused successors of a refresh token still work after one of them was used. Browser tabs that refresh '
  'at the same moment get one successor each.';

create function core.impersonation_lifetime() returns interval language sql immutable return interval '10 minutes';
comment on function core.impersonation_lifetime is 'How long an impersonation lasts.';

create function core.login_lockout() returns interval language sql immutable return interval '15 minutes';
comment on function core.login_lockout is
  'The window in which login attempts of an account are counted, and after which it is unlocked.';

create function core.email_interval() returns interval language sql immutable return interval '2 minutes';
comment on function core.email_interval is 'The shortest time between two emails to a user for the same purpose.';

create function core.idempotency_key_lifetime() returns interval language sql immutable return interval '24 hours';
comment on function core.idempotency_key_lifetime is 'How long the answer to an Idempotency-Key is kept.';

create function core.feed_use_interval() returns interval language sql immutable return interval '1 hour';
comment on function core.feed_use_interval is 'How often last_used_at of a calendar feed is updated at most.';

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

create function core.notification_retention() returns interval language sql immutable return interval '1 year';
comment on function core.notification_retention is 'How long notifications are kept.';

create function core.one_time_token_lifetime(p_purpose text) returns interval language sql immutable
  return case p_purpose
    when 'password_reset' then interval '1 hour'
    when 'invitation' then interval '168 hours'
    else interval '24 hours'
  end;
comment on function core.one_time_token_lifetime is 'How long the link in an email for a purpose works.';
