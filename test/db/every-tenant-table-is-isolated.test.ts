import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import {
  acting,
  type BareTenant,
  dropRules,
  type Outcome,
  plainInsert,
  provision,
  type TenantTable,
  tenantTables,
} from '../support/database/tenants.ts';

let database: TestDatabase;
let ours: BareTenant;
let theirs: BareTenant;
let tables: TenantTable[];

beforeAll(async () => {
  database = await testDatabase();
  ours = await provision(database);
  theirs = await provision(database);
  tables = await tenantTables(database, ours.schema);
  // One row in every table of both schools; what a row may hold is the business of other tests.
  for (const { schema } of [ours, theirs]) {
    await dropRules(database, schema);
    for (const table of tables) {
      await database.query(`truncate ${schema}.${table.name} cascade`);
    }
    // What a user may see of it is said by a column that may be null.
    for (const table of tables)
      await database.query(plainInsert(schema, table, table.name === 'notification_delivery' ? { user_id: '1' } : {}));
  }
});
afterAll(() => database.drop());

const denied = '42501';

/** What a school's role comes to at one table, statement by statement. */
async function attempts(
  tenantId: string | undefined,
  schema: string,
  userId = '1',
): Promise<Record<string, Record<string, Outcome>>> {
  const settings = {
    ...(tenantId === undefined ? {} : { 'app.tenant_id': tenantId }),
    'app.scope': 'all',
    'app.user_id': userId,
  };
  return acting(database.url, 'school_tenant', settings, async ({ attempt }) => {
    const found: Record<string, Record<string, Outcome>> = {};
    for (const table of tables) {
      const name = `${schema}.${table.name}`;
      found[table.name] = {
        select: await attempt(`select from ${name}`),
        insert: await attempt(plainInsert(schema, table)),
        update:
          table.changeable === null
            ? denied
            : await attempt(`update ${name} set "${table.changeable}" = "${table.changeable}"`),
        delete: await attempt(`delete from ${name}`),
      };
    }
    return found;
  });
}

/** Each table with the same outcome of each verb that is granted; what is not granted is denied. */
const everywhere = (outcome: Record<string, Outcome>) =>
  Object.fromEntries(
    tables.map((table) => [
      table.name,
      Object.fromEntries(
        Object.entries(outcome).map(([verb, result]) => [verb, table.verbs.includes(verb) ? result : denied]),
      ),
    ]),
  );

describe('a freshly provisioned school', () => {
  test('has at least the tables of people, classes and enrollments', () => {
    expect(tables.map((table) => table.name)).toEqual(
      expect.arrayContaining(['user_account', 'role', 'student', 'teacher', 'class', 'enrollment', 'file']),
    );
  });

  test('has row security enabled and forced on every table', async () => {
    const unprotected = await database.query(
      `select relname from pg_class where relnamespace = $1::regnamespace and relkind in ('r', 'p') and not (relrowsecurity and relforcerowsecurity)`,
      [ours.schema],
    );
    expect(unprotected).toEqual([]);
  });

  test('has on every table one permissive policy, which compares with a constant; every other policy narrows', async () => {
    const policies = await database.query<{
      tablename: string;
      policyname: string;
      permissive: string;
      roles: string;
      cmd: string;
      qual: string;
      with_check: string;
    }>(
      `select tablename::text, policyname::text, permissive, roles::text, cmd, qual, with_check from pg_policies where schemaname = $1 and permissive = 'PERMISSIVE' order by tablename collate "C"`,
      [ours.schema],
    );
    const check = `(NULLIF((current_setting('app.tenant_id'::text, true) = '${ours.id}'::text), false) IS NOT NULL)`;
    expect(policies).toEqual(
      tables
        .map((table) => table.name)
        .sort()
        .map((tablename) => ({
          tablename,
          policyname: 'tenant_isolation',
          permissive: 'PERMISSIVE',
          roles: '{public}',
          cmd: 'ALL',
          qual: check,
          with_check: check,
        })),
    );
  });

  test('gives and takes rows of every table when the request is of this school', async () => {
    expect(await attempts(String(ours.id), ours.schema)).toEqual(
      everywhere({ select: 1, insert: 1, update: 1, delete: 1 }),
    );
  });

  test('shows notifications, their deliveries, devices and calendar feeds to their user alone, however far that user reaches', async () => {
    const found = await attempts(String(ours.id), ours.schema, '2');
    const hidden = Object.entries(found).filter(([, { select }]) => select === 0);
    expect(Object.fromEntries(hidden)).toEqual({
      calendar_feed: { select: 0, insert: denied, update: 0, delete: 0 },
      device: { select: 0, insert: denied, update: 0, delete: 0 },
      notification: { select: 0, insert: 1, update: 0, delete: 0 },
      notification_delivery: { select: 0, insert: denied, update: denied, delete: denied },
    });
  });

  const nothing = { select: 0, insert: denied, update: 0, delete: 0 };

  test('shows no row and takes none when the request is of another school', async () => {
    expect(await attempts(String(theirs.id), ours.schema)).toEqual(everywhere(nothing));
    expect(await attempts(String(ours.id), theirs.schema)).toEqual(everywhere(nothing));
  });

  test.each([
    ['was never set', undefined],
    ['is empty, as after another transaction', ''],
    ['is 0', '0'],
    ['holds a wildcard', '%'],
  ])('shows no row and takes none when the school of the request %s', async (_case, tenantId) => {
    expect(await attempts(tenantId, ours.schema)).toEqual(everywhere(nothing));
  });

  test('lets no request choose an id: no table grants its id column to insert or update', async () => {
    const open = await database.query(
      `select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'id' and a.atthasdef
       where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p')
         and (has_column_privilege('school_tenant', c.oid, a.attnum, 'insert') or has_column_privilege('school_tenant', c.oid, a.attnum, 'update'))`,
      [ours.schema],
    );
    expect(open).toEqual([]);
  });

  test('grants its role neither truncate nor references nor triggers on any table', async () => {
    const open = await database.query(
      `select relname from pg_class where relnamespace = $1::regnamespace and relkind in ('r', 'p')
         and (has_table_privilege('school_tenant', oid, 'truncate') or has_table_privilege('school_tenant', oid, 'references') or has_table_privilege('school_tenant', oid, 'trigger'))`,
      [ours.schema],
    );
    expect(open).toEqual([]);
  });
});
