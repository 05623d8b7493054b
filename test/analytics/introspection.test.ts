import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { catalogQuery } from '../../src/analytics/introspection.ts';
import { provision } from '../support/database/tenants.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase(1);
  await provision(database);
});
afterAll(() => database.drop());

interface Catalog {
  namespaces: { nspname: string }[];
  classes: { _id: string; relname: string }[];
  attributes: { attrelid: string; atttypid: string }[];
  types: { _id: string }[];
}

test('the analytics process reads only the views of analysts from the catalog, with all of their types', async () => {
  const [row = {}] = await database.query(catalogQuery);
  const { namespaces, classes, attributes, types } = JSON.parse(String(row['introspection'])) as Catalog;
  expect(namespaces.map(({ nspname }) => nspname)).toEqual(['analytics', 'pg_catalog']);
  const views = await database.query<{ name: string }>(
    'select viewname as name from pg_views where schemaname = \'analytics\' order by viewname collate "C"',
  );
  expect(classes.map(({ relname }) => relname)).toEqual(views.map(({ name }) => name));
  const ids = new Set(types.map(({ _id }) => _id));
  expect(attributes.length).toBeGreaterThan(100);
  expect(attributes.filter(({ atttypid }) => !ids.has(atttypid))).toEqual([]);
});
