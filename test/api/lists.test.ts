import { beforeAll, describe, expect, test } from '@jest/globals';
import { populate } from '../support/fixtures/populate.ts';
import { answersJson } from '../../src/http/endpoint.ts';
import {
  findErrors,
  isForOperators,
  type Registered,
  registry,
  rowsOf,
  samplePath,
} from '../support/server/registry.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();
const { endpoints, document } = await registry(service);
// The admin is not a student.
const lists = endpoints.filter(({ route, operation }) => route.response.kind === 'page' && operation.role === null);
const known = 500_001;

let webhookId = 0;
beforeAll(async () => {
  const { data: webhook } = await service.operator.post<{ id: number }>(
    '/api/platform/webhooks',
    { url: 'https://hooks.example/platform', events: ['tenant.created'] },
    201,
  );
  webhookId = webhook.id;
  expect(await populate(service, school, { endpoints, document }, known - 1, 'Listed')).toEqual([]);
});

/** Asks a list for the rows that a query selects. */
async function request(list: Registered, query: string) {
  const isPlatform = isForOperators(list);
  const platformId = list.path.startsWith('/api/platform/webhooks') ? webhookId : school.id;
  const path = samplePath(document, list, { id: isPlatform ? platformId : known });
  const answer = await send(service.url, {
    path: `${path}${path.includes('?') ? '&' : '?'}${query}`,
    token: isPlatform ? service.operator.token : school.admin.token,
  });
  return { ...answer, rows: rowsOf(list, answer.json?.data) };
}

const sortsOf = ({ query }: Registered) =>
  (query.find(({ name }) => name === 'sort')?.schema.enum ?? []).filter((sort) => !String(sort).startsWith('-'));

describe('every list', () => {
  test('answers its pagination', async () => {
    expect(lists.length).toBeGreaterThan(40);
    const lines = await findErrors(lists, async (list) => {
      const { rows, json, text } = await request(list, 'pageSize=1');
      const { page, pageSize, totalItems, totalPages } = json?.pagination ?? {};
      return rows && page === 1 && pageSize === 1 && totalPages === totalItems ? undefined : text.slice(0, 200);
    });
    expect(lines).toEqual([]);
  });

  test('sorts by its id and by every scalar field that it shows, in both directions', async () => {
    let count = 0;
    const lines = await findErrors(lists, async (list) => {
      const names = sortsOf(list);
      if (!names.includes('id')) return 'has no sort id';
      for (const name of names.map(String)) {
        const forms = [`sort=${name}`, `sort=-${name}`, `sort=${name}&order=DESC`];
        const { status, text } = await request(list, forms[count++ % forms.length] ?? '');
        if (status !== 200) return `${name}: ${text.slice(0, 200)}`;
      }
      return undefined;
    });
    expect(lines).toEqual([]);
    expect(count).toBeGreaterThan(400);
  });

  test('treats an empty filter as absent, and ignores _', async () => {
    const lines = await findErrors(lists, async (list) => {
      const filters = list.query.map(({ name }) => name).filter((name) => !/^(from|to)_date$/.test(name));
      const empty = filters.map((name) => `${name}=`).join('&');
      const [without, withEmpty] = [await request(list, ''), await request(list, `${empty}&_=1700000000`)];
      return without.status === 200 && without.text === withEmpty.text ? undefined : withEmpty.text.slice(0, 200);
    });
    expect(lines).toEqual([]);
  });

  test('refuses another parameter, and names the nearest one that it takes', async () => {
    const lines = await findErrors(lists, async (list) => {
      const { status, json } = await request(list, 'page_size=1');
      const [detail] = json?.details ?? [];
      return status === 400 && detail?.message === 'is not a known parameter. Did you mean pageSize?'
        ? undefined
        : JSON.stringify(json).slice(0, 200);
    });
    expect(lines).toEqual([]);
  });

  test('refuses a parameter that is given twice, and names it', async () => {
    const lines = await findErrors(lists, async (list) => {
      const names = list.query.map(({ name }) => name);
      const { status, json } = await request(list, names.map((name) => `${name}=1&${name}=2`).join('&'));
      const repeated = (json?.details ?? []).filter(({ message }) => message === 'must be given only once');
      const found = repeated.map(({ path }) => path).toSorted();
      return status === 400 && found.join() === names.toSorted().join()
        ? undefined
        : JSON.stringify(json).slice(0, 200);
    });
    expect(lines).toEqual([]);
  });

  test('suggests no name if none is similar', async () => {
    const lines = await findErrors(lists, async (list) => {
      const { details } = await request(list, 'zzzzzzzz=1').then(({ json }) => json ?? {});
      return details?.[0]?.message === 'is not a known parameter' ? undefined : JSON.stringify(details);
    });
    expect(lines).toEqual([]);
  });

  test('names whole fields to sort by in the 400 for an unknown sort', async () => {
    const sorted = lists.filter(({ query }) => query.some(({ name }) => name === 'sort'));
    const lines = await findErrors(sorted, async (list) => {
      const { details } = await request(list, 'sort=zzzzzzzz').then(({ json }) => json ?? {});
      const message = details?.[0]?.message ?? '';
      return /^is not a field to sort by\. (The|Some of the) fields are (\w+, ){0,14}\w+\.$/.test(message)
        ? undefined
        : JSON.stringify(details);
    });
    expect(sorted.length).toBeGreaterThan(30);
    expect(lines).toEqual([]);
  });
});

test('a new school without an academic year answers every page with 200', async () => {
  const fresh = await service.school();
  const pages = endpoints.filter(
    ({ method, operation, parameters, route }) =>
      method === 'GET' &&
      operation.access === 'tenant' &&
      operation.role === null &&
      !operation.writes &&
      // The admin is not a teacher.
      !operation.name.startsWith('teachers_me') &&
      parameters.length === 0 &&
      answersJson(route),
  );
  expect(pages.length).toBeGreaterThan(40);
  const lines = await findErrors(pages, async (page) => {
    const { status, text } = await send(service.url, {
      path: samplePath(document, page, { id: known }),
      token: fresh.admin.token,
    });
    return status === 200 ? undefined : text.slice(0, 200);
  });
  expect(lines).toEqual([]);
});

describe('the order of a list', () => {
  interface Row {
    id: number;
    phone: string | null;
    date_of_birth: string | null;
    class_name: string | null;
  }
  const people = [
    { first_name: 'A', phone: 'b-1', date_of_birth: '2012-05-01' },
    { first_name: 'B', phone: 'Á-2', date_of_birth: '2010-01-01' },
    { first_name: 'C', phone: 'C-0', date_of_birth: null },
    { first_name: 'D', phone: null, date_of_birth: '2011-01-01' },
  ];
  const list = (query: string) => school.admin.get<Row[]>(`/api/students?search=sorted&pageSize=2&${query}`);
  const read = async (query: string) => [...(await list(query)).data, ...(await list(`${query}&page=2`)).data];

  beforeAll(async () => {
    for (const person of people) await school.admin.post('/api/students', { last_name: 'Sorted', ...person }, 201);
  });

  test('by a text ignores case and accents, and has rows without a value last in both directions', async () => {
    expect((await read('sort=phone')).map(({ phone }) => phone)).toEqual(['Á-2', 'b-1', 'C-0', null]);
    expect((await read('sort=-phone')).map(({ phone }) => phone)).toEqual(['C-0', 'b-1', 'Á-2', null]);
  });

  test('by a date is that of the calendar', async () => {
    const days = (await read('sort=date_of_birth')).map(({ date_of_birth }) => date_of_birth);
    expect(days).toEqual(['2010-01-01', '2011-01-01', '2012-05-01', null]);
  });

  test('by id, and among equal values, is that of the ids; a minus sign wins over the parameter order', async () => {
    const ids = (await read('sort=id')).map(({ id }) => id);
    expect(ids).toEqual([...ids].sort((a, b) => a - b));
    expect((await read('sort=class_name')).map(({ id }) => id)).toEqual(ids);
    expect((await read('sort=-id&order=asc')).map(({ id }) => id)).toEqual([...ids].reverse());
    expect((await read('sort=id&order=Desc')).map(({ id }) => id)).toEqual([...ids].reverse());
  });

  test('by an unknown field is refused with the nearest field', async () => {
    const { details } = await school.admin.get('/api/students?sort=lastname', 400);
    expect(details).toEqual([
      {
        path: 'sort',
        message: expect.stringMatching(
          /^is not a field to sort by. Did you mean last_name\? Some of the fields are id, (\w+, ){13}\w+\.$/,
        ),
      },
    ]);
  });
});

describe('the pages of a computed list', () => {
  test('are filtered by the search and sorted as requested', async () => {
    interface Permission {
      id: number;
      name: string;
    }
    const read = (query: string) => school.admin.get<Permission[]>(`/api/rbac/permissions?${query}`);
    const all = await read('');
    expect(all.pagination).toMatchObject({ page: 1, pageSize: 100, totalItems: all.data.length, totalPages: 1 });
    expect(all.data.map(({ name }) => name)).toContain('student.read');
    const found = await read('search=FEES%20see');
    expect(found.data.map(({ name }) => name)).toEqual(['fee.read']);
    const names = all.data.map(({ name }) => name).sort();
    const last = await read('sort=-name&pageSize=5&page=2');
    expect(last.data.map(({ name }) => name)).toEqual(names.reverse().slice(5, 10));
    expect(last.pagination).toMatchObject({ page: 2, pageSize: 5, totalItems: names.length });
  });
});
