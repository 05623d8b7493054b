--! Previous: sha1:7ec9d75e7e68c20fee6409bd7bc4e5b06c6bdbfa
--! Hash: sha1:5895ec68448c30364ee48393729db673d749f925
--! Message: Due deliveries of webhooks

-- The worker reads the next deliveries of each webhook, so that those of a slow one do not come first.
create index webhook_delivery_due_idx on platform.webhook_delivery (webhook_id, next_attempt_at, id)
  where status = 'pending';
