-- The school itself: its details, master data, academic years, terms, holidays and subjects.

create table school (
  id boolean primary key default true
    constraint school_id_check check (id),
  address text,
  phone text,
  email text,
  website text,
  logo_id bigint references file (id) on delete set null,
  currency text not null default 'USD'
    constraint school_currency_check check (currency ~ '^[A-Z]{3}$'),
  invoice_reminders boolean not null default true,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table school is
  'Details of the school. One row, created by the school setup. The name is in platform.tenant.';
comment on column school.currency is 'ISO 4217.';
comment on column school.invoice_reminders is 'Whether the daily job sends reminders of overdue invoices.';
create index school_logo_id_idx on school (logo_id);

-- Master data: lists that each school maintains. They all have the same columns.
do $$
declare
  v_table text;
  v_comments jsonb := '{
    "school_unit": "A part of the school with its own classes, for example \"Primary\".",
    "programme": "A course of study, for example \"Science\".",
    "medium": "A language of instruction.",
    "religion": "A religion of students.",
    "subject_context": "A kind of subject, for example \"Core\" or \"Elective\".",
    "document_type": "A kind of student document, for example \"Birth certificate\"."
  }';
begin
  for v_table in select jsonb_object_keys(v_comments) loop
    execute format($sql$
      create table %1$I (
        id bigserial primary key,
        name text not null constraint %2$I check (length(name) between 1 and 100),
        sequence integer,
        description text,
        created_at timestamptz not null default now(),
        updated_at timestamptz not null default now()
      );
      comment on table %1$I is %4$L;
      create unique index %3$I on %1$I (lower(name));
    $sql$, v_table, v_table || '_name_check', v_table || '_name_key', v_comments ->> v_table);
  end loop;
end $$;
insert into document_type (name, sequence) values
  ('Birth certificate', 1),
  ('Transfer certificate', 2),
  ('Report card', 3),
  ('Identity document', 4),
  ('Medical record', 5),
  ('Other', 6);

create table grade (
  id bigserial primary key,
  name text not null
    constraint grade_name_check check (length(name) between 1 and 100),
  sequence integer,
  description text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table grade is 'A grade (level), for example "Grade 5". Grades are sorted by sequence.';
create unique index grade_name_key on grade (lower(name));

create table academic_year (
  id bigserial primary key,
  name text not null
    constraint academic_year_name_check check (length(name) between 1 and 100),
  start_date date not null,
  end_date date not null,
  is_current boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint academic_year_end_date_check check (end_date > start_date),
  constraint academic_year_length_check check (end_date < start_date + interval '2 years'),
  constraint academic_year_start_date_excl exclude using gist (daterange(start_date, end_date, '[]') with &&)
);
comment on table academic_year is 'An academic year. Years do not overlap, and one of them is the current year.';
create unique index academic_year_name_key on academic_year (lower(name));
create unique index academic_year_is_current_key on academic_year (is_current) where is_current;

create table term (
  id bigserial primary key,
  name text not null
    constraint term_name_check check (length(name) between 1 and 100),
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  start_date date not null,
  end_date date not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint term_end_date_check check (end_date > start_date),
  constraint term_start_date_excl exclude using gist (
    academic_year_id with =,
    daterange(start_date, end_date, '[]') with &&
  )
);
comment on table term is 'A term of an academic year. The terms of a year do not overlap.';
create unique index term_name_key on term (academic_year_id, lower(name));

-- A term must lie inside its academic year. This trigger checks the term; the next one checks the year.
create function term_inside_year() returns trigger language plpgsql set search_path from current as $$
begin
  -- The lock serializes this with a concurrent change of the year.
  perform from academic_year where id = new.academic_year_id for share;
  if exists (
    select from academic_year y
    where y.id = new.academic_year_id and (new.start_date < y.start_date or new.end_date > y.end_date)
  ) then
    raise exception using errcode = 'check_violation', table = 'term',
      constraint = case
        when new.start_date < (select start_date from academic_year where id = new.academic_year_id)
          then 'term_start_date_check'
        else 'term_end_date_check'
      end,
      message = 'The term must lie inside its academic year.';
  end if;
  return new;
end $$;
create trigger inside_year before insert or update of academic_year_id, start_date, end_date on term
  for each row execute function term_inside_year();

create function academic_year_around_terms() returns trigger language plpgsql set search_path from current as $$
begin
  if exists (
    select from term t
    where t.academic_year_id = new.id and (t.start_date < new.start_date or t.end_date > new.end_date)
  ) then
    raise exception using errcode = 'check_violation', table = 'academic_year',
      constraint = case
        when exists (select from term t where t.academic_year_id = new.id and t.start_date < new.start_date)
          then 'academic_year_start_date_check'
        else 'academic_year_end_date_check'
      end,
      message = 'A term of this academic year lies outside these dates.';
  end if;
  return new;
end $$;
create trigger around_terms before update of start_date, end_date on academic_year
  for each row execute function academic_year_around_terms();

create table holiday (
  id bigserial primary key,
  name text not null
    constraint holiday_name_check check (length(name) between 1 and 100),
  date date not null,
  is_recurring boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table holiday is 'A day without school. A recurring holiday is on the same day of every year.';
create unique index holiday_name_key on holiday (lower(name), date);
create index holiday_date_idx on holiday (date);

create table subject (
  id bigserial primary key,
  name text not null
    constraint subject_name_check check (length(name) between 1 and 100),
  code text not null
    constraint subject_code_check check (length(code) between 1 and 50),
  subject_context_id bigint references subject_context (id) on delete restrict,
  description text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table subject is 'A subject that the school teaches.';
create unique index subject_code_key on subject (lower(code));
create index subject_subject_context_id_idx on subject (subject_context_id);

create table grade_subject (
  grade_id bigint not null references grade (id) on delete cascade,
  subject_id bigint not null references subject (id) on delete cascade,
  periods_per_week integer not null
    constraint grade_subject_periods_per_week_check check (periods_per_week between 1 and 60),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (grade_id, subject_id)
);
comment on table grade_subject is 'The template for new classes of a grade: their subjects and the periods per week.';
create index grade_subject_subject_id_idx on grade_subject (subject_id);
