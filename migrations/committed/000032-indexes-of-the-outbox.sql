--! Previous: sha1:a22d6c8cfcea75bb2fd95632a61ea0fbf1f405b6
--! Hash: sha1:35a357e80e788647d5b095c6b01aad48dd7cf28b
--! Message: indexes of the outbox

-- The look-ups of the worker. An index for rows that were not tried yet, and one for those that wait for another
-- attempt, so that the worker passes over none of them.
-- @allow index: the worker deletes the rows within a second, so the table is almost empty
create index outbox_new_idx on platform.outbox (tenant_id, id) where retry_at is null;
-- @allow index: the worker deletes the rows within a second, so the table is almost empty
create index outbox_retry_idx on platform.outbox (tenant_id, retry_at) where retry_at is not null;
-- Few rows, among perhaps thousands of others.
-- @allow index: the worker deletes the rows within a second, so the table is almost empty
create index outbox_written_idx on platform.outbox (tenant_id, id) where written > 0;
-- @allow index: the worker deletes the rows within a second, so the table is almost empty
create index outbox_webhooks_idx on platform.outbox (tenant_id) where event = 'webhooks';
drop index platform.outbox_tenant_id_idx;
