import { expect, test } from '@jest/globals';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { schema, id, database } = school;
const decomposed = 'Me\u0301';
const composed = decomposed.normalize();

/** Applies the migration of the stored texts to the school again. */
async function normalizeRows(): Promise<void> {
  const [migration] = await service.database.query<{ version: number; last: number }>(
    `select version, (select max(version) from platform.tenant_migration) as last
     from platform.tenant_migration where name like '%normalized-texts'`,
  );
  await database.query('update platform.tenant set schema_version = $2 where id = $1', [
    id,
    Number(migration?.version) - 1,
  ]);
  await database.query('select core.tenant_migrate($1, $2)', [id, migration?.version]);
  await database.query('update platform.tenant set schema_version = $2 where id = $1', [id, migration?.last]);
}

const keys = async () =>
  (
    await database.query<{ invariant: string; violations: string; examples: object[] }>(
      'select invariant, violations, examples from core.find_violations($1)',
      [id],
    )
  ).filter(({ invariant }) => invariant === 'normalized_keys');

test('stored texts are normalized, unless the record then equals another one, which the doctor names', async () => {
  const insert = async (table: string, row: object): Promise<number> => {
    const columns = Object.keys(row);
    const [stored] = await database.query<{ id: string }>(
      `insert into ${schema}.${table} (${columns.join()}) values (${columns.map((_, n) => `$${n + 1}`).join()}) returning id`,
      Object.values(row),
    );
    return Number(stored?.id);
  };
  const student = await insert('student', {
    first_name: decomposed,
    last_name: 'Plain',
    admission_number: `A ${decomposed}`,
    address: `Rue ${decomposed}`,
  });
  const alone = await insert('subject', { name: decomposed, code: `alone ${decomposed}` });
  const first = await insert('subject', { name: 'first', code: composed.toUpperCase() });
  const second = await insert('subject', { name: decomposed, code: decomposed });
  const deleted = await insert('student', {
    first_name: 'Deleted',
    last_name: decomposed,
    admission_number: `A ${composed}`,
    deleted_at: '2026-01-01',
  });
  const [before] = await database.query<{ count: string }>(`select count(*) from ${schema}.student`);

  await normalizeRows();

  expect(
    await database.query(
      `select first_name, last_name, admission_number, address, search_name from ${schema}.student where id = any ($1) order by id`,
      [[student, deleted]],
    ),
  ).toEqual([
    {
      first_name: composed,
      last_name: 'Plain',
      admission_number: `A ${composed}`,
      address: `Rue ${composed}`,
      search_name: 'me plain a me',
    },
    {
      first_name: 'Deleted',
      last_name: composed,
      admission_number: `A ${composed}`,
      address: null,
      search_name: 'deleted me a me',
    },
  ]);
  expect(
    await database.query(`select name, code from ${schema}.subject where id = any ($1) order by id`, [
      [alone, first, second],
    ]),
  ).toEqual([
    { name: composed, code: `alone ${composed}` },
    { name: 'first', code: composed.toUpperCase() },
    { name: composed, code: decomposed },
  ]);
  expect(await database.query(`select count(*) from ${schema}.student`)).toEqual([before]);
  const disabled = `select tgname from pg_trigger where tgrelid in ('${schema}.student'::regclass, '${schema}.subject'::regclass) and tgenabled = 'D'`;
  expect(await database.query(disabled)).toEqual([]);
  expect(await keys()).toEqual([
    {
      invariant: 'normalized_keys',
      violations: '1',
      examples: [{ subject: second, column: 'code', same_as: [first] }],
    },
  ]);

  await school.admin.put(`/api/subjects/${String(first)}`, { code: 'other' });
  await school.admin.put(`/api/subjects/${String(second)}`, { code: decomposed });
  expect(await keys()).toEqual([]);
});

test('the doctor names texts of the platform that are not normalized', async () => {
  const insert = (name: string) =>
    service.database.query<{ id: string }>(
      `insert into platform.plan (name, price_monthly, max_students, max_teachers) values ($1, 1, 1, 1) returning id`,
      [name],
    );
  const [first] = await insert(composed);
  const [second] = await insert(decomposed);
  const found = () => service.database.query<{ what: string }>('select what from core.check_normalized_keys()');
  expect(await found()).toEqual([
    {
      what:
        `The name of plan ${String(second?.id)} is not in the Unicode normalization form NFC, ` +
        `in which it is that of ${String(first?.id)}.`,
    },
  ]);
  await service.database.query('delete from platform.plan where id = any ($1)', [[first?.id, second?.id]]);
  expect(await found()).toEqual([]);
});
