import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { strFromU8, unzipSync } from 'fflate';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import type { Client } from '../support/client/client.ts';
import { fileForm, png } from '../support/fixtures/pictures.ts';
import { until } from '../support/client/until.ts';
import { runProgram, startProgram } from '../support/server/processes.ts';
import { testPassword, testService, type School } from '../support/server/service.ts';

const dataDir = await mkdtemp(join(tmpdir(), 'school-students-'));
const service = await testService({ DATA_DIR: dataDir });
afterAll(async () => {
  await service.close();
  await rm(dataDir, { recursive: true, force: true });
});

const person = {
  first_name: 'Zephyrine',
  last_name: 'Quillfeather',
  email: 'zephyrine@quill.example',
  phone: '+44 7700 900123',
  parent_name: 'Ottoline Quillfeather',
  parent_email: 'ottoline@quill.example',
  parent_phone: '+44 7700 900456',
  address: '17 Larkspur Close',
};
const words = [
  'zephyrine',
  'quillfeather',
  'ottoline',
  'quill.example',
  '7700 900123',
  '7700 900456',
  'larkspur',
  'QF-2026-77',
];

let school: School;
let student: { id: number };
let userId: number;
let apiKey: string;
let invoice: { id: number; invoice_number: string };
const cli = (...args: string[]) =>
  runProgram('src/cli/main.ts', ['student', ...args], { DATABASE_URL: service.database.url, DATA_DIR: dataDir });

/** Every text, json and array column, with the words that it contains. */
async function mentions(): Promise<string[]> {
  const columns = await service.database.query<{ name: string; column: string }>(
    `select c.oid::regclass::text as name, quote_ident(a.attname) as column
     from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relkind = 'r' and c.relnamespace::regnamespace::text = any ($1)
       and a.atttypid in ('text'::regtype, 'json'::regtype, 'jsonb'::regtype, 'text[]'::regtype, 'varchar'::regtype)`,
    [[school.schema, 'platform', 'mart', 'graphile_worker']],
  );
  const found: string[] = [];
  for (const { name, column } of columns) {
    const rows = await service.database.query<{ word: string }>(
      `select distinct word from ${name} t cross join unnest($1::text[]) word where t.${column}::text ilike '%' || word || '%'`,
      [words],
    );
    found.push(...rows.map(({ word }) => `${name}.${column}: ${word}`));
  }
  return found;
}

/** What must not change: amounts, numbers and totals. */
const ledger = async () =>
  (
    await service.database.query(
      `select (select json_agg(json_build_array(invoice_number, amount, paid_amount, status) order by id) from ${school.schema}.invoice) as invoices,
         (select json_agg(json_build_array(receipt_number, amount, payment_date) order by id) from ${school.schema}.payment) as payments,
         (select json_agg(json_build_array(class_id, marks, attended) order by class_id) from ${school.schema}.attendance_total) as totals,
         (select json_agg(json_build_array(class_id, date, present, absent, late) order by class_id, date) from ${school.schema}.attendance_day) as days,
         (select json_agg(json_build_array(name, value) order by name) from ${school.schema}.counter) as counters`,
    )
  )[0];

/** Lets a student make an API key, with an Idempotency-Key. */
async function makeApiKey(at: School, own: Client, studentId: number) {
  const [user] = await service.database.query<{ id: number }>(
    `select user_id::integer as id from ${at.schema}.student where id = $1`,
    [studentId],
  );
  const role = await at.role('api_key.manage', 'student.read');
  const { data: roles } = await at.admin.get<{ id: number; name: string }[]>(`/api/rbac/roles?search=${role}`);
  await at.admin.post(`/api/rbac/users/${user?.id}/roles`, { role_id: roles[0]?.id });
  const sent = {
    body: { name: 'Script', permissions: ['student.read'] },
    headers: { 'Idempotency-Key': 'key-1' },
  };
  const { data } = await own.send<{ key: string }>('POST', '/api/api-keys', sent, 201);
  return { userId: user?.id ?? 0, apiKey: data.key };
}

/** The tables with rows of a login. */
async function tablesOfLogin(id: number): Promise<string[]> {
  const tables = await service.database.query<{ name: string; tenant: boolean }>(
    `select c.oid::regclass::text as name, c.relnamespace = 'platform'::regnamespace as tenant
     from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relkind = 'r' and a.attname = 'user_id' and c.relnamespace::regnamespace::text = any ($1)`,
    [[school.schema, 'platform']],
  );
  const found: string[] = [];
  for (const { name, tenant } of tables) {
    const hasTenant = (
      await service.database.query(
        `select from pg_attribute where attrelid = $1::regclass and attname = 'tenant_id' and not attisdropped`,
        [name],
      )
    ).length;
    if (tenant && !hasTenant) continue;
    const rows = await service.database.query(
      `select from ${name} where user_id = $1 ${tenant ? `and tenant_id = ${school.id}` : ''}`,
      [id],
    );
    if (rows.length > 0) found.push(name.replace(`${school.schema}.`, ''));
  }
  return found.toSorted();
}

beforeAll(async () => {
  school = await service.school();
  const { admin } = school;
  const { classId } = await school.classroom('Larks');
  ({ data: student } = await admin.send<{ id: number }>(
    'POST',
    '/api/students',
    {
      body: {
        ...person,
        class_id: classId,
        admission_number: 'QF-2026-77',
        create_user_account: true,
        password: testPassword,
      },
      headers: { 'Idempotency-Key': 'create-1' },
    },
    201,
  ));
  const own = await service.anonymous.login({
    subdomain: school.subdomain,
    email: person.email,
    password: testPassword,
  });
  await own.send('POST', '/api/auth/profile/picture', { body: fileForm(png, 'me.png', 'image/png') }, 200);
  await admin.send(
    'POST',
    `/api/students/${student.id}/documents`,
    { body: fileForm(png, 'Zephyrine Quillfeather.png', 'image/png', 'file') },
    201,
  );
  // A student who makes API keys: the role needs the whole school.
  ({ userId, apiKey } = await makeApiKey(school, own, student.id));
  await service.database.query(
    `insert into platform.second_factor (tenant_id, user_id, new_secret) values ($1, $2, 'encrypted')`,
    [school.id, userId],
  );
  const today = new Date().toISOString().slice(0, 10);
  await service.database.query(
    `insert into ${school.schema}.attendance (student_id, class_id, date, status) values ($1, $2, $3, 'absent')`,
    [student.id, classId, today],
  );
  ({ data: invoice } = await admin.post<{ id: number; invoice_number: string }>(
    '/api/fees/invoices',
    {
      student_id: student.id,
      due_date: `${String(new Date().getFullYear() + 1)}-01-31`,
      notes: 'Zephyrine Quillfeather pays in parts',
      items: [{ description: 'Violin lessons of Quillfeather, Zephyrine', amount: 100, quantity: 1 }],
    },
    201,
  ));
  await service.database.query(
    `insert into ${school.schema}.notification (user_id, title, message)
     select id, 'Absent today', 'Zephyrine Quillfeather was absent.' from ${school.schema}.user_account`,
  );
  await service.database.query(
    `insert into ${school.schema}.notification_delivery (channel, address, recipient_name, title, message)
     values ('email', $1, 'Ottoline Quillfeather', 'Absent', 'Zephyrine was absent')`,
    [person.parent_email],
  );
  await service.database.query(
    `insert into platform.audit_log (actor_email, action, tenant_id, target_type, changes) values ($1, 'user.update', $2, 'user', $3)`,
    [person.email, school.id, JSON.stringify({ name: { before: 'Zephyrine Quillfeather', after: 'x' } })],
  );
  // Another person with the same first name.
  await admin.post('/api/students', { first_name: 'Ada', last_name: 'Byron', class_id: classId }, 201);
}, 60_000);

describe('school student export', () => {
  test('writes all data and files of the student into a zip file that only its owner can read, without secrets', async () => {
    const file = join(dataDir, 'student.zip');
    const { code, stdout, stderr } = await cli('export', school.subdomain, String(student.id), '--file', file);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toBe(`Student ${student.id} of school ${school.id}: data and 2 files in ${file}\n`);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const entries = unzipSync(await readFile(file));
    const text = strFromU8(entries['student.json'] ?? new Uint8Array());
    expect(JSON.parse(text)).toMatchObject({
      student: { id: student.id, ...person },
      user_account: { email: person.email },
      enrollment: [{ student_id: student.id, status: 'active' }],
      attendance: [{ status: 'absent' }],
      invoice: [{ id: invoice.id }],
      invoice_item: [{ description: 'Violin lessons of Quillfeather, Zephyrine' }],
      notification: expect.arrayContaining([expect.objectContaining({ title: 'Absent today' })]),
      student_document: [{ student_id: student.id }],
      api_key: [{ name: 'Script', permissions: ['student.read'] }],
      sessions: [{}],
    });
    expect(text).not.toMatch(/argon2|password_hash|token_hash|key_hash|Byron/);
    expect(text).not.toContain(createHash('sha256').update(apiKey).digest('hex'));
    const files = Object.keys(entries).filter((name) => name.startsWith('files/'));
    expect(files).toHaveLength(2);
    expect(files).toContainEqual(expect.stringMatching(/^files\/\d+-Zephyrine_Quillfeather\.png$/));
  });

  test('refuses a student of another school', async () => {
    const other = await service.school();
    expect(await cli('export', other.subdomain, String(student.id))).toMatchObject({
      code: 1,
      stderr: `School ${other.id} has no student with the id ${student.id}.\n`,
    });
  });
});

describe('school student erase', () => {
  test('gives way to other writes of the audit log, and tries again', async () => {
    const { data: other } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Odo', last_name: 'Marsh' },
      201,
    );
    const writer = new pg.Client({ connectionString: service.database.url });
    await writer.connect();
    await writer.query('begin; lock table platform.audit_log in row exclusive mode');
    const erase = startProgram('src/cli/main.ts', ['student', 'erase', school.subdomain, String(other.id), '--yes'], {
      DATABASE_URL: service.database.url,
      DATA_DIR: dataDir,
    });
    const attempts = new Set<string>();
    await until(async () => {
      const waiting = await service.database.query<{ start: string }>(
        `select query_start::text as start from pg_stat_activity
         where datname = current_database() and query like '%student_erase%' and wait_event_type = 'Lock'`,
      );
      for (const { start } of waiting) attempts.add(start);
      return attempts.size > 1 ? true : undefined;
    });
    await writer.end();
    expect(await erase.ended).toMatchObject({ code: 0, stderr: '' });
  }, 30_000);

  test('needs a confirmation', async () => {
    expect(await cli('erase', school.subdomain, String(student.id))).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('Without a terminal, confirm with --yes.'),
    });
    expect((await mentions()).length).toBeGreaterThan(10);
    expect(await tablesOfLogin(userId)).toEqual(
      expect.arrayContaining(['api_key', 'idempotency_key', 'platform.second_factor', 'platform.session']),
    );
  });

  test('leaves the name, the addresses and the numbers in no table, and keeps amounts, numbers and totals', async () => {
    const before = await ledger();
    // A message that the worker could not write yet.
    const waiting = { recipients: [{ email: person.parent_email, name: person.parent_name }, { user_id: 1 }] };
    await service.database.query(
      `insert into platform.outbox (tenant_id, event, facts, retry_at) values ($1, 'message', $2, 'infinity')`,
      [school.id, JSON.stringify(waiting)],
    );
    const { code, stdout, stderr } = await cli('erase', school.subdomain, String(student.id), '--yes');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(
      await service.database.query(
        `select facts -> 'recipients' as recipients from platform.outbox where retry_at = 'infinity'`,
      ),
    ).toEqual([{ recipients: [{ email: null, name: 'erased' }, { user_id: 1 }] }]);
    expect(stdout).toMatch(/^Erased the personal data of student \d+: \d+ rows changed or deleted\.\n/);
    expect(await mentions()).toEqual([]);
    expect(await ledger()).toEqual(before);
    expect(
      await service.database.query('select invariant, examples from core.find_violations($1)', [school.id]),
    ).toEqual([]);
    expect(
      await service.database.query(
        `select actor_email, action, target_id::integer as target_id from platform.audit_log
         where tenant_id = $1 order by id desc limit 1`,
        [school.id],
      ),
    ).toEqual([{ actor_email: 'command line', action: 'student.erase', target_id: student.id }]);
    // All triggers are back.
    expect(
      await service.database.query(
        `select tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where tgenabled = 'D' and c.relnamespace::regnamespace::text in ('platform', $1)`,
        [school.schema],
      ),
    ).toEqual([]);
  });

  test('leaves no API key, second factor, session or other row of the login', async () => {
    expect(await tablesOfLogin(userId)).toEqual([]);
    await service.anonymous.with({ Authorization: `Bearer ${apiKey}` }).get('/api/students', 401);
  });

  test('locks the login out, and leaves other students and the invoice as they are', async () => {
    await service.anonymous.post(
      '/api/auth/login',
      { subdomain: school.subdomain, email: person.email, password: testPassword },
      401,
    );
    expect((await school.admin.get<{ last_name: string }[]>('/api/students')).data).toMatchObject([
      { last_name: 'Byron' },
    ]);
    expect((await school.admin.get(`/api/fees/invoices/${invoice.id}`)).data).toMatchObject({
      invoice_number: invoice.invoice_number,
    });
    expect((await cli('erase', school.subdomain, String(student.id), '--yes')).code).toBe(0);
  });

  test('finds the logins of a student that were deleted before', async () => {
    const create = { ...person, admission_number: 'QF-2026-77', create_user_account: true, password: testPassword };
    const { data } = await school.admin.post<{ id: number; user_id: number }>('/api/students', create, 201);
    await school.admin.delete(`/api/users/${data.user_id}`);
    await school.admin.put(`/api/students/${data.id}`, { create_user_account: true, password: testPassword });
    await school.admin.delete(`/api/students/${data.id}`);
    const logins = await service.database.query(`select from ${school.schema}.user_account where email = $1`, [
      person.email,
    ]);
    expect(logins).toHaveLength(2);
    expect((await cli('erase', school.subdomain, String(data.id), '--yes')).code).toBe(0);
    expect(await mentions()).toEqual([]);
  });

  test('replaces a single name only where it is that word', async () => {
    const { data } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Sukarnoputra', last_name: '' },
      201,
    );
    const note = (name: string, text: string) =>
      school.admin.post<{ id: number }>('/api/notifications/templates', { name, title: 'Note', message: text }, 201);
    const [own, other] = [
      await note('single name', 'About Sukarnoputra today.'),
      await note('longer name', 'About Sukarnoputras today.'),
    ];
    expect(await cli('erase', school.subdomain, String(data.id), '--yes')).toMatchObject({ code: 0, stderr: '' });
    const messages = await service.database.query<{ message: string }>(
      `select message from ${school.schema}.notification_template where id = any ($1) order by id`,
      [[own.data.id, other.data.id]],
    );
    expect(messages.map(({ message }) => message)).toEqual(['About erased today.', 'About Sukarnoputras today.']);
  });

  test('changes no number that happens to contain the admission number', async () => {
    const admission_number = invoice.invoice_number.replace('INV-', '');
    const { data } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Tom', last_name: 'Thumb', admission_number },
      201,
    );
    const before = await ledger();
    expect(JSON.stringify(before)).toContain(`INV-${admission_number}`);
    expect(await cli('erase', school.subdomain, String(data.id), '--yes')).toMatchObject({ code: 0, stderr: '' });
    expect(await ledger()).toEqual(before);
  });
});
