-- Guardians: who they are to a student on a day. Decision 0074.

-- Postgres inlines it.
create function core.is_linked(p_starts_on date, p_ends_on date, p_removed_at timestamptz, p_day date) returns boolean
  language sql immutable parallel safe
  return p_removed_at is null and coalesce(p_starts_on <= p_day, true) and coalesce(p_ends_on >= p_day, true);
comment on function core.is_linked is 'Whether the link between a guardian and a student holds on a day.';

create function core.children(p_guardian_id bigint) returns table (student_id bigint, can_see_contacts boolean)
  language sql stable as $$
  select l.student_id, l.can_see_contacts
  from student_guardian l
  join student s on s.id = l.student_id and s.deleted_at is null
  where l.guardian_id = p_guardian_id
    and l.can_see_records
    and core.is_linked(l.starts_on, l.ends_on, l.removed_at, (select core.today()));
$$;
comment on function core.children is
  'The students whose records a guardian may see today, and whether also the contacts of other guardians.';

create function core.may_receive(p_link_ids bigint[]) returns boolean language sql stable as $$
  select count(*) = cardinality(p_link_ids)
  from student_guardian l
  where l.id = any (p_link_ids)
    and l.receives_messages
    and core.is_linked(l.starts_on, l.ends_on, l.removed_at, core.today());
$$;
comment on function core.may_receive is
  'Whether all of these links of a guardian still let the school write to the guardian today.';

create function core.joined_names(p_names text[]) returns text language sql immutable
  return case when cardinality(p_names) < 2 then p_names[1]
    else array_to_string(p_names[:cardinality(p_names) - 1], ', ') || ' and ' || p_names[cardinality(p_names)] end;
comment on function core.joined_names is 'Names as a text lists them: Ada, Ben and Cem.';
