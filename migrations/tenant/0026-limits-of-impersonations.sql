-- An operator who is logged in as a user may change only the tables and columns that core.impersonation_change lists.
-- core.admit puts the list into app.impersonator_may, and core.tenant_secure adds the trigger to every table. The
-- triggers refuse_impersonator stay: they protect single rows, and all of the tables if an earlier release runs again,
-- which has no list.

create function limit_impersonator() returns trigger language plpgsql set search_path from current as $$
declare
  v_list jsonb := nullif(current_setting('app.impersonator_may', true), '')::jsonb;
  v_rule jsonb := v_list -> tg_table_name;
  v_refused text;
begin
  if v_list is null then
    return coalesce(new, old);
  elsif v_rule -> 'verbs' ? lower(tg_op) and (tg_op <> 'UPDATE' or not v_rule ? 'columns') then
    return coalesce(new, old);
  elsif tg_op <> 'UPDATE' then
    v_refused := tg_table_name;
  else
    -- A generated column has no value yet.
    select format('%s.%s', tg_table_name, a.attname)
      into v_refused
      from pg_attribute a
      where a.attrelid = tg_relid
        and a.attnum > 0
        and not a.attisdropped
        and a.attgenerated = ''
        and a.attname <> 'updated_at'
        and not coalesce(v_rule -> 'columns' ? a.attname, false)
        and to_jsonb(old) -> a.attname is distinct from to_jsonb(new) -> a.attname
      order by a.attnum
      limit 1;
  end if;
  if v_refused is not null then
    raise exception using errcode = 'S403A',
      message = format('An operator cannot change this during an impersonation: %s. An admin of the school must do it.',
        replace(v_refused, '_', ' '));
  end if;
  return coalesce(new, old);
end $$;
comment on function limit_impersonator() is
  'Refuses what an operator who is logged in as a user may not change. An update that changes no value is not refused.';
