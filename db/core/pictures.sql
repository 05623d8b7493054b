-- The signed addresses of pictures. src/http/credentials/picture-addresses.ts makes the keys and verifies addresses.

-- HMAC-SHA-256. The key is in the setting app.picture_key as `<expiry> <inner block> <outer block> <address of the
-- service>`. It comes with each request, so that the database stores no key, and it signs only pictures of the school
-- of the request.
create function core.picture_url(p_file_id bigint) returns text language sql stable
  return (
    select split_part(k.key, ' ', 4) || '/api/pictures/' || message.content || '-' || encode(
      sha256(
        decode(split_part(k.key, ' ', 3), 'hex')
          || sha256(decode(split_part(k.key, ' ', 2), 'hex') || convert_to(message.content, 'UTF8'))),
      'hex')
    from (select nullif(current_setting('app.picture_key', true), '') as key) k,
      lateral (
        select concat_ws('-', coalesce(core.tenant_id(), 0), p_file_id, split_part(k.key, ' ', 1)) as content
      ) message
    where p_file_id is not null and k.key is not null
  );
comment on function core.picture_url is
  'The signed address of a picture of this school, which needs no session; null without a file.';

create function core.picture_file_id(p_address text) returns bigint language sql immutable
  return substring(p_address from '^(?:https?://\S+)?/api/pictures/\d+-(\d{1,15})-\d+-[0-9a-f]+$')::bigint;
comment on function core.picture_file_id is
  'The file in the address of a picture, with or without the address of the service; null for any other text. It does '
  'not check the signature.';
