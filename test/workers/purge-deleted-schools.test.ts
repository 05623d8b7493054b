import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from '@jest/globals';
import { pino } from 'pino';
import { importTenant } from '../../src/database/archive.ts';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { rolePool, withOwner } from '../../src/database/pool/pool.ts';
import { purge_tenants } from '../../workers/tasks/purge_tenants.ts';
import { contents } from '../support/database/contents.ts';
import { fileForm, png } from '../support/fixtures/pictures.ts';
import { runProgram } from '../support/server/processes.ts';
import { type School, testPassword, testService } from '../support/server/service.ts';
import { withRole } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { testRetention } from '../support/server/worker.ts';

const dataDir = await mkdtemp(join(tmpdir(), 'school-purge-'));
const service = await testService({ DATA_DIR: dataDir, TENANT_RETENTION_DAYS: '30' }, 18);
const { database, operator, anonymous } = service;
const exports = join(dataDir, 'exports');
afterAll(async () => {
  await service.close();
  await rm(dataDir, { recursive: true, force: true });
});

let school: School;
beforeEach(async () => {
  school = await service.school();
  await school.admin.send('POST', '/api/auth/profile/picture', { body: fileForm(png, 'a.png', 'image/png') }, 200);
  const { classId } = await school.classroom();
  for (const last_name of ['One', 'Two', 'Three'])
    await school.admin.post('/api/students', { first_name: 'Ada', last_name, class_id: classId }, 201);
});

/** Deletes the school as an operator, and dates the deletion back by `age`. */
async function deleteSchool(age: string, { id }: School = school): Promise<void> {
  await operator.delete(`/api/platform/tenants/${id}`);
  await database.query('update platform.tenant set deleted_at = deleted_at - $2::interval where id = $1', [id, age]);
}

/** Runs the job in the worker of the service and waits for it. */
async function runJob(): Promise<void> {
  const [job] = await database.query<{ id: string }>("select id from graphile_worker.add_job('purge_tenants')");
  await until(
    async () =>
      (await database.query('select from graphile_worker.jobs where id = $1 and last_error is null', [job?.id]))
        .length === 0 || undefined,
  );
  expect(await database.query('select last_error from graphile_worker.jobs where id = $1', [job?.id])).toEqual([]);
}

/** Runs the task in this process, like another worker. */
async function runTask(folder = exports): Promise<void> {
  const pool = rolePool('school_worker', database.url, undefined, 2);
  try {
    await purge_tenants(
      {},
      {
        pool,
        sessionPool: pool,
        ownerUrl: '',
        sendEmail: () => Promise.reject(new Error('this task sends no email')),
        push: {
          platforms: [],
          serviceName: () => '',
          send: () => Promise.reject(new Error('this task sends no push')),
          close: () => undefined,
        },
        analytics: { run: () => Promise.reject(new Error('this task runs no query')) },
        webhooks: {
          send: () => Promise.reject(new Error('this task sends no webhook')),
          close: () => undefined,
        },
        stopping: new AbortController().signal,
        logger: pino({ level: 'silent' }),
        links: { publicUrl: '', passwordPageUrl: undefined, appUrl: undefined, baseDomain: undefined },
        retention: { ...testRetention, exports: folder },
      },
    );
  } finally {
    await pool.end();
  }
}

const files = async ({ subdomain }: School = school) =>
  (await readdir(exports).catch(() => [])).filter((name) => name.includes(subdomain));
const hasSchema = async ({ schema }: School = school) =>
  (await database.query('select from pg_namespace where nspname = $1', [schema])).length === 1;
const trail = async ({ id }: School = school) =>
  (
    await database.query<{ action: string }>('select action from platform.audit_log where tenant_id = $1 order by id', [
      id,
    ])
  ).map(({ action }) => action);
const credentials = () => ({ subdomain: school.subdomain, email: school.adminEmail, password: testPassword });

describe('a deleted school', () => {
  test('is kept for TENANT_RETENTION_DAYS, and is then only in its export file', async () => {
    // An event whose notifications could not be written.
    await database.query(
      `insert into platform.outbox (tenant_id, event, facts, attempts, retry_at)
       select id, 'holiday.added', '{}', 12, 'infinity' from unnest(array[$1::bigint, 0]) id`,
      [school.id],
    );
    const waiting = () => database.query('select tenant_id::integer as school from platform.outbox order by 1');
    await deleteSchool('29 days 23 hours');
    const before = await contents(database, school.schema);
    await runJob();
    expect(await contents(database, school.schema)).toEqual(before);
    expect(await files()).toEqual([]);
    expect(await waiting()).toEqual([{ school: 0 }, { school: school.id }]);

    await database.query("update platform.tenant set deleted_at = deleted_at - interval '1 hour' where id = $1", [
      school.id,
    ]);
    await runJob();
    expect(await hasSchema()).toBe(false);
    expect(await files()).toEqual([
      expect.stringMatching(new RegExp(`^${school.subdomain}-${school.id}-[\\dTZ-]+\\.jsonl\\.gz$`)),
    ]);
    expect(await database.query('select from platform.session where tenant_id = $1', [school.id])).toEqual([]);
    expect(await database.query('select from platform.one_time_token where tenant_id = $1', [school.id])).toEqual([]);
    // That of another school stays.
    expect(await waiting()).toEqual([{ school: 0 }]);
  });

  test('keeps its row, subdomain and audit log when purged; restoring it is refused with a hint to import it', async () => {
    await deleteSchool('31 days');
    await runJob();
    const [file = ''] = await files();

    const refused = await operator.post(`/api/platform/tenants/${school.id}/restore`, undefined, 409);
    expect(refused.error).toBe('invalid_state');
    expect(refused.message).toContain(`npm run school -- tenant import ${file}`);

    const { data: entries } = await operator.get<object[]>(
      `/api/platform/audit-logs?tenant_id=${school.id}&sort=created_at&order=asc`,
    );
    expect(entries).toMatchObject([
      { action: 'tenant.create' },
      { action: 'tenant.delete' },
      {
        action: 'tenant.purge',
        actor: { id: null, email: 'worker' },
        changes: { file: { before: null, after: file } },
      },
    ]);
    expect((await operator.get<{ status: string }>(`/api/platform/tenants/${school.id}`)).data.status).toBe('deleted');
    const { data: list } = await operator.get<{ id: number }[]>('/api/platform/tenants?status=deleted&pageSize=100');
    expect(list.map(({ id }) => id)).toContain(school.id);
    const taken = { name: 'Other', subdomain: school.subdomain, contact_email: 'other@other.example', plan_id: 3 };
    expect((await operator.post('/api/platform/tenants', taken, 409)).error).toBe('conflict');
  });

  test('does not exist for its users once purged, and blocks neither readiness nor migration', async () => {
    await deleteSchool('31 days');
    const { token } = school.admin;
    await runJob();
    expect((await anonymous.post('/api/auth/login', credentials(), 404)).error).toBe('tenant_not_found');
    expect(
      (
        await anonymous.post(
          '/api/auth/password/forgot',
          { subdomain: school.subdomain, email: school.adminEmail },
          404,
        )
      ).error,
    ).toBe('tenant_not_found');
    expect((await anonymous.with({ Authorization: `Bearer ${token}` }).get('/api/students', 401)).error).toBe(
      'invalid_token',
    );
    expect((await anonymous.get<{ tenants_behind: number }>('/api/health/ready')).data).toMatchObject({
      tenants_behind: 0,
    });
    expect((await migrate({ ownerUrl: database.url })).tenants).toEqual([]);
    await database.query('select core.tenant_migrate($1)', [school.id]);
    expect(await hasSchema()).toBe(false);
    await database.query('select core.clean_up()');
  });

  test('is complete after the import of its file, and its users can log in again', async () => {
    await deleteSchool('31 days');
    const before = await contents(database, school.schema);
    await runJob();
    const [file = ''] = await files();
    const { code, stderr } = await runProgram('src/cli/main.ts', ['tenant', 'import', join(exports, file)], {
      DATABASE_URL: database.servers?.home ?? database.url,
      DATA_DIR: dataDir,
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });

    expect(await contents(database, school.schema)).toEqual(before);
    expect(await trail()).toEqual(['tenant.create', 'tenant.delete', 'tenant.purge', 'tenant.import']);
    const admin = await anonymous.login(credentials());
    expect((await admin.get<Buffer>('/api/auth/profile/picture')).data).toEqual(png);
    const { data: students } = await admin.get<{ id: number }[]>('/api/students');
    const { data: next } = await admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Ada', last_name: 'Four' },
      201,
    );
    expect(next.id).toBe(Math.max(...students.map(({ id }) => id)) + 1);
    await until(async () => {
      const { data: tenant } = await operator.get<{
        status: string;
        deleted_at: string | null;
        stats: { total_students: number; total_classes: number };
      }>(`/api/platform/tenants/${school.id}`);
      const { status, deleted_at, stats } = tenant;
      return (
        (status === 'active' && deleted_at === null && stats.total_students === 4 && stats.total_classes === 1) ||
        undefined
      );
    });
    await runJob();
    expect(await hasSchema()).toBe(true);
  });

  test('is suspended after its import if it was suspended before, until an operator activates it', async () => {
    await operator.post(`/api/platform/tenants/${school.id}/suspend`);
    await deleteSchool('31 days');
    await runJob();
    const [file = ''] = await files();
    await withOwner(database.url, (client) => importTenant(client, join(exports, file)));
    // With several servers the row arrives from the server of the school a moment later.
    const imported = await until(async () => {
      const { data } = await operator.get<{ status: string; deleted_at: string | null }>(
        `/api/platform/tenants/${school.id}`,
      );
      return data.status === 'deleted' ? undefined : data;
    });
    expect(imported).toMatchObject({ status: 'suspended', deleted_at: null });
    expect((await anonymous.post('/api/auth/login', credentials(), 403)).error).toBe('tenant_suspended');
    await operator.post(`/api/platform/tenants/${school.id}/activate`);
    await anonymous.login(credentials());
  });

  test('is not purged after it is restored, however long ago it was deleted', async () => {
    await deleteSchool('300 days');
    await operator.post(`/api/platform/tenants/${school.id}/restore`);
    await runJob();
    expect(await hasSchema()).toBe(true);
    expect(await files()).toEqual([]);
    await anonymous.login(credentials());
  });

  test('is not purged if it is restored while its file is written, and the file is removed', async () => {
    await deleteSchool('31 days');
    await withOwner(database.url, async (client) => {
      // The test locks the row like an operator who restores the school, and commits when the purge waits for it.
      await client.query('begin');
      await client.query("update platform.tenant set status = 'active', deleted_at = null where id = $1", [school.id]);
      const purging = runTask();
      const waiting =
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%purge_mark%'";
      await until(async () => (await database.query(waiting)).length > 0 || undefined);
      expect(await files()).toHaveLength(1);
      await client.query('commit');
      await purging;
    });
    expect(await files()).toEqual([]);
    expect(await trail()).toEqual(['tenant.create', 'tenant.delete']);
    await anonymous.login(credentials());
  });
});

describe('two workers', () => {
  test('purge each school once if they run at the same time', async () => {
    const others = [school, await service.school(), await service.school()];
    for (const each of others) await deleteSchool('31 days', each);
    await Promise.all([runTask(), runTask(), runTask(), runJob()]);
    // A worker skips a school that the other has locked, so all are purged when both have ended.
    for (const each of others) {
      expect({ schema: await hasSchema(each), files: (await files(each)).length, trail: await trail(each) }).toEqual({
        schema: false,
        files: 1,
        trail: ['tenant.create', 'tenant.delete', 'tenant.purge'],
      });
    }
  });

  test('skip a school that another worker has locked', async () => {
    await deleteSchool('31 days');
    await withOwner(database.url, async (client) => {
      await client.query('select pg_advisory_lock_shared(core.tenant_lock_key($1))', [school.id]);
      await runTask();
      expect(await hasSchema()).toBe(true);
      expect(await files()).toEqual([]);
    });
    await runTask();
    expect(await hasSchema()).toBe(false);
  });
});

describe('a purge that fails', () => {
  test('to write the file drops nothing, and the school can be restored', async () => {
    await deleteSchool('31 days');
    const before = await contents(database, school.schema);
    const blocked = join(dataDir, 'blocked');
    await writeFile(blocked, '');
    await expect(runTask(blocked)).rejects.toThrow(new RegExp(`School ${school.id}: .*(EEXIST|ENOTDIR)`));
    expect(await contents(database, school.schema)).toEqual(before);
    await operator.post(`/api/platform/tenants/${school.id}/restore`);
    await anonymous.login(credentials());
  });

  test('after writing the file is finished by the next run, with the same file', async () => {
    // One call does not drop all tables.
    for (let n = 0; n < 40; n++)
      await database.query(`create table ${school.schema}.more_${n} (id integer primary key)`);
    await deleteSchool('31 days');
    const tables = async () =>
      (
        await database.query("select from pg_class where relnamespace = $1::regnamespace and relkind = 'r'", [
          school.schema,
        ])
      ).length;
    const all = await tables();
    await database.query("select core.purge_mark($1, 30, 'the file.gz')", [school.id]);
    await database.query('select core.purge_drop($1)', [school.id]);
    expect(await tables()).toBe(all - 20);
    expect((await operator.post(`/api/platform/tenants/${school.id}/restore`, undefined, 409)).message).toContain(
      'the file.gz',
    );

    await runJob();
    expect(await hasSchema()).toBe(false);
    expect(await files()).toEqual([]);
    expect(await trail()).toEqual(['tenant.create', 'tenant.delete', 'tenant.purge']);
  });

  test('for one school is reported, and does not stop the others', async () => {
    const second = await service.school();
    await deleteSchool('31 days');
    await deleteSchool('31 days', second);
    await database.query(`create view public.outside as select id from ${school.schema}.student`);
    await expect(runTask()).rejects.toThrow(
      new RegExp(`^The purge failed for 1 of \\d+ schools. School ${school.id}: cannot drop`),
    );
    expect(await hasSchema(second)).toBe(false);
    expect(await database.query('select from public.outside')).toHaveLength(3);
    await database.query('drop view public.outside');
    await runTask();
    expect(await hasSchema()).toBe(false);
  });
});

describe("the worker's role", () => {
  test('can neither read, mark nor drop a school that is active or was deleted a day ago', async () => {
    for (const prepare of [() => Promise.resolve(), () => deleteSchool('1 day')]) {
      await prepare();
      await withRole(database.url, 'school_worker', {}, async (worker) => {
        expect(await worker.rows('select * from core.purge_open($1, 30)', [school.id])).toEqual([]);
        expect(await worker.rows("select core.purge_mark($1, 30, 'x') as marked", [school.id])).toEqual([
          { marked: false },
        ]);
        expect(await worker.attempt('select core.purge_drop($1)', [school.id])).toBe('S409C');
        expect(await worker.attempt('select core.archive_open($1)', [school.id])).toBe('42501');
        expect(await worker.attempt("select core.archive_begin('{}')")).toBe('42501');
        expect(await worker.attempt("select core.archive_end('{}', '[]')")).toBe('42501');
      });
    }
    expect(await hasSchema()).toBe(true);
  });
});

test('the job is in the crontab of every worker, at night', async () => {
  expect(
    await database.query('select identifier from graphile_worker._private_known_crontabs order by 1'),
  ).toContainEqual({ identifier: 'purge_tenants' });
  const [job] = await database.query<{ schedule: string }>(
    "select schedule from core.job_type where name = 'purge_tenants'",
  );
  expect(job?.schedule).toMatch(/^\d+ [0-5] \* \* \*/);
});
