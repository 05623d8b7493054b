import { beforeAll, describe, expect, test } from '@jest/globals';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Holiday as HolidaySchema } from '../../src/endpoints/holidays.ts';

const { service, school } = await serviceWithSchool();

type Holiday = OutputOf<typeof HolidaySchema>;

const path = '/api/holidays';
const add = async (fields: Record<string, unknown>, at = school) =>
  (await at.admin.post<Holiday>(path, fields, 201)).data;

describe('a holiday', () => {
  test('can be created, read, partially updated and deleted', async () => {
    const sent = { name: unique('Founders'), date: '2026-10-12' };
    const added = await school.admin.post<Holiday>(path, sent, 201);
    expect(added.headers.get('location')).toBe(`${path}/${added.data.id}`);
    expect(added.data).toMatchObject({ ...sent, is_recurring: false });
    const { data: read, headers } = await school.admin.get<Holiday>(`${path}/${added.data.id}`);
    expect(read).toEqual(added.data);
    const { data: changed } = await school.admin.put<Holiday>(`${path}/${read.id}`, { is_recurring: true });
    expect(changed).toEqual({ ...read, is_recurring: true, updated_at: changed.updated_at });
    expect(
      (await school.admin.put<Holiday>(`${path}/${read.id}`, { ...changed, date: '2026-10-13' })).data,
    ).toMatchObject({
      date: '2026-10-13',
      name: sent.name,
    });
    await school.admin.send(
      'PUT',
      `${path}/${read.id}`,
      { body: { name: 'Old' }, headers: { 'If-Match': headers.get('etag') ?? '' } },
      412,
    );
    expect((await school.admin.delete<{ id: number }>(`${path}/${read.id}`)).data).toEqual({ id: read.id });
    for (const method of ['GET', 'DELETE']) await school.admin.send(method, `${path}/${read.id}`, {}, 404);
    await school.admin.put(`${path}/${read.id}`, { name: 'Gone' }, 404);
  });

  test('has a name that is unique on its day, ignoring case, also for two concurrent requests', async () => {
    const name = unique('Fair');
    const { id } = await add({ name, date: '2026-05-04' });
    expect(await school.admin.post(path, { name: name.toUpperCase(), date: '2026-05-04' }, 409)).toMatchObject({
      error: 'conflict',
      message: '2026-05-04 already has a holiday with this name. Choose another name or date.',
      details: [{ path: 'name' }],
    });
    const other = await add({ name, date: '2026-05-05' });
    expect((await school.admin.put(`${path}/${other.id}`, { date: '2026-05-04' }, 409)).details).toMatchObject([
      { path: 'date' },
    ]);
    await school.admin.put(`${path}/${id}`, { name: name.toUpperCase() }, 200);
    const body = { name: unique('Twice'), date: '2026-05-04' };
    const answers = await Promise.all([1, 2].map(() => school.admin.send('POST', path, { body })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
  });

  test('cannot have the name of a recurring holiday that falls on the same day in that year', async () => {
    const name = unique('Yearly');
    const yearly = await add({ name, date: '2026-02-28' });
    const later = await add({ name, date: '2027-02-28' });
    await school.admin.put(`${path}/${yearly.id}`, { is_recurring: true }, 200);
    await school.admin.put(`${path}/${later.id}`, later, 200);
    await school.admin.delete(`${path}/${later.id}`);
    expect(await school.admin.post(path, { name: name.toUpperCase(), date: '2027-02-28' }, 409)).toMatchObject({
      error: 'conflict',
      details: [
        { path: 'name', message: '2027-02-28 already has a holiday with this name. Choose another name or date.' },
      ],
    });
    await add({ name, date: '2025-02-28' });
    const other = await add({ name, date: '2027-03-01' });
    expect((await school.admin.put(`${path}/${other.id}`, { date: '2028-02-28' }, 409)).details).toMatchObject([
      { path: 'date' },
    ]);
  });

  test.each([
    [{ date: '2026-05-04' }, ['name']],
    [{ name: 'X' }, ['date']],
    [{ name: ' ', date: '2026-02-29', is_recurring: 'maybe' }, ['date', 'is_recurring', 'name']],
    [{ name: 'X', date: '2026-05-04', id: 1 }, ['id']],
    [{ name: 'x'.repeat(101), date: '0999-01-01' }, ['date', 'name']],
  ])('%j is a 400 that names each field', async (body, fields) => {
    expect((await school.admin.post(path, body, 400)).details.map((detail) => detail.path).sort()).toEqual(fields);
  });
});

describe('the list', () => {
  let lists: School;
  let year: number;
  const found = async (query: string) =>
    (await lists.admin.get<Holiday[]>(`${path}?pageSize=100&${query}`)).data.map(
      ({ name, occurs_on }) => `${occurs_on} ${name}`,
    );

  beforeAll(async () => {
    lists = await service.school();
    await add({ name: 'Winter', date: '2024-12-25', is_recurring: true }, lists);
    await add({ name: 'Élection', date: '2026-03-01' }, lists);
    await add({ name: 'Leap', date: '2024-02-29', is_recurring: true }, lists);
    const { data } = await lists.admin.post<{ id: number }>(
      '/api/academics/years',
      { name: '26', start_date: '2026-02-01', end_date: '2027-01-31' },
      201,
    );
    year = data.id;
  });

  test('without dates shows each holiday once with its original date, and searches and sorts by name', async () => {
    expect(await found('')).toEqual(['2024-02-29 Leap', '2024-12-25 Winter', '2026-03-01 Élection']);
    expect(await found('order=desc')).toEqual(['2026-03-01 Élection', '2024-12-25 Winter', '2024-02-29 Leap']);
    expect(await found('sort=name')).toEqual(['2026-03-01 Élection', '2024-02-29 Leap', '2024-12-25 Winter']);
    expect(await found('search=election')).toEqual(['2026-03-01 Élection']);
  });

  test('for an academic year or a range of days shows a recurring holiday in each year from its first, on 28 February if there is no 29th', async () => {
    expect(await found(`academic_year_id=${year}`)).toEqual([
      '2026-02-28 Leap',
      '2026-03-01 Élection',
      '2026-12-25 Winter',
    ]);
    expect(await found(`academic_year_id=${year}&from_date=2026-03-01`)).toEqual([
      '2026-03-01 Élection',
      '2026-12-25 Winter',
    ]);
    expect(await found('academic_year_id=999999')).toEqual([]);
    expect(await found('from_date=2027-02-28&to_date=2028-12-24')).toEqual([
      '2027-02-28 Leap',
      '2027-12-25 Winter',
      '2028-02-29 Leap',
    ]);
    expect(await found('from_date=2027-12-25')).toEqual(['2027-12-25 Winter', '2028-02-29 Leap']);
    expect(await found('to_date=2026-03-01')).toEqual(['2025-12-25 Winter', '2026-02-28 Leap', '2026-03-01 Élection']);
    expect(await found('from_date=2026-01-01&to_date=2035-12-31&search=winter')).toHaveLength(10);
    expect(await found('from_date=2020-01-01&to_date=2025-02-27')).toEqual(['2024-02-29 Leap', '2024-12-25 Winter']);
    expect(await found('from_date=2020-01-01&to_date=2024-12-24')).toEqual(['2024-02-29 Leap']);
    expect(await found('from_date=9999-12-31')).toEqual([]);
    expect(await found('to_date=1000-01-01')).toEqual([]);
  });

  test('counts each occurrence of a recurring holiday as a row when paging', async () => {
    const days = 'from_date=2026-01-01&to_date=2029-12-31&search=leap&pageSize=3';
    const { data, pagination } = await lists.admin.get<Holiday[]>(`${path}?${days}&page=2`);
    expect(data.map(({ date, occurs_on }) => [date, occurs_on])).toEqual([['2024-02-29', '2029-02-28']]);
    expect(pagination).toEqual({ page: 2, pageSize: 3, totalItems: 4, totalPages: 2 });
  });

  test.each([
    ['from_date=2026-01-01&to_date=2036-12-31', 'to_date'],
    ['from_date=2026-01-02&to_date=2026-01-01', 'to_date'],
    ['sort=created', 'sort'],
    ['year=2026', 'year'],
  ])('%s is a 400 that names the parameter', async (query, parameter) => {
    expect((await lists.admin.get(`${path}?${query}`, 400)).details.map((detail) => detail.path)).toEqual([parameter]);
  });
});

test('every user of the school can read holidays; changing them requires holiday.manage', async () => {
  const { id } = await add({ name: unique('Open'), date: '2026-06-01' });
  for (const roles of [['student'], ['teacher'], ['accountant']]) {
    const client = await school.user(roles);
    expect((await client.get<Holiday>(`${path}/${id}`)).data.id).toBe(id);
    await client.get(path, 200);
    await client.post(path, { name: 'Mine', date: '2026-06-02' }, 403);
    await client.put(`${path}/${id}`, { name: 'Mine' }, 403);
    await client.delete(`${path}/${id}`, 403);
  }
});
