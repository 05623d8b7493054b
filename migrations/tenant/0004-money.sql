-- What students owe and what was paid.

create table fee_structure (
  id bigserial primary key,
  name text not null constraint fee_structure_name_check check (length(name) between 1 and 100),
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  description text,
  due_date date,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table fee_structure is 'What a year costs.';
create unique index fee_structure_name_key on fee_structure (academic_year_id, lower(name));

create table student_fee (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  fee_structure_id bigint not null references fee_structure (id) on delete restrict,
  amount numeric(12,2) not null constraint student_fee_amount_check check (amount >= 0),
  paid_amount numeric(12,2) not null default 0 constraint student_fee_paid_amount_check check (paid_amount between 0 and amount),
  due_date date not null,
  status text not null default 'pending' constraint student_fee_status_check check (status in ('pending', 'partially_paid', 'paid', 'overdue', 'waived')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table student_fee is 'What a student owes of a fee structure, and what of it is paid.';
create index student_fee_student_id_idx on student_fee (student_id, due_date);
create index student_fee_fee_structure_id_idx on student_fee (fee_structure_id);
create index student_fee_status_idx on student_fee (status, due_date);
create policy students_see_themselves on student_fee as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint);

create table fee_payment (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  student_fee_id bigint not null references student_fee (id) on delete restrict,
  amount numeric(12,2) not null constraint fee_payment_amount_check check (amount <> 0),
  payment_date date not null,
  payment_method text not null,
  reference_number text,
  reversal_of bigint references fee_payment (id) on delete restrict,
  recorded_by bigint references user_account (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint fee_payment_reversal_of_check check ((amount < 0) = (reversal_of is not null))
);
comment on table fee_payment is e'A payment of a student fee; a reversal is a record of its own, with a negative amount.\n@grants select, insert';
create index fee_payment_student_id_idx on fee_payment (student_id, payment_date);
create index fee_payment_student_fee_id_idx on fee_payment (student_fee_id);
create unique index fee_payment_reversal_of_key on fee_payment (reversal_of);
create index fee_payment_payment_date_idx on fee_payment (payment_date);
create index fee_payment_recorded_by_idx on fee_payment (recorded_by);
create policy students_see_themselves on fee_payment as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint);
