-- @optional: the deliveries that are due are found without this index, only more slowly.
-- The worker reads the next deliveries of each webhook, so that those of a slow one do not come first.
create index webhook_delivery_due_idx on webhook_delivery (webhook_id, next_attempt_at, id) where status = 'pending';
