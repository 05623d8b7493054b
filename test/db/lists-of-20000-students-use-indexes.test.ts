import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { testDatabase, type TestDatabase } from '../support/database.ts';
import { type BareTenant, provision } from '../support/tenants.ts';

let database: TestDatabase;
let school: BareTenant;
let classId: number;

beforeAll(async () => {
  database = await testDatabase();
  school = await provision(database);
  const { schema } = school;
  await database.query(`insert into ${schema}.academic_year (name, start_date, end_date, is_current) values ('2026', '2026-01-01', '2026-12-31', true)`);
  await database.query(`insert into ${schema}.grade (name) values ('One')`);
  await database.query(`insert into ${schema}.class (name, grade_id, academic_year_id) select 'Class ' || n, 1, 1 from generate_series(1, 400) n`);
  await database.query(
    `insert into ${schema}.student (first_name, last_name, admission_number, class_id)
     select 'Given' || n % 199, case when n = 777 then 'Łukaszewicz' else 'Family' || n % 997 end, lpad(n::text, 6, '0'), 1 + n % 400 from generate_series(1, 20000) n`,
  );
  await database.query(
    `insert into ${schema}.invoice (student_id, class_id, due_date, created_at, issued_at, invoice_number)
     select n, 1 + n % 400, '2026-01-10'::date + n % 300, at, at, 'INV-2026-' || lpad(n::text, 6, '0')
     from generate_series(1, 20000) n, lateral (select timestamptz '2026-01-01' + n * interval '10 minutes') moment (at)`,
  );
  await database.query(
    `insert into ${schema}.invoice_item (invoice_id, student_id, description, amount) select id, student_id, 'Trip', 10 from ${schema}.invoice`,
  );
  classId = 17;
  // As autovacuum does: it also empties the list of what the trigram index has still to take in.
  await database.query(`vacuum analyze ${schema}.student, ${schema}.enrollment, ${schema}.class, ${schema}.grade, ${schema}.invoice, ${schema}.invoice_item`);
});
afterAll(() => database.drop());

interface Plan {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  Plans?: Plan[];
}

const nodes = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodes)];

/**
 * The plans of every statement that an operation runs inside the database, in the school's own role and settings, as far
 * as they scan one table: auto_explain sees the statements of functions too.
 */
async function plans(
  operation: string,
  params: object,
  table = 'student',
): Promise<{ answer: { data?: { last_name: string }[]; pagination?: { totalItems: number } }; scans: string[] }> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query("load 'auto_explain'");
    await client.query(
      `set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_format = json; set client_min_messages = log; set jit = off`,
    );
    const found: Plan[] = [];
    client.on('notice', (notice) => {
      const text = /plan:\s*(\{[\s\S]*\})/.exec(notice.message ?? '')?.[1];
      if (text) found.push(...nodes((JSON.parse(text) as { Plan: Plan }).Plan));
    });
    await client.query('begin');
    await client.query(
      `select set_config('app.tenant_id', $1, true), set_config('app.scope', 'all', true), set_config('app.permissions', '{class.read}', true),
         set_config('search_path', $2, true)`,
      [String(school.id), `${school.schema}, public`],
    );
    await client.query('set local role school_tenant');
    const { rows } = await client.query<{ answer: { data?: { last_name: string }[] } }>(`select api.${operation}($1) as answer`, [JSON.stringify(params)]);
    await client.query('rollback');
    const scans = found
      .filter((node) => node['Relation Name'] === table || node['Index Name']?.startsWith(`${table}_`))
      .map((node) => `${node['Node Type']}${node['Index Name'] ? ` ${node['Index Name']}` : ''}`);
    return { answer: rows[0]?.answer ?? {}, scans };
  } finally {
    await client.end();
  }
}

describe('with 20,000 students and row security', () => {
  test('one student is read by primary key', async () => {
    const { answer, scans } = await plans('students_get', { id: 777 });
    expect(answer).toMatchObject({ last_name: 'Łukaszewicz' });
    expect(scans).toEqual(['Index Scan student_pkey']);
  });

  test('the first page by name comes in the order of an index; only the count goes through all', async () => {
    const { answer, scans } = await plans('students_list', {});
    expect(answer.data).toHaveLength(20);
    expect(answer.pagination?.totalItems).toBe(20000);
    expect(scans).toContain('Index Scan student_name_idx');
  });

  test('the students of a class are found by the enrollments of the class, not by reading all students', async () => {
    const { answer, scans } = await plans('students_list', { class_id: classId });
    expect(answer.pagination?.totalItems).toBe(50);
    expect(answer.data).toHaveLength(20);
    expect(scans).not.toContain('Seq Scan');
    expect(scans.some((scan) => scan.startsWith('Index'))).toBe(true);
  });

  test.each(['łukaszew', 'LUKASZEW', 'ukaszewic'])('the search for part of a name (%s) takes the trigram index', async (search) => {
    const { answer, scans } = await plans('students_list', { search });
    expect(answer.data).toMatchObject([{ last_name: 'Łukaszewicz' }]);
    expect(scans).toContain('Bitmap Index Scan student_search_idx');
    expect(scans).not.toContain('Seq Scan');
  });

  test('a search within a class takes an index', async () => {
    const { answer, scans } = await plans('students_list', { search: 'family', class_id: classId });
    expect(answer.pagination?.totalItems).toBe(50);
    expect(scans).not.toContain('Seq Scan');
  });

  test.each([{}, { sort: 'student_count' }])('the list of classes counts its students class by class, by an index (%p)', async (params) => {
    const { answer, scans } = await plans('classes_list', params, 'enrollment');
    expect(answer.data).toHaveLength(20);
    expect(answer.data).toMatchObject(Array(20).fill({ student_count: 50 }));
    expect(scans).not.toContain('Seq Scan');
    expect(scans.some((scan) => scan.endsWith('Index Scan enrollment_class_id_idx'))).toBe(true);
  });

  test('the first page of 20,000 invoices comes in the order of an index; those of a student, of a class or due in a week by theirs', async () => {
    const { answer, scans } = await plans('invoices_list', {}, 'invoice');
    expect(answer.pagination?.totalItems).toBe(20000);
    expect(scans).toContain('Index Scan invoice_created_at_idx');
    for (const params of [{ student_id: 777 }, { class_id: classId }, { due_from: '2026-03-01', due_to: '2026-03-01' }]) {
      const narrowed = await plans('invoices_list', params, 'invoice');
      expect(narrowed.answer.pagination?.totalItems).toBeGreaterThan(0);
      expect(narrowed.scans).not.toContain('Seq Scan');
    }
  });

  test.each(['inv-2026-012345', '012345', 'łukaszew'])(
    'the search of invoices for %s takes trigram and key, and reads no table of invoices',
    async (search) => {
      const { answer, scans } = await plans('invoices_list', { search }, 'invoice');
      expect(answer.pagination?.totalItems).toBe(1);
      expect(scans).toContain('Bitmap Index Scan invoice_number_search_idx');
      expect(scans).not.toContain('Seq Scan');
    },
  );

  test('the students of a class by its roll are found by the enrollments of the class', async () => {
    const { answer, scans } = await plans('classes_students_list', { id: classId });
    expect(answer.pagination?.totalItems).toBe(50);
    expect(scans).not.toContain('Seq Scan');
  });
});
