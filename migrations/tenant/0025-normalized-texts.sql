-- @optional: rows that are not normalized can be read and changed, but are found only by their earlier form.
-- The service now stores texts in the normalization form NFC. Before, "Économie" could be stored in two forms, which
-- look the same and are different texts. A row whose new text would violate a constraint, such as a code that exists
-- already, stays as it is; `school doctor` lists such rows. Emails come first.
-- The triggers of a table with such rows are disabled meanwhile: they check what users do, and no meaning changes here.
do $$
declare
  v_table record;
  v_column record;
  v_has_rows boolean;
  v_row tid;
begin
  for v_table in
    select
      c.oid::regclass as name,
      array_agg(a.attname order by a.attname <> 'email', a.attnum) as columns,
      -- ASCII is always normalized.
      string_agg(
        format('octet_length(%1$I::text) <> length(%1$I::text) and %1$I::text is not normalized', a.attname), ' or ')
        as condition
    from core.relations_in(current_schema()) c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    where c.relkind = 'r'
      and a.atttypid in ('text'::regtype, 'text[]'::regtype, 'json'::regtype, 'jsonb'::regtype)
    group by c.oid, c.relname
    order by bool_or(a.attname = 'email') desc, c.relname
  loop
    execute format('select exists (select from %s where %s)', v_table.name, v_table.condition) into v_has_rows;
    continue when not v_has_rows;
    execute format('alter table %s disable trigger user', v_table.name);
    for v_column in
      select
        quote_ident(a.attname) as name,
        format('normalize(%I::text)::%s', a.attname, format_type(a.atttypid, null)) as value
      from unnest(v_table.columns) with ordinality c (name, number)
      join pg_attribute a on a.attrelid = v_table.name and a.attname = c.name
      order by c.number
    loop
      begin
        execute format('update %1$s set %2$s = %3$s where %2$s::text is not normalized',
          v_table.name, v_column.name, v_column.value);
      exception when unique_violation or check_violation or exclusion_violation then
        for v_row in
          execute format('select ctid from %s where %s::text is not normalized', v_table.name, v_column.name)
        loop
          begin
            execute format('update %s set %s = %s where ctid = $1', v_table.name, v_column.name, v_column.value)
              using v_row;
          exception when unique_violation or check_violation or exclusion_violation then
            null;
          end;
        end loop;
      end;
    end loop;
    execute format('alter table %s enable trigger user', v_table.name);
  end loop;
end $$;
