import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { populate } from '../support/fixtures/populate.ts';
import { send } from '../support/client/wire.ts';
import { findErrors, type Registered, registry, samplePath } from '../support/server/registry.ts';
import { type School, testPassword, testService } from '../support/server/service.ts';

// A school where the roles teacher and student have every permission. Their users still see fewer columns of teachers,
// drivers and others. What a list hides must not decide what it finds.
const service = await testService();
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
const lists = endpoints.filter(
  ({ operation, route }) => operation.access === 'tenant' && operation.role === null && route.response.kind === 'page',
);

/** The id of the one record in every table of the school. */
const id = 500_001;
/** The tables whose texts some lists show in part. */
const tables = [
  'student',
  'teacher',
  'user_account',
  'driver',
  'transport_staff',
  'invoice',
  'payment',
  'bus',
  'route',
];

let school: School;
let words: { column: string; word: string }[];
const callers: Record<string, string> = {};

/** Gives every text of these tables that may have any value a word of its own. */
async function addWords(): Promise<typeof words> {
  const columns = await school.database.query<{ table: string; column: string }>(
    `select c.relname as table, a.attname as column
     from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = $1::regnamespace and c.relname = any ($2) and a.atttypid = 'text'::regtype
       and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and a.attname not like '%hash'
     order by 1, 2`,
    [school.schema, tables],
  );
  const found: typeof words = [];
  for (const [n, { table, column }] of columns.entries()) {
    const word = `zq${String(n)}hid`;
    for (const value of [`'${word}'`, `'${word}@hidden.example'`]) {
      const updated = await service.database
        .query(`update ${school.schema}.${table} set ${column} = ${value} where id = ${id} returning id`)
        // A check or a unique index.
        .catch(() => []);
      if (updated.length === 0) continue;
      found.push({ column: `${table}.${column}`, word });
      break;
    }
  }
  return found;
}

beforeAll(async () => {
  school = await service.school();
  await populate(service, school, { endpoints, document }, id - 1, 'School');
  words = await addWords();
  const { schema } = school;
  await service.database.query(
    `insert into ${schema}.role_permission (role_id, permission_id)
     select r.id, p.id from ${schema}.role r, core.permission p
     where r.is_system and r.name in ('teacher', 'student') on conflict do nothing`,
  );
  const teacher = await school.user(['teacher']);
  const me = await school.insert('teacher', { first_name: 'Ada', last_name: 'Byron', user_id: teacher.id });
  await service.database.query(`update ${schema}.class set class_teacher_id = $1 where id = $2`, [me, id]);
  const student = await school.user(['student']);
  await service.database.query(`update ${schema}.student set class_id = $1, user_id = $2 where id = $1`, [
    id,
    student.id,
  ]);
  for (const [name, { email }] of Object.entries({ teacher, student }))
    callers[name] = (await service.anonymous.login({ tenant_id: school.id, email, password: testPassword })).token;
  callers['admin'] = school.admin.token;
}, 180_000);

const ask = (endpoint: Registered, token: string, search?: string) => {
  const path = samplePath(document, endpoint, { id });
  return send(service.url, {
    path: `${path}${path.includes('?') ? '&' : '?'}pageSize=100${search === undefined ? '' : `&search=${search}`}`,
    token,
  });
};

describe('a search finds nothing by what the list does not show to the caller:', () => {
  test('the tables have words to search for', () => {
    expect(words.map(({ column }) => column)).toEqual(
      expect.arrayContaining(['student.parent_name', 'student.parent_email', 'teacher.phone', 'driver.address']),
    );
    expect(words.length).toBeGreaterThan(30);
  });

  test.each(['admin', 'teacher', 'student'])('as %s, in every list', async (caller) => {
    const token = callers[caller] ?? '';
    let rows = 0;
    const lines = await findErrors(lists, async (endpoint) => {
      const all = await ask(endpoint, token);
      if (all.status !== 200 || all.json?.pagination?.totalItems === 0) return undefined;
      rows += all.json?.pagination?.totalItems ?? 0;
      const revealing: string[] = [];
      for (const { column, word } of words.filter((one) => !all.text.toLowerCase().includes(one.word))) {
        const found = await ask(endpoint, token, word);
        if (found.status !== 200 || found.json?.pagination?.totalItems !== 0)
          revealing.push(`${column} ${found.text.slice(0, 100)}`);
      }
      return revealing.length > 0 ? `finds by ${revealing.join(', ')}` : undefined;
    });
    expect(lines).toEqual([]);
    expect(rows).toBeGreaterThan(10);
  });

  test('a teacher and a student do not see the columns that this is about', async () => {
    for (const [path, hidden] of [
      ['/api/teachers', 'teacher.phone'],
      ['/api/transport/drivers', 'driver.address'],
    ] as const) {
      const word = words.find(({ column }) => column === hidden)?.word ?? '';
      const shown = async (caller: string) =>
        (await send(service.url, { path: `${path}?pageSize=100`, token: callers[caller] ?? '' })).text.includes(word);
      expect([path, await shown('admin'), await shown('teacher')]).toEqual([path, true, false]);
    }
  });
});
