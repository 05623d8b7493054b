-- What makes money quick to search and to add up, and the switch of the reminders.

alter table school add invoice_reminders boolean not null default true;
comment on column school.invoice_reminders is 'Whether overdue invoices are reminded of by themselves.';

alter table student_fee add items_digest uuid;
-- Fees that are there get theirs while the table is written anew, without an update of each: no trigger takes that for an edit, no index hears of it
-- row by row, and nothing is left to vacuum. Of 80,000 fees an update took twice as long, and left a table of twice the size.
create function digest_of_items(p_student_fee_id bigint) returns uuid language sql stable set search_path from current as $$
  select md5(json_agg(json_build_array(name, amount) order by id)::text)::uuid from student_fee_item where student_fee_id = p_student_fee_id;
$$;
alter table student_fee
  alter items_digest type uuid using coalesce(digest_of_items(id), gen_random_uuid()),
  alter items_digest set default gen_random_uuid(),
  alter items_digest set not null;
drop function digest_of_items(bigint);
comment on column student_fee.items_digest is 'Fees whose items have the same names and amounts in the same order have the same, so that who adds up reads the items of one of them.';

create index student_fee_amount_idx on student_fee (amount, id);
create index student_fee_balance_idx on student_fee ((case when status = 'waived' then 0 else amount - paid_amount end), id);

alter table payment
  add search_text text not null generated always as (platform.search_normal(coalesce(receipt_number, '') || ' ' || coalesce(reference_number, ''))) stored;
create index payment_search_idx on payment using gin (search_text public.gin_trgm_ops) with (fastupdate = off);
