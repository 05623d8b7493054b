--! Previous: sha1:6d56052a41d7881fc0b4a39a4422ac61d61a3996
--! Hash: sha1:251cec5ae3cb88024f73d2ae412d82ba3f66a4d8
--! Message: node-reachability

-- Whether the nodes answer, as the home last saw it (docs/decisions/0044-nodes.md).

alter table platform.node add column answered_at timestamptz;
comment on column platform.node.answered_at is
  'At home: when the node last answered the check of the worker; null before the first answer.';
alter table platform.node add column unreachable_since timestamptz;
comment on column platform.node.unreachable_since is
  'At home: the first check of the worker that the node did not answer since its last answer; null if it answers.';

-- Checks are no changes of the node.
create or replace trigger touch before update of name, url, status on platform.node
  for each row execute function platform.touch_updated_at();
