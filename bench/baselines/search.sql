-- $1 pattern, $2 page size
with matching as materialized (
  select *
  from school.student
  where deleted_at is null and search_text like $1
)
select json_build_object(
  'data', (
    select coalesce(json_agg(record), '[]')
    from (
      select
        s.id, s.first_name, s.last_name, s.roll_number, s.admission_number, s.date_of_birth, s.gender, s.email,
        s.phone, s.class_id, c.name || coalesce(' ' || c.section, '') as class_name, c.academic_year_id,
        s.grade_id, g.name as grade_name, s.religion_id, r.name as religion_name,
        s.parent_name, s.parent_phone, s.parent_email, s.address, s.is_active, s.left_on, s.leaving_reason,
        s.user_id, s.deleted_at, s.created_at, s.updated_at
      from matching s
      left join school.class c on c.id = s.class_id
      left join school.grade g on g.id = s.grade_id
      left join school.religion r on r.id = s.religion_id
      order by platform.search_normal(s.last_name), platform.search_normal(s.first_name), s.id
      limit $2
    ) record),
  'pagination', (
    select json_build_object(
      'page', 1, 'pageSize', $2::integer, 'totalItems', count(*), 'totalPages', ceil(count(*) / $2::numeric)::integer)
    from matching))
