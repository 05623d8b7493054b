--! Previous: sha1:0e4bc927be832a9a02c66f4335bb4e154128c3cd
--! Hash: sha1:556ae38507a3ef44652d82c8d055692bd33038ee
--! Message: rights of guardians

-- The rights of guardians, who see the rows of their children.

alter table platform.session
  add column children_permissions text[] not null default '{}',
  add column guardian_permissions text[] not null default '{}';
comment on column platform.session.children_permissions is
  'The permissions that the user has only by the role guardian, limited to their children.';
comment on column platform.session.guardian_permissions is
  'The permissions of the role guardian, if the user has it. Others may grant them, too.';
