import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { sqlFiles } from '../../src/database/migrate/install.ts';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { until } from '../support/client/until.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({ CLOSED_SCHOOL_WAIT_MS: '2500' }, 4);
const schools = [school, await service.school(), await service.school()] as const;
/** A copy of migrations/tenant with one more file, which fails for a school with a student called Odd. */
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'school-migrations-'));
  const files = await sqlFiles('migrations/tenant');
  for (const { name, text } of files) await writeFile(join(folder, name.split('/').at(-1) ?? ''), text);
  await writeFile(
    join(folder, `${String(files.length + 1).padStart(4, '0')}-test.sql`),
    `alter table student add column locker text;
     do $$ begin
       if exists (select from student where first_name = 'Odd') then raise exception 'cannot convert Odd'; end if;
     end $$;`,
  );
});
afterAll(() => rm(folder, { recursive: true }));

test('a request waits for a school that is closed for a moment, and is done once', async () => {
  await withOwner(service.database.url, async (owner) => {
    await owner.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school.id]);
    const created = school.admin.send('POST', '/api/students', { body: { first_name: 'Pat', last_name: 'Ient' } });
    await schools[1].admin.get('/api/students');
    await owner.query('select pg_advisory_unlock_all()');
    expect((await created).status).toBe(201);
  });
  const { data: found } = await school.admin.get<{ id: number }[]>('/api/students?search=Ient');
  expect(found).toHaveLength(1);
  // The next tests count students.
  for (const { id } of found) await school.admin.delete(`/api/students/${id}`);
});

test('a request of an operator who acts for an admin waits for the school too, and leaves one audit entry', async () => {
  const { data } = await service.operator.post<{ access_token: string }>(
    `/api/platform/tenants/${school.id}/impersonate`,
    { reason: 'The school asked for help.' },
    200,
  );
  const impersonator = service.anonymous.with({ Authorization: `Bearer ${data.access_token}` });
  await withOwner(service.database.url, async (owner) => {
    await owner.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school.id]);
    const read = impersonator.send('GET', '/api/students');
    await schools[1].admin.get('/api/students');
    await owner.query('select pg_advisory_unlock_all()');
    expect((await read).status).toBe(200);
  });
  const entries = await service.database.query<{ outcome: string }>(
    "select changes #>> '{outcome,after}' as outcome from platform.audit_log where action = 'impersonation.students_list'",
  );
  expect(entries).toEqual([{ outcome: 'ok' }]);
});

test('a school that stays closed for a migration answers 503; other schools are served', async () => {
  const [busy, other] = schools;
  await withOwner(service.database.url, async (owner) => {
    await owner.query('begin');
    await owner.query('select pg_advisory_xact_lock(core.tenant_lock_key($1))', [busy.id]);
    const refused = await busy.admin.get('/api/students', 503);
    expect([refused.error, refused.headers.get('retry-after')]).toEqual(['unavailable', '1']);
    await other.admin.get('/api/students');
    await owner.query('commit');
  });
  await busy.admin.get('/api/students');
});

test('a school whose migration failed answers 503 with Retry-After until it succeeds; others are served', async () => {
  const [first, failing, third] = schools;
  await failing.admin.post('/api/students', { first_name: 'Odd', last_name: 'One' }, 201);
  const options = { ownerUrl: service.database.url, tenantMigrations: folder };
  const { failed } = await migrate(options);
  expect(failed.map(({ tenant }) => Number(tenant))).toEqual([failing.id]);

  for (const path of ['/api/students', '/api/auth/profile', '/api/rbac/roles']) {
    const refused = await failing.admin.send('GET', path);
    expect({
      status: refused.status,
      error: refused.error,
      message: refused.message,
      retry: refused.headers.get('retry-after'),
    }).toEqual({
      status: 503,
      error: 'unavailable',
      message:
        'This school is not available: its update to the current version of the service failed. ' +
        'The operator of the platform must repair it.',
      retry: '600',
    });
  }
  expect(
    (
      await service.anonymous.send('POST', '/api/auth/login', {
        body: { subdomain: failing.subdomain, email: failing.adminEmail, password: 'x' },
      })
    ).status,
  ).toBe(503);
  for (const { admin } of [first, third]) {
    await admin.post('/api/students', { first_name: 'Even', last_name: 'One' }, 201);
    expect((await admin.get<{ first_name: string }[]>('/api/students')).data).toMatchObject([{ first_name: 'Even' }]);
  }
  // The answer "ready" is cached for a second.
  await until(async () => {
    const ready = await service.anonymous.send<{ tenants_behind: number }>('GET', '/api/health/ready');
    return ready.data.tenants_behind === 1 || undefined;
  });
  expect((await service.operator.get<{ status: string }>(`/api/platform/tenants/${failing.id}`)).data.status).toBe(
    'active',
  );

  await service.database.query(`update ${failing.schema}.student set first_name = 'Even'`);
  expect(await migrate(options)).toMatchObject({ tenants: [{ tenant: String(failing.id), applied: 1 }], failed: [] });
  expect((await failing.admin.get<{ first_name: string }[]>('/api/students')).data).toMatchObject([
    { first_name: 'Even' },
  ]);
  const later = await service.school();
  const columns = await service.database.query<{ table_schema: string }>(
    "select table_schema::text from information_schema.columns where table_name = 'student' and column_name = 'locker'",
  );
  expect(columns.map((row) => row.table_schema).sort()).toEqual([...schools, later].map(({ schema }) => schema).sort());
});
