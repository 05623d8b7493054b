import { beforeAll, describe, expect, test } from '@jest/globals';
import { populate } from '../support/fixtures/populate.ts';
import { findErrors, isForSchools, registry, samplePath } from '../support/server/registry.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();
const { admin } = school;

interface Person {
  id: number;
  first_name: string;
  last_name: string;
}

const people = [
  ['/api/students', {}],
  ['/api/teachers', {}],
  ['/api/users', { role_ids: [] }],
] as const;

const body = (extra: object) => ({ ...extra, email: `${unique('person')}@example.org` });

describe.each(people)('a person of %s with a single name', (path, extra) => {
  test('has an empty last name, which is not null and not missing', async () => {
    const { data } = await admin.post<Person>(path, { ...body(extra), first_name: 'Sukarno', last_name: ' ' }, 201);
    expect(data).toMatchObject({ first_name: 'Sukarno', last_name: '' });
    for (const names of [{ first_name: 'Sukarno' }, { first_name: 'Sukarno', last_name: null }]) {
      const refused = await admin.post(path, { ...body(extra), ...names }, 400);
      expect(refused.details).toMatchObject([{ path: 'last_name' }]);
    }
    await admin.post(path, { ...body(extra), first_name: '', last_name: 'Sukarno' }, 400);
    const { data: other } = await admin.post<Person>(path, { ...body(extra), first_name: 'A', last_name: 'B' }, 201);
    expect((await admin.put(`${path}/${other.id}`, { last_name: '' })).data).toMatchObject({ last_name: '' });
  });

  test('is found by the name and by words beside it, and sorted before all last names', async () => {
    const name = unique('Mononym');
    const email = `${unique('one')}@example.org`;
    const { data } = await admin.post<Person>(path, { ...extra, first_name: name, last_name: '', email }, 201);
    await admin.post(path, { ...body(extra), first_name: name, last_name: 'Aaa' }, 201);
    const list = async (query: string) =>
      (await admin.get<Person[]>(`${path}?search=${encodeURIComponent(name)}${query}`)).data;
    expect((await list(` ${email}`)).map(({ id }) => id)).toEqual([data.id]);
    const lastNames = async (query: string) => (await list(query)).map(({ last_name }) => last_name);
    expect(await lastNames('&sort=last_name')).toEqual(['', 'Aaa']);
    expect(await lastNames('&sort=-last_name')).toEqual(['Aaa', '']);
  });
});

describe('where the names of people with a single name are joined', () => {
  const known = 500_001;

  /** The places of texts with a blank too many. */
  const strayBlanks = (value: unknown, place = ''): string[] => {
    if (typeof value === 'string') return /^\s|\s$| {2}/.test(value) ? [`${place} is ${JSON.stringify(value)}`] : [];
    if (value === null || typeof value !== 'object') return [];
    return Object.entries(value).flatMap(([key, part]) => strayBlanks(part, `${place}.${key}`));
  };

  beforeAll(async () => {
    const { data: me } = await admin.get<Person>('/api/auth/profile');
    await admin.put(`/api/users/${me.id}`, { first_name: 'Suharto', last_name: '' });
    expect(await populate(service, school, await registry(service), known - 1, 'Single')).toEqual([]);
    for (const table of ['student', 'teacher', 'user_account'])
      await school.database.query(`update ${school.schema}.${table} set last_name = ''`);
  });

  test('no answer has a blank too many', async () => {
    const { endpoints, document } = await registry(service);
    const reads = endpoints.filter(
      (each) => each.method === 'GET' && isForSchools(each) && ['json', 'page'].includes(each.route.response.kind),
    );
    let names = 0;
    const lines = await findErrors(reads, async (endpoint) => {
      const path = samplePath(document, endpoint, { id: known });
      const { json } = await send(service.url, { path, token: admin.token });
      names += JSON.stringify(json?.data ?? '').match(/_name":"Suharto"/g)?.length ?? 0;
      return strayBlanks(json?.data).join('; ') || undefined;
    });
    expect(lines).toEqual([]);
    expect(names).toBeGreaterThan(0);
  });

  test('no message about a conflict of the timetable has a blank too many', async () => {
    const { classId } = await school.classroom(unique('Class'));
    const { classId: otherId } = await school.classroom(unique('Class'));
    const teacher_id = await school.insert('teacher', { first_name: 'Megawati', last_name: '' });
    const subject_id = await school.insert('subject', { name: 'Art', code: unique('A') });
    const slot = { teacher_id, subject_id, day_of_week: 1, period: 1 };
    await admin.post('/api/timetable/slots', { ...slot, class_id: classId }, 201);
    const refused = await admin.post('/api/timetable/slots', { ...slot, class_id: otherId }, 409);
    expect(refused.message).toMatch(/^Megawati already teaches /);
    const taken = await admin.post('/api/timetable/slots', { ...slot, teacher_id: null, class_id: classId }, 409);
    expect(taken.message).toContain(' with Megawati on Monday, period 1.');
  });

  test('a message with both placeholders has no blank after the name', async () => {
    const user = await school.user(['teacher'], { first_name: 'Sukarno', last_name: '' });
    const title = 'Dear {{first_name}} {{ last_name }}, hello';
    await admin.post('/api/notifications/send', { user_ids: [user.id], title, message: title }, 200);
    await service.settled();
    const { data } = await user.get<{ title: string; message: string }[]>('/api/notifications?pageSize=1');
    expect(data).toMatchObject([{ title: 'Dear Sukarno, hello', message: 'Dear Sukarno, hello' }]);
  });

  test('an invitation has no blank after the name', async () => {
    const email = `${unique('invited')}@example.org`;
    await admin.post('/api/users', { email, first_name: 'Sukarno', last_name: '', role_ids: [] }, 201);
    const mail = await mailTo(service, email, 'Your account');
    expect(mail.text).toContain('Hello Sukarno,');
  });
});
