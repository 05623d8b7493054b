--! Previous: sha1:b5b9ac5ea7be578a3b2187a9118ae6aa6df0d00c
--! Hash: sha1:fe272eb0e37c046b3081a11cb771c7cb778611bc
--! Message: refresh token retirement

-- Refresh tokens are retired by the first use of a successor, not by their own use.

alter table platform.refresh_token
  add column predecessor_hash bytea
    constraint refresh_token_predecessor_hash_fkey references platform.refresh_token (hash) on delete set null,
  add column retired_at timestamptz;
create index refresh_token_predecessor_hash_idx on platform.refresh_token (predecessor_hash);

-- Until now a token was retired when it was used.
update platform.refresh_token set retired_at = used_at where used_at is not null;

comment on table platform.refresh_token is
  'The refresh tokens of each session, by SHA-256. Retired tokens are kept, so that the reuse of a stolen token is '
  'detected.';
comment on column platform.refresh_token.predecessor_hash is
  'The token that was exchanged for this one; null for the token of the login.';
comment on column platform.refresh_token.used_at is 'When the token was first exchanged.';
comment on column platform.refresh_token.retired_at is
  'When one of its successors was first exchanged. From then on its use ends the session.';
