import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type EmbeddedServer, startEmbedded } from '../../src/database/embedded.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import type { Client } from '../support/client/client.ts';
import { copyMigratedCluster } from '../support/server/own-server.ts';
import { freePort, type Program, ready, runProgram, startProgram } from '../support/server/processes.ts';

const { client } = shared;

// A separate server that this test can stop, on a TCP port, so that its URL stays the same.
let folder: string;
let dataDir: string;
let server: EmbeddedServer | undefined;
let settings: string[];
let ownerUrl: string;
let program: Program;
let url: string;
let admin: Client;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'school-restart-'));
  dataDir = await mkdtemp(join(tmpdir(), 'school-data-'));
  const port = await freePort();
  settings = ['listen_addresses=127.0.0.1', `port=${port}`];
  ownerUrl = `postgres://postgres@127.0.0.1:${port}/school`;
  await copyMigratedCluster(folder);
  server = await startEmbedded(folder, settings);
  // A separate process, because in Jest's sandbox network errors are of a different class.
  program = startProgram('src/main.ts', [], {
    ...{
      DATABASE_URL: ownerUrl,
      PORT: '0',
      DATA_DIR: dataDir,
      DEMO: 'false',
      LOG_LEVEL: 'silent',
      RATE_LIMIT_PER_MINUTE: '0',
      USER_RATE_LIMIT_PER_MINUTE: '0',
      SCHOOL_RATE_LIMIT_PER_MINUTE: '0',
      // Logins are counted in the database, which this test stops.
      PUBLIC_RATE_LIMIT_PER_MINUTE: '1000',
    },
    ...{ PLATFORM_ADMIN_EMAIL: 'op@test.example', PLATFORM_ADMIN_PASSWORD: 'test-password' },
  });
  ({ url } = await ready(program));
  const anonymous = await client(url);
  const operator = await anonymous.login({ is_platform: true, email: 'op@test.example', password: 'test-password' });
  await operator.post(
    '/api/platform/tenants',
    {
      name: 'Restart',
      subdomain: 'restart',
      contact_email: 'admin@restart.example',
      plan_id: 3,
      admin_password: 'test-password',
    },
    201,
  );
  admin = await anonymous.login({ subdomain: 'restart', email: 'admin@restart.example', password: 'test-password' });
  await withOwner(ownerUrl, (owner) =>
    owner.query(
      `insert into tenant_1.academic_year (name, start_date, end_date, is_current) values ('Y', '2026-01-01', '2026-12-31', true);
       insert into tenant_1.grade (name) values ('G');
       insert into tenant_1.class (name, grade_id, academic_year_id) values ('C', 1, 1)`,
    ),
  );
});
afterAll(async () => {
  program.kill('SIGINT');
  await program.ended;
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
  await rm(dataDir, { recursive: true, force: true });
});

/** Sends one request of the load and records the outcome. */
async function request(
  method: string,
  path: string,
  body?: object,
): Promise<{ status: number; retryAfter: string | null; error: string | undefined }> {
  const response = await fetch(`${url}/api/students${path}`, {
    method,
    headers: { Authorization: `Bearer ${admin.token}`, 'Content-Type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  const { error } = (await response.json()) as { error?: string };
  return { status: response.status, retryAfter: response.headers.get('retry-after'), error };
}

const health = async (path = '') => (await fetch(`${url}/api/health${path}`)).status;

async function until(look: () => Promise<boolean>): Promise<void> {
  while (!(await look())) await new Promise((done) => setTimeout(done, 50));
}

test('a database restart under load causes only 503 responses: no 500, no partial write, no lost email', async () => {
  await until(async () => (await health('/ready')) === 200);
  const answers: { kind: 'create' | 'list'; status: number; retryAfter: string | null; error: string | undefined }[] =
    [];
  let phase: 'before' | 'stopping' | 'down' | 'starting' | 'after' | 'over' = 'before';
  const successes = { before: 0, stopping: 0, down: 0, starting: 0, after: 0, over: 0 };
  const load = Array.from({ length: 4 }, async (_, worker) => {
    for (let n = 0; n < 1000 && phase !== 'over'; n++) {
      const kind = n % 2 ? 'list' : 'create';
      const began = phase;
      const answer = await (kind === 'list'
        ? request('GET', '?pageSize=5')
        : request('POST', '', { first_name: 'Load', last_name: `W${worker} N${n}`, class_id: 1 }));
      answers.push({ kind, ...answer });
      if (answer.status < 300) successes[began]++;
      else await new Promise((done) => setTimeout(done, 20));
    }
  });

  await until(() => Promise.resolve(successes.before >= 40));
  // One email that is due after the restart, and one that is queued during the outage.
  await withOwner(ownerUrl, (owner) =>
    owner.query(
      `with late as (insert into tenant_1.user_account (email, first_name, last_name) values ('late@restart.example', 'La', 'Te') returning id)
       select graphile_worker.add_job('send_email', json_build_object('tenant_id', 1, 'user_id', id, 'kind', 'invitation'), run_at => now() + interval '2 seconds') from late`,
    ),
  );
  phase = 'stopping';
  await server?.stop();
  server = undefined;
  phase = 'down';
  expect(await health()).toBe(200);
  // The answer "ready" is cached for a second.
  await until(async () => (await health('/ready')) === 503);
  await until(() => Promise.resolve(answers.filter(({ status }) => status === 503).length >= 8));
  expect(await health()).toBe(200);
  const login = await fetch(`${url}/api/auth/login`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ subdomain: 'restart', email: 'admin@restart.example', password: 'test-password' }),
  });
  expect([login.status, login.headers.get('retry-after')]).toEqual([503, '1']);
  phase = 'starting';
  server = await startEmbedded(folder, settings);
  phase = 'after';
  await until(() => Promise.resolve(successes.after >= 40));
  phase = 'over';
  await Promise.all(load);

  expect([...new Set(answers.map(({ kind, status }) => `${kind} ${status}`))].sort()).toEqual([
    'create 201',
    'create 503',
    'list 200',
    'list 503',
  ]);
  const refused = answers.filter(({ status }) => status === 503);
  expect(refused.every(({ retryAfter, error }) => retryAfter === '1' && error === 'unavailable')).toBe(true);
  expect(successes.down).toBe(0);

  const { rows } = await withOwner(ownerUrl, (owner) =>
    owner.query<{ students: number; alone: number; counted: number }>(
      `select (select count(*)::integer from tenant_1.student) as students,
         (select count(*)::integer from tenant_1.student s where not exists (select from tenant_1.enrollment e where e.student_id = s.id and e.status = 'active')) as alone,
         (select students from platform.tenant_usage where tenant_id = 1) as counted`,
    ),
  );
  const created = answers.filter(({ status }) => status === 201).length;
  const unknown = answers.filter(({ kind, status }) => kind === 'create' && status === 503).length;
  expect(rows[0]?.students).toBeGreaterThanOrEqual(created);
  expect(rows[0]?.students).toBeLessThanOrEqual(created + unknown);
  expect(rows[0]).toMatchObject({ alone: 0, counted: rows[0]?.students });

  await until(async () => (await health('/ready')) === 200);
  const outbox = join(dataDir, 'outbox');
  const mails = async () => {
    const names = (await readdir(outbox).catch(() => [])).filter((name) => name.endsWith('.eml'));
    return Promise.all(names.map((name) => readFile(join(outbox, name), 'utf8')));
  };
  await until(async () => (await mails()).some((mail) => mail.includes('late@restart.example')));
  await admin.post('/api/users', { email: 'after@restart.example', first_name: 'Af', last_name: 'Ter' }, 201);
  await until(async () => (await mails()).some((mail) => mail.includes('after@restart.example')));
  for (const address of ['late', 'after'])
    expect((await mails()).filter((mail) => mail.includes(`${address}@restart.example`))).toHaveLength(1);
});

test('is degraded while writes wait for a synchronous replica that is away, and the writes end when it is off', async () => {
  const set = (change: string) =>
    withOwner(ownerUrl, async (owner) => {
      await owner.query(`alter system ${change}`);
      await owner.query('select pg_reload_conf()');
    });
  const reasons = async () =>
    ((await (await fetch(`${url}/api/health/ready`)).json()) as { data: { reasons: string[] } }).data.reasons;
  await until(async () => (await reasons()).length === 0);
  await set("set synchronous_standby_names = 'away'");
  try {
    const write = request('POST', '', { first_name: 'Late', last_name: 'Commit', class_id: 1 });
    await until(async () => (await reasons()).includes('writes'));
    await set('reset synchronous_standby_names');
    expect((await write).status).toBe(201);
    await until(async () => (await reasons()).length === 0);
  } finally {
    await set('reset synchronous_standby_names');
  }
}, 60_000);

test('an address that pg_hba.conf does not let in is reported with what to change', async () => {
  const [file] = await withOwner(
    ownerUrl,
    async (owner) => (await owner.query<{ hba_file: string }>('show hba_file')).rows,
  );
  const rules = await readFile(file?.hba_file ?? '', 'utf8');
  const use = async (text: string) => {
    await writeFile(file?.hba_file ?? '', text);
    await withOwner(ownerUrl, (owner) => owner.query('select pg_reload_conf()'));
  };
  await use(`host all stranger 127.0.0.1/32 reject\n${rules}`);
  try {
    const DATABASE_URL = ownerUrl.replace('postgres@', 'stranger@');
    await until(async () => {
      const { stderr } = await runProgram('src/cli/main.ts', ['status'], { DATABASE_URL });
      return stderr.includes('Add a line to its pg_hba.conf and reload it.');
    });
  } finally {
    await use(rules);
  }
}, 30_000);
