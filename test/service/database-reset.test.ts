import { lstat, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { type Program, runProgram, startProgram } from '../support/server/processes.ts';

const { client } = shared;

// Only this user can enter it, so when the tests run as root the data are in the shared folder, behind a link.
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

/** Starts the service, counts the students, adds one and stops. @returns the output and the count */
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

const begun = String.raw`created on \d{4}-\d\d-\d\d \d\d:\d\d UTC`;

describe('school database reset', () => {
  test('rejects an external database, one in use, and a missing confirmation, and deletes nothing', async () => {
    const first = await visit();
    expect(first).toMatchObject({ students: 600, printed: expect.not.stringContaining('Found a database') });
    cluster = await realpath(join(DATA_DIR, 'postgres'));
    expect(await reset(['--yes'], { DATABASE_URL: 'postgres://localhost/precious' })).toMatchObject({
      code: 1,
      stdout: '',
      stderr:
        'DATABASE_URL is set. This command deletes only the embedded database. Use the tools of your server instead.\n',
    });
    expect(await reset(['--yes'])).toMatchObject({
      code: 1,
      stderr: `Process ${program?.pid} is using the data directory ${DATA_DIR}. Stop it, or set DATA_DIR to another folder.\n`,
    });
    await leave();
    expect(await reset()).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        `^This deletes all schools in ${cluster}, ${begun}\\. Without a terminal, confirm with --yes\\.\n$`,
      ),
    });
    expect((await visit()).students).toBe(601);
  });

  test('deletes all data, also when a killed process left its server running, and the next start creates a new database', async () => {
    program?.kill('SIGKILL');
    await program?.ended;
    expect(await reset(['--yes'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        `^Deleted all schools in ${cluster}, ${begun}\\. The next start creates a new database\\.\n$`,
      ),
      stderr: '',
    });
    await expect(lstat(cluster)).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await reset(['--yes'])).toMatchObject({
      code: 0,
      stdout: `There is no database in ${DATA_DIR}. The next start creates one.\n`,
      stderr: '',
    });
    expect(await visit()).toMatchObject({ students: 600, printed: expect.not.stringContaining('Found a database') });
    await leave();
  });
});

describe('after the data directory is deleted', () => {
  const list = () => runProgram('src/cli/main.ts', ['tenant', 'list'], { DATA_DIR });

  test('the data are gone; data behind a link are found, and the next start reports them once', async () => {
    const isLink = (await lstat(join(DATA_DIR, 'postgres'))).isSymbolicLink();
    const notice = new RegExp(
      `^Found a database ${begun} in ${cluster}\\. ` +
        `To start with a new database, stop the service and run: DATA_DIR=${DATA_DIR} npm run school -- database reset$`,
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
      stdout: expect.stringContaining(`Deleted all schools in ${cluster}`),
    });
    await expect(lstat(cluster)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
