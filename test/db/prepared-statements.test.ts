import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type pg from 'pg';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { maxPreparedStatements } from '../../src/database/pool/backend-memory.ts';
import { type School, testService } from '../support/server/service.ts';

const service = await testService({}, 2);
let school: School;
let other: School;
/** The connection of an API process. */
let client: pg.Client;

const maxStatements = 6;

async function connect(max = maxStatements): Promise<pg.Client> {
  const connection = new shared.pg.Client({
    connectionString: service.database.url,
    options: `-c role=school_api -c app.max_prepared_statements=${String(max)}`,
  });
  await connection.connect();
  return connection;
}

beforeAll(async () => {
  school = await service.school();
  other = await service.school();
  for (const [each, names] of [
    [school, ['Ann', 'Ada']],
    [other, ['Zoe', 'Zora', 'Zed']],
  ] as const)
    for (const name of names) await each.insert('grade', { name });
  client = await connect();
});
afterAll(async () => {
  await client.end();
  await service.close();
});

/** Runs an operation as the admin of a school, on the one connection. */
async function call(of: School, operation: string, params: object, on = client): Promise<unknown> {
  const [session] = await service.database.query<{ id: string }>(
    'select id from platform.session where tenant_id = $1 order by id limit 1',
    [of.id],
  );
  const { rows } = await on.query<{ answer: string }>('select answer from core.call($1, $2, $3, $4)', [
    operation,
    session?.id,
    JSON.stringify(params),
    '{}',
  ]);
  return JSON.parse(rows[0]?.answer ?? 'null');
}

async function gradeNames(of: School, params: object = {}, on = client): Promise<string[]> {
  const { data } = (await call(of, 'grades_list', params, on)) as { data: { name: string }[] };
  return data.map(({ name }) => name);
}

/** The prepared statements of a school: the start of their text, and how often each ran. */
const statements = async (of: School, on = client) =>
  (
    await on.query<{ name: string; runs: number; is_list: boolean }>(
      `select name, (generic_plans + custom_plans)::integer as runs, statement like '%pagination%' as is_list
       from pg_prepared_statements where name like 'school_' || $1::bigint || '_%' and name not like '%\\_x' order by prepare_time`,
      [of.id],
    )
  ).rows;

test('two schools on one connection see only their own rows, with a statement each that is planned once', async () => {
  for (let round = 0; round < 3; round++) {
    expect(await gradeNames(school)).toEqual(['Ada', 'Ann']);
    expect(await gradeNames(other)).toEqual(['Zed', 'Zoe', 'Zora']);
  }
  for (const each of [school, other]) expect(await statements(each)).toMatchObject([{ runs: 3, is_list: true }]);
});

test('a statement prepared by one school, run by name in another, shows the rows of the other only', async () => {
  await gradeNames(school);
  const [statement] = await statements(school);
  await client.query('begin');
  await call(other, 'grades_list', {});
  // The role and the settings of the request last until the transaction ends, but the search path does not.
  await client.query("select set_config('search_path', $1, true)", [`${other.schema}, public, pg_temp`]);
  await client.query("select set_config('app.parameters', '{}', true)");
  const { rows } = await client.query<Record<string, { data: { name: string }[] }>>(
    `execute ${String(statement?.name)}`,
  );
  await client.query('rollback');
  const [list] = Object.values(rows[0] ?? {});
  expect(list?.data.map(({ name }) => name)).toEqual(['Zed', 'Zoe', 'Zora']);
});

test('requests that differ in values only share a statement, and each gets its own rows', async () => {
  const before = (await statements(school)).length;
  for (const class_id of [1, 2]) await call(school, 'students_list', { class_id });
  expect(await statements(school)).toHaveLength(before + 1);
  expect(await gradeNames(school, { pageSize: 1 })).toEqual(['Ada']);
  expect(await gradeNames(school, { pageSize: 1, page: 2 })).toEqual(['Ann']);
  expect(await gradeNames(school, { pageSize: 1, page: 3 })).toEqual([]);
});

test('requests whose statements differ in text never share one', async () => {
  const connection = new shared.pg.Client({
    connectionString: service.database.url,
    options: '-c role=school_api',
  });
  await connection.connect();
  try {
    const different = [
      {},
      { is_active: true },
      { is_active: false },
      { without_class: true },
      { is_active: true, without_class: false },
      { is_active: false, without_class: true },
      { grade_id: 1 },
      { grade_id: 1, is_active: true },
      { class_id: 1 },
      { is_deleted: true },
      { is_deleted: false },
      { sort: 'last_name' },
      { sort: '-last_name' },
      { sort: 'last_name', order: 'desc' },
      { order: 'desc' },
      { page: 2 },
      { pageSize: 101 },
      { search: 'ann' },
      { search: 'ann lee' },
    ];
    for (const [index, params] of different.entries()) {
      await call(school, 'students_list', params, connection);
      expect([params, (await statements(school, connection)).length]).toEqual([params, index + 1]);
    }
    for (const params of [{ page: 3 }, { grade_id: 2 }, { class_id: 2 }, { grade_id: null, page: 2 }])
      await call(school, 'students_list', params, connection);
    expect(await statements(school, connection)).toHaveLength(different.length);
  } finally {
    await connection.end();
  }
});

test('a list with ended records never shares a statement with one without them', async () => {
  const { id } = (await call(other, 'students_create', { first_name: 'In', last_name: 'Voiced' })) as { id: number };
  await service.database.query(
    `insert into ${other.schema}.invoice (student_id, due_date, invoice_number, issued_at, voided_at)
     select $1, '2026-10-01', 'INV-2026-00000' || n, now(), case n when 2 then now() end from generate_series(1, 2) n`,
    [id],
  );
  for (let time = 0; time < 2; time++)
    for (const [include_ended, items] of [
      [true, 2],
      [false, 1],
    ] as const)
      expect(await call(other, 'invoices_list', { include_ended })).toMatchObject({
        pagination: { totalItems: items },
      });
});

test('a page without its total never shares a statement with one that has it', async () => {
  const connection = new shared.pg.Client({ connectionString: service.database.url });
  await connection.connect();
  const total = async (hasTotal: boolean) => {
    const { rows } = await connection.query<{ page: { pagination: { totalItems: number } } }>(
      `select core.record_page('audit_log', '{"pageSize": 10}', $1) as page`,
      [hasTotal],
    );
    return rows[0]?.page.pagination.totalItems;
  };
  try {
    expect(await total(false)).toBe(0);
    expect(await total(true)).toBeGreaterThan(0);
    expect(await total(false)).toBe(0);
  } finally {
    await connection.end();
  }
});

test('a filter with null lists the same as without it', async () => {
  await call(school, 'students_create', { first_name: 'Stu', last_name: 'Dent', is_active: true });
  for (const params of [{}, { grade_id: null }, { grade_id: null, is_active: true }]) {
    const { pagination } = (await call(school, 'students_list', params)) as { pagination: { totalItems: number } };
    expect(pagination.totalItems).toBe(1);
  }
});

test('a request that fails keeps its statements, and the next one runs', async () => {
  const connection = await connect();
  try {
    await expect(call(school, 'grades_get', { id: 999 }, connection)).rejects.toThrow('There is no grade 999.');
    expect(await statements(school, connection)).toHaveLength(1);
    const [ada] = await service.database.query<{ id: number }>(
      `select id::integer from ${school.schema}.grade where name = 'Ada'`,
    );
    expect(await call(school, 'grades_get', { id: ada?.id }, connection)).toMatchObject({ name: 'Ada' });
    expect(await statements(school, connection)).toMatchObject([{ runs: 2 }]);
  } finally {
    await connection.end();
  }
});

test('a deallocated statement is prepared again', async () => {
  await gradeNames(school);
  await client.query('deallocate all');
  expect(await gradeNames(school)).toEqual(['Ada', 'Ann']);
});

test('a statement whose preparation was interrupted is completed by the next write', async () => {
  const add = (name: string) => call(school, 'religions_create', { name });
  await add('First');
  const { rows } = await client.query<{ name: string }>(
    "select name from pg_prepared_statements where name like 'school_%\\_x'",
  );
  expect(rows.length).toBeGreaterThan(0);
  for (const { name } of rows) await client.query(`deallocate ${name}`);
  await add('Second');
  expect(await call(school, 'religions_list', {})).toMatchObject({ data: [{ name: 'First' }, { name: 'Second' }] });
});

test('the names of a statement and its companion are not cut off, even for the largest id of a school', async () => {
  const connection = new shared.pg.Client({ connectionString: service.database.url });
  await connection.connect();
  try {
    const id = String(2n ** 63n - 1n);
    const hash = `${'f'.repeat(32)}12`;
    await connection.query("select set_config('app.tenant_id', $1, false)", [id]);
    await connection.query("select core.run_prepared('select to_json(1)', '{}', $1)", [hash]);
    const { rows } = await connection.query<{ name: string }>('select name from pg_prepared_statements order by name');
    expect(rows.map(({ name }) => name)).toEqual([`school_${id}_${hash}`, `school_${id}_${hash}_x`]);
  } finally {
    await connection.end();
  }
});

test('the pool estimates memory with the number of statements that a connection keeps', async () => {
  expect(await service.database.query('select core.max_prepared_statements() as number')).toEqual([
    { number: maxPreparedStatements },
  ]);
});

test('a statement reads its own parameters, also after it has called a function that runs another one', async () => {
  const parameter = "(select core.parameters()) ->> 'a'";
  const inner = `select to_json(${parameter})`.replaceAll("'", "''");
  const [row] = await service.database.query<{ answer: string[] }>(
    `select core.run_prepared($1, '{"a": "outer"}') as answer`,
    [`select json_build_array(${parameter}, core.run_prepared('${inner}', '{"a": "inner"}'), ${parameter})`],
  );
  expect(row?.answer).toEqual(['outer', 'inner', 'outer']);
  // A list first asks for its statement by name. Here the connection does not have it yet.
  const [again] = await service.database.query<{ answer: [string, string | null, string] }>(
    `select core.run_prepared($1, '{"a": "outer"}') as answer`,
    [`select json_build_array(${parameter}, core.run_prepared(null, '{"a": "inner"}', 'missing'), ${parameter})`],
  );
  expect(again?.answer).toEqual(['outer', null, 'outer']);
});

test('a statement in a read-only transaction reads its own parameters too, prepared or not', async () => {
  const parameter = "(select core.parameters() ->> 'a')";
  const inner = `select to_json(${parameter})`.replaceAll("'", "''");
  // Three different expressions, since Postgres evaluates equal ones in one place.
  const outer = `select json_build_array(${parameter}, core.run_prepared('${inner}', '{"a": "inner"}'),
    (select core.parameters() ->> 'a' || ''))`;
  const client = new shared.pg.Client({ connectionString: service.database.url });
  await client.connect();
  try {
    await client.query('begin read only');
    for (let time = 0; time < 3; time++) {
      const { rows } = await client.query<{ answer: string[] }>(
        `select core.run_prepared($1, '{"a": "outer"}') as answer`,
        [outer],
      );
      expect(rows[0]?.answer).toEqual(['outer', 'inner', 'outer']);
    }
  } finally {
    await client.end();
  }
});

test('pages of different sizes share a statement, and a value that looks like a parameter is a value', async () => {
  const before = (await statements(school)).length;
  for (const params of [{}, { page: 1 }, { pageSize: 1 }, { page: 1, pageSize: 2 }, { pageSize: 50, page: null }])
    await call(school, 'teachers_list', params);
  expect(await statements(school)).toHaveLength(before + 1);
  expect(await call(school, 'teachers_list', { search: '$1' })).toMatchObject({ data: [] });
});

test('a connection limits its statements and keeps those in use', async () => {
  const connection = await connect();
  try {
    await call(other, 'religions_create', { name: 'Before' }, connection);
    for (let size = 101; size <= 140; size++) {
      // Only sizes beyond those that clients may ask for have statements of their own.
      await gradeNames(school, { pageSize: size }, connection);
      expect(await gradeNames(other, {}, connection)).toEqual(['Zed', 'Zoe', 'Zora']);
      const { rows } = await connection.query<{ name: string }>(
        "select name from pg_prepared_statements where name like 'school_%'",
      );
      expect(rows.length).toBeLessThanOrEqual(2 * maxStatements);
    }
    // Never removed, since it ran between any two others.
    expect(await statements(other, connection)).toMatchObject([{ runs: 40 }]);
    // These were removed, and are prepared again.
    await call(other, 'religions_create', { name: 'After' }, connection);
    expect(await call(other, 'religions_list', {}, connection)).toMatchObject({
      data: [{ name: 'After' }, { name: 'Before' }],
    });
  } finally {
    await connection.end();
  }
});

test('a full connection evicts the statements with the fewest runs per second, not the newest', async () => {
  const connection = await connect();
  const list = (pageSize: number) => gradeNames(school, { pageSize }, connection);
  const names = async () => (await statements(school, connection)).map(({ name }) => name);
  try {
    // Until the others are so much younger that each of them ran more often for its age.
    for (let pause = 200; ; pause *= 2) {
      await connection.query('deallocate all');
      for (let n = 0; n < 2; n++) await list(101);
      const [old] = await names();
      await connection.query('select pg_sleep($1)', [pause / 1000]);
      const rested = performance.now();
      for (let size = 102; size < 101 + maxStatements; size++) await list(size);
      const young = (await names()).slice(1);
      expect(young).toHaveLength(maxStatements - 1);
      await list(200);
      if (performance.now() - rested > pause) continue;
      const kept = await names();
      expect(kept).not.toContain(old);
      expect(kept).toEqual(expect.arrayContaining(young));
      break;
    }
  } finally {
    await connection.end();
  }
});

test('a connection with a high limit, which is checked only at random, stays near its limit', async () => {
  const connection = await connect(40);
  try {
    let most = 0;
    let fell = false;
    for (let size = 101; size <= 400; size++) {
      await gradeNames(school, { pageSize: size }, connection);
      const { length } = await statements(school, connection);
      fell ||= length < most;
      most = Math.max(most, length);
    }
    expect(fell).toBe(true);
    expect(most).toBeLessThan(120);
  } finally {
    await connection.end();
  }
});

test('a connection answers the same after a release has replaced all functions', async () => {
  const answers = async () => [
    await call(other, 'grades_list', {}),
    await call(other, 'grades_get', { id: 1 }),
    await call(other, 'dashboard_get', {}),
  ];
  const before = await answers();
  expect(await answers()).toEqual(before);
  await service.database.query("update platform.installation set fingerprint = 'earlier release'");
  await migrate({ ownerUrl: service.database.url });
  expect(await answers()).toEqual(before);
});

test('a definition that a release changed is used by the next request of a connection', async () => {
  expect(await gradeNames(other)).toEqual(['Zed', 'Zoe', 'Zora']);
  await service.database.query(
    "update core.record set condition = condition || ' and m.name <> ''Zoe''' where name = 'grade'",
  );
  try {
    expect(await gradeNames(other)).toEqual(['Zed', 'Zora']);
  } finally {
    await service.database.query(
      "update core.record set condition = replace(condition, ' and m.name <> ''Zoe''', '') where name = 'grade'",
    );
  }
});

test('a column that a migration changed is shown with its new type by the next request of a connection', async () => {
  await gradeNames(other);
  await service.database.query(`alter table ${other.schema}.grade alter column name type varchar(200)`);
  expect(await gradeNames(other)).toEqual(['Zed', 'Zoe', 'Zora']);
});

test('a get, a list and a dashboard call only one SQL function that Postgres does not inline', async () => {
  const connection = new shared.pg.Client({
    connectionString: service.database.url,
    options: '-c role=school_api -c track_functions=all',
  });
  await connection.connect();
  // Without constants, which are evaluated when an autovacuum makes Postgres plan an expression again.
  const counts = async () => {
    await connection.query('select pg_stat_force_next_flush()');
    const rows = await service.database.query<{ name: string; calls: number }>(
      `select s.schemaname || '.' || s.funcname as name, s.calls::integer from pg_stat_user_functions s
       join pg_proc p on p.oid = s.funcid join pg_language l on l.oid = p.prolang
       where l.lanname = 'sql' and not (p.provolatile = 'i' and p.pronargs = 0)`,
    );
    return new Map(rows.map(({ name, calls }) => [name, calls]));
  };
  try {
    const requests = async () => {
      await call(school, 'grades_get', { id: 1 }, connection);
      await call(school, 'grades_list', { pageSize: 5 }, connection);
      await call(school, 'dashboard_get', {}, connection);
    };
    await requests();
    const before = await counts();
    await requests();
    const called = [...(await counts())].filter(([name, calls]) => calls > (before.get(name) ?? 0));
    expect(called.map(([name]) => name)).toEqual(['core.enabled_features']);
  } finally {
    await connection.end();
  }
});
