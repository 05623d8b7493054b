-- Templates say what their notifications open.

alter table notification_template add column action_url text;
comment on column notification_template.action_url is
  'What a notification with this template opens, unless the sender says otherwise: a path, or an address.';
