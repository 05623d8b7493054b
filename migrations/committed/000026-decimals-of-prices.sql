--! Previous: sha1:896d3fb3caf7f41dce7131c033cd4de2f07f3871
--! Hash: sha1:c768c015b44d5a087b4b74710b2253b9e7b7826a
--! Message: Decimals of prices

-- Prices of plans, and the amounts of analysts, have as many decimals as their currency: none in yen, three in Kuwaiti
-- dinars. A numeric without a scale stores the same bytes, so no table is written again.
-- Views and functions of the earlier release read these columns, and serve requests meanwhile. The views are created
-- again, with their comments and privileges. A function with the body `return …` depends on the columns that it names,
-- and gets the same body as text, which does not. The next installation replaces both.
do $$
declare
  v_search_path text := current_setting('search_path');
  v_views jsonb := '[]';
  v_view record;
  v_function record;
  v_statement text;
begin
  -- The definitions below then name all schemas.
  perform set_config('search_path', 'pg_catalog, pg_temp', true);
  for v_view in
    select
      c.oid,
      c.oid::regclass::text as name,
      format('create view %s%s as %s', c.oid::regclass,
        ' with (' || nullif(array_to_string(c.reloptions, ', '), '') || ')', pg_get_viewdef(c.oid)) as definition,
      array_remove(
        array(
          select format('grant %s on %s to %s', a.privilege_type, c.oid::regclass,
            case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
          from aclexplode(c.relacl) a
          where a.grantee <> c.relowner
        )
        || format('comment on view %s is %L', c.oid::regclass, obj_description(c.oid, 'pg_class'))
        || array(
          select format('comment on column %s.%I is %L', c.oid::regclass, a.attname, d.description)
          from pg_description d
          join pg_attribute a on a.attrelid = c.oid and a.attnum = d.objsubid
          where d.objoid = c.oid and d.classoid = 'pg_class'::regclass and d.objsubid > 0
        ),
        null) as statements
    from pg_class c
    where c.relkind = 'v' and c.oid in (
      select r.ev_class
      from pg_depend d
      join pg_rewrite r on r.oid = d.objid
      join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
      where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
        and (
          d.refobjid = 'platform.plan'::regclass and a.attname = 'price_monthly'
          or d.refobjid in ('mart.fee_month'::regclass, 'mart.payment_day'::regclass)
            and a.atttypid = 'numeric'::regtype))
    order by 2
  loop
    v_views := v_views || jsonb_build_array(to_jsonb(v_view));
    execute format('drop view %s', v_view.name);
  end loop;
  for v_function in
    select f.oid, pg_get_functiondef(f.oid) as definition, pg_get_function_sqlbody(f.oid) as body
    from pg_proc f
    where f.oid in (
      select d.objid
      from pg_depend d
      join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
      where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_class'::regclass
        and d.refobjid = 'platform.plan'::regclass and a.attname = 'price_monthly')
  loop
    execute replace(v_function.definition, v_function.body,
      format('as %L', regexp_replace(v_function.body, '^\s*return\M', 'select', 'i')));
  end loop;
  alter table platform.plan
    drop constraint plan_price_monthly_check,
    alter column price_monthly type numeric,
    add constraint plan_price_monthly_check
      check (price_monthly >= 0 and price_monthly < 10000000000 and price_monthly = round(price_monthly, 4));
  alter table mart.fee_month
    alter column billed type numeric,
    alter column waived type numeric,
    alter column collected type numeric,
    alter column overdue type numeric;
  alter table mart.payment_day
    alter column amount type numeric,
    alter column reversed type numeric;
  for v_view in select * from jsonb_to_recordset(v_views) v (definition text, statements text[]) loop
    execute v_view.definition;
    foreach v_statement in array v_view.statements loop
      execute v_statement;
    end loop;
  end loop;
  perform set_config('search_path', v_search_path, true);
end $$;
