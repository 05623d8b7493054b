-- A transaction that adds or removes people remembers the new counts, so that core.enforce_plan_limits need not read
-- them again.

-- @allow replace-function: it also does what it did; the previous release ignores the setting.
create or replace function count_usage() returns trigger language plpgsql set search_path from current as $$
declare
  v_change integer := 0;
  v_usage school_usage;
begin
  if tg_table_name = 'class' then
    if tg_op = 'INSERT' then
      v_change := (select count(*) from added);
    else
      v_change := -(select count(*) from removed);
    end if;
  else
    if tg_op <> 'DELETE' then
      v_change := (select count(*) from added where is_active and deleted_at is null);
    end if;
    if tg_op <> 'INSERT' then
      v_change := v_change - (select count(*) from removed where is_active and deleted_at is null);
    end if;
  end if;
  if v_change <> 0 then
    update school_usage
      set
        students = students + case tg_table_name when 'student' then v_change else 0 end,
        teachers = teachers + case tg_table_name when 'teacher' then v_change else 0 end,
        classes = classes + case tg_table_name when 'class' then v_change else 0 end
      returning * into v_usage;
    perform set_config('app.school_usage', format('{%s,%s,%s,%s}', substr(tg_table_schema, 8), v_usage.students,
      v_usage.teachers, v_usage.classes), true);
  end if;
  return null;
end $$;
comment on function count_usage() is
  'Adds the rows that a statement added or removed to school_usage, and keeps the new counts in app.school_usage until '
  'the end of the transaction (core.tenant_size).';
