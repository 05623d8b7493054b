import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { sqlFile } from '../../src/database/migrate/install.ts';
import { schemaDefinition } from '../support/database/schema-definition.ts';
import { type BareTenant, provision, register } from '../support/database/tenants.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.drop());

/** The last version whose amounts have two decimals. */
const before = 28;
const tables = ['fee_component', 'student_fee', 'student_fee_item', 'invoice', 'invoice_item', 'payment'];

/** A school at an earlier version, with one row in each table with amounts. */
async function earlierSchool(): Promise<BareTenant> {
  const school = await register(database);
  await database.query('select core.tenant_migrate($1, $2)', [school.id, before]);
  await database.query(`
    set session_replication_role = replica;
    set search_path = ${school.schema}, public;
    insert into fee_component (id, fee_structure_id, name, amount, frequency) values (1, 1, 'Tuition', 250.5, 'monthly');
    insert into student_fee (id, student_id, fee_structure_id, amount, paid_amount, due_date, status)
      values (1, 1, 1, 250.5, 0.25, '2027-01-01', 'partially_paid');
    insert into student_fee_item (id, student_fee_id, student_id, fee_component_id, name, amount, period_start, period_end)
      values (1, 1, 1, 1, 'Tuition', 250.5, '2026-12-01', '2026-12-31');
    insert into invoice (id, student_id, due_date, amount, status) values (1, 1, '2027-01-01', 751.5, 'draft');
    insert into invoice_item (id, invoice_id, student_id, description, amount, quantity)
      values (1, 1, 1, 'Trip', 250.5, 3);
    insert into payment (id, student_id, student_fee_id, receipt_number, amount, payment_date, payment_method)
      values (1, 1, 1, 'RCT-2026-000001', 0.25, '2026-12-02', 'cash');
    reset session_replication_role;
    reset search_path;`);
  return school;
}

const files = ({ schema }: BareTenant) =>
  database.query(
    `select c.relname::text as name, c.relfilenode from pg_class c
     where c.relnamespace = $1::regnamespace and c.relname = any ($2) order by 1`,
    [schema, [...tables, 'student_fee_amount_idx']],
  );
const rows = async ({ schema }: BareTenant) =>
  Promise.all(
    tables.map((table) =>
      // Without the column that a later migration adds.
      database.query<{ row: string }>(
        `select (to_jsonb(t) - 'discount_amount')::text as row from ${schema}.${table} t`,
      ),
    ),
  );

test('the migration of amounts writes no table again, and keeps each value as it is printed', async () => {
  const school = await earlierSchool();
  const [filesBefore, rowsBefore] = [await files(school), await rows(school)];
  await database.query('select core.tenant_migrate($1)', [school.id]);
  expect(await files(school)).toEqual(filesBefore);
  expect(await rows(school)).toEqual(rowsBefore);
  expect(JSON.stringify(rowsBefore)).toContain('250.50');
  expect(JSON.stringify(rowsBefore)).toContain('751.50');
  const [types] = await database.query<{ types: string[]; checks: boolean }>(
    `select
       array(select distinct format_type(a.atttypid, a.atttypmod) from pg_attribute a
         where a.attrelid = any ($1::regclass[]) and a.attname ~ '^(paid_)?amount$|^line_total$') as types,
       (select bool_and(convalidated) from pg_constraint where conrelid = any ($1::regclass[])) as checks`,
    [tables.map((table) => `${school.schema}.${table}`)],
  );
  expect(types).toEqual({ types: ['numeric'], checks: true });
  expect(await schemaDefinition(database, [school.schema])).toEqual(
    await schemaDefinition(database, [(await provision(database)).schema]),
  );
});

test('amounts have at most four decimals and are less than ten billion', async () => {
  const { schema } = await earlierSchool();
  await database.query('select core.tenant_migrate(substr($1, 8)::bigint)', [schema]);
  const change = (amount: string) => database.query(`update ${schema}.fee_component set amount = ${amount}`);
  await change('1.2345');
  await change('9999999999.9999');
  await change('1.23450000');
  for (const amount of ['1.23456', '10000000000', "'NaN'", "'infinity'", '0'])
    await expect(change(amount)).rejects.toThrow('fee_component_amount_check');
  await database.query(`update ${schema}.invoice_item set amount = 0.1234, line_total = 5`);
  expect(await database.query(`select line_total::text from ${schema}.invoice_item`)).toEqual([
    { line_total: '0.3702' },
  ]);
  await expect(database.query(`update ${schema}.invoice_item set amount = 9999999999`)).rejects.toThrow(
    'invoice_amount_check',
  );
});

test('the migration of prices keeps the views of analysts, their privileges, and all rows', async () => {
  const { text } = await sqlFile('migrations/committed/000026-decimals-of-prices.sql');
  const state = async () => ({
    views: (await schemaDefinition(database, ['analytics'])).filter((line) => !/^column .* numeric\S* /.test(line)),
    prices: await database.query('select id, price_monthly::text from platform.plan order by id'),
    files: await database.query(
      `select relname, relfilenode from pg_class
       where oid in ('platform.plan'::regclass, 'mart.fee_month'::regclass, 'mart.payment_day'::regclass)`,
    ),
    status: await database.query(
      'select pg_get_function_result(oid), proacl::text, prosecdef, proconfig from pg_proc where proname ~ $1 order by oid',
      ['^subscription_(status|plans)$'],
    ),
  });
  const installed = await state();
  // The same statements undo the migration with the earlier type.
  await database.query(text.replaceAll(/type numeric\b/g, 'type numeric(14,2)'));
  const earlier = await state();
  expect(earlier.views).toEqual(installed.views);
  await database.query(text);
  expect(await state()).toEqual({ ...installed, files: earlier.files });
  expect(installed.views.join('\n')).toMatch(/relation analytics\.fee_months.*school_analyst=r/);
  expect(
    await database.query(
      `select distinct format_type(atttypid, atttypmod) as type from pg_attribute
       where attrelid = any ('{platform.plan,mart.fee_month,mart.payment_day,analytics.fee_months}'::regclass[])
         and atttypid = 'numeric'::regtype`,
    ),
  ).toEqual([{ type: 'numeric' }]);
});
