--! Previous: sha1:0299b8d6905bf890ac5a2874b6455701e9c6e447
--! Hash: sha1:a8b2b33ef847b021e54b3b70792fd37fc8e0cfbe
--! Message: tenants-behind-index

-- Readiness counts the schools that are not migrated yet, at every check. Usually there is none.

create index tenant_schema_version_idx on platform.tenant (schema_version)
  where not (status = 'deleted' and schema_version = 0);
