import { isDeepStrictEqual } from 'node:util';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { platformRecords, platformTables } from '../support/fixtures/platform-records.ts';
import { addVariedRows } from '../support/fixtures/varied-rows.ts';
import { inOrder } from '../support/client/pages.ts';
import { populate } from '../support/fixtures/populate.ts';
import { answersJson } from '../../src/http/endpoint.ts';
import {
  findErrors,
  isForOperators,
  plain,
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
  const platform = await platformRecords(service, school);
  webhookId = platform.webhooks;
  for (const [name, table] of Object.entries(platformTables) as [keyof typeof platform, string][])
    await addVariedRows(service.database, 'platform', platform[name], [table]);
  expect(await populate(service, school, { endpoints, document }, known - 1, 'Listed')).toEqual([]);
  await addVariedRows(school.database, school.schema, known);
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
  (query.find(({ name }) => name === 'sort')?.schema.enum ?? []).map(String).filter((sort) => !sort.startsWith('-'));

type Row = Record<string, unknown>;

const names = ['last_name', 'first_name'];
const roll = ['roll_number.length', 'roll_number'];
const people = { first_name: ['first_name', 'last_name'], last_name: names, roll_number: roll };
const ofStudent = { student_name: names };
const byGrade = { class_name: ['sequence', 'class_name'], grade_name: ['sequence', 'grade_name', 'class_name'] };
const inSequence = { sequence: ['sequence', 'name'] };
/** What the sorts of an operation compare, unless it is the field of this name. Equal rows come by id. */
const compared: Record<string, Record<string, string[]>> = {
  students_list: people,
  classes_students_list: people,
  classes_unassigned_students: people,
  teachers_list: people,
  classes_teachers_list: people,
  classes_unassigned_teachers: people,
  classes_available_class_teachers: people,
  users_list: { last_name: names, profile_picture_url: ['picture'] },
  teachers_me_classes: byGrade,
  attendance_my_classes: byGrade,
  classes_list: { name: ['name', 'section'], grade: ['sequence', 'name', 'section'] },
  class_subjects_list: { class_name: ['class_name', 'subject_name'], subject_name: ['subject_name', 'class_name'] },
  attendance_class: { ...ofStudent, date: ['date', ...names], status: ['status', 'date', ...names], roll_number: roll },
  attendance_absences_list: ofStudent,
  students_absences_list: ofStudent,
  student_fees_list: ofStudent,
  invoices_list: ofStudent,
  payments_list: ofStudent,
  timetable_slots_list: {
    class_name: ['sequence', 'class_name', 'day_of_week', 'period'],
    day_of_week: ['day_of_week', 'period', 'sequence', 'class_name'],
    subject_name: ['subject_name', 'day_of_week', 'period'],
    teacher_name: ['teacher_last_name', 'teacher_first_name', 'day_of_week', 'period'],
  },
  notifications_list: { created_at: ['id'] },
  holidays_list: { name: ['name', 'date'] },
  transport_stops_list: { sequence: ['route_name', 'route_id', 'sequence'] },
  transport_routes_stops: { sequence: ['route_name', 'route_id', 'sequence'] },
  transport_enrollments_list: { ...ofStudent, stop: ['route_name', 'route_id', 'stop_sequence', ...names] },
  transport_schedules_list: { id: ['route_id', 'date'], date: ['date', 'route_name'] },
  platform_tenants_list: { plan: ['plan.name'], total_students: ['stats.total_students'] },
  platform_notification_templates_list: { key: ['key', 'channel'] },
  grades_list: inSequence,
  school_units_list: inSequence,
  programmes_list: inSequence,
  mediums_list: inSequence,
  religions_list: inSequence,
  subject_contexts_list: inSequence,
  document_types_list: inSequence,
};
/** What equal rows are sorted by if it is not their id. */
const ties: Record<string, string[]> = {
  attendance_class: ['student_id', 'date'],
  teachers_me_classes: ['class_id'],
  attendance_my_classes: ['class_id'],
  attendance_calendar_holidays: ['date'],
  transport_schedules_list: ['route_id', 'date'],
};
/** Lists whose names are compared with their accents. */
const comparesAccents = ['rbac_roles_list', 'api_keys_list', 'platform_api_keys_list', 'platform_plans_list'];

/** The fields of other records that lists are sorted by, for each record. */
const relatedFields = () =>
  school.database.query<{ key: string; fields: Row }>(
    `select 'class_id ' || c.id as key, jsonb_build_object('sequence', g.sequence) as fields
     from ${school.schema}.class c join ${school.schema}.grade g on g.id = c.grade_id
     union all select 'grade_id ' || id, jsonb_build_object('sequence', sequence) from ${school.schema}.grade
     union all select 'student_id ' || id,
       jsonb_build_object('last_name', last_name, 'first_name', first_name, 'roll_number', roll_number)
     from ${school.schema}.student
     union all select 'teacher_id ' || id,
       jsonb_build_object('teacher_last_name', last_name, 'teacher_first_name', first_name) from ${school.schema}.teacher
     union all select 'id ' || id, jsonb_build_object('picture', profile_picture_id) from ${school.schema}.user_account
     union all select 'stop_id ' || id, jsonb_build_object('stop_sequence', sequence) from ${school.schema}.stop`,
  );

/** Returns a function for the values by which a row is sorted. A text is the number of its place among all texts. */
async function sortKeys({ operation: { name } }: Registered, rows: Row[]) {
  const related = new Map((await relatedFields()).map(({ key, fields }) => [key, fields]));
  const withRelated = (row: Row): Row => ({
    ...Object.fromEntries(
      Object.entries(row).flatMap(([field, value]) => Object.entries(related.get(`${field} ${String(value)}`) ?? {})),
    ),
    ...row,
  });
  const whole = new Map(rows.map((row) => [row, withRelated(row)]));
  const texts = JSON.stringify([...whole.values()]).match(/"(?:[^"\\]|\\.)*"/g) ?? [];
  const ranks = await service.database.query<{ text: string; plain: string; lower: string }>(
    `select text, dense_rank() over (order by platform.search_normal(text)) as plain,
       dense_rank() over (order by lower(text)) as lower
     from unnest($1::text[]) text`,
    [texts.map((text) => JSON.parse(text) as string)],
  );
  const rankOf = new Map(ranks.map(({ text, plain, lower }) => [text, { plain: Number(plain), lower: Number(lower) }]));
  const valueOf = (row: Row, path: string): number | null => {
    let value: unknown = whole.get(row);
    for (const part of path.split('.')) value = (value as Row | null)?.[part] ?? null;
    if (typeof value !== 'string') return value === null ? null : Number(value);
    return rankOf.get(value)?.[path === 'name' && comparesAccents.includes(name) ? 'lower' : 'plain'] ?? null;
  };
  return (sort: string, row: Row): (number | null)[] =>
    [...(compared[name]?.[sort] ?? [sort]), ...(ties[name] ?? ['id'])].map((path) => valueOf(row, path));
}

describe('every list', () => {
  test('returns its pagination', async () => {
    expect(lists.length).toBeGreaterThan(40);
    const lines = await findErrors(lists, async (list) => {
      const { rows, json, text } = await request(list, 'pageSize=1');
      const { page, pageSize, totalItems, totalPages } = json?.pagination ?? {};
      return rows && page === 1 && pageSize === 1 && totalPages === totalItems ? undefined : text.slice(0, 200);
    });
    expect(lines).toEqual([]);
  });

  test('sorts by its id and by every scalar field that it shows, in both directions, with ties by id', async () => {
    const counts = { sorts: 0, varied: 0 };
    const lines = await findErrors(lists, async (list) => {
      const sorts = sortsOf(list);
      if (!sorts.includes('id')) return 'has no sort id';
      const { rows: all = [] } = await request(list, 'pageSize=100');
      const keysOf = await sortKeys(list, all);
      const stored = new Map(all.map((row) => [JSON.stringify(row), row]));
      for (const sort of sorts) {
        counts.sorts += 1;
        if (new Set(all.map((row) => keysOf(sort, row)[0])).size > 1) counts.varied += 1;
        const descending = counts.sorts % 2 ? `sort=-${sort}` : `sort=${sort}&order=DESC`;
        for (const [order, query] of [['asc', `sort=${sort}`] as const, ['desc', descending] as const]) {
          const { rows, text } = await request(list, `pageSize=100&${query}`);
          if (!rows) return `${query}: ${text.slice(0, 200)}`;
          const keys = rows.map((row) => keysOf(sort, stored.get(JSON.stringify(row)) ?? row));
          const expected = inOrder(
            all.map((row) => ({ id: 0, keys: keysOf(sort, row) })),
            (row) => row.keys,
            order,
          );
          const [found, wanted] = [keys, expected.map((row) => row.keys)].map((each) => JSON.stringify(each));
          if (found !== wanted) return `${query}: ${found} instead of ${wanted}`;
        }
      }
      return undefined;
    });
    expect(lines).toEqual([]);
    expect(counts.sorts).toBeGreaterThan(700);
    // The others have one value only.
    expect(counts.varied).toBeGreaterThan(550);
  }, 180_000);

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

  test('refuses values that do not fit its parameters, and names each of them', async () => {
    const lines = await findErrors(lists, async (list) => {
      const wrong = list.query.flatMap(({ name, schema: given }): [string, string][] => {
        const schema = plain(document, given);
        // The sample path has the dates that a list requires.
        if (/^(from|to)_date$/.test(name)) return [];
        if (name === 'search') return [[name, 'x'.repeat(201)]];
        return schema.type === 'string' && !schema.enum && !schema.format && !schema.pattern
          ? []
          : [[name, name === 'pageSize' ? '0' : '~']];
      });
      const { status, json } = await request(list, wrong.map((pair) => pair.join('=')).join('&'));
      const named = (json?.details ?? []).map(({ path }) => path).toSorted();
      const names = wrong.map(([name]) => name).toSorted();
      return status === 400 && named.join() === names.join() ? undefined : `${names.join()} ${JSON.stringify(json)}`;
    });
    expect(lines).toEqual([]);
  });

  test('shows the same values as GET of each record', async () => {
    let count = 0;
    const lines = await findErrors(lists, async (list) => {
      const get = endpoints.find(({ name }) => name === `GET ${list.path}/{id}`);
      const { rows: [row] = [] } = await request(list, 'sort=-id');
      if (!get || !row) return undefined;
      count += 1;
      const { json } = await send(service.url, {
        path: samplePath(document, get, { id: known }, { id: String(row['id']) }),
        token: isForOperators(get) ? service.operator.token : school.admin.token,
      });
      const shown = Object.entries(row).filter(([name]) => name in ((json?.data as object | undefined) ?? {}));
      const differs = shown.some(([name, value]) => !isDeepStrictEqual(value, (json?.data as Row)[name]));
      return shown.length > 1 && !differs ? undefined : `${JSON.stringify(row)} ${JSON.stringify(json)}`;
    });
    expect(lines).toEqual([]);
    expect(count).toBeGreaterThan(25);
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
