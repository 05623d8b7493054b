import { lstat, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { type Program, runProgram, startProgram } from '../support/server/processes.ts';

const { client } = shared;

// Nobody else can enter it, so that root's data lie elsewhere, behind a link.
const folder = await mkdtemp(join(tmpdir(), 'school-anew-'));
const DATA_DIR = join(folder, '.data');
let cluster = join(DATA_DIR, 'postgres');
let program: Program | undefined;

afterAll(async () => {
  program?.kill('SIGINT');
  await program?.ended;
  await rm(dirname(cluster), { recursive: true, force: true });
  await rm(folder, { recursive: true, force: true });
});

const reset = (args: string[] = [], env: Record<string, string> = {}) =>
  runProgram('src/cli/main.ts', ['database', 'reset', ...args], { DATA_DIR, ...env });

/** Starts the service, says what it printed, how many students there are, and adds one. */
async function visit(): Promise<{ printed: string; students: number }> {
  program = startProgram('src/main.ts', [], { DATA_DIR, PORT: '0', LOG_LEVEL: 'error' });
  const { input } = await program.prints(/Stop with Ctrl-C\.\n/);
  const url = /API +(http:\S+)\/api\n/.exec(input)?.[1] ?? '';
  const admin = await (
    await client(url)
  ).login({ subdomain: 'demo', email: 'admin@demo.example', password: 'demo-password' });
  const students = (await admin.get('/api/students')).pagination.totalItems;
  await admin.post('/api/students', { first_name: 'One', last_name: 'More' }, 201);
  return { printed: input, students };
}

async function leave(): Promise<void> {
  program?.kill('SIGINT');
  expect(await program?.ended).toMatchObject({ code: 0, stderr: '' });
}

const begun = String.raw`begun on \d{4}-\d\d-\d\d \d\d:\d\d UTC`;

describe('school database reset', () => {
  test('refuses a database that is not its own, one that is in use, and to go on unasked, and removes nothing', async () => {
    const first = await visit();
    expect(first).toMatchObject({ students: 600, printed: expect.not.stringContaining('Found older data') });
    cluster = await realpath(join(DATA_DIR, 'postgres'));
    expect(await reset(['--yes'], { DATABASE_URL: 'postgres://localhost/precious' })).toMatchObject({
      code: 1,
      stdout: '',
      stderr:
        'DATABASE_URL is set, and only the embedded database is removed here. Drop and create that one with the tools of its server.\n',
    });
    expect(await reset(['--yes'])).toMatchObject({
      code: 1,
      stderr: `The data directory ${DATA_DIR} is in use by process ${program?.pid}. Stop it, or set DATA_DIR to another place.\n`,
    });
    await leave();
    expect(await reset()).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        `^This removes all schools in ${cluster}, ${begun}\\. There is no terminal to confirm it in: add --yes\\.\n$`,
      ),
    });
    expect((await visit()).students).toBe(601);
  });

  test('removes all, also when a killed process left its server behind, and the next start begins anew', async () => {
    program?.kill('SIGKILL');
    await program?.ended;
    expect(await reset(['--yes'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        `^Removed all schools in ${cluster}, ${begun}\\. The next start makes a new database\\.\n$`,
      ),
      stderr: '',
    });
    await expect(lstat(cluster)).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await reset(['--yes'])).toMatchObject({
      code: 0,
      stdout: `There is no database in ${DATA_DIR}; the next start makes one.\n`,
      stderr: '',
    });
    expect(await visit()).toMatchObject({ students: 600, printed: expect.not.stringContaining('Found older data') });
    await leave();
  });
});

describe('a data directory that was removed', () => {
  const list = () => runProgram('src/cli/main.ts', ['tenant', 'list'], { DATA_DIR });

  test('took its data with it, or, where they lie elsewhere behind a link, the next start says which it found and since when, once', async () => {
    const isLink = (await lstat(join(DATA_DIR, 'postgres'))).isSymbolicLink();
    const notice = new RegExp(
      `^Found older data, ${begun}, in ${cluster}\\. To begin anew, stop and run: npm run school -- database reset$`,
      'm',
    );
    await rm(DATA_DIR, { recursive: true });
    const next = await visit();
    expect({ students: next.students, says: notice.test(next.printed) }).toEqual(
      isLink ? { students: 601, says: true } : { students: 600, says: false },
    );
    await leave();
    expect(await list()).toMatchObject({ code: 0, stdout: '1\tdemo\tactive\n', stderr: '' });
    if (!isLink) return;

    await rm(DATA_DIR, { recursive: true });
    expect(await list()).toMatchObject({ code: 0, stdout: '1\tdemo\tactive\n', stderr: expect.stringMatching(notice) });
    await rm(DATA_DIR, { recursive: true });
    expect(await reset(['--yes'])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`Removed all schools in ${cluster}`),
    });
    await expect(lstat(cluster)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
