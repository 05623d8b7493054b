--! Previous: sha1:251cec5ae3cb88024f73d2ae412d82ba3f66a4d8
--! Hash: sha1:0bc711954747f181fd1ee3bcde4a134e26aa4e2a
--! Message: node-queues

-- The queues of the nodes, as the home last saw them (docs/decisions/0044-nodes.md).

alter table platform.node add column queue json;
comment on column platform.node.queue is
  'At home: the jobs of the node at its last answer to the check of the worker, as core.queue returns them.';
