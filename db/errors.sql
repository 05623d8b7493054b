-- Which errors each operation raises by name: core.fail and core.refuse_field in its function, and in the functions of api and core
-- that those name, however far; and what triggers raise, by the tables that they write. What constraints raise stands in
-- src/http/openapi.ts.
with recursive body as (
  select p.oid, (n.nspname || '.' || p.proname) collate "default" as name, case when p.prosqlbody is null then p.prosrc else pg_get_functiondef(p.oid) end as text
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace and n.nspname in ('api', 'core') and p.prokind = 'f'
),
-- The dispatcher's own are those of the way to every operation.
called as materialized (
  select distinct b.name, c[1] as other from body b, regexp_matches(b.text, '\m((?:api|core)\.\w+)\(', 'g') c where c[1] <> b.name
  union
  -- Lists and updates read the record by its name.
  select distinct b.name, 'api.' || r.reader from body b, regexp_matches(b.text, 'core\.record_update\(''(\w+)''', 'g') c join core.record r on r.name = c[1]
),
raised as materialized (
  select distinct b.name, e[1] as error from body b, regexp_matches(b.text, 'core\.(?:fail|refuse_field)\(''(\w+)''', 'g') e
  union
  select b.name, t.error
  from body b join (values
    ('\m(update|insert into) timetable_slot\M|core\.record_(insert|update)\(''timetable_slot''|core\.record_update\(''class''', 'schedule_conflict'),
    ('\mupdate (platform\.tenant|platform\.subscription|teacher_leave|invoice|transport_enrollment)\M|core\.record_update\(''(teacher_leave|invoice)''', 'invalid_state')) t (pattern, error) on b.text ~ t.pattern
),
reached as (
  select o.name as operation, ('api.' || o.name) collate "default" as name from core.operation o
  union
  select r.operation, c.other from reached r join called c on c.name = r.name
)
update core.operation o set errors = found.errors
from (
  select r.operation, array_agg(distinct e.error order by e.error) as errors
  from reached r join raised e on e.name = r.name join core.error known on known.name = e.error
  group by r.operation
) found
where found.operation = o.name;
