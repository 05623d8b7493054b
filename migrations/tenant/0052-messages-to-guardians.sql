-- Messages to guardians: which events they have turned off, and because of which links a message is sent.

create table guardian_muted_event (
  id bigserial primary key,
  guardian_id bigint not null references guardian (id) on delete cascade,
  event text not null
    constraint guardian_muted_event_event_check check (length(event) between 1 and 100),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table guardian_muted_event is 'The events of the catalog of which a guardian gets no messages.';
create unique index guardian_muted_event_event_key on guardian_muted_event (guardian_id, event);
create policy guardians_choose_themselves on guardian_muted_event as restrictive
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or guardian_id = (select nullif(current_setting('app.guardian_id', true), '')::bigint)
  );

alter table notification_delivery add column link_ids bigint[];
comment on column notification_delivery.link_ids is
  'The rows of student_guardian because of which a guardian gets the message. It is dropped if one of them ends before '
  'it is sent.';
