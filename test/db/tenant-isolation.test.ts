import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import {
  withRole,
  type BareTenant,
  dropConstraintsAndTriggers,
  type Outcome,
  minimalInsert,
  provision,
  type TenantTable,
  tenantTables,
} from '../support/database/tenants.ts';

let database: TestDatabase;
let own: BareTenant;
let other: BareTenant;
let tables: TenantTable[];

beforeAll(async () => {
  database = await testDatabase(2);
  own = await provision(database);
  other = await provision(database);
  tables = await tenantTables(database, own.schema);
  // One row in every table of both schools. Other tests cover the constraints.
  for (const { schema } of [own, other]) {
    await dropConstraintsAndTriggers(database, schema);
    for (const table of tables) {
      await database.query(`truncate ${schema}.${table.name} cascade`);
    }
    // A delivery belongs to a user by a column that may be null.
    for (const table of tables)
      await database.query(
        minimalInsert(schema, table, table.name === 'notification_delivery' ? { user_id: '1' } : {}),
      );
  }
});
afterAll(() => database.drop());

const denied = '42501';

/** The outcome of each statement on each table of a schema, as school_tenant. */
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
  return withRole(database.url, 'school_tenant', settings, async ({ attempt }) => {
    const found: Record<string, Record<string, Outcome>> = {};
    for (const table of tables) {
      const name = `${schema}.${table.name}`;
      found[table.name] = {
        select: await attempt(`select from ${name}`),
        insert: await attempt(minimalInsert(schema, table)),
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

/** Expects the same outcomes for every table, but denied for the verbs that the table does not grant. */
const everywhere = (outcome: Record<string, Outcome>) =>
  Object.fromEntries(
    tables.map((table) => [
      table.name,
      Object.fromEntries(
        Object.entries(outcome).map(([verb, result]) => [verb, table.verbs.includes(verb) ? result : denied]),
      ),
    ]),
  );

describe('a new school', () => {
  test('has the tables for people, classes and enrollments', () => {
    expect(tables.map((table) => table.name)).toEqual(
      expect.arrayContaining(['user_account', 'role', 'student', 'teacher', 'class', 'enrollment', 'file']),
    );
  });

  test('has row-level security enabled and forced on every table', async () => {
    const unprotected = await database.query(
      `select relname from pg_class
       where relnamespace = $1::regnamespace and relkind in ('r', 'p')
         and not (relrowsecurity and relforcerowsecurity)`,
      [own.schema],
    );
    expect(unprotected).toEqual([]);
  });

  test('has one permissive policy per table, which compares with a constant; the others are restrictive', async () => {
    const policies = await database.query<{
      tablename: string;
      policyname: string;
      permissive: string;
      roles: string;
      cmd: string;
      qual: string;
      with_check: string;
    }>(
      `select tablename::text, policyname::text, permissive, roles::text, cmd, qual, with_check
       from pg_policies
       where schemaname = $1 and permissive = 'PERMISSIVE'
       order by tablename collate "C"`,
      [own.schema],
    );
    const comparison = `NULLIF((current_setting('app.tenant_id'::text, true) = '${own.id}'::text), false)`;
    const check = `(( SELECT ${comparison} AS "nullif") IS NOT NULL)`;
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

  test('is readable and writable by a request for this school', async () => {
    expect(await attempts(String(own.id), own.schema)).toEqual(
      everywhere({ select: 1, insert: 1, update: 1, delete: 1 }),
    );
  });

  test('shows notifications, deliveries, devices and calendar feeds only to their user, even in scope `all`', async () => {
    const found = await attempts(String(own.id), own.schema, '2');
    const hidden = Object.entries(found).filter(([, { select }]) => select === 0);
    expect(Object.fromEntries(hidden)).toEqual({
      calendar_feed: { select: 0, insert: denied, update: 0, delete: 0 },
      device: { select: 0, insert: denied, update: 0, delete: 0 },
      notification: { select: 0, insert: 1, update: 0, delete: 0 },
      notification_delivery: { select: 0, insert: denied, update: denied, delete: denied },
    });
  });

  const nothing = { select: 0, insert: denied, update: 0, delete: 0 };

  test('is neither readable nor writable by a request for another school', async () => {
    expect(await attempts(String(other.id), own.schema)).toEqual(everywhere(nothing));
    expect(await attempts(String(own.id), other.schema)).toEqual(everywhere(nothing));
  });

  test.each([
    ['was never set', undefined],
    ['is empty, as it is after a transaction that set it', ''],
    ['is 0', '0'],
    ['holds a wildcard', '%'],
  ])('is neither readable nor writable when app.tenant_id %s', async (_case, tenantId) => {
    expect(await attempts(tenantId, own.schema)).toEqual(everywhere(nothing));
  });

  test('grants no insert or update of an id column, so that no request can choose an id', async () => {
    const open = await database.query(
      `select c.relname, a.attname
       from pg_class c
       join pg_attribute a on a.attrelid = c.oid and a.attname = 'id' and a.atthasdef
       where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p')
         and has_column_privilege('school_tenant', c.oid, a.attnum, 'insert, update')`,
      [own.schema],
    );
    expect(open).toEqual([]);
  });

  test('grants no truncate, references or trigger privilege on any table', async () => {
    const open = await database.query(
      `select relname from pg_class
       where relnamespace = $1::regnamespace and relkind in ('r', 'p')
         and has_table_privilege('school_tenant', oid, 'truncate, references, trigger')`,
      [own.schema],
    );
    expect(open).toEqual([]);
  });
});

test('every table that a node sends to the home has the triggers that ignore schools of other servers', async () => {
  const unguarded = await database.query(
    `select name::text from core.tables_copied_home() name
     where 2 <> (
       select count(*) from pg_trigger
       where tgrelid = name and tgenabled = 'R' and tgname in ('accept_copy', 'accept_fact', 'refuse_copied_truncate'))`,
  );
  expect(unguarded).toEqual([]);
});
