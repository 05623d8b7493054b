import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { asAnalyst, refresh, viewsOf } from '../support/database/facts.ts';
import { provision } from '../support/database/tenants.ts';

/**
 * All columns that analysts may see. The views must contain no personal data: names, contacts, addresses, free text,
 * dates or ids of people. The names of schools, academic years, grades, sections and fee components are allowed,
 * because figures are useless without them.
 */
const allowed: Record<string, string> = {
  academic_years: 'tenant_id academic_year_id name start_date end_date is_current',
  attendance_days: 'tenant_id academic_year_id class_id grade date present late absent excused marked attendance_rate',
  attendance_months:
    'tenant_id academic_year_id class_id grade month days present late absent excused marked attendance_rate',
  classes: 'tenant_id class_id academic_year_id grade section capacity',
  enrollments: 'tenant_id academic_year_id class_id grade gender month students joiners leavers',
  fee_months:
    'tenant_id academic_year_id month source component currency billed discounted waived collected outstanding overdue',
  jobs: 'job_key task tenant_id ready waiting running failed oldest_ready_seconds',
  notification_days: 'tenant_id date event channel messages pending sent failed dropped read',
  payments: 'tenant_id date method currency payments amount reversals reversed',
  teacher_loads: 'tenant_id academic_year_id band teachers periods',
  tenants:
    'tenant_id name subdomain status plan price_monthly subscription_status is_setup_complete trial_ends_on signed_up_on time_zone students teachers classes refreshed_at',
  transport_routes: 'tenant_id route_id is_active seats riders_pickup riders_drop occupancy',
};

let database: TestDatabase;
let id: number;
let schema: string;

beforeAll(async () => {
  database = await testDatabase(1);
  ({ id, schema } = await provision(database));
});
afterAll(() => database.drop());

describe('the analytics views', () => {
  test('have exactly the columns of this list, and the schema has no other relations', async () => {
    const rows = await database.query<{ name: string; columns: string }>(
      `select c.relname as name, string_agg(a.attname, ' ' order by a.attnum) as columns
       from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 where c.relnamespace = 'analytics'::regnamespace group by 1 order by 1`,
    );
    expect(Object.fromEntries(rows.map(({ name, columns }) => [name, columns]))).toEqual(allowed);
    expect(await database.query("select proname from pg_proc where pronamespace = 'analytics'::regnamespace")).toEqual(
      [],
    );
  });

  test('are security_invoker views', async () => {
    expect(
      await database.query(
        "select relname from pg_class where relnamespace = 'analytics'::regnamespace and not coalesce(reloptions @> '{security_invoker=true}', false)",
      ),
    ).toEqual([]);
  });

  test('read only tables with row security for analysts', async () => {
    const open = await database.query(
      `select distinct d.refobjid::regclass::text as name
       from pg_rewrite r join pg_class v on v.oid = r.ev_class and (v.relnamespace = 'analytics'::regnamespace or v.oid = 'core.current_subscription'::regclass)
       join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid
       join pg_class t on t.oid = d.refobjid
       where (not t.relrowsecurity or not exists (select from pg_policy p where p.polrelid = t.oid and 'school_analyst'::regrole = any (p.polroles)))
         and not coalesce(t.reloptions @> '{security_invoker=true}', false)`,
    );
    expect(open).toEqual([{ name: 'platform.plan' }]);
    expect(
      await database.query(
        "select relname from pg_class where relnamespace = 'mart'::regnamespace and relkind = 'r' and not (relrowsecurity and relforcerowsecurity)",
      ),
    ).toEqual([]);
  });

  test('declare keys and relations of existing columns, including one from every fact to its school', async () => {
    const views = await database.query<{ name: string; comment: string }>(
      "select relname::text as name, obj_description(oid, 'pg_class') as comment from pg_class where relnamespace = 'analytics'::regnamespace",
    );
    const columnsOf = (name: string) => allowed[name]?.split(' ') ?? [];
    for (const { name, comment } of views) {
      const key = /^@primaryKey (\S+)$/m.exec(comment)?.[1]?.split(',') ?? [];
      expect({
        name,
        missing: key.filter((column) => !columnsOf(name).includes(column)),
        hasKey: key.length > 0,
      }).toEqual({ name, missing: [], hasKey: true });
      const relations = [
        ...comment.matchAll(
          /^@foreignKey \((\S+)\) references analytics\.(\w+) \((\S+)\)\|@fieldName (\w+)\|@foreignFieldName (\w+)$/gm,
        ),
      ];
      for (const [, from = '', target = '', to = ''] of relations) {
        expect(from.split(',').filter((column) => !columnsOf(name).includes(column))).toEqual([]);
        expect(views.find((view) => view.name === target)?.comment).toContain(`@primaryKey ${to}\n`);
      }
      expect(relations.map((relation) => relation[2])).toEqual([
        ...(name === 'tenants' ? [] : ['tenants']),
        ...(columnsOf(name).includes('academic_year_id') && name !== 'academic_years' ? ['academic_years'] : []),
        ...(columnsOf(name).includes('class_id') && name !== 'classes' ? ['classes'] : []),
      ]);
    }
  });
});

test('free text is mapped to a fixed set of values', async () => {
  const secret = 'Ask for Ms Secret, 020 7946 0000';
  await database.query(`
    insert into ${schema}.academic_year (name, start_date, end_date, is_current) values ('2025/26', '2025-08-01', '2026-07-31', true);
    insert into ${schema}.grade (name) values ('One');
    insert into ${schema}.class (name, section, grade_id, academic_year_id, room) values ('${secret}', 'A', 1, 1, '${secret}');
    insert into ${schema}.user_account (email, first_name, last_name) values ('secret@example.org', 'Secret', 'Secret');
    insert into ${schema}.student (first_name, last_name, admission_number, class_id, gender, address, date_of_birth) values
      ('Secret', 'One', '1', 1, 'non_binary', '${secret}', '2011-01-01'), ('Secret', 'Two', '2', 1, 'female', null, null), ('Secret', 'Three', '3', 1, 'male', null, null), ('Secret', 'Four', '4', 1, null, null, null);
    insert into ${schema}.fee_structure (name, academic_year_id) values ('${secret}', 1);
    insert into ${schema}.fee_component (fee_structure_id, name, amount, frequency) values (1, 'Tuition', 90, 'annual'), (1, '${secret}', 10, 'annual');
    insert into ${schema}.route (name, code, start_point) values ('${secret}', 'secret', '${secret}');
    insert into ${schema}.transport_fee_plan (fee_component_id, route_id) values (2, 1);
    insert into ${schema}.student_fee (student_id, fee_structure_id, class_id, amount, due_date, billed_on) values (1, 1, 1, 100, '2025-10-01', '2025-09-15');
    insert into ${schema}.student_fee_item (student_fee_id, student_id, fee_component_id, name, amount, period_start, period_end)
      values (1, 1, 1, 'Tuition', 90, '2025-08-01', '2026-07-31'), (1, 1, 2, '${secret}', 10, '2025-08-01', '2026-07-31');
    insert into ${schema}.invoice (student_id, class_id, due_date, issued_at, invoice_number, notes) values (1, 1, '2025-10-01', '2025-09-15T12:00:00Z', 'INV-2025-000001', '${secret}');
    insert into ${schema}.invoice_item (invoice_id, student_id, description, amount, quantity, line_total) values (1, 1, '${secret}', 5, 2, 10);
    insert into ${schema}.payment (student_id, student_fee_id, amount, payment_date, payment_method, notes) values
      (1, 1, 1, '2025-10-01', 'other', '${secret}'), (1, 1, 2, '2025-10-01', 'check', null), (1, 1, 3, '2025-10-01', 'mobile_money', null);
    insert into ${schema}.notification (user_id, title, message, type) values (1, '${secret}', '${secret}', '${secret}'), (1, '${secret}', '${secret}', 'holiday.added');
    insert into ${schema}.notification_delivery (channel, address, recipient_name, title, message, status) values ('email', 'secret@example.org', '${secret}', '${secret}', '${secret}', 'sent');
    insert into ${schema}.attendance (student_id, class_id, date, status, marked_by_name) values (1, 1, '2025-10-01', 'late', '${secret}');
    insert into ${schema}.teacher (first_name, last_name) values ('Secret', 'Teacher');
    select graphile_worker.add_job('send_email', json_build_object('tenant_id', ${String(id)}, 'note', '${secret}'));
  `);
  await refresh(database, id);
  await asAnalyst(database, 'all', async ({ rows }) => {
    const all: Record<string, Record<string, unknown>[]> = {};
    for (const view of await viewsOf(database)) all[view] = await rows(`select * from analytics.${view}`);
    const empty = Object.keys(all).filter((view) => all[view]?.length === 0);
    expect(empty).toEqual([]);
    expect(JSON.stringify(all)).not.toMatch(/secret/i);
    const values = (view: string, column: string) => [...new Set(all[view]?.map((row) => row[column]))].sort();
    expect(values('enrollments', 'gender')).toEqual(['female', 'male', 'other', 'unknown']);
    expect(values('fee_months', 'component')).toEqual(['Invoice', 'Transport', 'Tuition']);
    expect(values('payments', 'method')).toEqual(['cheque', 'online', 'other']);
    expect(values('notification_days', 'event')).toEqual(['holiday.added', 'other']);

    // Columns declared as not null contain no nulls.
    const tags = await rows<{ name: string; attname: string }>(
      `select c.relname::text as name, a.attname::text from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
       where c.relnamespace = 'analytics'::regnamespace and col_description(c.oid, a.attnum) ~ '^@notNull'`,
    );
    expect(tags.length).toBeGreaterThan(80);
    expect(tags.filter(({ name, attname }) => all[name]?.some((row) => row[attname] === null))).toEqual([]);
  });
});
