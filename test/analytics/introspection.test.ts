import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { makeIntrospectionQuery } from 'pg-introspection';
import { withoutSchools } from '../../src/analytics/introspection.ts';
import { provision } from '../support/database/tenants.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase(1);
  await provision(database);
});
afterAll(() => database.drop());

test('the analytics process reads the catalog without the tables of schools', async () => {
  const [row = {}] = await database.query(withoutSchools(makeIntrospectionQuery()));
  const { namespaces, classes } = JSON.parse(String(Object.values(row)[0])) as {
    namespaces: { _id: string; nspname: string }[];
    classes: { relname: string; relnamespace: string }[];
  };
  expect(namespaces.map(({ nspname }) => nspname)).toEqual(
    expect.arrayContaining(['analytics', 'pg_catalog', 'public']),
  );
  expect(namespaces.filter(({ nspname }) => nspname.startsWith('tenant_'))).toEqual([]);
  expect(classes.map(({ relname }) => relname)).toContain('attendance_days');
  const known = new Set(namespaces.map(({ _id }) => _id));
  expect(classes.filter(({ relnamespace }) => !known.has(relnamespace))).toEqual([]);
});
