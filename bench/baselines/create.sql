-- $1 first name, $2 last name, $3 date of birth, $4 gender, $5 class, $6 parent's name
with number as (
  insert into school.counter as c (name, value)
    values ('admission_number', 1)
    on conflict (name) do update set value = c.value + 1
    returning value
), added as (
  insert into school.student (admission_number, first_name, last_name, date_of_birth, gender, class_id, parent_name)
    select lpad(value::text, 6, '0'), $1, $2, $3, $4, $5, $6 from number
    returning *
)
select row_to_json(record)
from (
  select
    s.id, s.first_name, s.last_name, s.roll_number, s.admission_number, s.date_of_birth, s.gender, s.email, s.phone,
    s.class_id, c.name || coalesce(' ' || c.section, '') as class_name, c.academic_year_id,
    s.grade_id, g.name as grade_name, s.religion_id, r.name as religion_name,
    s.parent_name, s.parent_phone, s.parent_email, s.address, s.is_active, s.left_on, s.leaving_reason,
    s.user_id, s.deleted_at, s.created_at, s.updated_at
  from added s
  left join school.class c on c.id = s.class_id
  left join school.grade g on g.id = s.grade_id
  left join school.religion r on r.id = s.religion_id
) record
