import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { sqlFiles } from '../../src/database/migrate/install.ts';
import type { MigrationStatus } from '../../src/database/migrate/migration-status.ts';
import { runProgram } from '../support/server/processes.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
let folder: string;
let file: string;
let number: string;
const ids: number[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'school-migrations-'));
  const files = await sqlFiles('migrations/tenant');
  for (const { name, text } of files) await writeFile(join(folder, basename(name)), text);
  number = String(files.length + 1).padStart(4, '0');
  file = join(folder, `${number}-test.sql`);
  const people = [
    ['Ada', 'K', 'S-1'],
    ['Odo', 'K', 'S-2'],
    ['Una', null, 'S-3'],
    ['Tom', 'M', 'S-4'],
  ];
  for (const [first_name, phone, admission_number] of people)
    ids.push(await school.insert('student', { first_name, last_name: 'Secret', phone, admission_number }));
});
afterAll(() => rm(folder, { recursive: true }));

const run = (command: string, ...args: string[]) =>
  runProgram('src/cli/main.ts', [command, ...args], { DATABASE_URL: service.database.url, DATA_DIR: folder });
const migrate = (...args: string[]) => run('migrate', ...args, '--tenant-migrations', folder);
/** Migrates with the file as it is now, although an earlier text of it was tried before. */
const up = () => migrate('up', '--replace', number);

/** Migrations that the students violate, and the lines that name them. */
const violations: [string, string, (ids: number[]) => string[]][] = [
  [
    'a unique index of some rows',
    "create unique index student_test_key on student (last_name) where first_name in ('Ada', 'Odo');",
    ([ada, odo]) => ['2 rows of student violate it:', `  last_name = Secret: id ${ada}, ${odo}`],
  ],
  [
    'a unique constraint of two columns',
    'alter table student add constraint student_test_key unique (phone, last_name);',
    ([ada, odo]) => ['2 rows of student violate it:', `  phone, last_name = K, Secret: id ${ada}, ${odo}`],
  ],
  [
    'a unique index of an expression',
    'create unique index student_test_key on student (lower(phone));',
    ([ada, odo]) => ['2 rows of student violate it:', `  lower(phone) = k: id ${ada}, ${odo}`],
  ],
  [
    'a check',
    "alter table student add constraint student_test_check check (phone <> 'M');",
    ([, , , tom]) => ['1 row of student violates it:', `  phone = M: id ${tom}`],
  ],
  [
    'a column that may not be null',
    'alter table student alter column phone set not null;',
    ([, , una]) => ['1 row of student violates it:', `  phone = null: id ${una}`],
  ],
  [
    'a foreign key',
    'alter table student add constraint student_test_fkey foreign key (id) references class (id) on delete restrict;',
    (all) => ['4 rows of student violate it:', ...all.map((id) => `  id = ${id}: id ${id}`)],
  ],
  [
    'a foreign key to a table that the migration creates, by the key that Postgres names',
    'create table test_place (name text primary key); alter table student add constraint student_test_fkey ' +
      'foreign key (last_name) references test_place (name) on delete cascade;',
    () => ['Key (last_name)=(Secret) is not present in table "test_place".'],
  ],
  [
    'values that the migration writes',
    "update student set first_name = '';",
    () => ['No row of student violates it before the migration, which writes the values.'],
  ],
];

test.each(violations)('migrate, migrate status and status name the rows that violate %s', async (_n, text, lines) => {
  await writeFile(file, text);
  const expected = lines(ids);
  const failed = await up();
  expect(failed.code).toBe(1);
  expect(failed.stdout).toContain(expected.map((line) => `\n  ${line}`).join(''));
  // Only keys: Postgres itself would print the whole row of a violated check.
  expect(failed.stdout).not.toContain('Failing row');
  const status = await migrate('status', '--json');
  const { delayed } = JSON.parse(status.stdout) as MigrationStatus;
  expect(delayed).toMatchObject([
    { tenant_id: String(school.id), error: expect.stringContaining(expected.join('\n')) },
  ]);
  expect((await migrate('status')).stdout).toContain(expected.map((line) => `\n      ${line}`).join(''));
  expect((await run('status')).stdout).toContain(expected.map((line) => `\n    ${line}`).join(''));
  // The school that was created to read the definition is gone.
  expect(
    await service.database.query("select nspname from pg_namespace where nspname like 'tenant\\_9000000000%'"),
  ).toEqual([]);
});

test('the dry run shows no values of the row that violates a check', async () => {
  await writeFile(file, "update student set first_name = '';");
  const { code, stdout } = await migrate('up', '--dry-run', '--replace', number);
  expect({ code, stdout }).toEqual({ code: 1, stdout: expect.stringContaining('student_first_name_check') });
  expect(stdout).not.toContain('Secret');
});

test('names at most ten rows, and how many there are', async () => {
  await writeFile(file, 'alter table student alter column parent_name set not null;');
  for (let n = 0; n < 9; n++)
    await school.insert('student', { first_name: 'One', last_name: 'More', admission_number: `N-${n}` });
  const { stdout } = await up();
  const [, listed = ''] =
    /13 rows of student violate it, the first 10:\n +parent_name = null: id (.*)\n/.exec(stdout) ?? [];
  expect(listed.split(', ')).toHaveLength(10);
});

test('a school that is skipped is corrected with `school sql --write`, and then migrated', async () => {
  await writeFile(file, 'create unique index student_test_key on student (phone);');
  expect((await up()).code).toBe(1);
  await school.admin.get('/api/students');
  expect((await migrate('up', '--skip', school.subdomain, '--reason', 'phones')).code).toBe(0);
  await school.admin.get('/api/students', 503);
  const correction = join(folder, 'correction.txt');
  await writeFile(correction, `update student set phone = null where id = ${ids[1]};`);
  const corrected = await run('sql', school.subdomain, '--write', '--yes', '--file', correction);
  expect(corrected).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('UPDATE: 1 row\n'),
    stderr: expect.stringContaining('whose migration failed or is skipped'),
  });
  const done = await migrate('up', '--tenant', school.subdomain);
  expect({ code: done.code, stdout: done.stdout }).toEqual({
    code: 0,
    stdout: expect.stringContaining('1 applied'),
  });
  await school.admin.get('/api/students');
});
