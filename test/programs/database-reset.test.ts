import { lstat, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { type Program, ready, runProgram, startProgram } from '../support/server/processes.ts';

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

const operator = { email: 'op@test.example', password: 'test-password' };

/** Starts the service, counts the schools and adds one. @returns the output and the count */
async function visit(): Promise<{ printed: string; schools: number }> {
  program = startProgram('src/main.ts', [], {
    ...{ DATA_DIR, PORT: '0', LOG_LEVEL: 'error', DEMO: 'false' },
    ...{ PLATFORM_ADMIN_EMAIL: operator.email, PLATFORM_ADMIN_PASSWORD: operator.password },
  });
  const { url, printed } = await ready(program);
  const as = await (await client(url)).login({ is_platform: true, ...operator });
  const schools = (await as.get('/api/platform/tenants')).pagination.totalItems;
  const name = `school-${schools + 1}`;
  await as.post(
    '/api/platform/tenants',
    { name, subdomain: name, contact_email: `admin@${name}.example`, plan_id: 3, admin_password: 'test-password' },
    201,
  );
  return { printed, schools };
}

async function leave(): Promise<void> {
  program?.kill('SIGINT');
  expect(await program?.ended).toMatchObject({ code: 0, stderr: '' });
}

const begun = String.raw`created on \d{4}-\d\d-\d\d \d\d:\d\d UTC`;

describe('school database reset', () => {
  test('rejects an external database, one in use, and a missing confirmation, and deletes nothing', async () => {
    const first = await visit();
    expect(first).toMatchObject({ schools: 0, printed: expect.not.stringContaining('Found a database') });
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
    expect((await visit()).schools).toBe(1);
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
    expect(await visit()).toMatchObject({ schools: 0, printed: expect.not.stringContaining('Found a database') });
    await leave();
  });
});

describe('after the data directory is deleted', () => {
  const list = () => runProgram('src/cli/main.ts', ['tenant', 'list'], { DATA_DIR });

  test('the data are gone; data behind a link are found, and the next start reports them once', async () => {
    const isLink = (await lstat(join(DATA_DIR, 'postgres'))).isSymbolicLink();
    const notice = new RegExp(
      `(?:^|")Found a database ${begun} in ${cluster}\\. ` +
        `To start with a new database, stop the service and run: DATA_DIR=${DATA_DIR} npm run school -- database reset(?:"\\}|$)`,
      'm',
    );
    await rm(DATA_DIR, { recursive: true });
    const next = await visit();
    expect({ schools: next.schools, says: notice.test(next.printed) }).toEqual(
      isLink ? { schools: 1, says: true } : { schools: 0, says: false },
    );
    await leave();
    const printedSchools = isLink ? '1\tschool-1\tactive\n2\tschool-2\tactive\n' : '1\tschool-1\tactive\n';
    expect(await list()).toMatchObject({ code: 0, stdout: printedSchools, stderr: '' });
    if (!isLink) return;

    await rm(DATA_DIR, { recursive: true });
    expect(await list()).toMatchObject({ code: 0, stdout: printedSchools, stderr: expect.stringMatching(notice) });
    await rm(DATA_DIR, { recursive: true });
    expect(await reset(['--yes'])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`Deleted all schools in ${cluster}`),
    });
    await expect(lstat(cluster)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
