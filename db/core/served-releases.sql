-- The earlier releases whose processes can use these functions. `npm run release` writes this file.

create function core.served_fingerprints() returns text[] language sql immutable
  return array[
    'ea109ea18c0dc404d005bd17411fd81d1f0a768747b3c630865defdb7e1a8bf3', -- 1.0.0-rc.1
    'ad9177be691272b663c4e6bb062474e6f6c1aa97b6e04912c40c79f8c566ff96' -- 1.0.0-rc.2
  ]::text[];
comment on function core.served_fingerprints is
  'The fingerprints of the earlier releases whose processes these functions serve, during an upgrade and a rollback.';
