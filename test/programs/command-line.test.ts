import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, connect, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { afterAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { ready, runProgram, startProgram } from '../support/server/processes.ts';
import { testDatabase } from '../support/server/database.ts';
import { until } from '../support/client/until.ts';

const root = join(import.meta.dirname, '../..');
const folder = await mkdtemp(join(tmpdir(), 'school-command-line-'));
const database = await testDatabase();
const empty = await testDatabase('empty');
afterAll(async () => {
  await database.drop();
  await empty.drop();
  await rm(folder, { recursive: true, force: true });
});

const school = (args: string[], env: Record<string, string> = {}) =>
  runProgram('src/cli/main.ts', args, { DATABASE_URL: database.url, ...env });

describe('the file .env', () => {
  test('.env.example is read by a shell as by the service, and keeps the spaces of EMAIL_FROM', async () => {
    const text = await readFile(join(root, '.env.example'), 'utf8');
    const shell = spawnSync('sh', ['-ec', 'set -a; . ./.env.example; exec env -0'], {
      cwd: root,
      env: { PATH: process.env['PATH'] ?? '' },
      encoding: 'utf8',
    });
    expect(shell.stderr).toBe('');
    const ofShell = Object.fromEntries(
      shell.stdout.split('\0').map((line): [string, string] => [line.replace(/=.*/s, ''), line.replace(/^[^=]*=/, '')]),
    );
    const ofService = parseEnv(text);
    expect(ofShell).toMatchObject(ofService);
    expect(ofService['EMAIL_FROM']).toBe('School management <no-reply@localhost>');
  });

  test('is read from the folder of the start; variables of the environment take precedence', async () => {
    await writeFile(join(folder, '.env'), `DATABASE_URL='${database.url}'\nLOG_LEVEL=loud\n`);
    const list = (env: Record<string, string>) =>
      spawnSync(process.execPath, [join(root, 'src/cli/main.ts'), 'tenant', 'list'], {
        cwd: folder,
        env: { PATH: process.env['PATH'] ?? '', ...env },
        encoding: 'utf8',
      });
    expect(list({})).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('LOG_LEVEL must be one of'),
    });
    expect(list({ LOG_LEVEL: 'info' })).toMatchObject({ status: 0, stdout: '', stderr: '' });
  });

  test('that ENV_FILE names must exist', async () => {
    const missing = join(folder, 'missing.env');
    expect(await school(['tenant', 'list'], { ENV_FILE: missing })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`The settings in ${missing} cannot be read`),
    });
  });
});

describe('school', () => {
  test('--version is the version of the package', async () => {
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
    expect(await school(['--version'])).toMatchObject({ code: 0, stdout: `${version}\n` });
  });

  test('has examples in the help of every command, and --json wherever there is a result', async () => {
    const commandsOf = (help: string) =>
      [...(/\nCommands:\n([\s\S]*?)(\n\n|$)/.exec(help)?.[1] ?? '').matchAll(/^ {2}([a-z-]+)/gm)].flatMap(
        ([, name = '']) => (name === 'help' ? [] : [name]),
      );
    const visit = async (path: string[]): Promise<void> => {
      const { stdout, code } = await school([...path, '--help']);
      expect({ path, code, hasExamples: /\nExamples:\n {2}\$ /.test(stdout) }).toEqual({
        path,
        code: 0,
        hasExamples: true,
      });
      const children = commandsOf(stdout);
      // They print a document, or change files of the source code.
      const hasNoJson = /^(openapi|graphql-schema|commit-migration|migrate)/.test(path.join(' '));
      if (children.length === 0 && !hasNoJson) expect({ path, stdout }).toMatchObject({ stdout: /--json/ });
      await Promise.all(children.map((name) => visit([...path, name])));
    };
    await visit([]);
  }, 60_000);

  test('has one table of exit codes, in its help', async () => {
    const { stdout } = await school(['--help']);
    expect(/Exit codes:\n( {2}.*\n)+/.exec(stdout)?.[0].match(/^ {2}\d/gm)).toEqual(['  0', '  1', '  2', '  3']);
  });

  test('ends with 1 for an unknown command and for an unknown option', async () => {
    expect(await school(['tenants'])).toMatchObject({ code: 1, stdout: '' });
    expect(await school(['tenant', 'list', '--all'])).toMatchObject({ code: 1, stdout: '' });
  });
});

describe('a database that was not migrated', () => {
  const advice = /^The database \S+ database test_\w+ has not been migrated\. Run this first: npm run migrate\n$/;

  test.each([['tenant list'], ['doctor'], ['jobs list'], ['status']])('is named by school %s', async (command) => {
    const { code, stderr } = await school(command.split(' '), { DATABASE_URL: empty.url });
    expect({ code, stderr: stderr.replace(/The database .*, database/, 'The database host:1, database') }).toEqual({
      code: 1,
      stderr: expect.stringMatching(advice.source.replace('\\S+ database', 'host:1, database')),
    });
  });

  test('is named by the start, if it does not migrate', async () => {
    expect(
      await runProgram('src/main.ts', [], { DATABASE_URL: empty.url, MIGRATE_ON_START: 'false', PORT: '0' }),
    ).toMatchObject({ code: 1, stderr: expect.stringContaining('Run this first: npm run migrate') });
  });
});

describe('a data directory without a database', () => {
  test.each([
    'status',
    'doctor',
    'jobs list',
    'tenant list',
    'tenant show 1',
    'operator list',
    'analytics refresh',
    'student export 1 1',
    'migrate status',
    'migrate plan',
    'migrate up --dry-run',
  ])('is named by school %s, and stays as it is', async (command) => {
    const DATA_DIR = join(folder, 'misspelled');
    expect(await runProgram('src/cli/main.ts', command.split(' '), { DATA_DIR })).toMatchObject({
      code: 1,
      stdout: '',
      stderr: `There is no database in ${DATA_DIR}. Check DATA_DIR and DATABASE_URL, or run this first: npm run migrate\n`,
    });
    expect(await readdir(folder)).not.toContain('misspelled');
  });
});

/** Imitates PgBouncer, which refuses startup options. It passes all other bytes on. */
function pooler(target: pg.Client, handle: 'refuse' | 'drop'): Promise<Server> {
  const server = createServer((client) => {
    client.on('error', () => undefined);
    client.once('data', (first) => {
      const options = first.indexOf('options\0');
      if (options >= 0 && handle === 'refuse') {
        const fields = Buffer.from('SFATAL\0C08P01\0Munsupported startup parameter: options\0\0');
        const head = Buffer.alloc(5);
        head.write('E');
        head.writeInt32BE(fields.length + 4, 1);
        client.end(Buffer.concat([head, fields]));
        return;
      }
      let startup = first;
      if (options >= 0) {
        const end = first.indexOf(0, options + 'options\0'.length) + 1;
        startup = Buffer.concat([first.subarray(0, options), first.subarray(end)]);
        startup.writeInt32BE(startup.length, 0);
      }
      const upstream = target.host.startsWith('/')
        ? connect(join(target.host, `.s.PGSQL.${String(target.port)}`))
        : connect(target.port, target.host);
      upstream.on('error', () => client.destroy());
      client.on('close', () => upstream.destroy());
      upstream.write(startup);
      client.pipe(upstream).pipe(client);
    });
  });
  return new Promise((done) => void server.listen(0, '127.0.0.1', () => done(server)));
}

describe('the lock of the migration', () => {
  test.each(['refuse', 'drop'] as const)(
    'is not taken through a pooler that %ss startup options; the message names the settings',
    async (handle) => {
      const target = new pg.Client({ connectionString: database.url });
      const server = await pooler(target, handle);
      try {
        const address = server.address();
        const port = typeof address === 'object' && address ? String(address.port) : '';
        const user = `${target.user ?? ''}${target.password ? `:${target.password}` : ''}`;
        const through = `postgres://${user}@127.0.0.1:${port}/${target.database ?? ''}`;
        expect(await school(['migrate'], { DATABASE_URL: through })).toMatchObject({
          code: 1,
          stderr: expect.stringMatching(
            /^DATABASE_URL leads through a connection pooler .* and API_DATABASE_URL to the pooler/,
          ),
        });
        expect(
          await database.query(
            `select from pg_locks
             where locktype = 'advisory' and objid = 7310 and classid = 0
               and database = (select oid from pg_database where datname = current_database())`,
          ),
        ).toEqual([]);
      } finally {
        server.close();
      }
    },
  );

  test('is waited for with a line that names the process of Postgres that holds it', async () => {
    const holder = new pg.Client({ connectionString: database.url, application_name: 'forgotten' });
    await holder.connect();
    const { rows } = await holder.query<{ pid: number }>('select pg_backend_pid() as pid, pg_advisory_lock(7310)');
    const program = startProgram('src/cli/main.ts', ['migrate'], { DATABASE_URL: database.url });
    const [line] = await program.prints(/Waiting for another migration.*/);
    expect(line).toContain(`process ${String(rows[0]?.pid)} (forgotten, idle since `);
    expect(line).toContain(`select pg_terminate_backend(${String(rows[0]?.pid)});`);
    await holder.end();
    expect(await program.ended).toMatchObject({ code: 0, stderr: '' });
  });

  test('is waited for by `migrate plan` too, with the same line', async () => {
    const holder = new pg.Client({ connectionString: database.url, application_name: 'forgotten' });
    await holder.connect();
    await holder.query('select pg_advisory_lock(7310)');
    const plan = startProgram('src/cli/main.ts', ['migrate', 'plan'], { DATABASE_URL: database.url });
    await plan.prints(/Waiting for another migration/);
    await holder.end();
    expect((await plan.ended).code).toBe(0);
  });
});

describe('a reader that ends first, as `head -1` does', () => {
  test('ends the command without an error, with the exit code of SIGPIPE', async () => {
    const command = spawn(process.execPath, [join(root, 'src/cli/main.ts'), 'openapi'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    command.stdout.destroy();
    const stderr: Buffer[] = [];
    command.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    const [code] = (await once(command, 'close')) as [number | null];
    expect({ code, stderr: Buffer.concat(stderr).toString() }).toEqual({ code: 141, stderr: '' });
  });
});

describe('school commit-migration', () => {
  test('writes the next migration, readable by every user, and leaves an empty current.sql', async () => {
    const migrations = join(folder, 'migrations');
    await cp(join(root, 'migrations'), migrations, { recursive: true });
    const current = join(migrations, 'current.sql');
    const blank = await readFile(current, 'utf8');
    const commit = () => school(['commit-migration', 'rooms', '--migrations', migrations]);
    expect(await commit()).toMatchObject({ code: 1, stderr: expect.stringContaining('contains no statement') });
    await writeFile(current, `${blank}create table platform.room (id bigint primary key);\n`);
    expect(await commit()).toMatchObject({ code: 0, stderr: '' });
    const files = (await readdir(join(migrations, 'committed'))).sort();
    const committed = join(migrations, 'committed', files.at(-1) ?? '');
    expect(committed).toMatch(/\d{6}-rooms\.sql$/);
    expect(await readFile(committed, 'utf8')).toContain('create table platform.room');
    expect((await stat(committed)).mode & 0o777).toBe(0o644);
    expect(await readFile(current, 'utf8')).toBe(blank);
  }, 60_000);
});

describe('the banner', () => {
  test('names no demo login that does not exist', async () => {
    const [plan] = await database.query<{ id: string }>('select min(id) as id from platform.plan');
    const [{ id } = { id: '' }] = await database.query<{ id: string }>(
      `insert into platform.tenant (name, subdomain, contact_email, plan_id)
       values ('Imported', 'demo', 'a@b.example', $1) returning id`,
      [plan?.id],
    );
    await database.query('select core.tenant_provision($1, $2)', [id, { email: 'admin@demo.example' }]);
    const program = startProgram('src/main.ts', ['--only', 'api'], {
      DATABASE_URL: database.url,
      DATA_DIR: folder,
      PORT: '0',
      LOG_LEVEL: 'error',
    });
    const { demo, printed } = await ready(program);
    program.kill('SIGTERM');
    await program.ended;
    expect(demo).toBeUndefined();
    expect(printed).not.toContain('operator@demo.example');
    await until(async () =>
      (
        await database.query(
          `select from pg_stat_activity where datname = current_database() and application_name like 'school_api%'`,
        )
      ).length === 0
        ? true
        : undefined,
    );
  });
});
