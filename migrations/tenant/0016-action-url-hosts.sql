-- The hosts to which notifications of the school may link.

alter table school add column action_url_hosts text[] not null default '{}'
  constraint school_action_url_hosts_check check (cardinality(action_url_hosts) <= 50);
comment on column school.action_url_hosts is
  'Hosts that the action_url of a notification may name, besides those of the school, of the app and of the service.';
