-- Calendar feeds: addresses by which calendar programs read a schedule, without a log-in.

create table calendar_feed (
  id bigserial primary key,
  user_id bigint not null references user_account (id) on delete cascade,
  kind text not null constraint calendar_feed_kind_check check (kind in ('own', 'class', 'teacher', 'holidays')),
  class_id bigint references class (id) on delete cascade,
  teacher_id bigint references teacher (id) on delete cascade,
  token_hash text not null constraint calendar_feed_token_hash_check check (token_hash ~ '^[0-9a-f]{64}$'),
  last_used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint calendar_feed_class_id_check check ((class_id is not null) = (kind = 'class')),
  constraint calendar_feed_teacher_id_check check ((teacher_id is not null) = (kind = 'teacher'))
);
comment on table calendar_feed is 'An address by which a calendar program reads what its user may read, for as long as they may. Whoever knows the token has it: app.feed is the hash of the one that was shown.';
comment on column calendar_feed.token_hash is 'SHA-256 of the secret in the address, in hex; the secret itself is kept nowhere.';
comment on column calendar_feed.last_used_at is 'Noted once an hour at most.';
create unique index calendar_feed_token_hash_key on calendar_feed (token_hash);
create index calendar_feed_user_id_idx on calendar_feed (user_id, id);
create index calendar_feed_class_id_idx on calendar_feed (class_id);
create index calendar_feed_teacher_id_idx on calendar_feed (teacher_id);
create policy people_have_their_own on calendar_feed as restrictive
  using (user_id = nullif(current_setting('app.user_id', true), '')::bigint or token_hash = nullif(current_setting('app.feed', true), '')
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null);
