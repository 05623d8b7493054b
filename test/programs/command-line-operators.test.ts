import { spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { mailTo } from '../support/fakes/mail.ts';
import { enable } from '../support/fixtures/second-factors.ts';
import { runProgram } from '../support/server/processes.ts';
import { testService } from '../support/server/service.ts';

const service = await testService();
const dataDir = await mkdtemp(join(tmpdir(), 'school-operators-'));
const env = { DATABASE_URL: service.database.url, DATA_DIR: dataDir };
afterAll(async () => {
  await service.close();
  await rm(dataDir, { recursive: true, force: true });
});

const create = (email: string, more: Record<string, string> = {}) =>
  runProgram('src/cli/main.ts', ['operator', 'create', email], { ...env, ...more });
const operators = async () =>
  (await service.database.query<{ email: string }>('select email from platform.user_account order by id')).map(
    ({ email }) => email,
  );
const canLogIn = async (email: string, password: string) =>
  (await service.anonymous.send('POST', '/api/auth/login', { body: { is_platform: true, email, password } })).status ===
  200;

/**
 * Runs the command in a pseudo-terminal, created by `script` of util-linux.
 * @param typed  pairs of a prompt to wait for and the text to type
 * @returns the output of the terminal
 */
function onTerminal(
  args: string,
  typed: [shown: string, keys: string][],
): Promise<{ code: number | null; shown: string }> {
  const main = join(import.meta.dirname, '../../src/cli/main.ts');
  const child = spawn('script', ['-qefc', `'${process.execPath}' '${main}' ${args}`, '/dev/null'], {
    env: { PATH: process.env['PATH'] ?? '', ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let shown = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    shown += text;
    const [next] = typed;
    if (next && shown.includes(next[0])) {
      typed.shift();
      child.stdin.write(next[1]);
    }
  });
  return new Promise((done, fail) => {
    child.on('error', fail);
    child.on('close', (code) => done({ code, shown }));
  });
}

describe('school operator create', () => {
  test('without a terminal reads OPERATOR_PASSWORD, and names the variable when it is missing', async () => {
    const before = await operators();
    expect(await create('no-terminal@test.example')).toMatchObject({
      code: 1,
      stdout: '',
      stderr:
        'There is no terminal to prompt for the password. Set OPERATOR_PASSWORD to the password of the new operator.\n',
    });
    expect(await operators()).toEqual(before);
    expect(await create('No-Terminal@Test.example', { OPERATOR_PASSWORD: 'from the environment' })).toMatchObject({
      code: 0,
      stdout: 'Operator no-terminal@test.example (admin) can log in with is_platform: true.\n',
      stderr: '',
    });
    expect(await canLogIn('no-terminal@test.example', 'from the environment')).toBe(true);
    expect(await create('no-terminal@test.example', { OPERATOR_PASSWORD: 'another password' })).toMatchObject({
      code: 1,
      stderr: 'The operator no-terminal@test.example already exists.\n',
    });
    expect(await canLogIn('no-terminal@test.example', 'another password')).toBe(false);
  });

  test.each([
    ['ada', 'long enough', '"ada" is not an email address.\n'],
    [`${'a'.repeat(250)}@test.example`, 'long enough', `"${'a'.repeat(250)}@test.example" is not an email address.\n`],
    ['ada@test.example', 'short', 'The password must have 8 to 200 characters and no control characters.\n'],
    [
      'ada@test.example',
      'with\ta bell \u0007',
      'The password must have 8 to 200 characters and no control characters.\n',
    ],
  ])('rejects %p with the password %p, like the API', async (email, OPERATOR_PASSWORD, stderr) => {
    const before = await operators();
    expect(await create(email, { OPERATOR_PASSWORD })).toMatchObject({ code: 1, stdout: '', stderr });
    expect(await operators()).toEqual(before);
  });

  test('creates an analyst of existing schools, and no admin limited to schools', async () => {
    const school = await service.school();
    const analyst = (...args: string[]) =>
      runProgram('src/cli/main.ts', ['operator', 'create', 'ana@test.example', ...args], {
        ...env,
        OPERATOR_PASSWORD: 'long enough',
      });
    expect(await analyst('--tenant', String(school.id))).toMatchObject({
      code: 1,
      stderr: '--tenant needs --role analyst: admins see every school.\n',
    });
    expect(await analyst('--role', 'analyst', '--tenant', String(school.id), '--tenant', '987654')).toMatchObject({
      code: 1,
      stderr: 'There is no school with the id 987654.\n',
    });
    expect(await operators()).not.toContain('ana@test.example');
    expect((await analyst('--role', 'analyst', '--tenant', String(school.id))).code).toBe(0);
    const [created] = await service.database.query(
      'select role, analyst_tenant_ids from platform.user_account where email = $1',
      ['ana@test.example'],
    );
    expect(created).toMatchObject({ role: 'analyst', analyst_tenant_ids: [String(school.id)] });
  });

  const hasTerminals = String(spawnSync('script', ['--version']).stdout).includes('util-linux');
  (hasTerminals ? describe : describe.skip)('on a terminal', () => {
    const email = 'typist@test.example';
    const [first, second] = [`Password for ${email}: `, 'Repeat the password: '];

    test('prompts twice, and creates no operator when the passwords differ or on Ctrl-C', async () => {
      const differ = await onTerminal(`operator create ${email}`, [
        [first, 'typed-secret\r'],
        [second, 'typed-sekret\r'],
      ]);
      expect(differ).toEqual({
        code: 1,
        shown: `${first}\r\n${second}\r\nThe passwords differ. Nothing was changed.\r\n`,
      });
      const left = await onTerminal(`operator create ${email}`, [[first, 'typed-s\u0003']]);
      expect(left).toEqual({ code: 1, shown: `${first}\r\nStopped. Nothing was changed.\r\n` });
      expect(await operators()).not.toContain(email);
    });

    test('does not echo the password, and creates the operator', async () => {
      const created = await onTerminal(`operator create ${email}`, [
        [first, 'typed-sekk\u007fret\r'],
        [second, 'typed-sekret\r'],
      ]);
      expect(created).toEqual({
        code: 0,
        shown: `${first}\r\n${second}\r\nOperator ${email} (admin) can log in with is_platform: true.\r\n`,
      });
      expect(await canLogIn(email, 'typed-sekret')).toBe(true);
    });
  });
});

describe('school operator', () => {
  const operator = (...args: string[]) => runProgram('src/cli/main.ts', ['operator', ...args], env);
  const password = 'long enough';
  const sessions = async (email: string) =>
    (JSON.parse((await operator('list', '--json')).stdout) as { email: string; sessions: number; role: string }[]).find(
      (each) => each.email === email,
    );

  test('disable ends the sessions of an operator, enable lets them log in again; both leave an audit entry', async () => {
    const email = 'leaver@test.example';
    await create(email, { OPERATOR_PASSWORD: password });
    const leaver = await service.anonymous.login({ is_platform: true, email, password });
    expect(await sessions(email)).toMatchObject({ sessions: 1, role: 'admin' });
    expect(await operator('disable', email)).toMatchObject({
      code: 1,
      stderr: `This ends all sessions of ${email}, who can no longer log in. Without a terminal, confirm with --yes.\n`,
    });
    expect(await operator('disable', email, '--yes')).toMatchObject({
      code: 0,
      stdout: `Operator ${email}: admin, all schools, disabled.\nEnded 1 session.\n`,
    });
    await leaver.get('/api/platform/overview', 401);
    expect(await canLogIn(email, password)).toBe(false);
    expect((await operator('enable', email)).code).toBe(0);
    expect(await canLogIn(email, password)).toBe(true);
    expect(
      await service.database.query(
        "select actor_email, action, changes from platform.audit_log where action = 'operator.disable'",
      ),
    ).toEqual([
      {
        actor_email: 'command line',
        action: 'operator.disable',
        changes: { is_active: { before: true, after: false } },
      },
    ]);
  });

  test('set-role and set-tenants change what an operator may see; an admin cannot be limited to schools', async () => {
    const email = 'changer@test.example';
    await create(email, { OPERATOR_PASSWORD: password });
    const school = await service.school();
    expect(await operator('set-tenants', email, String(school.id))).toMatchObject({
      code: 1,
      stderr: `${email} is an admin, and admins see every school.\n`,
    });
    expect((await operator('set-role', email, 'analyst')).stdout).toContain(`${email}: analyst, all schools, active.`);
    const analyst = await service.anonymous.login({ is_platform: true, email, password });
    await analyst.get('/api/platform/overview', 403);
    expect((await operator('set-tenants', email, '987654')).stderr).toBe('There is no school with the id 987654.\n');
    expect((await operator('set-tenants', email, String(school.id))).stdout).toBe(
      `Operator ${email}: analyst, schools ${String(school.id)}, active.\nEnded 1 session.\n`,
    );
    await analyst.get('/api/auth/profile', 401);
    expect((await operator('set-tenants', email, String(school.id))).stdout).toContain('Nothing was changed.\n');
    expect((await operator('set-role', email, 'admin')).stdout).toContain(`${email}: admin, all schools, active.`);
  });

  test('reset-second-factor lets an operator who has lost theirs log in with the password, and sends an email', async () => {
    const email = 'lost@test.example';
    await create(email, { OPERATOR_PASSWORD: password });
    await enable(await service.anonymous.login({ is_platform: true, email, password }), password);
    expect(await operator('reset-second-factor', 'nobody@test.example')).toMatchObject({ code: 1 });
    expect(await canLogIn(email, password)).toBe(false);
    expect(await operator('reset-second-factor', email)).toMatchObject({ code: 0 });
    expect(await canLogIn(email, password)).toBe(true);
    expect(await operator('reset-second-factor', email)).toMatchObject({ code: 1 });
    await mailTo(service, email, 'Your second factor was reset');
  });

  test('the last active admin cannot be disabled or become an analyst', async () => {
    await service.database.query("update platform.user_account set is_active = email = 'operator@test.example'");
    for (const args of [
      ['disable', 'operator@test.example', '--yes'],
      ['set-role', 'operator@test.example', 'analyst'],
    ]) {
      expect(await operator(...args)).toMatchObject({
        code: 1,
        stderr: 'operator@test.example is the only active operator with the role admin. Create another one first.\n',
      });
    }
    expect((await operator('disable', 'nobody@test.example', '--yes')).stderr).toBe(
      'There is no operator nobody@test.example.\n',
    );
  });
});
