--! Previous: sha1:fe8edc7528496cdacaf941b5aa670991d76b688b
--! Hash: sha1:6fff258dcd70fe698d4ba6908427f7b37353c6f8
--! Message: undone-changes

-- A statement that sets updated_at itself is obeyed, so that core.undo_at_home can take back a change of the home
-- completely. Otherwise the version of the school at home would differ from that on its node.
create or replace trigger touch before update on platform.tenant
  for each row when (new.updated_at is not distinct from old.updated_at)
  execute function platform.touch_updated_at();
