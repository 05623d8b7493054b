import { createHash, randomUUID } from 'node:crypto';
import type pg from 'pg';

/** The database of one test file. */
export interface TestDatabase {
  /** Its address, for the owner. */
  url: string;
  /** Runs a statement as the owner, a superuser who bypasses row security. */
  query<R extends pg.QueryResultRow = Record<string, unknown>>(text: string, values?: unknown[]): Promise<R[]>;
  /** The same, planned only once per connection. */
  prepared?<R extends pg.QueryResultRow = Record<string, unknown>>(text: string): Promise<R[]>;
  drop(): Promise<void>;
}

/** The address of a database of the test server. */
export function serverUrl(database: string): string {
  const url = process.env['TEST_SERVER_URL'];
  if (!url) throw new Error('The test server is not running: run the tests by npm test.');
  return url.replace('/DATABASE?', `/${database}?`);
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

/** The database that a test database is a clone of: migrated, with the tables of this many ready-made schools. */
export const templateOf = (count: number): string =>
  count === 0 ? 'template_school' : `template_ready_${String(count)}`;

/** The smallest of these databases with `count` ready-made schools, or the largest if none has so many. */
function readyTemplate(count: number): string {
  const counts = JSON.parse(process.env['TEST_READY_SCHOOLS'] ?? '[]') as number[];
  return templateOf(count === 0 ? 0 : (counts.find((each) => each >= count) ?? counts.at(-1) ?? 0));
}

/**
 * Creates a migrated database, or an empty one. `drop` fails while a connection is open.
 * @param schools  how many schools the test will add at least; their tables are ready-made (see ready-schools.ts)
 */
export async function testDatabase(schools: number | 'empty' = 0): Promise<TestDatabase> {
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  const template = schools === 'empty' ? 'template0' : readyTemplate(schools);
  await maintain(
    `create database ${name} template ${template} strategy ${process.env['TEST_CLONE_STRATEGY'] ?? 'wal_log'}`,
  );
  const pool = new shared.pg.Pool({ connectionString: serverUrl(name), max: 4, application_name: 'test' });
  return {
    url: serverUrl(name),
    async query<R extends pg.QueryResultRow>(text: string, values?: unknown[]) {
      return (await pool.query<R>(text, values)).rows;
    },
    async prepared<R extends pg.QueryResultRow>(text: string) {
      const name = createHash('md5').update(text).digest('hex');
      return (await pool.query<R>({ name, text })).rows;
    },
    async drop() {
      await pool.end();
      await maintain(`drop database ${name}`);
    },
  };
}
