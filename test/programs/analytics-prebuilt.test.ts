import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { pino } from 'pino';
import { getIntrospectionQuery } from 'postgraphile/graphql';
import { analyticsProcess, type AnalyticsOptions } from '../../src/analytics/process.ts';
import { prebuiltProgram } from '../../src/analytics/prebuilt-program.ts';
import { runProgram } from '../support/server/processes.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile();
let folder = '';
let built = '';
const missing = '/no/such/folder';

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'school-prebuilt-'));
  built = join(folder, 'built');
  const { code, stderr } = await runProgram('packaging/analytics.ts', [built], {});
  expect({ code, stderr }).toMatchObject({ code: 0 });
  // The program may be anywhere, because all packages are in its file.
  expect(await readFile(join(built, 'main.mjs'), 'utf8')).not.toMatch(/from ?["'](postgraphile|grafast|graphql|pg)\b/);
}, 120_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The log of the API process that started a process for queries. */
const lines: string[] = [];
const options: AnalyticsOptions = {
  url: service.database.url,
  isOwnLogIn: false,
  connections: 1,
  timeouts: { statementTimeoutMs: 5_000, requestTimeoutMs: 10_000 },
  logger: pino({}, { write: (line) => lines.push(line) }),
};

/** Runs a query in a new process. @param prebuilt  the folder of the program */
async function ask(
  prebuilt: string,
  query: string,
  {
    signal,
    variables = {},
    ...more
  }: Partial<AnalyticsOptions> & { signal?: AbortSignal; variables?: Record<string, unknown> } = {},
) {
  lines.length = 0;
  const process = analyticsProcess({ ...options, ...more, prebuilt });
  try {
    const input = { query, variables, operationName: undefined, scope: 'all' as const };
    const { body } = await process.run(input, signal);
    return JSON.parse(Buffer.from(body).toString()) as { data?: unknown; errors?: unknown };
  } finally {
    await process.close();
  }
}
const countSchools = '{ tenants { totalCount } }';
const noSchools = { data: { tenants: { totalCount: 0 } } };
const wasReplaced = () => lines.some((line) => line.includes('The prebuilt schema for analytics cannot be used'));

/** Writes a program to a new folder, as if all of its sources were current. */
async function otherProgram(code: string): Promise<string> {
  const other = await mkdtemp(join(folder, 'other-'));
  await mkdir(other, { recursive: true });
  await writeFile(join(other, 'main.mjs'), code);
  await writeFile(join(other, 'sources.json'), '{}');
  return other;
}

describe('the program with the prebuilt schema', () => {
  test('has the same schema as the process that builds it from the database', async () => {
    const schemaOf = async (prebuilt: string) => {
      const { data } = (await ask(prebuilt, getIntrospectionQuery())) as {
        data: { __schema: { types: { name: string }[] } };
      };
      // Only the types have no order of their own.
      data.__schema.types.sort((a, b) => (a.name < b.name ? -1 : 1));
      return data;
    };
    const prebuilt = await schemaOf(built);
    expect(wasReplaced()).toBe(false);
    expect(prebuilt).toEqual(await schemaOf(missing));
  });

  test('answers a query', async () => {
    expect(await ask(built, countSchools)).toEqual(noSchools);
    expect(wasReplaced()).toBe(false);
  });

  test('answers a query with variables and groups', async () => {
    const query = `query ($n: Int!, $by: [AttendanceDayGroupBy!]!) {
      tenants(first: $n) { nodes { name } }
      attendanceDays { groupedAggregates(groupBy: $by) { keys sum { present } max { date } } }
    }`;
    const by = ['GRADE', 'DATE_TRUNCATED_TO_WEEK'];
    expect(await ask(built, query, { variables: { n: 10, by } })).toEqual({
      data: { tenants: { nodes: [] }, attendanceDays: { groupedAggregates: [] } },
    });
    expect(wasReplaced()).toBe(false);
  });

  test.each([
    ['a sum of a stock', '{ enrollments { aggregates { sum { students } } } }', 'SUM_OF_STOCK'],
    ['a page that is too large', '{ tenants(first: 1001) { nodes { name } } }', 'PAGE_TOO_LARGE'],
    [
      'a query that is too expensive',
      '{ tenants(first: 1000) { nodes { classes(first: 1000) { nodes { grade } } } } }',
      'TOO_EXPENSIVE',
    ],
    ['an unknown field', '{ tenants { nodes { contactEmail } } }', 'INVALID_QUERY'],
  ])('refuses %s', async (_name, query, code) => {
    const refused = { errors: [expect.objectContaining({ extensions: { code } })] };
    expect(await ask(built, query)).toEqual(refused);
    expect(wasReplaced()).toBe(false);
    expect(await ask(missing, query)).toEqual(refused);
  });

  test.each([
    ['is broken', 'this is not JavaScript'],
    ['throws an error', "throw new Error('broken')"],
    ['ends at once', 'process.exit(0)'],
    ['is from another version of the service', "process.on('message', () => process.exit(3))"],
  ])('is replaced before the first query if it %s', async (_name, code) => {
    expect(await ask(await otherProgram(code), countSchools)).toEqual(noSchools);
    expect(wasReplaced()).toBe(true);
  });

  test('is not needed', async () => {
    expect(await ask(missing, countSchools)).toEqual(noSchools);
    expect(wasReplaced()).toBe(false);
  });

  test('is not used if a source has changed since it was built', async () => {
    expect(prebuiltProgram(built)).toBe(join(built, 'main.mjs'));
    const changed = join(folder, 'changed');
    await cp(built, changed, { recursive: true });
    const path = join(changed, 'sources.json');
    const hashes = JSON.parse(await readFile(path, 'utf8')) as Record<string, string>;
    expect(Object.keys(hashes)).toEqual(
      expect.arrayContaining(
        ['limits.ts', 'database.ts', 'run-query.ts', 'stocks.ts', 'schema.ts', 'catalog.json'].map(
          (name) => `src/analytics/${name}`,
        ),
      ),
    );
    await writeFile(path, JSON.stringify({ ...hashes, 'src/analytics/limits.ts': 'another' }));
    expect(prebuiltProgram(changed)).toBeUndefined();
    await writeFile(path, JSON.stringify({ ...hashes, 'src/analytics/removed.ts': 'another' }));
    expect(prebuiltProgram(changed)).toBeUndefined();
    await writeFile(path, '{');
    expect(prebuiltProgram(changed)).toBeUndefined();
  });

  test('does not lose the cancellation of a query when it is replaced', async () => {
    const controller = new AbortController();
    const answer = ask(
      await otherProgram("setTimeout(() => process.exit(1), 300); process.on('message', () => {})"),
      countSchools,
      {
        signal: controller.signal,
      },
    );
    setTimeout(() => controller.abort(), 100);
    expect(await answer).toMatchObject({ errors: [{ extensions: { code: 'CANCELED' } }] });
    expect(wasReplaced()).toBe(true);
  });

  test('reports that the database is not available, and no other program tries again', async () => {
    const url = 'postgres://nobody@127.0.0.1:1/none';
    await expect(ask(built, countSchools, { url })).rejects.toThrow('Analytics are not available.');
    expect(wasReplaced()).toBe(false);
  });

  // The last test, because it changes the views.
  test('is replaced if the database has other views, and the answer has their columns', async () => {
    await service.database.query(
      'create view analytics.added as select 7::bigint as number; grant select on analytics.added to school_analyst',
    );
    expect(await ask(built, '{ addeds { nodes { number } } }')).toEqual({
      data: { addeds: { nodes: [{ number: '7' }] } },
    });
    expect(wasReplaced()).toBe(true);
  });
});
