--! Previous: sha1:fe272eb0e37c046b3081a11cb771c7cb778611bc
--! Hash: sha1:0299b8d6905bf890ac5a2874b6455701e9c6e447
--! Message: subscription life cycle

-- The life cycle of a subscription: a grace period after its end, and a trial that operators can start again.
-- Until now nothing ended a period. Subscriptions whose period has ended get a full month, and ended trials get the
-- grace period, so that an upgrade of the service cancels nobody.

alter table platform.subscription add column grace_days integer not null default 14
  constraint subscription_grace_days_check check (grace_days between 0 and 365);
comment on column platform.subscription.status is
  'The status that the daily work or a request has stored. core.current_subscription derives the current one from the '
  'dates.';
comment on column platform.subscription.current_period_end is
  'When the trial or the paid period ends or ended; after a cancellation, when it took effect.';
comment on column platform.subscription.grace_days is
  'How many days after the end of its period the subscription is past_due before it is cancelled.';

insert into platform.state_transition (entity, action, from_state, to_state) values
  ('subscription', 'start_trial', 'past_due', 'trialing');

update platform.subscription s set current_period_end = t.trial_ends_at
  from platform.tenant t
  where t.id = s.tenant_id and s.status = 'trialing' and t.trial_ends_at is not null;
update platform.subscription
  set current_period_end = now() + case when status = 'active' then interval '1 month' else interval '0' end
  where status <> 'cancelled' and current_period_end < now();
