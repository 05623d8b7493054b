import { describe, expect, test } from '@jest/globals';
import { inspectMigration, newHistory, type Rule } from '../../src/database/migrate/migration-rules.ts';

/** Violations of each rule, each with a statement that does the same without harm. Earlier migrations come first. */
const cases: Record<Rule, { violates: string[]; passes: string[]; earlier?: string[] }> = {
  drop: {
    violates: ['drop table student', 'alter table student drop column locker', 'drop function rank(integer)'],
    passes: ['drop table if exists t; create table t (id bigint)', 'drop index student_locker_idx'],
  },
  rename: {
    violates: ['alter table student rename to pupil', 'alter table student rename column locker to box'],
    passes: ['alter index student_locker_idx rename to student_box_idx'],
  },
  'type-change': {
    violates: ['alter table student alter column locker type integer using locker::integer'],
    passes: ['alter table student add column locker_number integer'],
  },
  'set-not-null': {
    earlier: [
      'alter table student add constraint c check (locker is not null) not valid',
      'alter table student validate constraint c',
    ],
    violates: ['alter table student alter column shelf set not null'],
    passes: ['alter table student alter column locker set not null'],
  },
  'facts-column': {
    violates: ['alter table mart.class add column locker text'],
    passes: ['create table mart.locker (tenant_id bigint, locker text)'],
  },
  'not-null-column': {
    violates: ['alter table student add column locker text not null'],
    passes: ["alter table student add column locker text not null default ''"],
  },
  'volatile-default': {
    violates: [
      'alter table student add column token uuid default gen_random_uuid()',
      'alter table student add column place bigserial',
      'alter table student add column place bigint generated always as (id * 2) stored',
    ],
    passes: [
      'alter table student add column seen_at timestamptz not null default now()',
      'create table t (token uuid default gen_random_uuid())',
    ],
  },
  index: {
    violates: [
      'create index i on student (locker); alter table student add column shelf text',
      'create table if not exists t (id bigint);\ncreate index i on t (id)',
    ],
    passes: [
      'create index i on student (locker); create index j on student (shelf)',
      'create index concurrently i on student (locker)',
      'create table t (id bigint); create index i on t (id)',
    ],
  },
  'foreign-key': {
    violates: [
      'alter table student add constraint f foreign key (locker_id) references locker (id) on delete cascade',
      'alter table student add column locker_id bigint default 1 references locker (id)',
    ],
    passes: [
      'alter table student add constraint f foreign key (locker_id) references locker (id) on delete cascade not valid',
      'alter table student add column locker_id bigint references locker (id) on delete set null',
    ],
  },
  check: {
    violates: [
      'alter table student add constraint c check (length(locker) < 9)',
      'alter table student add column locker text check (length(locker) < 9)',
    ],
    passes: ['alter table student add constraint c check (length(locker) < 9) not valid'],
  },
  unique: {
    violates: ['alter table student add constraint u unique (locker)'],
    passes: ['alter table student add constraint u unique using index student_locker_key'],
  },
  validate: {
    violates: [
      `alter table student add constraint c check (locker <> '') not valid;
       alter table student validate constraint c`,
    ],
    passes: ['alter table student validate constraint c'],
  },
  rewrite: {
    violates: ['cluster student', 'vacuum full student', 'alter table student set unlogged'],
    passes: ['analyze student'],
  },
  lock: {
    violates: ['lock table student in share mode', 'truncate student'],
    passes: ['create table t (id bigint); truncate t'],
  },
  'update-all': {
    violates: ["update student set locker = ''", 'delete from student'],
    passes: ["update student set locker = '' where locker is null"],
  },
  'drop-default': {
    violates: ['alter table student alter column locker drop default'],
    passes: ["alter table student alter column locker set default ''"],
  },
  'replace-function': {
    earlier: ["create function rank() returns integer language sql as 'select 1'"],
    violates: ["create or replace function rank() returns integer language sql as 'select 2'"],
    passes: ["create or replace function other_rank() returns integer language sql as 'select 2'"],
  },
  revoke: {
    violates: ['revoke select on student from school_tenant'],
    passes: ['grant select on student to school_tenant'],
  },
};

/** Inspects a migration after the earlier ones. */
async function inspect(text: string, earlier: string[] = []) {
  const history = newHistory();
  for (const one of earlier) await inspectMigration(one, history);
  return inspectMigration(text, history);
}

const rulesOf = async (text: string, earlier?: string[]) =>
  (await inspect(text, earlier)).findings.map(({ rule }) => rule);

const rows = Object.entries(cases);

describe('the migration linter', () => {
  test.each(rows)('finds a violation of the rule %s', async (rule, { violates, earlier }) => {
    for (const text of violates) expect({ text, rules: await rulesOf(text, earlier) }).toEqual({ text, rules: [rule] });
  });

  test.each(rows)('accepts what the rule %s advises', async (_, { passes, earlier }) => {
    for (const text of passes) expect({ text, rules: await rulesOf(text, earlier) }).toEqual({ text, rules: [] });
  });

  test.each(rows)('accepts an exception of the rule %s that has a reason', async (rule, { violates, earlier }) => {
    for (const text of violates) {
      const [found] = (await inspect(text, earlier)).findings;
      const lines = text.split('\n');
      lines.splice((found?.line ?? 1) - 1, 0, `-- @allow ${rule}: no release ever used it`);
      expect({ text, rules: await rulesOf(lines.join('\n'), earlier) }).toEqual({ text, rules: [] });
    }
  });

  test('refuses an exception without a reason, of an unknown rule, and one that has no effect', async () => {
    const { findings, faults } = await inspect(
      `-- @allow drop: because
       drop table student;
       -- @allow everything: the table is always very small
       select 1;

       -- The next comment is two lines above its statement.
       -- @allow rename: nobody ever renames this table
       -- And this is the last one.
       alter table student add column locker text;`,
    );
    expect(findings).toMatchObject([{ line: 2, rule: 'drop', message: 'drops the table student' }]);
    expect(faults).toEqual([
      'line 1: @allow drop must say why',
      'line 3: there is no rule "everything"',
      'line 7: @allow rename has no effect on its statement',
    ]);
  });

  test('tells the lock of each statement on a table that existed before, and its work', async () => {
    const { effects } = await inspect(
      `create table locker (id bigint primary key);
       create index locker_idx on locker (id);
       alter table student
         add column locker_id bigint references locker (id) on delete set null,
         add column token uuid default gen_random_uuid();
       create index student_locker_id_idx on student (locker_id);
       update student set locker_id = 1 where id = 1;
       do $$ begin end $$;`,
    );
    expect(effects.map(({ line, table, lock, work }) => [line, table, lock, work])).toEqual([
      [3, 'student', 'AccessExclusiveLock', 'changes the catalog'],
      [3, 'student', 'AccessExclusiveLock', 'rewrites the table'],
      [6, 'student', 'ShareLock', 'builds an index'],
      [7, 'student', 'RowExclusiveLock', 'writes rows'],
      [8, '(do block)', 'see the dry run', 'unknown'],
    ]);
  });
});
