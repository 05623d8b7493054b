import { until } from '../client/until.ts';
import { createHash, randomUUID } from 'node:crypto';
import type pg from 'pg';
import { type Servers, sharedServers } from '../../nodes/servers.ts';
import { createSpread, dropSpread, nodeOfFile, serversOfWorker } from './spread.ts';

/** A database that serves schools. Statements run as the owner, a superuser who bypasses row security. */
export interface Queries {
  query<R extends pg.QueryResultRow = Record<string, unknown>>(text: string, values?: unknown[]): Promise<R[]>;
  /** The address, for the owner, of the database where `query` runs this statement. */
  addressFor(text?: string): Promise<string>;
}

/**
 * The database of one test file. If the schools are spread over several servers (test/nodes), it is the home, and a
 * statement that names the schema of a school runs on its server.
 */
export interface TestDatabase extends Queries {
  /** Its address, for the owner. */
  url: string;
  /** The servers of a run that spreads schools over them. */
  servers?: Servers;
  /** The database that serves a school: with spread schools that of its server, otherwise this one. */
  of(school: number): Queries;
  /** The databases of all servers, that of the home first. */
  all(): [Queries, ...Queries[]];
  /**
   * Runs a statement on all servers, and returns the rows of all: for tables of which each server has its own rows, such
   * as platform.session.
   */
  everywhere<R extends pg.QueryResultRow = Record<string, unknown>>(text: string, values?: unknown[]): Promise<R[]>;
  /** The same, planned only once per connection. */
  prepared?<R extends pg.QueryResultRow = Record<string, unknown>>(text: string): Promise<R[]>;
  drop(): Promise<void>;
}

/** Writes the notifications of all that has happened, until nothing is left. A worker may do the same meanwhile. */
export async function settle(server: Queries): Promise<void> {
  await until(async () => {
    await server.query('select core.outbox_write(school_id) from core.outbox_schools()');
    return (await server.query('select core.outbox_schools()')).length === 0 || undefined;
  });
}

/** The address of a database of the test server. */
export function serverUrl(database: string): string {
  const url = process.env['TEST_SERVER_URL'];
  if (!url) throw new Error('The test server is not running: run the tests with npm test.');
  return url.replace('/DATABASE?', `/${database}?`);
}

/** Notes the rows of a query, which `until` prints when it gives up. */
function noted<R>(text: string, rows: R[]): R[] {
  shared.observed.last = { query: text, rows };
  return rows;
}

async function maintain(text: string): Promise<void> {
  const client = new shared.pg.Client({ connectionString: serverUrl('postgres') });
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}

/**
 * No worker of a test starts a job because of the time of day: a job at a quarter of an hour would change tables that
 * the tests compare. A job that has run in the future is never due.
 */
export const withoutSchedule =
  "alter table graphile_worker._private_known_crontabs alter column last_execution set default '2100-01-01'";

/** The database that a test database is a clone of: migrated, with the tables of this many template schools. */
export const templateOf = (count: number): string =>
  count === 0 ? 'template_school' : `template_with_${String(count)}`;

/** The smallest of these databases with `count` template schools, or the largest if all have fewer. */
function smallestTemplate(count: number): string {
  const counts = JSON.parse(process.env['TEST_TEMPLATE_SCHOOLS'] ?? '[]') as number[];
  return templateOf(count === 0 ? 0 : (counts.find((each) => each >= count) ?? counts.at(-1) ?? 0));
}

/**
 * The databases of a run with several servers, as one: a statement runs where the school is whose schema it names, and
 * otherwise on the server with this index: 0 is the home.
 */
function spreadDatabase(servers: Servers, drop: () => Promise<void>, main = 0): TestDatabase {
  const { home, nodes } = servers;
  const urls = [home, ...nodes.map(({ url }) => url)];
  const pools = urls.map(
    (connectionString) => new shared.pg.Pool({ connectionString, max: 4, application_name: 'test' }),
  );
  // A test may stop a server.
  for (const pool of pools) pool.on('error', () => undefined);
  const [homePool] = pools as [pg.Pool];
  const on = (index: number): Queries => ({
    query: async <R extends pg.QueryResultRow>(text: string, values?: unknown[]) =>
      noted(text, (await (pools[index] ?? homePool).query<R>(text, values)).rows),
    addressFor: () => Promise.resolve(urls[index] ?? home),
  });
  async function serverOf(school: number | string): Promise<Queries> {
    const [row] = await on(0).query<{ node: number | null }>(
      'select node_id::integer as node from platform.tenant where id = $1',
      [school],
    );
    // A school that the test has added by SQL is only there.
    return on(row === undefined ? main : (row.node ?? 0));
  }
  const serverFor = async (text = '') => {
    const school = /\btenant_(\d+)\b/.exec(text)?.[1];
    return school === undefined ? on(main) : serverOf(school);
  };
  return {
    url: urls[main] ?? home,
    servers,
    query: async (text, values) => (await serverFor(text)).query(text, values),
    addressFor: async (text) => (await serverFor(text)).addressFor(text),
    of: (school) => ({
      query: async (text, values) => (await serverOf(school)).query(text, values),
      addressFor: async (text) => (await serverOf(school)).addressFor(text),
    }),
    all: () => [on(0), ...nodes.map((_, index) => on(index + 1))],
    everywhere: async <R extends pg.QueryResultRow>(text: string, values?: unknown[]) =>
      (await Promise.all(urls.map((_, index) => on(index).query<R>(text, values)))).flat(),
    async drop() {
      await Promise.all(pools.map((pool) => pool.end()));
      await drop();
    },
  };
}

/**
 * Creates a migrated database, or an empty one. `drop` fails while a connection is open.
 * @param schools  how many schools the test adds. They get the tables of template schools (see template-schools.ts)
 */
export async function testDatabase(schools: number | 'empty' = 0): Promise<TestDatabase> {
  const servers = sharedServers();
  if (servers) return spreadDatabase(servers, () => Promise.resolve());
  const spreadServers = serversOfWorker();
  if (spreadServers) {
    const servers = await createSpread(spreadServers);
    const main = await nodeOfFile(servers);
    return spreadDatabase(servers, () => dropSpread(spreadServers), main);
  }
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  const template = schools === 'empty' ? 'template0' : smallestTemplate(schools);
  await maintain(
    `create database ${name} template ${template} strategy ${process.env['TEST_CLONE_STRATEGY'] ?? 'wal_log'}`,
  );
  const pool = new shared.pg.Pool({ connectionString: serverUrl(name), max: 4, application_name: 'test' });
  const own: Queries = {
    query: async <R extends pg.QueryResultRow>(text: string, values?: unknown[]) =>
      noted(text, (await pool.query<R>(text, values)).rows),
    addressFor: () => Promise.resolve(serverUrl(name)),
  };
  return {
    ...own,
    url: serverUrl(name),
    of: () => own,
    all: () => [own],
    everywhere: (text, values) => own.query(text, values),
    async prepared<R extends pg.QueryResultRow>(text: string) {
      const name = createHash('md5').update(text).digest('hex');
      return (await pool.query<R>({ name, text })).rows;
    },
    async drop() {
      await pool.end();
      // Postgres waits up to five seconds for connections to end, longer than a pooler keeps them here.
      await maintain(`drop database ${name}`);
    },
  };
}
