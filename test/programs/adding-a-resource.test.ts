import { execFile } from 'node:child_process';
import { existsSync, globSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { isFull } from '../support/client/share.ts';

const root = join(import.meta.dirname, '../..');
const page = await readFile(join(root, 'docs/adding-a-resource.md'), 'utf8');
const left = new Set(['node_modules', '.git', 'dist', '.data', '.postgres', '.bench', '.bench-scale']);
let copy: string;

beforeAll(async () => {
  copy = await mkdtemp(join(tmpdir(), 'newcomer-'));
  await cp(root, copy, { recursive: true, filter: (source) => !left.has(basename(source)) });
  await symlink(join(root, 'node_modules'), join(copy, 'node_modules'));
});
afterAll(() => rm(copy, { recursive: true, force: true }));

/** Runs a command line in the copy. Returns what it printed, and whether it failed. */
async function run(command: string): Promise<string> {
  const env = { ...process.env, NODE_OPTIONS: '' };
  const [program = '', ...words] = command.split(' ');
  const { stdout, stderr, error } = await new Promise<{ stdout: string; stderr: string; error: unknown }>((done) => {
    execFile(program, words, { cwd: copy, env, maxBuffer: 1e8 }, (error, stdout, stderr) => {
      done({ error, stdout, stderr });
    });
  });
  return error === null ? stdout : `${command} ended with an error:\n${stdout}${stderr}`;
}

const fails = / ended with /;

/** Replaces the removed lines of a hunk by the added ones. */
async function applyDiff(block: string): Promise<void> {
  const [first = '', ...lines] = block.split('\n');
  const path = join(copy, first.replace('--- ', ''));
  let text = await readFile(path, 'utf8');
  for (const hunk of lines.join('\n').split('\n…\n')) {
    const side = (other: string) =>
      hunk
        .split('\n')
        .filter((line) => !line.startsWith(other))
        .map((line) => line.slice(1))
        .join('\n');
    if (text.split(side('+')).length !== 2) throw new Error(`${first} does not have these lines once:\n${side('+')}`);
    text = text.replace(side('+'), () => side('-'));
  }
  await writeFile(path, text);
}

/** Appends a block to the file that its first line names. `NNNN` stands for the next number of a migration. */
async function append(block: string): Promise<void> {
  const [first = '', ...lines] = block.split('\n');
  const numbers = globSync('migrations/tenant/*.sql', { cwd: copy }).map((file) => Number(/\d{4}/.exec(file)?.[0]));
  const next = String(Math.max(...numbers) + 1).padStart(4, '0');
  const path = join(copy, first.replace(/^.*>> /, '').replace('NNNN', next));
  const text = existsSync(path) ? `${await readFile(path, 'utf8')}\n` : '';
  await writeFile(path, `${text}${lines.join('\n')}\n`);
}

test('what the page docs/adding-a-resource.md does passes the checks, and with FULL=1 the tests that it names', async () => {
  const tests: string[] = [];
  for (const [, language, block = ''] of page.matchAll(/^```(\w+)\n([^]*?)\n```$/gm))
    if (language === 'diff') await applyDiff(block);
    else if (/^\S+ >> /.test(block)) await append(block);
    else if (language === 'sh')
      for (const line of block.split('\n'))
        if (line.startsWith('npm run new')) expect(await run(line)).not.toMatch(fails);
        else if (line.startsWith('npm test -- ')) tests.push(...line.split(' ').slice(3));
  expect(tests).toContain('test/api/houses');
  expect(await run('node scaffold/main.ts resource criteria note?:text name:text --singular criterion')).not.toMatch(
    fails,
  );
  expect(await run('node scaffold/main.ts job remind_teachers_of_open_registers')).not.toMatch(fails);
  await run('npx prettier --write --log-level warn src/endpoints/students.ts src/endpoints/imports.ts');
  if (isFull) {
    await run('git init --quiet');
    await run('git add --all');
    expect(await run('npm run --silent check')).not.toMatch(fails);
    expect(
      await run(
        `npm test -- ${[...tests, 'test/api/lockers', 'test/api/criteria', 'test/attack', 'test/db'].join(' ')}`,
      ),
    ).not.toMatch(fails);
    return;
  }
  // What the other checks read are mostly the same files as in `npm run check` of the repository itself.
  for (const check of ['check:sql', 'check:documents', 'check:openapi'])
    expect(await run(`npm run --silent ${check}`)).not.toMatch(fails);
  const written = [
    'src/endpoints workers test/workers/send-reports.test.ts',
    ...['houses', 'lockers', 'criteria'].map((name) => `test/api/${name}.test.ts`),
  ].join(' ');
  expect(await run(`npx prettier --check --log-level warn ${written} CHANGELOG.md`)).not.toMatch(fails);
}, 1_200_000);

test('the scaffold refuses names and fields that it cannot use, and writes nothing', async () => {
  for (const [words, message] of [
    ['resource house name:text', 'house is not a plural'],
    ['resource students name:text', 'The table student exists already.'],
    ['resource clubs name:word', 'name:word is not a field.'],
    ['resource clubs size:choice=small', 'size:choice=small is not a field.'],
    ['resource clubs size:choice=small,small', 'A choice has two or more values'],
    ['resource clubs name:text name:date', 'The field name occurs twice.'],
    ['resource clubs name:text student_id:integer --ref students', 'The field student_id occurs twice.'],
    ['resource clubs name:text user:integer', 'Choose other names. With these, the migration is no SQL'],
    ['resource buses name:text', 'The table bus exists already.'],
    ['resource docs name:text', 'The API has docs for something else.'],
    ['resource clubs points:integer', 'Give the resource a text field'],
    ['resource clubs name:text --ref moons', 'There is no table moon to refer to.'],
    ['resource criteria name:text', 'If its singular follows no rule, name it'],
    ['resource criteria name:text --singular 2', 'The singular 2 is not a word'],
    ['job reports', 'reports does not say what the job does.'],
    ['job clean_up', 'exists already.'],
  ] as const)
    expect(await run(`node scaffold/main.ts ${words}`)).toContain(message);
});
