import { beforeAll, describe, expect, test } from '@jest/globals';
import { analystOf, askGraphql, type Facts, disableRefresh, writeFacts } from '../support/fixtures/analysts.ts';
import type { Client } from '../support/client/client.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile({}, 4);
const facts: Facts = {
  absent: () => 2,
  billed: 1000,
  paid: 50,
  bands: { '10-19': 3 },
  routes: [[30, 20]],
  messages: 40,
  failedJobs: 1,
};
const [first, second, third] = await Promise.all([
  service.school({ name: 'First' }),
  service.school({ name: 'Second' }),
  service.school({ name: 'Forbidden', plan_id: 2, subdomain: 'forbidden' }),
]);
await disableRefresh(service);
await writeFacts(service, first.id, facts);
await writeFacts(service, second.id, facts);
// Values of the third school would be recognizable in any response.
await writeFacts(service, third.id, {
  ...facts,
  billed: 7_777_777,
  bands: { '30+': 77 },
  routes: [[777, 77]],
  messages: 77_777,
  failedJobs: 7,
});
await service.database.query("update mart.academic_year set name = 'forbidden year' where tenant_id = $1", [third.id]);
await service.database.query(
  "update mart.class set grade = 'forbidden grade', section = 'forbidden' where tenant_id = $1",
  [third.id],
);

const own = [first.id, second.id].sort((a, b) => a - b);

interface TypeRef {
  kind: string;
  name: string | null;
  ofType: TypeRef | null;
}
interface Field {
  name: string;
  args: { name: string; type: TypeRef }[];
  type: TypeRef;
}
interface Type {
  kind: string;
  name: string;
  fields: Field[] | null;
  enumValues: { name: string }[] | null;
  inputFields: { name: string; type: TypeRef }[] | null;
}

const reference = 'kind name ofType { kind name ofType { kind name ofType { kind name } } }';
const introspection = `{ __schema { mutationType { name } subscriptionType { name } types { kind name
  fields { name type { ${reference} } args { name type { ${reference} } } } enumValues { name } inputFields { name type { ${reference} } } } } }`;

const named = (type: TypeRef): string => (type.ofType ? named(type.ofType) : (type.name ?? ''));
const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
/** The columns of `tenants` with different names in GraphQL. */
const renamed: Record<string, string> = {
  student_count: 'students',
  teacher_count: 'teachers',
  class_count: 'classes',
};
const column = (field: string) => renamed[snake(field)] ?? snake(field);

/** Filters with which the stocks of a list can be added up, in GraphQL and in SQL. */
const oneYear = { filter: '(filter: { academicYearId: { equalTo: "1" } })', where: 'academic_year_id = 1' };
const oneState: Record<string, { filter: string; where: string }> = {
  classes: oneYear,
  enrollments: { filter: '(filter: { month: { equalTo: "2026-11-01" } })', where: "month = '2026-11-01'" },
  teacherLoads: oneYear,
};

let analyst: Client;
let types: Map<string, Type>;
let root: Type;
/** The root lists, each with its row type and its view. */
let lists: { field: string; row: Type; connection: Type; view: string }[];

const runQuery = <T>(query: string, token = analyst.token) => askGraphql<T>(service, token, query);

async function answered<T>(query: string, token?: string): Promise<T> {
  const { data, errors } = await runQuery<T>(query, token);
  expect({ query, errors }).toEqual({ query, errors: undefined });
  expect(JSON.stringify(data)).not.toMatch(/forbidden|7777|"77/i);
  return data;
}

const fieldsOf = (type: Type) => type.fields ?? [];
const isLeaf = (field: Field) => ['SCALAR', 'ENUM'].includes(types.get(named(field.type))?.kind ?? '');
const typeCalled = (name: string): Type => {
  const type = types.get(name);
  if (!type) throw new Error(`There is no type ${name}.`);
  return type;
};
const typeOf = (field: Field): Type => typeCalled(named(field.type));
const leaves = (type: Type) =>
  fieldsOf(type)
    .filter(isLeaf)
    .map(({ name }) => name);
/** The type of the rows of a connection. */
const rowsOf = (connection: Type) => {
  const nodes = fieldsOf(connection).find(({ name }) => name === 'nodes');
  return nodes && typeOf(nodes);
};

beforeAll(async () => {
  analyst = await analystOf(service, own);
  const { data } = await runQuery<{ __schema: { types: Type[] } }>(introspection);
  types = new Map(data.__schema.types.map((type) => [type.name, type]));
  root = typeCalled('Query');
  lists = fieldsOf(root).flatMap((field) => {
    const connection = typeOf(field);
    const row = connection.name.endsWith('Connection') ? rowsOf(connection) : undefined;
    return row ? [{ field: field.name, row, connection, view: snake(field.name) }] : [];
  });
});

describe('an analyst of two schools', () => {
  test('has a list for each view; the root has only lists and single rows', async () => {
    const views = await service.database.query<{ name: string }>(
      "select viewname as name from pg_views where schemaname = 'analytics' order by 1",
    );
    expect(lists.map(({ view }) => view).sort()).toEqual(views.map(({ name }) => name));
    expect(views.length).toBeGreaterThan(10);
    expect(fieldsOf(root)).toHaveLength(2 * lists.length);
  });

  test('sees in each list all rows of both schools, and none of a third', async () => {
    for (const { field, row, view } of lists) {
      const data = await answered<Record<string, { totalCount: number; nodes: { tenantId: string }[] }>>(
        `{ ${field}(first: 1000) { totalCount nodes { ${leaves(row).join(' ')} } } }`,
      );
      const [there] = await service.database.query<{ own: number; foreign: number }>(
        `with setting as materialized (select set_config('app.analytics_tenants', 'all', false))
         select count(*) filter (where tenant_id = any ($1))::integer as own, count(*) filter (where tenant_id = $2)::integer as foreign from setting, analytics.${view}`,
        [own, third.id],
      );
      expect({
        field,
        seen: [...new Set(data[field]?.nodes.map(({ tenantId }) => Number(tenantId)))].sort((a, b) => a - b),
      }).toEqual({ field, seen: own });
      expect({ field, totalCount: data[field]?.totalCount, rows: data[field]?.nodes.length }).toEqual({
        field,
        totalCount: there?.own,
        rows: there?.own,
      });
      expect({ field, hasForeign: (there?.foreign ?? 0) > 0 }).toEqual({ field, hasForeign: true });
    }
  });

  test('reads single rows of both schools by key, and none of a third', async () => {
    const singles = fieldsOf(root).filter(
      (field) => field.args.length > 0 && !field.args.some(({ name }) => name === 'first'),
    );
    expect(singles).toHaveLength(lists.length);
    for (const { name, args, type } of singles) {
      const view = lists.find(({ row }) => row.name === named(type))?.view ?? '';
      for (const [schoolId, isSeen] of [
        [first.id, true],
        [third.id, false],
      ] as const) {
        const [row] = await service.database.query<Record<string, string>>(
          `with setting as materialized (select set_config('app.analytics_tenants', 'all', false))
           select ${args.map((arg) => `${column(arg.name)}::text as "${arg.name}"`).join()} from setting, analytics.${view} where tenant_id = $1 limit 1`,
          [schoolId],
        );
        const given = args.map((arg) => `${arg.name}: ${JSON.stringify(row?.[arg.name])}`).join();
        const data = await answered<Record<string, { tenantId: string } | null>>(`{ ${name}(${given}) { tenantId } }`);
        expect({ name, given, tenantId: data[name]?.tenantId }).toEqual({
          name,
          given,
          tenantId: isSeen ? String(schoolId) : undefined,
        });
      }
    }
  });

  test('aggregates only visible rows, in total and in groups', async () => {
    for (const { field, connection, view } of lists) {
      const aggregates = fieldsOf(connection).find(({ name }) => name === 'aggregates');
      const kinds = aggregates ? fieldsOf(typeOf(aggregates)).filter((kind) => !isLeaf(kind)) : [];
      expect(kinds.map(({ name }) => name).sort()).toEqual(
        expect.arrayContaining(['average', 'distinctCount', 'max', 'min', 'sum']),
      );
      const wanted = kinds.map((kind) => ({ kind: kind.name, fields: leaves(typeOf(kind)) }));
      const selection = wanted.map(({ kind, fields }) => `${kind} { ${fields.join(' ')} }`).join(' ');
      const data = await answered<
        Record<string, { aggregates: Record<string, Record<string, string | number | null>> }>
      >(`{ ${field}${oneState[field]?.filter ?? ''} { aggregates { ${selection} } } }`);
      const sql: Record<string, (name: string) => string> = {
        sum: (name) => `coalesce(sum(${name}), 0)`,
        distinctCount: (name) => `count(distinct ${name})`,
        min: (name) => `min(${name})`,
        max: (name) => `max(${name})`,
        average: (name) => `avg(${name})`,
      };
      const columns = wanted.flatMap(({ kind, fields }) =>
        fields.map((name) => ({ kind, name, sql: sql[kind]?.(column(name)) ?? '' })),
      );
      const [expected] = await service.database.query<Record<string, string | null>>(
        `with setting as materialized (select set_config('app.analytics_tenants', 'all', false), set_config('timezone', 'UTC', false))
         select ${columns.map((one) => `to_json(${one.sql}) #>> '{}' as "${one.kind} ${one.name}"`).join()} from setting, analytics.${view} where tenant_id = any ($1) and ${oneState[field]?.where ?? 'true'}`,
        [own],
      );
      for (const { kind, name } of columns) {
        const value = data[field]?.aggregates[kind]?.[name];
        const shown = value === null || value === undefined ? null : String(value).replace('.000000+', '+');
        expect({ field, kind, name, value: shown }).toEqual({
          field,
          kind,
          name,
          value: expected?.[`${kind} ${name}`] ?? null,
        });
      }
      const groups = await answered<Record<string, { groupedAggregates: { keys: string[] }[] }>>(
        `{ ${field} { groupedAggregates(groupBy: [${field === 'tenants' ? 'NAME' : 'TENANT_ID'}]) { keys } } }`,
      );
      expect({ field, keys: groups[field]?.groupedAggregates.flatMap(({ keys }) => keys) }).toEqual({
        field,
        keys: field === 'tenants' ? ['First', 'Second'] : own.map(String),
      });
    }
  });

  test('reaches no row of a third school through any relation, in either direction', async () => {
    let relations = 0;
    for (const { field, row } of lists) {
      for (const relation of fieldsOf(row).filter((one) => !isLeaf(one))) {
        relations++;
        const target = typeOf(relation);
        const isList = target.name.endsWith('Connection');
        const selection = isList ? '(first: 30) { nodes { tenantId } totalCount }' : '{ tenantId }';
        const data = await answered<Record<string, { nodes: Record<string, unknown>[] }>>(
          `{ ${field}(first: 30) { nodes { tenantId ${relation.name} ${selection} } } }`,
        );
        const reached = new Set(
          (JSON.stringify(data).match(/"tenantId":"(\d+)"/g) ?? []).map((text) => Number(/\d+/.exec(text)?.[0])),
        );
        expect({ field, relation: relation.name, reached: [...reached].filter((id) => !own.includes(id)) }).toEqual({
          field,
          relation: relation.name,
          reached: [],
        });
        expect({ field, relation: relation.name, isThere: reached.size > 0 }).toEqual({
          field,
          relation: relation.name,
          isThere: true,
        });
      }
    }
    expect(relations).toBeGreaterThan(30);
  });

  test('finds no row of a third school with filters on it, its relations or their aggregates', async () => {
    for (const { field, row } of lists) {
      const filter =
        field === 'tenants'
          ? `{ tenantId: { equalTo: "${third.id}" } }`
          : `{ tenant: { name: { startsWith: "Forb" } } }`;
      const data = await answered<Record<string, { totalCount: number }>>(
        `{ ${field}(filter: ${filter}) { totalCount } }`,
      );
      expect({ row: row.name, totalCount: data[field]?.totalCount }).toEqual({ row: row.name, totalCount: 0 });
    }
    const filters = [
      '{ feeMonths: { some: { billed: { greaterThan: "7000000" } } } }',
      '{ feeMonths: { aggregates: { sum: { billed: { greaterThan: "7000000" } } } } }',
      '{ classes: { some: { grade: { equalTo: "forbidden grade" } } } }',
    ];
    for (const filter of filters)
      expect(await answered(`{ tenants(filter: ${filter}) { totalCount } }`)).toEqual({ tenants: { totalCount: 0 } });
    expect(
      await answered('{ tenants(orderBy: [FEE_MONTHS_SUM_BILLED_DESC], first: 1) { nodes { tenantId } } }'),
    ).toEqual({
      tenants: { nodes: [{ tenantId: expect.any(String) as unknown }] },
    });
  });

  test('has no mutations or subscriptions', async () => {
    const { data } = await runQuery<{ __schema: { mutationType: unknown; subscriptionType: unknown } }>(introspection);
    expect(data.__schema).toMatchObject({ mutationType: null, subscriptionType: null });
    for (const kind of ['mutation', 'subscription']) {
      const { errors } = await runQuery(`${kind} { anything }`);
      expect(errors[0]?.message).toMatch(new RegExp(kind));
    }
  });
});

describe('the list of schools of an analyst', () => {
  const names = async (token: string) => {
    const { data } = await runQuery<{ tenants: { nodes: { name: string }[] } }>(
      '{ tenants { nodes { name } } }',
      token,
    );
    return data.tenants.nodes.map(({ name }) => name).sort();
  };

  test('null shows all schools, as for admins; an empty list shows none', async () => {
    expect(await names((await analystOf(service, null)).token)).toEqual(['First', 'Forbidden', 'Second']);
    expect(await names(service.operator.token)).toEqual(['First', 'Forbidden', 'Second']);
    expect(await names((await analystOf(service, [])).token)).toEqual([]);
  });

  test('applies from the next request when it changes, and excludes deleted schools', async () => {
    const other = await analystOf(service, [first.id]);
    expect(await names(other.token)).toEqual(['First']);
    await service.database.query('update platform.user_account set analyst_tenant_ids = $1 where email = $2', [
      [second.id],
      other.email,
    ]);
    expect(await names(other.token)).toEqual(['Second']);
    const gone = await service.school({ name: 'Gone' });
    await service.database.query('update platform.user_account set analyst_tenant_ids = $1 where email = $2', [
      [second.id, gone.id],
      other.email,
    ]);
    expect(await names(other.token)).toEqual(['Gone', 'Second']);
    await service.operator.delete(`/api/platform/tenants/${gone.id}`, 200);
    expect(await names(other.token)).toEqual(['Second']);
  });
});
