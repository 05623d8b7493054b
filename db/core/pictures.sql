-- The signed addresses of pictures. src/http/credentials/picture-addresses.ts makes the keys and verifies addresses.

-- HMAC-SHA-256. The key is in the setting app.picture_key as `<expiry> <inner block> <outer block>`. It comes with each
-- request, so that the database stores no key, and it signs only pictures of the school of the request.
create function core.picture_url(p_file_id bigint) returns text language sql stable
  return (
    select '/api/pictures/' || message.content || '-' || encode(
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
