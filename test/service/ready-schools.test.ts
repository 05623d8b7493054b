import { beforeEach, expect, test } from '@jest/globals';
import { withOwner } from '../../src/database/pool/pool.ts';
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

test('a refused creation keeps the ready school available', async () => {
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

test('a school takes no ready one whose schema was dropped, and the worker creates it again', async () => {
  const [first, second] = await makeReady();
  await database.query(`drop schema tenant_${first.id} cascade`);
  expect((await create()).data.id).toBe(second.id);
  expect((await makeReady()).map(({ id, has_schema }) => ({ id, has_schema }))).toContainEqual({
    id: first.id,
    has_schema: true,
  });
});

/** Adds the row of a school with an id, as an import to a node does at home. */
const addTenant = (id: number) =>
  database.query(
    `insert into platform.tenant (id, name, subdomain, plan_id, contact_email)
     values (${id}, 'X', '${unique('import')}', 3, 'x@ready.example')`,
  );

test('an imported school with the id of a ready one does not block creations, and the worker replaces the ready one', async () => {
  const [first, second] = await makeReady();
  await addTenant(first.id);
  expect((await create()).data.id).toBe(second.id);
  const ids = (await makeReady()).map(({ id }) => id);
  expect(ids).not.toContain(first.id);
  expect(ids).toHaveLength(2);
});

test('an imported school with the id of a ready one gets tables of its own', async () => {
  const [first] = await makeReady();
  const oid = `select 'tenant_${first.id}'::regnamespace::oid as oid`;
  const before = await database.query(oid);
  await addTenant(first.id);
  await database.query(`select core.tenant_migrate(${first.id})`);
  expect(await database.query(oid)).not.toEqual(before);
  expect((await readySchools()).map(({ id }) => id)).not.toContain(first.id);
});

test('the worker never drops the schema of a school, even if its id is in the list of ready ones', async () => {
  const school = await service.school();
  await database.query(`update platform.ready_school set id = ${school.id}, schema_version = 0 where place = 1`);
  await makeReady();
  expect((await readySchools()).map(({ id }) => id)).not.toContain(school.id);
  await school.admin.get('/api/students');
});

test('a creation does not wait for a ready school that another transaction has locked', async () => {
  const [first, second] = await makeReady();
  await withOwner(database.url, async (other) => {
    await other.query('begin');
    await other.query('select from platform.ready_school where id = $1 for update', [first.id]);
    expect((await create()).data.id).toBe(second.id);
    // Nor does the worker.
    await other.query('update platform.ready_school set schema_version = 0 where id = $1', [first.id]);
    const [, third] = await makeReady();
    expect(third.has_schema).toBe(true);
    await other.query('rollback');
  });
});

test('the worker leaves the tables of an outdated ready school while another transaction reads them', async () => {
  const [first] = await makeReady();
  await withOwner(database.url, async (other) => {
    await other.query('begin');
    await other.query(`select from tenant_${first.id}.student`);
    await database.query('update platform.ready_school set schema_version = 0 where id = $1', [first.id]);
    await makeReady();
    expect((await readySchools())[0]).toEqual({ id: first.id, schema_version: 0, has_schema: true });
    await other.query('rollback');
  });
  expect(await database.query("select from graphile_worker.jobs where task_identifier = 'ready_schools'")).toEqual([]);
  await makeReady();
  expect((await readySchools())[0]).toEqual(first);
});

test('on a node no school takes a ready one, and the worker drops them, but never the schema of a school', async () => {
  const school = await service.school();
  const ready = await makeReady();
  await database.query(`insert into platform.node (name, url, is_this) values ('east', 'postgres://east', true)`);
  try {
    const { data: created } = await create();
    expect(ready.map(({ id }) => id)).not.toContain(created.id);
    await database.query(`update platform.ready_school set id = ${school.id} where id = ${ready[1].id}`);
    await database.query("select graphile_worker.add_job('ready_schools')");
    await queueIsEmpty(service);
    expect(await readySchools()).toEqual([]);
    expect(await database.query(`select to_regnamespace('tenant_${ready[0].id}') as schema`)).toEqual([
      { schema: null },
    ]);
    await school.admin.get('/api/students');
  } finally {
    await database.query('delete from platform.node');
  }
});

test('the worker looks for missing ready schools every minute', async () => {
  expect(await database.query('select identifier from graphile_worker._private_known_crontabs')).toContainEqual({
    identifier: 'ready_schools',
  });
});
