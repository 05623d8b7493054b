import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { asAnalyst, refresh, viewsOf } from '../support/database/facts.ts';
import { withRole, provision } from '../support/database/tenants.ts';

let database: TestDatabase;
let ids: number[];
let views: string[];

/** Fills a school so that every view has rows for it. */
async function fill(id: number, schema: string): Promise<void> {
  await database.query(`
    insert into ${schema}.academic_year (name, start_date, end_date, is_current) values ('2025/26', '2025-08-01', '2026-07-31', true);
    insert into ${schema}.grade (name) values ('One');
    insert into ${schema}.class (name, grade_id, academic_year_id) values ('One', 1, 1);
    insert into ${schema}.user_account (email, first_name, last_name) values ('uma@example.org', 'Uma', 'User');
    insert into ${schema}.student (first_name, last_name, admission_number, class_id) values ('Stu', 'Dent', '1', 1);
    insert into ${schema}.fee_structure (name, academic_year_id) values ('Fees', 1);
    insert into ${schema}.fee_component (fee_structure_id, name, amount, frequency) values (1, 'Tuition', 100, 'annual');
    insert into ${schema}.student_fee (student_id, fee_structure_id, class_id, amount, due_date, billed_on) values (1, 1, 1, 100, '2025-10-01', '2025-09-15');
    insert into ${schema}.student_fee_item (student_fee_id, student_id, fee_component_id, name, amount, period_start, period_end) values (1, 1, 1, 'Tuition', 100, '2025-08-01', '2026-07-31');
    insert into ${schema}.payment (student_id, student_fee_id, amount, payment_date, payment_method) values (1, 1, 10, '2025-10-01', 'cash');
    insert into ${schema}.route (name) values ('North');
    insert into ${schema}.teacher (first_name, last_name) values ('Tea', 'Cher');
    insert into ${schema}.notification (user_id, title, message) values (1, 'Hello', 'Hello');
    insert into ${schema}.attendance (student_id, class_id, date, status) values (1, 1, '2025-10-01', 'late');
    select graphile_worker.add_job('deliver', json_build_object('tenant_id', ${String(id)}));
  `);
  await refresh(database, id);
}

/** The schools that an analyst sees in each view; `null` stands for rows without a school. */
const found = (schools: Parameters<typeof asAnalyst>[1]): Promise<Record<string, (number | null)[]>> =>
  asAnalyst(database, schools, async ({ rows }) => {
    const answer: Record<string, (number | null)[]> = {};
    for (const view of views) {
      const seen = await rows<{ id: string | null }>(
        `select distinct tenant_id as id from analytics.${view} order by 1`,
      );
      answer[view] = seen.map(({ id }) => (id === null ? null : Number(id)));
    }
    return answer;
  });
const inEachView = (...schools: number[]) => Object.fromEntries(views.map((view) => [view, schools]));

beforeAll(async () => {
  database = await testDatabase(11);
  ids = [];
  // More than nine, so that one id is a prefix of another.
  for (let n = 0; n < 11; n++) {
    const { id, schema } = await provision(database);
    await fill(id, schema);
    ids.push(id);
  }
  await database.query("select graphile_worker.add_job('clean_up')");
  views = await viewsOf(database);
  expect(views.length).toBeGreaterThan(10);
});
afterAll(() => database.drop());

const school = (index: number) => ids[index] ?? 0;

describe('an analyst', () => {
  test('with two schools sees only their rows in every view', async () => {
    expect(await found([school(0), school(4)])).toEqual(inEachView(school(0), school(4)));
    expect(await found([school(9)])).toEqual(inEachView(school(9)));
    expect(await found([school(10)])).toEqual(inEachView(school(10)));
  });

  test('with all schools sees every school, and jobs without a school', async () => {
    expect(await found('all')).toEqual({ ...inEachView(...ids), jobs: [...ids, null] });
  });

  test('sees nothing without a setting, with an empty one, or with an unknown school', async () => {
    for (const nobody of [undefined, [], [999_999]]) expect(await found(nobody)).toEqual(inEachView());
  });

  test('sees no more rows with the settings of requests and jobs', async () => {
    const settings = {
      'app.tenant_id': String(school(1)),
      'app.scope': 'all',
      'app.is_system': 'yes',
      'app.analytics_tenants': `,${String(school(2))},`,
    };
    await withRole(database.url, 'school_analyst', settings, async ({ rows }) => {
      for (const view of views)
        expect(await rows(`select distinct tenant_id::integer as id from analytics.${view}`)).toEqual([
          { id: school(2) },
        ]);
    });
  });

  test('cannot probe other schools with a condition that raises an error on their rows', async () => {
    await asAnalyst(database, [school(0)], async ({ rows, attempt }) => {
      expect(
        await rows(
          `select count(*)::integer as n from analytics.tenants where case when tenant_id <> ${String(school(0))} then 1 / (tenant_id - tenant_id) = 0 else true end`,
        ),
      ).toEqual([{ n: 1 }]);
      expect(await attempt(`select from analytics.fee_months where 1 / (tenant_id - ${String(school(3))}) = 7`)).toBe(
        0,
      );
    });
  });

  test('cannot write to any view or table', async () => {
    const tables = await database.query<{ name: string; columns: string }>(
      `select c.oid::regclass::text as name, min(a.attname) as columns from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
       where c.relnamespace in ('analytics'::regnamespace, 'mart'::regnamespace) and c.relkind in ('r', 'v') group by c.oid order by 1`,
    );
    expect(tables.length).toBeGreaterThan(20);
    await asAnalyst(database, 'all', async ({ attempt }) => {
      for (const { name, columns } of tables) {
        for (const statement of [
          `insert into ${name} default values`,
          `update ${name} set ${columns} = null`,
          `delete from ${name}`,
          `truncate ${name}`,
        ]) {
          expect({ statement, outcome: await attempt(statement) }).toEqual({
            statement,
            outcome: expect.stringMatching(/^(42501|42809|55000)$/),
          });
        }
      }
    });
  });

  test('cannot read tables of other schemas or call functions of the service', async () => {
    const tables = await database.query<{ name: string }>(
      `select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where c.relkind in ('r', 'v', 'm', 'p') and n.nspname !~ '^(pg_|information_schema|analytics$)' and (n.nspname !~ '^tenant_' or n.nspname = $1) order by 1`,
      [`tenant_${String(school(0))}`],
    );
    expect(tables.length).toBeGreaterThan(80);
    const functions = await database.query<{ call: string }>(
      `select format('%s(%s)', p.oid::regproc, (select string_agg('null::' || format_type(t, null), ', ' order by n) from unnest(p.proargtypes) with ordinality a (t, n))) as call
       from pg_proc p where p.pronamespace in ('core'::regnamespace, 'api'::regnamespace, 'platform'::regnamespace) and p.prorettype <> 'trigger'::regtype and p.prokind = 'f'`,
    );
    expect(functions.length).toBeGreaterThan(200);
    for (const role of ['school_analyst', 'school_graphql']) {
      await withRole(
        database.url,
        role,
        { 'app.analytics_tenants': 'all', 'app.tenant_id': String(school(0)), 'app.scope': 'all' },
        async ({ attempt }) => {
          for (const { name } of tables)
            expect({ role, name, outcome: await attempt(`select from ${name} limit 1`) }).toEqual({
              role,
              name,
              outcome: '42501',
            });
          for (const { call } of functions)
            expect({ role, call, outcome: await attempt(`select ${call}`) }).toEqual({ role, call, outcome: '42501' });
        },
      );
    }
  });
});

test('the login role of analytics reads nothing before it switches to the analyst role, and can switch to no other role', async () => {
  await withRole(database.url, 'school_graphql', { 'app.analytics_tenants': 'all' }, async ({ attempt }) => {
    for (const view of views)
      expect({ view, outcome: await attempt(`select from analytics.${view}`) }).toEqual({ view, outcome: '42501' });
  });
  const settable = await database.query(
    // Before Postgres 16 each member can switch to the role.
    `select r.rolname::text as role from pg_roles r
     where r.rolname <> 'school_graphql' and r.rolname !~ '^pg_' and pg_has_role('school_graphql', r.oid,
       case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end)`,
  );
  expect(settable).toEqual([{ role: 'school_analyst' }]);
  expect(
    await database.query(
      "select unnest(setconfig) as setting from pg_db_role_setting where setrole = 'school_graphql'::regrole order by 1",
    ),
  ).toEqual(
    expect.arrayContaining([{ setting: 'default_transaction_read_only=on' }, { setting: 'statement_timeout=5s' }]),
  );
});

test('suspended schools stay visible; deleted ones disappear from every view at once and return when restored', async () => {
  const id = school(5);
  const others = ids.filter((each) => each !== id);
  const status = () => asAnalyst(database, [id], ({ rows }) => rows('select status from analytics.tenants'));
  await database.query("update platform.tenant set status = 'suspended' where id = $1", [id]);
  expect(await status()).toEqual([{ status: 'suspended' }]);
  expect(await found([id])).toEqual(inEachView(id));
  await database.query("update platform.tenant set status = 'deleted' where id = $1", [id]);
  expect(await found([id])).toEqual(inEachView());
  expect(await found('all')).toEqual({ ...inEachView(...others), jobs: [...others, null] });
  await database.query("update platform.tenant set status = 'active' where id = $1", [id]);
  expect(await found([id])).toEqual(inEachView(id));
});
