import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { register } from '../support/database/tenants.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.drop());

test('fees and payments from before they could be searched and added up quickly are found and alike, and nothing of them looks edited', async () => {
  const { id, schema } = await register(database);
  await database.query('select core.tenant_migrate($1, 9)', [id]);
  await database.query(
    `set search_path to ${schema}, public;
     insert into academic_year (name, start_date, end_date) values ('2026', '2026-01-01', '2026-12-31');
     insert into grade (name) values ('One');
     insert into class (name, grade_id, academic_year_id) values ('A', 1, 1);
     insert into student (first_name, last_name, admission_number, class_id) select 'Sam', 'Student', n::text, 1 from generate_series(1, 6) n;
     insert into fee_structure (name, academic_year_id) values ('Fees', 1);
     insert into fee_component (fee_structure_id, name, amount, frequency) values (1, 'Tuition', 60, 'annual'), (1, 'Bus', 40, 'annual');
     insert into student_fee (student_id, fee_structure_id, class_id, amount, due_date) select n, 1, 1, 100, '2999-01-01' from generate_series(1, 6) n;
     insert into student_fee_item (student_fee_id, student_id, fee_component_id, name, amount, period_start, period_end)
       select n, n, c, name, amount, '2026-01-01', '2026-12-31'
       from (values (1, 1, 'Tuition', 60), (1, 2, 'Bus', 40), (2, 1, 'Tuition', 60), (2, 2, 'Bus', 40), (3, 2, 'Bus', 40), (3, 1, 'Tuition', 60), (4, 1, 'Tuition', 100), (5, 2, 'Bus', 60), (5, 1, 'Tuition', 40)) i (n, c, name, amount);
     insert into payment (student_id, student_fee_id, amount, payment_date, payment_method, receipt_number, reference_number) values (1, 1, 10, '2026-02-02', 'cash', 'RCT-2026-000001', 'Chèque 7');
     reset search_path`,
  );
  // What a daily job has not come to yet: a migration is no time to change it.
  await database.query(
    `set session_replication_role = replica; update ${schema}.student_fee set due_date = '2020-01-01' where id = 2; reset session_replication_role`,
  );
  const fees = () =>
    database.query(
      `select id, amount, paid_amount, status, due_date, created_at, updated_at from ${schema}.student_fee order by id`,
    );
  const before = await fees();
  await database.query('select core.tenant_migrate($1)', [id]);
  expect(await fees()).toEqual(before);
  const alike = `select array_agg(id::integer order by id) as fees from ${schema}.student_fee group by items_digest order by min(id)`;
  // The third has the same items in another order, the fifth the same amounts under other names, the last none.
  expect(await database.query(alike)).toEqual([
    { fees: [1, 2] },
    { fees: [3] },
    { fees: [4] },
    { fees: [5] },
    { fees: [6] },
  ]);
  expect(await database.query(`select search_text from ${schema}.payment`)).toEqual([
    { search_text: 'rct-2026-000001 cheque 7' },
  ]);
  // The triggers are back.
  await database.query(`update ${schema}.student_fee set due_date = '2020-01-01' where id = 1`);
  expect(
    await database.query(`select status, updated_at > created_at as touched from ${schema}.student_fee where id = 1`),
  ).toEqual([{ status: 'overdue', touched: true }]);
});
