import { describe, expect, test } from '@jest/globals';
import { pino } from 'pino';
import { analyticsProcess } from '../../src/analytics/process.ts';
import {
  analystOf,
  askGraphql,
  type Facts,
  replaceJobsView,
  disableRefresh,
  writeFacts,
} from '../support/fixtures/analysts.ts';
import { serviceOfFile, testService } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';

const service = await serviceOfFile({ ANALYTICS_STATEMENT_TIMEOUT_MS: '2000', ANALYTICS_REQUEST_TIMEOUT_MS: '3000' });
const facts: Facts = {
  absent: () => 2,
  billed: 1000,
  paid: 50,
  bands: { '10-19': 3 },
  routes: [[30, 20]],
  messages: 40,
  failedJobs: 0,
};
const school = await service.school();
await disableRefresh(service);
await writeFacts(service, school.id, facts);
const analyst = await analystOf(service, null);

type Lists = Record<string, { totalCount: number; nodes: { date: string }[]; groupedAggregates: unknown[] }>;
const runQuery = <T = Lists>(query: string, variables?: unknown) =>
  askGraphql<T>(service, analyst.token, query, variables === undefined ? {} : { variables });

async function refused(query: string, code: string, message: RegExp, variables?: unknown) {
  const { status, data, errors } = await runQuery<undefined>(query, variables);
  expect({ status, data, codes: errors.map(({ extensions }) => extensions.code) }).toEqual({
    status: 200,
    data: undefined,
    codes: [code],
  });
  expect(errors[0]?.message).toMatch(message);
}

describe('a query is refused before it reaches the database', () => {
  const nested = (levels: number) =>
    `{ tenants { nodes { ${'tenant: classes { nodes { tenant { '.repeat(levels)}name${' } } }'.repeat(levels)} } } }`;

  test('when fields or arguments nest too deeply', async () => {
    await refused(
      `{ tenants(first: 1) { nodes { ${'classes(first: 1) { nodes { tenant { '.repeat(4)}name${' } } }'.repeat(4)} } } }`,
      'TOO_DEEP',
      /has 15 levels. The maximum is 12/,
    );
    const filter = (levels: number) =>
      `${'{ not: '.repeat(levels)}{ status: { equalTo: "active" } }${' }'.repeat(levels)}`;
    await refused(`{ tenants(filter: ${filter(11)}) { totalCount } }`, 'TOO_DEEP', /12 levels/);
    expect((await runQuery(`{ tenants(filter: ${filter(10)}) { totalCount } }`)).data).toEqual({
      tenants: { totalCount: 1 },
    });
    const value = JSON.parse(filter(20).replaceAll(/(\w+): /g, '"$1": ')) as unknown;
    await refused(
      'query ($filter: TenantFilter) { tenants(filter: $filter) { totalCount } }',
      'TOO_DEEP',
      /12 levels/,
      { filter: value },
    );
  });

  test('when fragments make it deep or long, even if its text is short', async () => {
    const doubling = Array.from(
      { length: 30 },
      (_, n) => `fragment f${n} on Tenant { ...f${n + 1} ...f${n + 1} }`,
    ).join(' ');
    await refused(
      `{ tenants { nodes { ...f0 } } } ${doubling} fragment f30 on Tenant { name }`,
      'TOO_MANY_FIELDS',
      /has \d{10} fields. The maximum is 400/,
    );
    const deep = Array.from(
      { length: 6 },
      (_, n) => `fragment f${n} on Tenant { classes(first: 1) { nodes { tenant { ...f${n + 1} } } } }`,
    ).join(' ');
    await refused(
      `{ tenants(first: 1) { nodes { ...f0 } } } ${deep} fragment f6 on Tenant { name }`,
      'TOO_DEEP',
      /levels/,
    );
    const { errors } = await runQuery(
      '{ tenants { nodes { ...a } } } fragment a on Tenant { ...b } fragment b on Tenant { ...a }',
    );
    expect(errors[0]).toMatchObject({
      extensions: { code: 'INVALID_QUERY' },
      message: expect.stringMatching(/Cannot spread fragment/) as unknown,
    });
  });

  test('when it has too many fields, aliases, tokens or characters', async () => {
    await refused(
      `{ tenants { nodes { ${'name '.repeat(401)} } } }`,
      'TOO_MANY_FIELDS',
      /has 403 fields. The maximum is 400/,
    );
    await refused(
      `{ ${Array.from({ length: 41 }, (_, n) => `t${n}: tenants { totalCount }`).join(' ')} }`,
      'TOO_MANY_ALIASES',
      /has 41 aliases. The maximum is 40/,
    );
    await refused(`{ tenants { nodes { ${'name, '.repeat(3100)} } } }`, 'INVALID_QUERY', /3000 tokens/);
    await refused(`{ tenants { totalCount } } #${'x'.repeat(20_000)}`, 'TOO_LONG', /20000 characters/);
  });

  test('when an alias is long, since the response repeats it for each row', async () => {
    await refused(
      `{ tenants { nodes { ${'x'.repeat(61)}: name } } }`,
      'TOO_LONG',
      /alias has 61 characters. The maximum is 60/,
    );
    await refused(`{ tenants { nodes { ...f } } } fragment f on Tenant { ${'x'.repeat(61)}: name }`, 'TOO_LONG', /60/);
    expect((await runQuery(`{ tenants { nodes { ${'x'.repeat(60)}: plan } } }`)).errors).toBeUndefined();
  });

  test('when it groups or orders by too many keys, in the query or in variables', async () => {
    const many = Array.from({ length: 11 }, (_, n) => (n % 2 ? 'DATE' : 'CLASS_ID'));
    await refused(
      `{ attendanceDays { groupedAggregates(groupBy: [${many.join()}]) { keys } } }`,
      'TOO_MANY_KEYS',
      /groupBy has 11 keys. The maximum is 10/,
    );
    const grouped =
      'query ($by: [AttendanceDayGroupBy!]!) { attendanceDays { groupedAggregates(groupBy: $by) { keys } } }';
    await refused(grouped, 'TOO_MANY_KEYS', /groupBy/, { by: many });
    expect((await runQuery(grouped, { by: many.slice(1) })).errors).toBeUndefined();
    const ordered = 'query ($by: [TenantOrderBy!]) { tenants(orderBy: $by) { nodes { name } } }';
    await refused(ordered, 'TOO_MANY_KEYS', /orderBy/, { by: Array(11).fill('FEE_MONTHS_SUM_OUTSTANDING_DESC') });
  });

  test('when a cursor is invalid, or belongs to another order', async () => {
    const page = (cursor: string) =>
      runQuery<null>(`{ tenants(orderBy: [NAME_ASC], after: "${cursor}") { nodes { name } } }`);
    for (const cursor of ['x', Buffer.from('["natural",1]').toString('base64')])
      expect((await page(cursor)).errors).toMatchObject([
        { message: expect.stringMatching(/cursor/) as unknown, extensions: { code: 'BAD_USER_INPUT' } },
      ]);
  });

  test('when the page size is above 1,000, null or negative', async () => {
    await refused(
      '{ tenants(first: 1001) { nodes { name } } }',
      'PAGE_TOO_LARGE',
      /first of tenants must be a number from 0 to 1000, but is 1001/,
    );
    await refused('{ tenants(last: 100000) { nodes { name } } }', 'PAGE_TOO_LARGE', /last of tenants/);
    await refused('{ tenants(first: 10, last: 100000) { nodes { name } } }', 'PAGE_TOO_LARGE', /last of tenants/);
    await refused('{ tenants(first: -1) { nodes { name } } }', 'PAGE_TOO_LARGE', /but is -1/);
    await refused('{ tenants(first: null) { nodes { name } } }', 'PAGE_TOO_LARGE', /but is not a number/);
    const query = 'query ($n: Int) { tenants(first: $n) { nodes { name } } }';
    await refused(query, 'PAGE_TOO_LARGE', /but is 5000/, { n: 5000 });
    await refused(query, 'PAGE_TOO_LARGE', /but is not a number/, {});
    expect((await runQuery(query, { n: 1000 })).data).toEqual({
      tenants: { nodes: [{ name: expect.any(String) as unknown }] },
    });
  });

  test('when nested pages multiply to too many rows', async () => {
    const query = (first: number) =>
      `{ tenants(first: ${first}) { nodes { name attendanceDays { nodes { date } } } } }`;
    await refused(query(1000), 'TOO_EXPENSIVE', /costs 101000. The maximum is 20000/);
    expect((await runQuery(query(190))).errors).toBeUndefined();
    await refused(
      `{ tenants(first: 1000) { edges { node { ...days } } } } fragment days on Tenant { attendanceDays { nodes { date } } }`,
      'TOO_EXPENSIVE',
      /cost/,
    );
    await refused(
      '{ tenants(first: 1000) { nodes { attendanceDays { groupedAggregates(groupBy: [DATE]) { keys } } } } }',
      'TOO_EXPENSIVE',
      /costs 101000/,
    );
    await refused(nested(1), 'TOO_EXPENSIVE', /costs 20100/);
  });

  test('when the query or its variables do not match the schema', async () => {
    await refused('{ tenants { nodes { password } } }', 'INVALID_QUERY', /Cannot query field "password"/);
    await refused('{ tenants { totalCount }', 'INVALID_QUERY', /Syntax Error/);
    await refused('query ($n: Int!) { tenants(first: $n) { totalCount } }', 'BAD_USER_INPUT', /\$n/, {});
    await refused(
      'query a { tenants { totalCount } } query b { tenants { totalCount } }',
      'INVALID_QUERY',
      /operationName/,
    );
    await refused('mutation { createTenant { name } }', 'READ_ONLY', /has no mutation/);
  });

  test('with status 400 if the client accepts the GraphQL content type', async () => {
    const answer = await send(service.url, {
      ...{ method: 'POST', path: '/graphql', token: analyst.token, body: { query: '{ nothing }' } },
      headers: { accept: 'application/graphql-response+json, application/json;q=0.9' },
    });
    expect({ status: answer.status, type: answer.headers['content-type'] }).toEqual({
      status: 400,
      type: 'application/graphql-response+json; charset=utf-8',
    });
  });
});

describe('a query is limited', () => {
  test('to 100 rows without a first', async () => {
    const { data } = await runQuery('{ attendanceDays { totalCount nodes { date } } }');
    expect({ all: data['attendanceDays']?.totalCount, nodes: data['attendanceDays']?.nodes.length }).toEqual({
      all: 120,
      nodes: 100,
    });
  });

  test('to the statement timeout, with an error, while its other fields are returned', async () => {
    await replaceJobsView(service, { task: 'pg_sleep(0.5)::text', count: 60 }, async () => {
      const { data, errors } = await runQuery('{ tenants { totalCount } jobs { nodes { task } } }');
      expect(data).toEqual({ tenants: { totalCount: 1 }, jobs: null });
      expect(errors).toMatchObject([
        {
          path: ['jobs'],
          message: expect.stringMatching(/more than 2 seconds/) as unknown,
          extensions: { code: 'STATEMENT_TIMEOUT' },
        },
      ]);
    });
  });

  test('to the request timeout for all its statements', async () => {
    await replaceJobsView(service, { task: 'pg_sleep(0.1)::text', count: 10 }, async () => {
      const fields = Array.from({ length: 8 }, (_, n) => `j${n}: jobs(offset: ${n}) { nodes { task } }`).join(' ');
      const { errors } = await runQuery(`{ ${fields} }`);
      expect([...new Set(errors.map(({ extensions }) => extensions.code))]).toEqual(['REQUEST_TIMEOUT']);
      expect(errors.length).toBeGreaterThan(3);
    });
  });

  test('to 8 MB of groups', async () => {
    await replaceJobsView(service, { task: "repeat('x', 1000) || n", count: 20_000 }, async () => {
      const { data, errors } = await runQuery(
        '{ tenants { totalCount } jobs { groupedAggregates(groupBy: [TASK]) { keys } } }',
      );
      expect(data).toMatchObject({ tenants: { totalCount: 1 }, jobs: { groupedAggregates: null } });
      expect(errors).toMatchObject([
        { message: expect.stringMatching(/more than 8.0 MB/) as unknown, extensions: { code: 'ANSWER_TOO_LARGE' } },
      ]);
    });
    expect((await runQuery('{ tenants { totalCount } }')).data).toEqual({ tenants: { totalCount: 1 } });
  });

  test('to 8 MB of all its lists together, and to less if it has long aliases', async () => {
    const codes = ({ errors }: { errors?: { extensions: { code: string } }[] }) => [
      ...new Set((errors ?? []).map(({ extensions }) => extensions.code)),
    ];
    const groups = '(filter: { waiting: { equalTo: "0" } }) { groupedAggregates(groupBy: [TASK]) { keys } }';
    await replaceJobsView(service, { task: "repeat('x', 1000) || n", count: 5_000 }, async () => {
      expect(codes(await runQuery(`{ jobs${groups} }`))).toEqual([]);
      expect(codes(await runQuery(`{ a: jobs${groups} b: jobs${groups.replace('0', '00')} }`))).toEqual([
        'ANSWER_TOO_LARGE',
      ]);
    });
    await replaceJobsView(service, { task: "repeat('x', 100) || n", count: 20_000 }, async () => {
      const copies = Array.from({ length: 40 }, (_, n) => `${'x'.repeat(50)}${n}: keys`).join(' ');
      expect(codes(await runQuery(`{ jobs { groupedAggregates(groupBy: [TASK]) { ${copies} } } }`))).toEqual([
        'ANSWER_TOO_LARGE',
      ]);
      expect(
        codes(
          await runQuery(
            '{ jobs { groupedAggregates(groupBy: [TASK]) { keys a: keys b: keys c: keys d: keys e: keys f: keys g: keys h: keys } } }',
          ),
        ),
      ).toEqual(['ANSWER_TOO_LARGE']);
      expect(codes(await runQuery('{ jobs { groupedAggregates(groupBy: [TASK]) { keys } } }'))).toEqual([]);
    });
  });
});

describe('concurrent queries', () => {
  const slow = '{ jobs { nodes { task } } }';

  test('return 429 from the third of one operator; those of other operators wait', async () => {
    await replaceJobsView(service, { task: 'pg_sleep(0.05)::text', count: 10 }, async () => {
      const others = await Promise.all([analystOf(service, null), analystOf(service, null)]);
      const tokens = [analyst, analyst, analyst, ...others, ...others].map(({ token }) => token);
      const answers = await Promise.all(tokens.map((token) => askGraphql(service, token, slow)));
      const statuses = answers.map(({ status }) => status);
      expect({ own: statuses.slice(0, 3).sort(), others: statuses.slice(3) }).toEqual({
        own: [200, 200, 429],
        others: [200, 200, 200, 200],
      });
      const [late] = answers.filter(({ status }) => status === 429);
      expect(late).toMatchObject({
        error: 'rate_limited',
        message: 'You have other queries in progress. Try again when they are done.',
      });
      expect(Number(late?.headers['retry-after'])).toBeGreaterThan(0);
      expect((await runQuery(slow)).status).toBe(200);
    });
  });

  test('are canceled in the database when their clients are gone', async () => {
    // Long enough that only a cancellation can end the statement in time.
    const patient = await testService({ ANALYTICS_STATEMENT_TIMEOUT_MS: '60000' }, 0);
    try {
      const isRunning = async () =>
        (
          await patient.database.query(
            `select from pg_stat_activity where datname = current_database() and application_name = 'school_graphql'
               and wait_event = 'PgSleep'`,
          )
        ).length > 0;
      const { token } = await analystOf(patient, null);
      await replaceJobsView(patient, { task: 'pg_sleep(58)::text', count: 1 }, async () => {
        const gone = new AbortController();
        const query = fetch(`${patient.url}/graphql`, {
          method: 'POST',
          headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
          body: JSON.stringify({ query: slow }),
          signal: gone.signal,
        });
        const refused = expect(query).rejects.toThrow('aborted');
        await until(async () => (await isRunning()) || undefined);
        gone.abort();
        await refused;
        await until(async () => !(await isRunning()) || undefined);
      });
    } finally {
      await patient.close();
    }
  });
});

describe('a request body', () => {
  const post = (body: unknown, headers: Record<string, string> = {}) =>
    send(service.url, { method: 'POST', path: '/graphql', token: analyst.token, body, headers });

  test('is JSON of at most 64 kB, and no type that a form of another site can send', async () => {
    expect((await post({ query: `{ a }`, variables: { text: 'x'.repeat(70_000) } })).json).toMatchObject({
      error: 'payload_too_large',
      message: 'The body may have 64 kB at most.',
    });
    for (const type of [
      'application/x-www-form-urlencoded',
      'text/plain',
      'multipart/form-data; boundary=x',
      'application/graphql',
    ])
      expect((await post('query=%7Btenants%7BtotalCount%7D%7D', { 'content-type': type })).json?.error).toBe(
        'unsupported_media_type',
      );
    expect((await post('{"query": ')).json?.error).toBe('malformed_json');
  });

  test('has one query with its variables', async () => {
    for (const body of [
      {},
      [],
      [{ query: '{ tenants { totalCount } }' }],
      { query: '' },
      { query: 1 },
      { query: '{ a }', variables: [] },
      { query: '{ a }', operationName: 1 },
    ])
      expect({ body, error: (await post(body)).json?.error }).toEqual({ body, error: 'validation_error' });
  });

  test('finds a stored text in every Unicode form, in the query and in variables', async () => {
    const { id } = await service.school({ name: 'A\u030akeby Skola' });
    const find = (name: string) => `{ tenants(filter: { name: { equalTo: ${name} } }) { nodes { tenantId } } }`;
    for (const name of ['\u00c5keby Skola', 'A\u030akeby Skola'])
      for (const answer of [
        await runQuery(find(`"${name}"`)),
        await runQuery(`query ($name: String) ${find('$name')}`, { name }),
      ])
        expect(answer.data).toEqual({ tenants: { nodes: [{ tenantId: String(id) }] } });
  });
});

describe('an error of the database', () => {
  test('reports what an analyst can change, without database internals', async () => {
    const { errors } = await runQuery(
      '{ tenants(filter: { tenantId: { equalTo: "99999999999999999999" } }) { totalCount } }',
    );
    expect(errors).toMatchObject([
      { message: 'A value is out of range or has the wrong type.', extensions: { code: 'BAD_USER_INPUT' } },
    ]);
    await replaceJobsView(
      service,
      {
        task: '(select oid::regclass::text || secret from pg_authid cross join (select 1 / (n - 1) as secret) s limit 1)',
        count: 1,
      },
      async () => {
        const answer = await runQuery('{ jobs { nodes { task } } }');
        expect(answer.errors).toMatchObject([
          { message: 'An internal error occurred.', extensions: { code: 'INTERNAL_ERROR' } },
        ]);
        expect(JSON.stringify(answer.errors)).not.toMatch(/pg_authid|permission|select/);
      },
    );
  });

  test('is logged with its code, without values', async () => {
    const process = analyticsProcess({
      url: service.database.url,
      isOwnLogIn: false,
      connections: 1,
      timeouts: { statementTimeoutMs: 5_000, requestTimeoutMs: 10_000 },
      logger: pino({ level: 'silent' }),
    });
    try {
      await replaceJobsView(service, { task: "pg_read_file('secret ' || n)", count: 1 }, async () => {
        const { faults } = await process.run({
          query: '{ jobs { nodes { task } } }',
          variables: {},
          operationName: undefined,
          scope: 'all',
        });
        expect(faults).toEqual([{ name: 'error', code: '42501', routine: 'aclcheck_error' }]);
      });
    } finally {
      await process.close();
    }
  });

  test('caused by replication can be retried', async () => {
    await service.database.query(
      `create function public.conflict() returns text language plpgsql as $$ begin raise 'canceling statement due to conflict with recovery' using errcode = '40001'; end $$`,
    );
    await replaceJobsView(service, { task: 'public.conflict()', count: 1 }, async () => {
      const { errors } = await runQuery('{ jobs { nodes { task } } }');
      expect(errors).toMatchObject([
        { message: 'The database is not available. Try again in a moment.', extensions: { code: 'UNAVAILABLE' } },
      ]);
    });
  });
});
