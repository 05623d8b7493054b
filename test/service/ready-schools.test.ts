import { beforeEach, expect, test } from '@jest/globals';
import { queueIsEmpty } from '../support/fakes/mail.ts';
import { runProgram } from '../support/server/processes.ts';
import { serviceOfFile, unique } from '../support/server/service.ts';

const service = await serviceOfFile({}, 0);
const { database, operator } = service;

interface ReadySchool {
  id: number;
  schema_version: number;
  has_schema: boolean;
}

const readySchools = () =>
  database.query<ReadySchool>(
    `select id::integer, schema_version, to_regnamespace('tenant_' || id) is not null as has_schema
     from platform.ready_school order by id`,
  );
/** Lets the worker make as many schools ready as it keeps. */
const makeReady = async (): Promise<[ReadySchool, ReadySchool]> => {
  await database.query("select graphile_worker.add_job('ready_schools')");
  await queueIsEmpty(service);
  const ready = await readySchools();
  expect(ready).toHaveLength(2);
  return ready as [ReadySchool, ReadySchool];
};
const latest = async () =>
  (await database.query<{ version: number }>('select max(version) as version from platform.tenant_migration'))[0]
    ?.version;
const create = (subdomain = unique('ready'), status = 201) =>
  operator.post<{ id: number }>(
    '/api/platform/tenants',
    { name: subdomain, subdomain, plan_id: 3, contact_email: 'head@ready.example' },
    status,
  );

beforeEach(makeReady);

test('the worker creates the tables of two schools in advance', async () => {
  const version = await latest();
  expect(await readySchools()).toEqual([
    expect.objectContaining({ schema_version: version, has_schema: true }),
    expect.objectContaining({ schema_version: version, has_schema: true }),
  ]);
  const { pagination } = await operator.get<unknown[]>('/api/platform/tenants');
  const [{ count } = { count: -1 }] = await database.query<{ count: number }>(
    'select count(*)::integer from platform.tenant',
  );
  expect(pagination.totalItems).toBe(count);
});

test('a new school takes the id and the tables of a ready one, and works', async () => {
  const [first, second] = await makeReady();
  const [before] = await database.query<{ oid: number }>(`select 'tenant_${first.id}'::regnamespace::oid as oid`);
  const school = await service.school();
  expect(school.id).toBe(first.id);
  expect(await database.query(`select 'tenant_${first.id}'::regnamespace::oid as oid`)).toEqual([before]);
  const { data: student } = await school.admin.post<{ id: number }>(
    '/api/students',
    { first_name: 'Ada', last_name: 'Byron' },
    201,
  );
  expect((await school.admin.get<{ id: number }[]>('/api/students')).data.map(({ id }) => id)).toEqual([student.id]);
  const { data: roles } = await school.admin.get<{ name: string }[]>('/api/rbac/roles');
  expect(roles.map(({ name }) => name)).toContain('teacher');

  const left = await readySchools();
  expect(left).toEqual([expect.objectContaining({ id: second.id, has_schema: true }), expect.anything()]);
  expect(left[1]).toMatchObject({ schema_version: 0, has_schema: false });
  // The next school to be made ready has the id that this one would have had.
  const [, third] = await makeReady();
  expect(third.id).toBe(left[1]?.id);
  expect((await create()).data.id).toBe(second.id);
  expect((await create()).data.id).toBe(third.id);
});

test('`school doctor` finds no difference between a ready school and one that is created at once', async () => {
  const { data: fromReady } = await create();
  await database.query('update platform.ready_school set schema_version = 0');
  const { data: atOnce } = await create();
  const { stdout } = await runProgram('src/cli/main.ts', ['doctor'], { DATABASE_URL: database.url });
  expect(stdout).toMatch(new RegExp(`^school ${fromReady.id} \\(.*\\): consistent$`, 'm'));
  expect(stdout).toMatch(new RegExp(`^school ${atOnce.id} \\(.*\\): consistent$`, 'm'));
  expect(stdout).not.toMatch(/^(error|warning): School /m);
});

test('schools that are created at the same time take different ready ones, and those without one are created too', async () => {
  const ready = (await makeReady()).map(({ id }) => id);
  const created = await Promise.all([1, 2, 3, 4].map(async () => (await create()).data.id));
  expect(new Set(created).size).toBe(4);
  expect(created).toEqual(expect.arrayContaining(ready));
  expect(
    await database.query('select distinct schema_version from platform.tenant where id = any ($1)', [created]),
  ).toEqual([{ schema_version: await latest() }]);
});

test('a creation that is refused leaves the ready school', async () => {
  const subdomain = unique('taken');
  await create(subdomain);
  const before = await makeReady();
  await create(subdomain, 409);
  expect(await readySchools()).toEqual(before);
});

test('a school that is not created by the API takes no ready one', async () => {
  const ready = (await makeReady()).map(({ id }) => id);
  const [row] = await database.query<{ id: number }>(
    `insert into platform.tenant (name, subdomain, plan_id, contact_email)
     values ('X', '${unique('other')}', 3, 'x@ready.example') returning id::integer`,
  );
  expect(ready).not.toContain(row?.id);
  expect((await readySchools()).map(({ id }) => id)).toEqual(ready);
});

test('the worker creates tables again that are not of the latest migration, and no school takes them before', async () => {
  const [outdated, other] = await makeReady();
  await database.query(
    `update platform.ready_school set schema_version = schema_version - 1;
     drop table tenant_${outdated.id}.webhook cascade`,
  );
  const { data: school } = await create();
  expect([outdated.id, other.id]).not.toContain(school.id);
  await makeReady();
  expect(await database.query(`select to_regclass('tenant_${outdated.id}.webhook') is not null as exists`)).toEqual([
    { exists: true },
  ]);
  expect((await create()).data.id).toBe(outdated.id);
});

test('a school takes no ready one whose schema was dropped', async () => {
  const [first, second] = await makeReady();
  await database.query(`drop schema tenant_${first.id} cascade`);
  expect((await create()).data.id).toBe(second.id);
});

test('the worker never drops the schema of a school, even if its id is in the list of ready ones', async () => {
  const school = await service.school();
  await database.query(`update platform.ready_school set id = ${school.id} where place = 1`);
  await database.query('update platform.ready_school set schema_version = 0');
  await makeReady();
  expect((await readySchools()).map(({ id }) => id)).not.toContain(school.id);
  await school.admin.get('/api/students');
});

test('a school with the id of a ready one, which its home has chosen, gets tables of its own', async () => {
  const [first] = await makeReady();
  const [before] = await database.query<{ oid: number }>(`select 'tenant_${first.id}'::regnamespace::oid as oid`);
  await database.query(
    `insert into platform.tenant (id, name, subdomain, plan_id, contact_email)
     values (${first.id}, 'X', '${unique('node')}', 3, 'x@ready.example')`,
  );
  await database.query(`select core.tenant_migrate(${first.id})`);
  const [after] = await database.query<{ oid: number }>(`select 'tenant_${first.id}'::regnamespace::oid as oid`);
  expect(after?.oid).not.toBe(before?.oid);
  expect((await readySchools()).map(({ id }) => id)).not.toContain(first.id);
});
