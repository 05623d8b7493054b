import { beforeAll, describe, expect, test } from '@jest/globals';
import { ids } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Term as TermSchema } from '../../src/endpoints/academic-terms.ts';

const { service, school } = await serviceWithSchool();
/** The years 2020 and 2021, each from January to December. */
let years: { id: number; name: string }[];

beforeAll(async () => {
  years = [await addYear(school, 2020), await addYear(school, 2021)];
});

type Term = OutputOf<typeof TermSchema>;

const addYear = async (at: School, year: number) =>
  (
    await at.admin.post<{ id: number; name: string }>(
      '/api/academics/years',
      { name: `Year ${year}`, start_date: `${year}-01-01`, end_date: `${year}-12-31` },
      201,
    )
  ).data;

/** The fields of a term in 2020; `from` and `to` are MM-DD. */
const term = (from: string, to: string, fields: Record<string, unknown> = {}) => ({
  name: `From ${from}`,
  academic_year_id: years[0]?.id,
  start_date: `2020-${from}`,
  end_date: `2020-${to}`,
  ...fields,
});

const add = async (from: string, to: string, fields: Record<string, unknown> = {}, at = school) =>
  (await at.admin.post<Term>('/api/academic-terms', term(from, to, fields), 201)).data;

describe('a term', () => {
  test('is created, returned with the fields that were sent, updated, and deleted', async () => {
    const sent = term('01-01', '01-31');
    const created = await school.admin.post<Term>('/api/academic-terms', sent, 201);
    const path = `/api/academic-terms/${created.data.id}`;
    expect(created.headers.get('location')).toBe(path);
    expect(created.data).toMatchObject({ ...sent, academic_year_name: 'Year 2020' });
    expect((await school.admin.get<Term>(path)).data).toEqual(created.data);
    const changed = await school.admin.put<Term>(path, { ...created.data, name: 'Winter', end_date: '2020-01-30' });
    expect(changed.data).toEqual({
      ...created.data,
      name: 'Winter',
      end_date: '2020-01-30',
      updated_at: changed.data.updated_at,
    });
    expect((await school.admin.get<Term>(path)).data).toEqual(changed.data);
    expect((await school.admin.delete(path)).data).toEqual({ id: created.data.id });
    for (const again of [
      school.admin.get(path, 404),
      school.admin.put(path, { name: 'X' }, 404),
      school.admin.delete(path, 404),
    ]) {
      expect((await again).error).toBe('not_found');
    }
  });

  test('can be moved to another academic year only together with dates inside that year', async () => {
    const created = await add('02-01', '02-20');
    const path = `/api/academic-terms/${created.id}`;
    const other = years[1]?.id;
    expect((await school.admin.put(path, { academic_year_id: other }, 400)).details).toMatchObject([
      { path: 'start_date' },
    ]);
    expect((await school.admin.get<Term>(path)).data).toEqual(created);
    const moved = await school.admin.put<Term>(path, {
      academic_year_id: other,
      start_date: '2021-02-01',
      end_date: '2021-02-20',
    });
    expect(moved.data).toMatchObject({ academic_year_id: other, academic_year_name: 'Year 2021' });
  });

  test.each<[Record<string, unknown>, string[]]>([
    [
      { name: undefined, academic_year_id: undefined, start_date: undefined, end_date: undefined },
      ['academic_year_id', 'end_date', 'name', 'start_date'],
    ],
    [{ name: ' ' }, ['name']],
    [{ academic_year_id: 'one' }, ['academic_year_id']],
    [{ end_date: '2020-03-01' }, ['end_date']],
    [{ start_date: '2019-12-31' }, ['start_date']],
    [{ end_date: '2021-01-01' }, ['end_date']],
    [{ academic_year_name: 'Year 2021' }, ['academic_year_name']],
  ])('with %j is a 400 that names the fields, and nothing is created', async (fields, paths) => {
    const count = async () => (await school.admin.get('/api/academic-terms?pageSize=1')).pagination.totalItems;
    const before = await count();
    const refused = await school.admin.post('/api/academic-terms', term('03-01', '03-02', fields), 400);
    expect(refused.error).toBe('validation_error');
    expect(refused.details.map(({ path }) => path).sort()).toEqual(paths);
    expect(await count()).toBe(before);
  });

  test('cannot overlap another term of its year by even one day, on create or update, but may begin on the day after its end', async () => {
    await add('04-01', '04-10');
    const overlap = { error: 'conflict', details: [{ path: 'start_date' }] };
    expect(await school.admin.post('/api/academic-terms', term('04-10', '04-20'), 409)).toMatchObject(overlap);
    const next = await add('04-11', '04-20');
    expect(await school.admin.put(`/api/academic-terms/${next.id}`, { start_date: '2020-04-10' }, 409)).toMatchObject(
      overlap,
    );
    expect((await school.admin.get<Term>(`/api/academic-terms/${next.id}`)).data).toEqual(next);
  });

  test('has a unique name within its year, ignoring case, but may have the name of a term of another year', async () => {
    await add('05-01', '05-10', { name: 'May' });
    const twin = await school.admin.post('/api/academic-terms', term('05-11', '05-20', { name: 'MAY' }), 409);
    expect(twin).toMatchObject({ error: 'conflict', details: [{ path: 'name' }] });
    await add('05-01', '05-10', {
      name: 'May',
      academic_year_id: years[1]?.id,
      start_date: '2021-05-01',
      end_date: '2021-05-10',
    });
  });

  test('is created once if the create is repeated with the same Idempotency-Key', async () => {
    const send = () =>
      school.admin.with({ 'Idempotency-Key': 'term' }).post<Term>('/api/academic-terms', term('07-01', '07-10'), 201);
    expect((await send()).data).toEqual((await send()).data);
    expect((await school.admin.get<Term[]>('/api/academic-terms?search=07-01')).data).toHaveLength(1);
  });

  test('is created by only one of two concurrent requests for overlapping terms', async () => {
    const answers = await race(
      service.database,
      `select from ${school.schema}.academic_year where id = ${years[0]?.id ?? 0} for update`,
      2,
      () =>
        ['Left', 'Right'].map((name) =>
          school.admin.send('POST', '/api/academic-terms', { body: term('08-01', '08-10', { name }) }),
        ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
  });

  test('never lies outside its year, even if it is created while the year is shortened', async () => {
    const { id } = await addYear(school, 2030);
    const answers = await race(
      service.database,
      `select from ${school.schema}.academic_year where id = ${id} for update`,
      2,
      () => [
        school.admin.send('PUT', `/api/academics/years/${id}`, { body: { end_date: '2030-06-30' } }),
        school.admin.send('POST', '/api/academic-terms', {
          body: { name: 'Late', academic_year_id: id, start_date: '2030-07-01', end_date: '2030-12-31' },
        }),
      ],
    );
    expect([
      [200, 400],
      [400, 201],
    ]).toContainEqual(answers.map(({ status }) => status));
    const outside = await service.database.query(
      `select from ${school.schema}.term t join ${school.schema}.academic_year y on y.id = t.academic_year_id where t.end_date > y.end_date`,
    );
    expect(outside).toEqual([]);
  });
});

describe('the list of terms', () => {
  let lists: School;
  let yearIds: number[];
  let all: Term[];
  beforeAll(async () => {
    lists = await service.school();
    yearIds = [(await addYear(lists, 2020)).id, (await addYear(lists, 2021)).id];
    for (const [n, name] of ['Été', 'autumn', 'Zürich', 'Été', 'autumn', 'Spring'].entries()) {
      const year = 2020 + (n % 2);
      const day = `${year}-0${6 - n}`;
      await lists.admin.post(
        '/api/academic-terms',
        { name, academic_year_id: yearIds[n % 2], start_date: `${day}-01`, end_date: `${day}-20` },
        201,
      );
    }
    all = (await lists.admin.get<Term[]>('/api/academic-terms')).data;
  });

  test('is sorted earliest first by default', () => {
    expect(all.map(({ start_date }) => start_date)).toEqual([
      '2020-02-01',
      '2020-04-01',
      '2020-06-01',
      '2021-01-01',
      '2021-03-01',
      '2021-05-01',
    ]);
  });

  test('filters by academic_year_id, also combined with search; an unknown year has no terms', async () => {
    const found = async (query: string) => ids((await lists.admin.get<Term[]>(`/api/academic-terms?${query}`)).data);
    const of = (index: number) => all.filter(({ academic_year_id }) => academic_year_id === yearIds[index]);
    expect(await found(`academic_year_id=${yearIds[0] ?? 0}`)).toEqual(ids(of(0)));
    expect(await found(`academic_year_id=${yearIds[1] ?? 0}&search=ETE`)).toEqual(
      ids(of(1).filter(({ name }) => name === 'Été')),
    );
    expect(await found('search=zurich')).toEqual(ids(all.filter(({ name }) => name === 'Zürich')));
    expect(await found('academic_year_id=999999')).toEqual([]);
  });
});

test('teachers can read terms but not write them; students cannot read them', async () => {
  const created = await add('09-01', '09-10');
  const [teacher, student] = [await school.user(['teacher']), await school.user(['student'])];
  const path = `/api/academic-terms/${created.id}`;
  expect((await teacher.get<Term>(path)).data).toEqual(created);
  expect((await teacher.get<Term[]>('/api/academic-terms?search=09-01')).data).toEqual([created]);
  for (const client of [teacher, student]) {
    expect((await client.post('/api/academic-terms', term('10-01', '10-10'), 403)).error).toBe('forbidden');
    expect((await client.put(path, { name: 'Mine' }, 403)).error).toBe('forbidden');
    expect((await client.delete(path, 403)).error).toBe('forbidden');
  }
  expect((await student.get(path, 403)).error).toBe('forbidden');
  expect((await student.get('/api/academic-terms', 403)).error).toBe('forbidden');
  expect((await school.admin.get<Term>(path)).data).toEqual(created);
});
