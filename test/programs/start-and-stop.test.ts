import { spawnSync } from 'node:child_process';
import { chown, mkdtemp, readdir, readFile, realpath, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { serverUrl, testDatabase } from '../support/server/database.ts';
import { copyMigratedCluster } from '../support/server/own-server.ts';
import { atTerminal, hasTerminals } from '../support/server/terminal.ts';
import { type Program, type Ready, ready, runProgram, startProgram } from '../support/server/processes.ts';

const { client, ConfigError, readConfig } = shared;

let programs: Program[] = [];
let folders: string[] = [];

afterEach(async () => {
  for (const program of programs) program.kill('SIGINT');
  await Promise.all(programs.map(({ ended }) => ended));
  for (const folder of folders) {
    // When the tests run as root the data are in the shared folder, behind a link.
    await rm(await realpath(join(folder, 'postgres')).then(dirname, () => folder), { recursive: true, force: true });
    await rm(folder, { recursive: true, force: true });
  }
  programs = [];
  folders = [];
});

/** An empty data directory, or one with the database that the first start creates. */
async function dataDirectory({ isMigrated = false } = {}): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'school-start-'));
  folders.push(folder);
  if (isMigrated) await copyMigratedCluster(folder);
  return folder;
}

interface Started extends Ready {
  program: Program;
}

async function start(env: Record<string, string>, account: { uid?: number; gid?: number } = {}): Promise<Started> {
  const program = startProgram('src/main.ts', [], { PORT: '0', LOG_LEVEL: 'error', ...env }, account);
  programs.push(program);
  return { program, ...(await ready(program)) };
}

/** Logs in with the values that it printed. */
async function loginAsPrinted({ url, demo }: Started): Promise<Client> {
  return (await client(url)).login({ subdomain: demo?.subdomain, email: demo?.admin, password: demo?.password });
}

/** Whether a process is running. A zombie has an empty command line. */
async function isAlive(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => 'not Linux')) !== '';
}

/** The pid of the Postgres server of a data directory; undefined without one. */
const postgresOf = async (dataDir: string) =>
  Number((await readFile(join(dataDir, 'postgres/postmaster.pid'), 'utf8').catch(() => '')).split('\n')[0]) ||
  undefined;

const totalStudents = async (as: Client, search = '') =>
  (await as.get(`/api/students?search=${search}`)).pagination.totalItems;

const stopped = /\{"level":"info","time":"[^"]+","message":"Stopping \.\.\."\}\n\{.*"message":"Stopped\."\}\n$/;

describe('node src/main.ts', () => {
  test('starts a database with a demo school of 600 students, in which school doctor finds nothing, stops cleanly, and keeps its data, also after kill -9', async () => {
    const DATA_DIR = await dataDirectory();
    const first = await start({ DATA_DIR });
    for (const path of ['/api/health', '/api/docs/', '/api/openapi.json'])
      expect({ path, status: (await fetch(`${first.url}${path}`)).status }).toEqual({ path, status: 200 });
    expect(await runProgram('src/cli/main.ts', ['doctor', '--min-free', '1'], { DATA_DIR })).toMatchObject({
      code: 0,
      stdout: 'school 1 (demo): consistent\n1 school checked: 0 errors, 0 warnings\n',
    });
    const admin = await loginAsPrinted(first);
    expect(await totalStudents(admin)).toBe(600);
    // The generated timetable has every period of every class subject of this year.
    expect((await admin.get('/api/timetable/slots')).pagination.totalItems).toBe(728);
    const operator = await (
      await client(first.url)
    ).login({
      is_platform: true,
      email: first.demo?.operator,
      password: first.demo?.password,
    });
    expect((await operator.get('/api/platform/tenants')).pagination.totalItems).toBe(1);
    await admin.post('/api/students', { first_name: 'Remember', last_name: 'Me' }, 201);
    const postgres = (await postgresOf(DATA_DIR)) ?? 0;
    expect(await isAlive(postgres)).toBe(true);
    expect(first.data).toBe(await realpath(join(DATA_DIR, 'postgres')));
    first.program.kill('SIGINT');
    expect(await first.program.ended).toMatchObject({
      code: 0,
      signal: null,
      stderr: '',
      stdout: expect.stringMatching(stopped),
    });
    expect({ alive: await isAlive(postgres), left: await postgresOf(DATA_DIR) }).toEqual({
      alive: false,
      left: undefined,
    });
    // The demo school sends no emails about its invoices, so the outbox is empty for the first invitation.
    expect((await readdir(join(DATA_DIR, 'outbox'))).length).toBeLessThan(3);

    const second = await start({ DATA_DIR });
    const again = await loginAsPrinted(second);
    expect([await totalStudents(again), await totalStudents(again, 'remember')]).toEqual([601, 1]);
    await again.post('/api/students', { first_name: 'Survivor', last_name: 'Me' }, 201);
    second.program.kill('SIGKILL');
    expect((await second.program.ended).signal).toBe('SIGKILL');
    const orphan = (await postgresOf(DATA_DIR)) ?? 0;
    expect(await isAlive(orphan)).toBe(true);

    const third = await start({ DATA_DIR });
    expect(await isAlive(orphan)).toBe(false);
    const survivor = await loginAsPrinted(third);
    expect([await totalStudents(survivor), await totalStudents(survivor, 'survivor')]).toEqual([602, 1]);

    const rival = await runProgram('src/main.ts', [], { DATA_DIR, PORT: '0' });
    expect({ code: rival.code, stdout: rival.stdout, lines: rival.stderr.trim().split('\n') }).toEqual({
      code: 1,
      stdout: '',
      lines: [
        `Process ${third.program.pid} is using the data directory ${DATA_DIR}. Stop it, or set DATA_DIR to another folder.`,
      ],
    });
    const worker = await runProgram('src/main.ts', ['--only', 'worker'], { DATA_DIR });
    expect({ code: worker.code, stderr: worker.stderr }).toEqual({
      code: 1,
      stderr:
        `Process ${third.program.pid} is using the data directory ${DATA_DIR}. An embedded Postgres serves only the ` +
        'process that starts it. Set DATABASE_URL in all processes that run with --only.\n',
    });
    expect(await totalStudents(survivor)).toBe(602);
    third.program.kill('SIGTERM');
    expect(await third.program.ended).toMatchObject({ code: 0, signal: null, stderr: '' });
  });

  test('works for an ordinary user in their own folder, where they own all files', async () => {
    const DATA_DIR = await dataDirectory();
    const isRoot = process.getuid?.() === 0;
    const nobody = { uid: 65534, gid: 65534 };
    // Other users cannot run a project folder that only root can enter; root can, with a copy of the binaries
    // elsewhere.
    const canRun =
      isRoot &&
      spawnSync(process.execPath, [join(import.meta.dirname, '../../src/cli/main.ts'), '--help'], {
        ...nobody,
        env: {},
      }).status === 0;
    const account: { uid?: number; gid?: number } = canRun ? nobody : {};
    if (canRun) await chown(DATA_DIR, nobody.uid, nobody.gid);
    const started = await start({ DATA_DIR, DEMO: 'false' }, account);
    expect(started.demo).toBeUndefined();
    expect((await fetch(`${started.url}/api/health`)).status).toBe(200);
    expect((await stat(join(DATA_DIR, 'service.pid'))).uid).toBe(account.uid ?? process.getuid?.());
    started.program.kill('SIGINT');
    expect(await started.program.ended).toMatchObject({ code: 0, stderr: '' });
  });

  test.each(['SIGTERM', 'SIGINT'] as const)(
    'a command that %s ends stops the database that it started',
    async (signal) => {
      const DATA_DIR = await dataDirectory({ isMigrated: true });
      const command = startProgram('src/cli/main.ts', ['status', '--watch', '--json'], { DATA_DIR });
      programs.push(command);
      await command.prints(/^\{.*\}\n/);
      const postgres = (await postgresOf(DATA_DIR)) ?? 0;
      expect(await isAlive(postgres)).toBe(true);
      command.kill(signal);
      expect(await command.ended).toMatchObject({ signal, stderr: '' });
      expect(await isAlive(postgres)).toBe(false);
      expect(await readdir(DATA_DIR)).not.toContain('service.pid');
    },
  );

  test('a command whose output nobody reads any more stops the database that it started', async () => {
    const DATA_DIR = await dataDirectory({ isMigrated: true });
    const { stdout } = spawnSync('sh', ['-c', `"$NODE" "$MAIN" status --watch --json --interval 1 | head -n 1`], {
      env: {
        PATH: process.env['PATH'],
        POSTGRES_BIN: process.env['POSTGRES_BIN'],
        NODE: process.execPath,
        MAIN: join(import.meta.dirname, '../../src/cli/main.ts'),
        ENV_FILE: '',
        DATA_DIR,
      },
      encoding: 'utf8',
    });
    expect(stdout).toMatch(/^\{.*\}\n$/);
    expect(await postgresOf(DATA_DIR)).toBeUndefined();
  });

  test('reports in one line that the configured port is in use, and leaves no database running', async () => {
    const DATA_DIR = await dataDirectory({ isMigrated: true });
    const occupant = createServer();
    await new Promise<void>((done) => void occupant.listen(0, '127.0.0.1', done));
    const address = occupant.address();
    const port = String(typeof address === 'object' && address ? address.port : 0);
    const refused = await runProgram('src/main.ts', [], { DATA_DIR, PORT: port, DEMO: 'false' });
    await new Promise((done) => occupant.close(done));
    expect({ code: refused.code, stderr: refused.stderr }).toEqual({
      code: 1,
      stderr: `Port ${port} is in use. Set PORT to another port.\n`,
    });
    expect(await postgresOf(DATA_DIR)).toBeUndefined();
  });

  test.each(['service.pid', 'postgres/postmaster.pid'])(
    'leaves nothing running and prints no error when stopped during startup, once %s exists',
    async (file) => {
      const DATA_DIR = await dataDirectory();
      const program = startProgram('src/main.ts', [], { DATA_DIR, PORT: '0' });
      programs.push(program);
      while (!(await stat(join(DATA_DIR, file)).catch(() => undefined)))
        await new Promise((done) => setTimeout(done, 5));
      program.kill('SIGINT');
      expect(await program.ended).toMatchObject({
        code: 0,
        signal: null,
        stdout: expect.stringMatching(new RegExp(`^${stopped.source}`)),
        stderr: '',
      });
      expect(await postgresOf(DATA_DIR)).toBeUndefined();
      await expect(stat(join(DATA_DIR, 'service.pid'))).rejects.toMatchObject({ code: 'ENOENT' });
    },
  );

  test('uses the next port when 3000 is in use and no port is configured, and reports it', async () => {
    const DATA_DIR = await dataDirectory({ isMigrated: true });
    const occupant = createServer();
    // If another process already uses the port, the test works as well.
    await new Promise<void>((done) => occupant.once('error', () => done()).listen(3000, '127.0.0.1', done));
    const started = await start({ DATA_DIR, PORT: '', DEMO: 'false' });
    await new Promise((done) => occupant.close(done));
    const [, port] = /"message":"Port 3000 is in use\. Using port (\d+) instead\."/.exec(started.printed) ?? [];
    expect(new URL(started.url).port).toBe(port);
    expect((await fetch(`${started.url}/api/health`)).status).toBe(200);
  });

  (hasTerminals ? test : test.skip)(
    'prints its addresses and the logins of the demo school at a terminal, and no JSON',
    async () => {
      const DATA_DIR = await dataDirectory();
      const { code, shown } = await atTerminal('src/main.ts', { DATA_DIR, PORT: '0', LOG_LEVEL: 'error' }, [
        'Stop with Ctrl-C.',
        '\u0003',
      ]);
      expect({ code, json: /^\{.*/m.exec(shown) }).toEqual({ code: 0, json: null });
      expect(shown).toMatch(
        /^School management service ready in [\d.]+ s\r\n {2}API +http:[^]*Demo school "demo", password \S+[^]*Stopping \.\.\.\r\nStopped\.\r\n$/m,
      );
    },
  );

  test('reports an unreachable database and what to check, without the password; so does the command line', async () => {
    const DATA_DIR = await dataDirectory();
    const probe = createServer();
    await new Promise<void>((done) => void probe.listen(0, '127.0.0.1', done));
    const address = probe.address();
    const port = typeof address === 'object' && address ? address.port : 0;
    await new Promise((done) => probe.close(done));
    const away = (where: string) =>
      `The database at ${where} does not respond (ECONNREFUSED). ` +
      'Check that Postgres is running there, and the host and the port in DATABASE_URL.\n';
    let refused = { DATABASE_URL: '', stderr: '' };
    const socket = decodeURIComponent(/host=([^&]+)/.exec(serverUrl('x'))?.[1] ?? '');
    for (const [DATABASE_URL, stderr] of [
      [`postgres://me:sesame@127.0.0.1:${port}/school`, away(`127.0.0.1:${port}`)],
      [`postgres://me:sesame@localhost:${port}/school`, away(`localhost:${port}`)],
      [
        serverUrl('missing'),
        `The server at ${socket}:5432 has no database missing. Create it, or check DATABASE_URL.\n`,
      ],
      [
        'postgres://me:ses/ame@localhost/school',
        'DATABASE_URL is not a valid URL. Write special characters of the password in percent-encoding: ' +
          '@ as %40, : as %3A, / as %2F, # as %23, % as %25.\n',
      ],
      [
        'postgres://me@localhost/school?sslmode=verify-full&sslrootcert=/none/ca.pem',
        'DATABASE_URL names the file /none/ca.pem, which cannot be read (ENOENT).\n',
      ],
    ] as const) {
      refused = { DATABASE_URL, stderr };
      expect(await runProgram('src/main.ts', [], { DATA_DIR, DATABASE_URL })).toMatchObject({
        code: 1,
        stdout: '',
        stderr,
      });
    }
    const { DATABASE_URL, stderr } = refused;
    expect(await runProgram('src/cli/main.ts', ['tenant', 'list'], { DATA_DIR, DATABASE_URL })).toMatchObject({
      code: 1,
      stdout: '',
      stderr,
    });
  });

  const shared = `insert into graphile_migrate.migrations (hash, previous_hash, filename) select 'later', hash, '000999-later.sql' from graphile_migrate.migrations order by filename desc limit 1`;
  const ofASchool =
    "insert into platform.tenant_migration (version, name, body, checksum) values (9001, '9001-later', '', '')";
  test.each([
    ['a shared migration', shared, 'committed/000999-later.sql', 1],
    ['a migration of schools', ofASchool, 'tenant/9001-later.sql', 1],
    ['both', `${shared}; ${ofASchool}`, 'committed/000999-later.sql, tenant/9001-later.sql', 4],
  ])(
    'refuses a database that has %s from a later version, in one line, as the other programs do',
    async (_case, later, named, programCount) => {
      const DATA_DIR = await dataDirectory();
      const database = await testDatabase();
      try {
        await database.query(`${later}; update platform.installation set fingerprint = 'of a later version'`);
        const env = { DATA_DIR, DATABASE_URL: database.url, PORT: '0' };
        const before = await database.query('select xmin::text, * from platform.installation');
        for (const run of [
          () => runProgram('src/main.ts', [], env),
          () => runProgram('src/main.ts', ['--only', 'worker'], { ...env, MIGRATE_ON_START: 'false' }),
          () => runProgram('src/cli/main.ts', ['migrate'], env),
          () => runProgram('src/cli/main.ts', ['migrate', '--dry-run'], env),
        ].slice(0, programCount)) {
          expect(await run()).toMatchObject({
            code: 1,
            stdout: '',
            stderr:
              `The database has migrations that this version does not have: ${named}. ` +
              'Run the version that applied them or a later one, or start over with an empty database.\n',
          });
        }
        expect(await database.query('select xmin::text, * from platform.installation')).toEqual(before);
      } finally {
        await database.drop();
      }
    },
  );

  test('reports a tenant migration that was edited after it was applied, and what to do', async () => {
    const DATA_DIR = await dataDirectory();
    const database = await testDatabase();
    try {
      await database.query("update platform.tenant_migration set checksum = 'of another text' where version = 1");
      expect(await runProgram('src/main.ts', [], { DATA_DIR, DATABASE_URL: database.url, PORT: '0' })).toMatchObject({
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(
          /^The tenant migration 0001-\S+\.sql has changed since it was applied\. Restore the file .* `school migrate up --replace 0001`\. Or start over with an empty database\.\n$/,
        ),
      });
    } finally {
      await database.drop();
    }
  });

  test('reports each invalid variable on its own line', async () => {
    const refused = await runProgram('src/main.ts', [], {
      DATA_DIR: await dataDirectory(),
      ...{ PORT: '70000', JWT_SECRETS: 'short', DATABASE_URL: 'mysql://x', LOG_LEVEL: 'loud' },
    });
    const lines = refused.stderr.trim().split('\n');
    expect({ code: refused.code, stdout: refused.stdout, lines: lines.sort() }).toEqual({
      code: 1,
      stdout: '',
      lines: [
        expect.stringMatching(/^DATABASE_URL \S.{5,}$/),
        expect.stringMatching(/^JWT_SECRETS \S.{5,}$/),
        expect.stringMatching(/^LOG_LEVEL \S.{5,}$/),
        'PORT must be a whole number from 0 to 65535, not 70000',
      ],
    });
    expect(refused.stderr).not.toMatch(/short|mysql:\/\/x| at |\.ts/);
  });
});

/** The output of the service when it refuses these variables. */
function problems(env: Record<string, string>): string[] {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

describe('the settings', () => {
  test.each<[string, Record<string, string>, string[]]>([
    ['missing production settings', { NODE_ENV: 'production' }, ['DATABASE_URL', 'JWT_SECRETS', 'PUBLIC_URL']],
    [
      'a demo in production',
      {
        ...{ NODE_ENV: 'production', DEMO: 'true', DATABASE_URL: 'postgres://x' },
        ...{ PUBLIC_URL: 'https://x.example', JWT_SECRETS: 'x'.repeat(32) },
      },
      ['DEMO'],
    ],
    ['PLATFORM_ADMIN_EMAIL without a password', { PLATFORM_ADMIN_EMAIL: 'op@test.example' }, ['PLATFORM_ADMIN_EMAIL']],
    [
      'an operator with an invalid email and password',
      { PLATFORM_ADMIN_EMAIL: 'operator', PLATFORM_ADMIN_PASSWORD: 'short' },
      ['PLATFORM_ADMIN_EMAIL', 'PLATFORM_ADMIN_PASSWORD'],
    ],
  ])('reject %s, without printing values', (_case, env, variables) => {
    const lines = problems(env);
    expect(lines.map((line) => line.split(' ')[0]).sort()).toEqual(variables);
    for (const line of lines) expect(line).toMatch(/^[A-Z_]+ \S.{5,}$/);
    expect(lines.join('\n')).not.toContain('short');
  });

  test.each(['abc', '70000', '-1', '80.5', '1e3'])('explain the valid values of PORT when it is %s', (PORT) => {
    expect(problems({ PORT })).toEqual([`PORT must be a whole number from 0 to 65535, not ${PORT}`]);
  });
});
