import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { catalogQuery } from '../../src/analytics/catalog.ts';
import { provision } from '../support/database/tenants.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase(1);
  await provision(database);
});
afterAll(() => database.drop());

const committed = readFileSync(new URL('../../src/analytics/catalog.json', import.meta.url), 'utf8');

interface Catalog {
  namespaces: { nspname: string }[];
  classes: { _id: string; relname: string }[];
  attributes: { attrelid: string; atttypid: string }[];
  types: { _id: string }[];
}

test('the analytics process reads only the views of analysts from the catalog, with all of their types', async () => {
  const [row = {}] = await database.query(catalogQuery);
  const { namespaces, classes, attributes, types } = row['catalog'] as Catalog;
  expect(namespaces.map(({ nspname }) => nspname)).toEqual(['analytics', 'pg_catalog']);
  const views = await database.query<{ name: string }>(
    'select viewname as name from pg_views where schemaname = \'analytics\' order by viewname collate "C"',
  );
  expect(classes.map(({ relname }) => relname)).toEqual(views.map(({ name }) => name));
  const ids = new Set(types.map(({ _id }) => _id));
  expect(attributes.length).toBeGreaterThan(100);
  expect(attributes.filter(({ atttypid }) => !ids.has(atttypid))).toEqual([]);
});

describe('src/analytics/catalog.json', () => {
  test('is current: update it with `npm run -s school -- graphql-schema --catalog > src/analytics/catalog.json`', async () => {
    const [row = {}] = await database.query(catalogQuery);
    expect(row['catalog']).toEqual(JSON.parse(committed));
  });

  test.each([
    ['a column is added', 'create or replace view analytics.jobs as select *, 1 as added from ($jobs) jobs'],
    [
      'a column has another type',
      `set local allow_system_table_mods = on;
       update pg_attribute set atttypid = 'numeric'::regtype
       where attrelid = 'analytics.jobs'::regclass and attname = 'failed'`,
    ],
    ['a column is renamed', 'alter view analytics.jobs rename column failed to broken'],
    ['a comment is changed', "comment on column analytics.jobs.task is 'Changed.'"],
    ['a view is added', 'create view analytics.added as select 1 as one'],
    ['a view is dropped', 'drop view analytics.jobs'],
    ['analysts may not read a view', 'revoke select on analytics.jobs from school_analyst'],
    [
      'analysts may read only some columns',
      'revoke select on analytics.jobs from school_analyst; grant select (task) on analytics.jobs to school_analyst',
    ],
  ])('differs from the catalog of a database in which %s', async (_change, statement) => {
    const [jobs = {}] = await database.query("select rtrim(pg_get_viewdef('analytics.jobs'::regclass), ';') as text");
    const client = new shared.pg.Client({ connectionString: database.url });
    await client.connect();
    try {
      await client.query(`begin; ${statement.replace('$jobs', String(jobs['text']))}`);
      const { rows } = await client.query<{ catalog: object }>(catalogQuery);
      expect(rows[0]?.catalog).not.toEqual(JSON.parse(committed));
    } finally {
      await client.end();
    }
  });
});
