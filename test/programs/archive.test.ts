import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { exportTenant, importTenant } from '../../src/database/archive.ts';
import { ensureDatabase } from '../../src/database/embedded.ts';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { schemaDefinition } from '../support/database/schema-definition.ts';
import { contents } from '../support/database/contents.ts';
import { serverUrl, testDatabase, type TestDatabase } from '../support/server/database.ts';
import { fileForm, jpeg, png } from '../support/fixtures/pictures.ts';
import { enable } from '../support/fixtures/second-factors.ts';
import { runProgram } from '../support/server/processes.ts';
import { type School, testPassword, testService } from '../support/server/service.ts';

/**
 * Tables that a later release might add: every kind of type, circular and self references, rows inserted by a
 * migration, a trigger that forbids changes, and no primary key.
 */
const oddTables = `
  create table odd_a (id bigserial primary key, odd_b_id bigint not null, parent_id bigint references odd_a (id) on delete restrict, note text,
    amount numeric(12,2), ratio double precision, at timestamptz, hour time, day date, span daterange, tags text[], picture bytea, answer json, options jsonb,
    big bigint, doubled numeric generated always as (amount * 2) stored);
  create table odd_b (id bigserial primary key, odd_a_id bigint references odd_a (id) on delete restrict);
  alter table odd_a add constraint odd_a_odd_b_id_fkey foreign key (odd_b_id) references odd_b (id) on delete restrict;
  create table odd_keyless (note text);
  insert into odd_keyless values ('of the migration, kept'), ('of the migration, deleted');
  create function odd_refuse() returns trigger language plpgsql as $$ begin raise exception 'odd_keyless is append-only'; end $$;
  create trigger append_only before update or delete or truncate on odd_keyless for each statement execute function odd_refuse();
`;
const oddRows = (schema: string) => `
  set search_path to ${schema}, public;
  begin;
  alter table odd_a alter constraint odd_a_odd_b_id_fkey deferrable initially deferred;
  insert into odd_a (id, odd_b_id, parent_id, note, amount, ratio, at, hour, day, span, tags, picture, answer, options, big) values
    (7, 9, 8, e'two\\nlines, "quotes", \\\\ and \\u2028 é 漢 😀', 1234567890.10, 0.1, '2026-03-01 12:00:00.123456+02', '08:15', '2028-02-29', '[2026-01-01,2026-02-01)',
     array['a,b', null, '{"}'], '\\x00ff0a0d22', e'{"b": 1,\\n  "a": 1.50, "a": 2}', '{"deep": [1, {"x": null}]}', 9007199254740993),
    (8, 9, null, null, 'nan', 'infinity', 'infinity', null, '-infinity', 'empty', '{}', '', 'null', 'null', null);
  insert into odd_b values (9, 7);
  select setval('odd_a_id_seq', 8), setval('odd_b_id_seq', 9);
  set constraints all immediate;
  alter table odd_a alter constraint odd_a_odd_b_id_fkey not deferrable;
  alter table odd_keyless disable trigger append_only;
  delete from odd_keyless where note like '%deleted';
  alter table odd_keyless enable trigger append_only;
  commit;
  reset search_path;
`;

const release = (database: TestDatabase, version: number, body: string) =>
  database.query(
    "insert into platform.tenant_migration (version, name, body, checksum) values ($1, 'of a test', $2, '')",
    [version, body],
  );

const dataDir = await mkdtemp(join(tmpdir(), 'school-archive-'));
const service = await testService({ DATA_DIR: dataDir });
const elsewhere = await testService({}, 0);
let school: School;
let student: { id: number };
let gone: { id: number };
let file: string;
let before: Record<string, string[]>;

/** Runs the command line on a test database. */
const cli = (database: TestDatabase, ...args: string[]) =>
  runProgram('src/cli/main.ts', ['tenant', ...args], { DATABASE_URL: database.url, DATA_DIR: dataDir });

const credentials = () => ({ subdomain: school.subdomain, email: school.adminEmail, password: testPassword });

beforeAll(async () => {
  await release(service.database, 9001, oddTables);
  await release(elsewhere.database, 9001, oddTables);
  // The id must be unused in the other database.
  await service.database.query("select setval('platform.tenant_id_seq', 4000)");
  school = await service.school();
  await service.database.query(oddRows(school.schema));
  const { classId } = await school.classroom('Before');
  const { classId: next } = await school.classroom('After');
  const { admin } = school;
  await admin.send('POST', '/api/auth/profile/picture', { body: fileForm(png, 'a.png', 'image/png') }, 200);
  await school.user(['teacher'], { phone: '+1 555' });
  const teacher = (await admin.get<{ id: number; name: string }[]>('/api/rbac/roles')).data.find(
    ({ name }) => name === 'teacher',
  );
  await admin.put(`/api/rbac/roles/${String(teacher?.id)}`, { permission_ids: [1] });
  for (let n = 0; n < 30; n++) {
    const { data } = await admin.send<{ id: number }>(
      'POST',
      '/api/students',
      {
        body: { first_name: 'Zoë', last_name: `Number ${n}`, class_id: classId },
        headers: { 'Idempotency-Key': `key-${n}` },
      },
      201,
    );
    student = data;
  }
  await admin.put(`/api/students/${student.id}`, { class_id: next });
  ({ data: gone } = await admin.post<{ id: number }>('/api/rbac/roles', { name: 'Gone' }, 201));
  await admin.delete(`/api/rbac/roles/${gone.id}`);
  await service.database.query(
    `insert into ${school.schema}.file (content, content_type) select $1, 'image/jpeg' from generate_series(1, 3)`,
    [Buffer.concat([jpeg, Buffer.alloc(600_000, 'x')])],
  );
  before = await contents(service.database, school.schema);

  const { code, stdout, stderr } = await cli(service.database, 'export', school.subdomain);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  file = /in (\/.*\.jsonl\.gz)$/m.exec(stdout)?.[1] ?? '';
});
afterAll(async () => {
  await service.close();
  await elsewhere.close();
  await rm(dataDir, { recursive: true, force: true });
});

/** Imports a file. @returns the error message */
const refusal = (database: TestDatabase, path: string) =>
  withOwner(database.url, (client) => importTenant(client, path)).then(
    () => 'imported',
    (error: unknown) => (error as Error).message,
  );

/** Writes a copy of the export with changed lines. */
async function changed(name: string, change: (lines: string[]) => string[], from = file): Promise<string> {
  const path = join(dataDir, name);
  const lines = gunzipSync(await readFile(from))
    .toString()
    .trimEnd()
    .split('\n');
  await writeFile(
    path,
    gzipSync(
      change(lines)
        .map((line) => `${line}\n`)
        .join(''),
    ),
  );
  return path;
}

const withHeader =
  (
    change: (header: {
      schema_version: number;
      plan: string;
      tenant: Record<string, unknown>;
      subscription: Record<string, unknown>;
    }) => void,
  ) =>
  (lines: string[]) => {
    const header = JSON.parse(lines[0] ?? '') as Parameters<typeof change>[0];
    change(header);
    return [JSON.stringify(header), ...lines.slice(1)];
  };

describe('a school export', () => {
  test('is named after the school and the time, and readable only by its owner', async () => {
    expect(file).toMatch(new RegExp(`^${dataDir}/exports/${school.subdomain}-${school.id}-[\\dTZ-]+\\.jsonl\\.gz$`));
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect((await readdir(join(dataDir, 'exports'))).length).toBe(1);
  });

  test('consists of a header, rows in the order of their references, sequences, and the number of lines', async () => {
    const lines = gunzipSync(await readFile(file))
      .toString()
      .trimEnd()
      .split('\n');
    const parsed = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(parsed[0]).toMatchObject({
      format: 'school-management-tenant',
      format_version: 1,
      schema_version: 9001,
      plan: 'Premium',
      tenant: { id: school.id, subdomain: school.subdomain },
      subscription: { tenant_id: school.id, status: 'active' },
    });
    expect(parsed.at(-1)).toEqual({ end: true, lines: lines.length - 1 });
    const order = [...new Set(parsed.map(({ table, sequence }) => table ?? (sequence ? 'sequence' : '')))].filter(
      (name) => name !== '',
    );
    const at = (name: string) => order.indexOf(name);
    expect(at('file')).toBeLessThan(at('user_account'));
    expect(at('grade')).toBeLessThan(at('class'));
    expect(at('class')).toBeLessThan(at('student'));
    expect(at('student')).toBeLessThan(at('enrollment'));
    expect(at('sequence')).toBe(order.length - 1);
    const picture = parsed.find(({ table }) => table === 'file')?.['row'] as { content: string };
    expect(Buffer.from(picture.content, 'base64')).toEqual(png);
  });

  test('does not change the school', async () => {
    expect(await contents(service.database, school.schema)).toEqual(before);
    expect((await school.admin.get<unknown[]>('/api/students?pageSize=1')).pagination.totalItems).toBe(30);
  });
});

describe('an invalid import', () => {
  /** Everything that an import could change. */
  const everything = async (database: TestDatabase) => ({
    schemas: await database.query("select nspname from pg_namespace where nspname like 'tenant%' order by 1"),
    tenants: await database.query('select xmin::text, t.* from platform.tenant t order by id'),
    audit: await database.query('select count(*) from platform.audit_log'),
  });

  test('changes nothing and reports why', async () => {
    const whole = await readFile(file);
    const pieces = join(dataDir, 'piece.gz');
    const there = { service: await everything(service.database), elsewhere: await everything(elsewhere.database) };

    for (const length of [0, 200, Math.floor(whole.length / 2), whole.length - 1]) {
      await writeFile(pieces, whole.subarray(0, length));
      expect(await refusal(elsewhere.database, pieces)).toMatch(/is truncated|is not a school export/);
    }
    expect(await refusal(elsewhere.database, await changed('cut.gz', (lines) => lines.slice(0, -1)))).toMatch(
      /is truncated/,
    );
    for (const [name, change] of Object.entries<(lines: string[]) => string[]>({
      'a missing line': (lines) => lines.filter((_, n) => n !== 20),
      'a line too many': (lines) => [...lines, '{}'],
      'a line of another kind': (lines) => lines.with(20, '{"row":{}}'),
      'an unknown table': (lines) => lines.with(20, '{"table":"pg_class","row":{}}'),
      'another format': withHeader((header) => Object.assign(header, { format: 'something else' })),
      'no header': (lines) => lines.slice(1),
      'no line': () => [],
    })) {
      expect({ name, why: await refusal(elsewhere.database, await changed('changed.gz', change)) }).toEqual({
        name,
        why: expect.stringMatching(/is not a school export\. Nothing was changed\.$/),
      });
    }
    await writeFile(pieces, 'not gzip at all');
    expect(await refusal(elsewhere.database, pieces)).toMatch(/damaged or not a school export/);
    await writeFile(
      pieces,
      whole.with(Math.floor(whole.length / 2), (whole[Math.floor(whole.length / 2)] ?? 0) ^ 0xff),
    );
    expect(await refusal(elsewhere.database, pieces)).toMatch(/damaged|truncated|no export/);
    expect(await refusal(elsewhere.database, join(dataDir, 'absent.gz'))).toMatch(/no such file/);

    expect({ service: await everything(service.database), elsewhere: await everything(elsewhere.database) }).toEqual(
      there,
    );
  });

  test('is rejected when the id or the subdomain is in use', async () => {
    const there = { service: await everything(service.database), elsewhere: await everything(elsewhere.database) };
    expect(await refusal(service.database, file)).toMatch(/is in this database and was not purged/);
    const edited = async (database: TestDatabase, change: Parameters<typeof withHeader>[0]) =>
      refusal(database, await changed('edited.gz', withHeader(change)));
    expect(await edited(service.database, ({ tenant }) => (tenant['created_at'] = '2020-01-01T00:00:00Z'))).toMatch(
      /of this database is a different school/,
    );
    expect(await edited(service.database, ({ tenant }) => (tenant['id'] = 900_000))).toMatch(
      /Another school of this database has the subdomain/,
    );
    expect(await edited(elsewhere.database, (header) => (header.plan = 'Unheard of'))).toMatch(
      /There is no plan called Unheard of/,
    );
    expect(await edited(elsewhere.database, ({ tenant }) => (tenant['schema_version'] = 9999))).toMatch(
      /Update the service first/,
    );
    expect(await edited(elsewhere.database, ({ tenant }) => (tenant['schema_version'] = 1))).toMatch(
      /The tables of the file differ from those of schema version 1/,
    );
    expect({ service: await everything(service.database), elsewhere: await everything(elsewhere.database) }).toEqual(
      there,
    );
  });
});

describe('an imported school', () => {
  test('has the same rows and definitions in another database, and serves its users', async () => {
    // Different ids than here.
    await elsewhere.database.query(
      "insert into platform.plan (id, name, price_monthly, max_students, max_teachers) values (900, 'Premium 2', 1, 1, 1)",
    );
    await elsewhere.database.query("update platform.plan set name = 'Premium old' where id = 3");
    await elsewhere.database.query(
      "update platform.plan set name = 'premium', max_students = 25000, max_teachers = 2000 where id = 900",
    );
    const { code, stderr, stdout } = await cli(elsewhere.database, 'import', file);
    expect({ code, stderr, stdout }).toEqual({
      code: 0,
      stderr: '',
      stdout: expect.stringMatching(/was imported: \d+ rows/),
    });

    expect(await contents(elsewhere.database, school.schema)).toEqual(before);
    expect(await schemaDefinition(elsewhere.database, [school.schema])).toEqual(
      await schemaDefinition(service.database, [school.schema]),
    );

    const { data: tenant } = await elsewhere.operator.get<Record<string, unknown>>(
      `/api/platform/tenants/${school.id}`,
    );
    const { data: original } = await service.operator.get<Record<string, unknown>>(
      `/api/platform/tenants/${school.id}`,
    );
    const { recent_audit_logs: logs } = tenant;
    const changing = {
      plan: undefined,
      updated_at: undefined,
      recent_audit_logs: undefined,
      enabled_features: undefined,
    };
    expect({ ...tenant, ...changing }).toEqual({ ...original, ...changing });
    expect(tenant['plan']).toEqual({ id: 900, name: 'premium' });
    expect(logs).toEqual([
      expect.objectContaining({ action: 'tenant.import', actor: { id: null, email: 'command line' } }),
    ]);

    const admin = await elsewhere.anonymous.login(credentials());
    expect((await admin.get<Buffer>('/api/auth/profile/picture')).data).toEqual(png);
    const { data: created } = await admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Next', last_name: 'One' },
      201,
    );
    expect(created.id).toBe(student.id + 1);
    const { data: another } = await elsewhere.operator.post<{ id: number }>(
      '/api/platform/tenants',
      { name: 'Another', subdomain: 'another', contact_email: 'a@another.example', plan_id: 900 },
      201,
    );
    expect(another.id).toBe(school.id + 1);
  });

  test('from an earlier version, in which nothing ended a subscription, gets a month', async () => {
    const path = await changed(
      'earlier.gz',
      withHeader(({ subscription }) => {
        delete subscription['grace_days'];
        subscription['current_period_end'] = '2026-02-01T00:00:00Z';
      }),
    );
    const database = await testDatabase();
    try {
      await release(database, 9001, oddTables);
      expect(await refusal(database, path)).toBe('imported');
      expect(await database.query('select status, grace_days from core.current_subscription')).toEqual([
        { status: 'active', grace_days: 14 },
      ]);
    } finally {
      await database.drop();
    }
  });

  test('cannot be imported a second time', async () => {
    expect(await refusal(elsewhere.database, file)).toMatch(/is in this database and was not purged/);
  });

  test('gets the migrations and default grants that are newer than its file', async () => {
    const { database } = service;
    await release(
      database,
      9002,
      'create table odd_later as select count(*) as students from student; alter table odd_later add primary key (students);',
    );
    const other = await changed(
      'as another.gz',
      withHeader(({ tenant }) =>
        Object.assign(tenant, {
          id: 5000,
          subdomain: 'as-another',
          status: 'suspended',
          suspended_at: '2026-01-01T00:00:00Z',
          seeded_permission_id: 1,
        }),
      ),
    );
    expect(await refusal(database, other)).toBe('imported');
    expect(await database.query('select status, schema_version from platform.tenant where id = 5000')).toEqual([
      { status: 'suspended', schema_version: 9002 },
    ]);
    expect(await database.query('select students from tenant_5000.odd_later')).toEqual([{ students: '30' }]);
    expect(
      await database.query(
        "select has_table_privilege('school_tenant', 'tenant_5000.odd_later', 'select') as open, (select relforcerowsecurity from pg_class where oid = 'tenant_5000.odd_later'::regclass) as forced",
      ),
    ).toEqual([{ open: true, forced: true }]);
    const grants = async (schema: string) =>
      Number(
        (
          await database.query<{ n: string }>(
            `select count(*) as n from ${schema}.role_permission rp join ${schema}.role r on r.id = rp.role_id and r.name = 'teacher'`,
          )
        )[0]?.n,
      );
    expect(await grants(school.schema)).toBe(1);
    expect(await grants('tenant_5000')).toBeGreaterThan(1);
  });

  test('reuses no id: of deleted rows, of rows that its sequences do not count, or of the school itself', async () => {
    const { database } = service;
    const forgetful = await changed('forgetful.gz', (lines) =>
      withHeader(({ tenant }) => Object.assign(tenant, { id: 6000, subdomain: 'forgetful' }))(
        lines.map((line) =>
          line.includes('"student_id_seq"') ? line.replace(/"last_value": \d+/, '"last_value": 1') : line,
        ),
      ),
    );
    await database.query("select setval('platform.tenant_id_seq', 7000)");
    expect(await refusal(database, forgetful)).toBe('imported');
    const admin = await service.anonymous.login({ ...credentials(), subdomain: 'forgetful' });
    expect((await admin.post<{ id: number }>('/api/rbac/roles', { name: 'Next' }, 201)).data.id).toBe(gone.id + 1);
    expect(
      (await admin.post<{ id: number }>('/api/students', { first_name: 'Next', last_name: 'One' }, 201)).data.id,
    ).toBe(student.id + 1);
    expect((await service.school()).id).toBe(7001);
  });

  test('has its webhooks without their secrets, so each stays disabled until its secret is rotated', async () => {
    const { admin, adminEmail, subdomain } = await service.school();
    const { data: webhook } = await admin.post<{ id: number; secret: string }>(
      '/api/webhooks',
      { url: 'https://hooks.example.org', events: ['student.created'] },
      201,
    );
    const { stdout } = await cli(service.database, 'export', subdomain);
    const exported = /in (\/.*\.jsonl\.gz)$/m.exec(stdout)?.[1] ?? '';
    expect(gunzipSync(await readFile(exported)).toString()).not.toContain('whsec_');
    const copy = await changed(
      'hooked.gz',
      withHeader(({ tenant }) => Object.assign(tenant, { id: 6500, subdomain: 'hooked' })),
      exported,
    );
    expect(await refusal(service.database, copy)).toBe('imported');
    const imported = await service.anonymous.login({ subdomain: 'hooked', email: adminEmail, password: testPassword });
    const path = `/api/webhooks/${webhook.id}`;
    expect((await imported.get<{ is_active: boolean }>(path)).data.is_active).toBe(false);
    expect(await imported.put(path, { is_active: true }, 409)).toMatchObject({ error: 'invalid_state' });
    const { data: rotated } = await imported.post<{ secret: string }>(`${path}/rotate-secret`);
    expect(rotated.secret).not.toBe(webhook.secret);
    expect((await imported.put<{ is_active: boolean }>(path, { is_active: true })).data.is_active).toBe(true);
  });

  test('has no API keys, so none works on another server until its user makes a new one', async () => {
    const { admin, adminEmail, subdomain } = await service.school();
    const { data: made } = await admin.post<{ id: number; key: string }>(
      '/api/api-keys',
      { name: 'Payroll', permissions: ['student.read'] },
      201,
    );
    const { stdout } = await cli(service.database, 'export', subdomain);
    const exported = /in (\/.*\.jsonl\.gz)$/m.exec(stdout)?.[1] ?? '';
    const content = gunzipSync(await readFile(exported)).toString();
    expect(content).not.toContain('{"table":"api_key","row"');
    const copy = await changed(
      'keyed.gz',
      withHeader(({ tenant }) => Object.assign(tenant, { id: 6600, subdomain: 'keyed' })),
      exported,
    );
    expect(await refusal(service.database, copy)).toBe('imported');
    const imported = await service.anonymous.login({ subdomain: 'keyed', email: adminEmail, password: testPassword });
    expect((await imported.get<unknown[]>('/api/api-keys')).data).toEqual([]);
    const { data: next } = await imported.post<{ id: number; key: string }>(
      '/api/api-keys',
      { name: 'Payroll', permissions: ['student.read'] },
      201,
    );
    expect(next.id).toBe(made.id + 1);
    expect(next.key).toMatch(/^sk_6600_/);
  });
});

describe('a school with two-factor login', () => {
  test('has no second factors in its file, but still requires them, so its staff set up new ones', async () => {
    const of = await service.school();
    const { admin, adminEmail, subdomain } = of;
    const { secret, recoveryCodes } = await enable(admin);
    const student = await of.user(['student']);
    await admin.post('/api/school-setup/school-info', { is_second_factor_required: true });
    const { stdout } = await cli(service.database, 'export', subdomain);
    const exported = /in (\/.*\.jsonl\.gz)$/m.exec(stdout)?.[1] ?? '';
    const content = gunzipSync(await readFile(exported)).toString();
    for (const word of [secret, recoveryCodes[0] ?? '', '"second_factor"', '"recovery_code"'])
      expect(content).not.toContain(word);
    const copy = await changed(
      'factored.gz',
      withHeader(({ tenant }) => Object.assign(tenant, { id: 6700, subdomain: 'factored' })),
      exported,
    );
    expect(await refusal(service.database, copy)).toBe('imported');
    const logIn = (email: string) =>
      service.anonymous.send('POST', '/api/auth/login', {
        body: { subdomain: 'factored', email, password: testPassword },
      });
    expect(await logIn(adminEmail)).toMatchObject({
      error: 'second_factor_required',
      challenge: { is_enrollment: true, methods: [] },
    });
    expect((await logIn(student.email)).status).toBe(200);
  });
});

describe('a database owner without superuser rights', () => {
  const role = `plain_${Math.random().toString(36).slice(2, 8)}`;
  const name = `test_${role}`;
  const url = serverUrl(name).replace('postgres@', `${role}@`);
  const query = (text: string) => withOwner(serverUrl('postgres'), (client) => client.query(text));

  beforeAll(async () => {
    await query(
      `create role ${role} login; grant school_api, school_worker, school_tenant, school_platform to ${role}`,
    );
    await query(`create database ${name} owner ${role}`);
    await ensureDatabase({ url: serverUrl }, name);
    await migrate({ ownerUrl: url });
  });
  afterAll(async () => {
    await query(`drop database ${name}`);
    await query(`drop role ${role}`);
  });

  test('exports, purges and imports, although row security applies to them', async () => {
    await withOwner(url, async (client) => {
      await client.query(
        "insert into platform.tenant (name, subdomain, contact_email, plan_id) values ('Plain', 'plain', 'a@plain.example', 3)",
      );
      await client.query(`select core.tenant_provision(1, '{"email": "a@plain.example"}')`);
      const { rows: hidden } = await client.query('select from tenant_1.role');
      expect(hidden).toEqual([]);
      const path = join(dataDir, 'plain.gz');
      const cursors = { text: 'select name, at_a_time from core.archive_open($1)', values: [1] };
      await exportTenant(client, cursors, path);
      const lines = gunzipSync(await readFile(path)).toString();
      expect(lines.match(/"table":"role"/g)?.length).toBe(6);

      await client.query("update platform.tenant set status = 'deleted', deleted_at = now() - interval '31 days'");
      await client.query('set role school_worker');
      expect((await client.query("select core.purge_mark(1, 30, 'plain.gz') as marked")).rows).toEqual([
        { marked: true },
      ]);
      for (let more = true; more;)
        more = (await client.query<{ more: boolean }>('select core.purge_drop(1) as more')).rows[0]?.more ?? false;
      await client.query('reset role');
      await importTenant(client, path);
      await exportTenant(client, cursors, path);
      const body = (text: string) => text.split('\n').slice(1);
      expect(body(gunzipSync(await readFile(path)).toString())).toEqual(body(lines));
    });
  });
});
