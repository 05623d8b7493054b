-- Under a session of an operator who acts for a user (app.impersonator_id) nobody's log-in changes: who can log in, by what address and password,
-- with which roles, who gets messages on which device, who reads which calendar. Nor does what tells the school of such sessions. On the tables, so
-- that no endpoint can be forgotten.

create function refuse_impersonator() returns trigger language plpgsql set search_path from current as $$
begin
  raise exception using errcode = 'S403A', message = 'An operator who is logged in for a user may not change log-ins, passwords, roles, devices, calendar feeds or what the school is told of this.';
end $$;
comment on function refuse_impersonator is 'Refuses a change of what an operator who acts for a user must not change.';

create trigger refuse_impersonator before insert or delete on user_account for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null) execute function refuse_impersonator();
create trigger refuse_impersonator_to_change before update on user_account for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null
    and (old.email, old.password_hash, old.email_verified_at, old.is_active, old.deleted_at) is distinct from (new.email, new.password_hash, new.email_verified_at, new.is_active, new.deleted_at))
  execute function refuse_impersonator();
create trigger refuse_impersonator before insert or update or delete on role for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null) execute function refuse_impersonator();
create trigger refuse_impersonator before insert or update or delete on role_permission for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null) execute function refuse_impersonator();
create trigger refuse_impersonator before insert or update or delete on user_role for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null) execute function refuse_impersonator();
create trigger refuse_impersonator before insert or update or delete on device for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null) execute function refuse_impersonator();
create trigger refuse_impersonator before insert or update or delete on calendar_feed for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null) execute function refuse_impersonator();
create trigger refuse_impersonator before update or delete on notification for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null and old.type = 'operator.login') execute function refuse_impersonator();
create trigger refuse_impersonator before insert or update on notification_event for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null and new.event = 'operator.login') execute function refuse_impersonator();
create trigger refuse_impersonator before insert or update on notification_template for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null and lower(new.name) = 'operator.login') execute function refuse_impersonator();
create trigger refuse_impersonator_to_change before update or delete on notification_template for each row
  when (nullif(current_setting('app.impersonator_id', true), '') is not null and lower(old.name) = 'operator.login') execute function refuse_impersonator();
