--! Previous: sha1:92ee4f2ab1e000e1202278441fb3c47834a111e7
--! Hash: sha1:6d56052a41d7881fc0b4a39a4422ac61d61a3996
--! Message: end-the-streams-of-operators

-- Operators have streams too.
create or replace trigger notify_ended after update of revoked_at on platform.session
  for each row when (old.revoked_at is null and new.revoked_at is not null)
  execute function platform.notify_ended();
