-- /api/pictures: profile pictures and logos by signed address. The facade has verified the signature.

select core.define_operation('pictures_get', p_access => 'picture', p_content => 'gives', p_errors => '{not_found}');

create function api.pictures_get(p jsonb) returns json language plpgsql stable as $$
declare
  v_id bigint := (p ->> 'file_id')::bigint;
begin
  if exists (select from user_account where profile_picture_id = v_id and deleted_at is null) then
    return api.file_answer(v_id, 'picture');
  end if;
  -- Operators have no table school.
  if core.tenant_id() is not null then
    if exists (select from school where logo_id = v_id) then
      return api.file_answer(v_id, 'logo');
    end if;
  end if;
  perform core.fail('not_found', 'This picture was replaced or removed.');
end $$;
comment on function api.pictures_get is
  'The picture of a user or the logo of the school: {tenant_id, file_id}, 0 for operators. Raises not_found for any '
  'other file, for example a document.';
