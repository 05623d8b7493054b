--! Previous: sha1:f2e0087fb80e4b6cd5c4ca095e8c3ac1df30e4a8
--! Hash: sha1:896d3fb3caf7f41dce7131c033cd4de2f07f3871
--! Message: Due deliveries of webhooks

-- The worker reads the next deliveries of each webhook, so that those of a slow one do not come first.
create index webhook_delivery_due_idx on platform.webhook_delivery (webhook_id, next_attempt_at, id)
  where status = 'pending';
