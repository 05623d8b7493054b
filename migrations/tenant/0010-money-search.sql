-- What makes money quick to search and to add up, and the switch of the reminders.

alter table school add invoice_reminders boolean not null default true;
comment on column school.invoice_reminders is 'Whether overdue invoices are reminded of by themselves.';

alter table student_fee add items_digest uuid not null default gen_random_uuid();
comment on column student_fee.items_digest is 'Fees whose items have the same names and amounts in the same order have the same, so that who adds up reads the items of one of them.';
-- Fees that are there get theirs; to nobody does that look like an edit.
alter table student_fee disable trigger user;
update student_fee f set items_digest = i.digest
  from (select student_fee_id, md5(json_agg(json_build_array(name, amount) order by id)::text)::uuid as digest from student_fee_item group by student_fee_id) i
  where i.student_fee_id = f.id;
alter table student_fee enable trigger user;

create index student_fee_amount_idx on student_fee (amount, id);
create index student_fee_balance_idx on student_fee ((case when status = 'waived' then 0 else amount - paid_amount end), id);

alter table payment
  add search_text text not null generated always as (platform.search_normal(coalesce(receipt_number, '') || ' ' || coalesce(reference_number, ''))) stored;
create index payment_search_idx on payment using gin (search_text public.gin_trgm_ops) with (fastupdate = off);
