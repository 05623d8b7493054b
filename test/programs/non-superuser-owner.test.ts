import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type pgTypes from 'pg';
import { exportTenant } from '../../src/database/archive.ts';
import type { Service } from '../../src/process/service.ts';
import { type OwnServer, ownServer } from '../support/server/own-server.ts';
import { dropConstraintsAndTriggers, minimalInsert, provision, tenantTables } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { runProgram } from '../support/server/processes.ts';

const { client, createOperator, migrate, passwords, pg, readConfig, startService, withOwner } = shared;

// Roles are shared by all databases of a server, and this owner must create them: use a new server without roles.
let own: OwnServer;
let ownerUrl: string;
let service: Service | undefined;
let dataDir: string;

beforeAll(async () => {
  own = await ownServer();
  dataDir = await mkdtemp(join(tmpdir(), 'school-data-'));
  await withOwner(own.url('postgres'), (superuser) =>
    superuser.query('create role landlord login createdb createrole'),
  );
  const asLandlord = (database: string) => own.url(database).replace('postgres://postgres@', 'postgres://landlord@');
  await withOwner(asLandlord('postgres'), (landlord) => landlord.query('create database leased'));
  ownerUrl = asLandlord('leased');
});
afterAll(async () => {
  await service?.close();
  await own.remove();
  await rm(dataDir, { recursive: true, force: true });
});

test('an owner with only createdb and createrole can migrate, provision schools and run the service', async () => {
  const [privileges] = await withOwner(
    ownerUrl,
    async (owner) =>
      (
        await owner.query<{ super: boolean; bypass: boolean }>(
          'select rolsuper as super, rolbypassrls as bypass from pg_roles where rolname = current_user',
        )
      ).rows,
  );
  expect(privileges).toEqual({ super: false, bypass: false });
  expect(await migrate({ ownerUrl })).toMatchObject({ tenants: [], failed: [] });
  const settings = () =>
    withOwner(
      ownerUrl,
      async (owner) =>
        (
          await owner.query<{ role: string; setting: string }>(
            'select setrole::regrole::text as role, unnest(setconfig) as setting from pg_db_role_setting order by 1, 2',
          )
        ).rows,
    );
  const initial = await settings();
  expect(initial).toContainEqual({ role: 'school_api', setting: 'statement_timeout=15s' });
  // The next migration adds what is missing, and keeps what the administrator has set.
  await withOwner(ownerUrl, (owner) =>
    owner.query("alter role school_api reset jit; alter role school_api set statement_timeout = '20s'"),
  );
  expect(await migrate({ ownerUrl })).toMatchObject({ tenants: [], failed: [] });
  expect(await settings()).toEqual(
    initial.map((row) =>
      row.setting === 'statement_timeout=15s' ? { ...row, setting: 'statement_timeout=20s' } : row,
    ),
  );

  const [temporary] = await withOwner(
    ownerUrl,
    async (owner) =>
      (
        await owner.query<{ allowed: boolean }>(
          "select has_database_privilege('school_tenant', current_database(), 'temporary') as allowed",
        )
      ).rows,
  );
  expect(temporary).toEqual({ allowed: false });

  const passwordHash = await passwords().hash('test-password');
  await withOwner(ownerUrl, (owner) =>
    createOperator(owner, {
      email: 'op@test.example',
      passwordHash,
      firstName: 'Op',
      lastName: 'Erator',
      role: 'admin',
      tenantIds: null,
    }),
  );
  service = await startService(
    readConfig({
      PORT: '0',
      NODE_ENV: 'test',
      DATA_DIR: dataDir,
      LOG_LEVEL: 'silent',
      RATE_LIMIT_PER_MINUTE: '0',
      USER_RATE_LIMIT_PER_MINUTE: '0',
      SCHOOL_RATE_LIMIT_PER_MINUTE: '0',
      PUBLIC_RATE_LIMIT_PER_MINUTE: '0',
    }),
    ownerUrl,
  );
  const anonymous = await client(service.url ?? '');
  const operator = await anonymous.login({ is_platform: true, email: 'op@test.example', password: 'test-password' });
  const tenants: number[] = [];
  for (const subdomain of ['green', 'blue']) {
    const admin = `admin@${subdomain}.example`;
    tenants.push(
      (
        await operator.post<{ id: number }>(
          '/api/platform/tenants',
          { name: subdomain, subdomain, contact_email: admin, plan_id: 3, admin_password: 'test-password' },
          201,
        )
      ).data.id,
    );
  }
  const green = await anonymous.login({ subdomain: 'green', email: 'admin@green.example', password: 'test-password' });
  const blue = await anonymous.login({ subdomain: 'blue', email: 'admin@blue.example', password: 'test-password' });
  await green.post(
    '/api/students',
    { first_name: 'José', last_name: 'García', create_user_account: true, email: 'jose@green.example' },
    201,
  );
  expect((await green.get<{ first_name: string }[]>('/api/students?search=garcia')).data).toMatchObject([
    { first_name: 'José', admission_number: '000001' },
  ]);
  expect((await blue.get<unknown[]>('/api/students')).data).toEqual([]);
  expect((await operator.get<{ stats: unknown }>(`/api/platform/tenants/${tenants[0] ?? 0}`)).data.stats).toEqual({
    total_students: 1,
    total_teachers: 0,
    total_classes: 0,
  });

  // Plan limits count the whole school, not only the students in a teacher's scope.
  const { data: permissions } = await green.get<{ id: number; name: string }[]>('/api/rbac/permissions');
  const { data: roles } = await green.get<{ id: number; name: string; permission_ids: number[] }[]>(
    '/api/rbac/roles?search=teacher',
  );
  const change = permissions.find(({ name }) => name === 'student.update')?.id ?? 0;
  const [role] = roles;
  await green.put(`/api/rbac/roles/${role?.id ?? 0}`, { permission_ids: [...(role?.permission_ids ?? []), change] });
  const { data: grade } = await green.post<{ id: number }>('/api/grades', { name: 'One' }, 201);
  const { data: year } = await green.post<{ id: number }>(
    '/api/academics/years',
    { name: 'Now', start_date: '2026-01-01', end_date: '2026-12-31' },
    201,
  );
  const login = { email: 'tea@green.example', create_user_account: true, password: 'test-password' };
  const { data: tea } = await green.post<{ id: number }>(
    '/api/teachers',
    { first_name: 'Tea', last_name: 'Cher', ...login },
    201,
  );
  const inClass = { grade_id: grade.id, academic_year_id: year.id, class_teacher_id: tea.id };
  const { data: taught } = await green.post<{ id: number }>('/api/classes', { name: 'Taught', ...inClass }, 201);
  const { data: pupil } = await green.post<{ id: number }>(
    '/api/students',
    { first_name: 'In', last_name: 'Class', class_id: taught.id },
    201,
  );
  const teacher = await anonymous.login({ subdomain: 'green', email: login.email, password: login.password });
  await teacher.put(`/api/students/${pupil.id}`, { is_active: true });
  expect((await green.get<{ usage: object }>('/api/subscription/status')).data.usage).toMatchObject({
    students: { used: 2 },
    teachers: { used: 1 },
  });

  // Facts are written under row security, and an analyst of this school reads them.
  const analyst = await withOwner(ownerUrl, async (owner) => {
    await owner.query('select core.analytics_refresh(id, true) from platform.tenant');
    await owner.query('begin; set local role school_graphql; set local role school_analyst');
    await owner.query("select set_config('app.analytics_tenants', $1, true)", [`,${String(tenants[0])},`]);
    return (
      await owner.query<object>(
        'select t.subdomain, t.students, c.grade, e.students as enrolled from analytics.tenants t join analytics.classes c using (tenant_id) join analytics.enrollments e using (tenant_id, class_id)',
      )
    ).rows;
  });
  expect(analyst).toEqual([{ subdomain: 'green', students: 2, grade: 'One', enrolled: 1 }]);

  // By default passwords are hashed with the cost that OWASP recommends; other tests use a lower cost.
  const hashes = await withOwner(
    own.url('leased'),
    async (superuser) =>
      (
        await superuser.query<{ hash: string }>(
          'select distinct left(password_hash, 31) as hash from platform.user_account union select distinct left(password_hash, 31) from tenant_1.user_account where password_hash is not null',
        )
      ).rows,
  );
  expect(hashes).toEqual([{ hash: '$argon2id$v=19$m=19456,p=1,t=2$' }]);

  // Verification and invitation emails went through the queue.
  const folder = join(dataDir, 'outbox');
  const names = await until(async () => {
    const found = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.eml'));
    return found.length >= 4 ? found : undefined;
  });
  const messages = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')));
  expect(messages.map((message) => /^To: .*?([\w.]+@[\w.]+)/m.exec(message)?.[1]).sort()).toEqual([
    'admin@blue.example',
    'admin@green.example',
    'jose@green.example',
    'tea@green.example',
  ]);

  // Row security is forced for the owner, and the cleanup job still works for each school.
  const owner = new pg.Client({ connectionString: ownerUrl });
  await owner.connect();
  try {
    expect((await owner.query('select from tenant_1.student')).rowCount).toBe(0);
    await owner.query("set app.tenant_id = '1'; set app.scope = 'all'");
    expect((await owner.query('select from tenant_1.student')).rowCount).toBe(2);
    await owner.query(
      "insert into tenant_1.idempotency_key (user_id, key, operation, request_hash, created_at) values (1, 'old', 'x', 'x', now() - interval '2 days')",
    );
    await owner.query(
      'reset app.tenant_id; reset app.scope; set role school_worker; select core.clean_up(); select core.clean_up_school(1)',
    );
    await owner.query("reset role; set app.tenant_id = '1'; set app.scope = 'all'");
    expect((await owner.query('select from tenant_1.idempotency_key')).rowCount).toBe(0);
  } finally {
    await owner.end();
  }
});

test('the owner can run statements for a school, and they stay in it', async () => {
  const sql = async (text: string) => {
    const file = join(dataDir, 'statements.txt');
    await writeFile(file, text);
    const args = ['sql', 'green', '--write', '--yes', '--file', file];
    return runProgram('src/cli/main.ts', args, { DATABASE_URL: ownerUrl, DATA_DIR: dataDir });
  };
  expect(await sql("update student set phone = '1' where first_name = 'José'")).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('UPDATE: 1 row\n'),
  });
  expect(await sql('set role none; select * from tenant_2.user_account')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('within security-definer function'),
  });
  expect((await sql('select * from tenant_2.user_account')).stderr).toContain('permission denied for schema tenant_2');
});

test('its export of a school has every row of every table, except for API keys and the secrets of webhooks', async () => {
  await withOwner(own.url('leased'), async (superuser) => {
    const database = {
      url: own.url('leased'),
      query: async <R extends pgTypes.QueryResultRow>(text: string, values?: unknown[]) =>
        (await superuser.query<R>(text, values)).rows,
      drop: () => Promise.resolve(),
    };
    const { id, schema } = await provision(database);
    const tables = await tenantTables(database, schema);
    await dropConstraintsAndTriggers(database, schema);
    for (const table of tables) for (let n = 0; n < 2; n++) await superuser.query(minimalInsert(schema, table));

    const file = join(dataDir, 'leased.jsonl.gz');
    await withOwner(ownerUrl, (owner) =>
      exportTenant(owner, { text: 'select name, at_a_time from core.archive_open($1)', values: [id] }, file),
    );
    const lines = gunzipSync(await readFile(file))
      .toString()
      .split('\n');
    const counts = [];
    for (const { name } of tables) {
      const [row] = await database.query<{ there: number }>(`select count(*)::integer as there from ${schema}.${name}`);
      const exported = lines.filter((line) => line.startsWith(`{"table":"${name}",`)).length;
      counts.push({ name, there: row?.there ?? 0, exported });
    }
    expect(counts.length).toBeGreaterThan(40);
    expect(counts.filter(({ there }) => there < 2)).toEqual([]);
    expect(counts.filter(({ there, exported }) => there !== exported)).toEqual([
      { name: 'api_key', there: 2, exported: 0 },
      { name: 'webhook_secret', there: 2, exported: 0 },
    ]);
  });
});
