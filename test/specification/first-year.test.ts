import { beforeAll, describe, expect, test } from '@jest/globals';
import { send } from '../support/client/wire.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { documentedUses, endpoints, nameOf, objects, SpecificationClient } from './client.ts';
import { runFirstYear } from './scenario/first-year.ts';

const service = await serviceOfFile({ BASE_DOMAIN: 'school.test' });
const client = new SpecificationClient(service.url);
const names = endpoints.map(nameOf);
/** Every documented field of a request, and every value that the specification names for it. */
const documented = endpoints.flatMap(({ query, body, form, ...endpoint }) => [
  ...(query ? documentedUses(query, `${nameOf(endpoint)} query`) : []),
  ...(body && body !== 'not shown' ? documentedUses(body, `${nameOf(endpoint)} body`) : []),
  ...(form && form !== 'not shown' ? documentedUses(form, `${nameOf(endpoint)} form`) : []),
]);

/** The school at the end of its first year. */
let school: Awaited<ReturnType<typeof runFirstYear>> | undefined;
/** The error that stopped the scenario, if one did. */
let stop: unknown;

beforeAll(async () => {
  try {
    school = await runFirstYear(client, service);
  } catch (error) {
    stop = error;
  }
}, 180_000);

describe('the transcription of the specification', () => {
  test('has all 228 endpoints, each once', () => {
    expect(new Set(names).size).toBe(228);
    expect(names).toHaveLength(228);
    const sections = Object.groupBy(endpoints, ({ section }) => section);
    expect(Object.fromEntries(Object.entries(sections).map(([name, all]) => [name, all?.length]))).toEqual({
      Health: 1,
      Auth: 11,
      Students: 12,
      Teachers: 16,
      Classes: 16,
      'Subjects and class subjects': 8,
      Attendance: 6,
      Academics: 11,
      Finance: 13,
      Fees: 9,
      'Timetable and schedule': 11,
      Notifications: 10,
      Holidays: 4,
      Transport: 35,
      'Dashboard, RBAC, users': 15,
      Platform: 17,
      'School setup': 5,
      'Devices and subscription': 4,
      'Master data': 24,
    });
  });

  test('has the fields of requests and answers', () => {
    const count = (kind: string) => endpoints.filter(({ answer }) => answer.kind === kind).length;
    expect({ lists: count('list'), records: count('record'), files: count('file'), streams: count('stream') }).toEqual({
      lists: 48,
      records: 176,
      files: 3,
      streams: 1,
    });
    expect(documented).toHaveLength(607);
    expect(endpoints.flatMap(({ answer }) => documentedUses(answer.data ?? {}, ''))).toHaveLength(565);
    expect(Object.keys(objects)).toHaveLength(56);
    expect(endpoints.filter(({ body, form }) => body === 'not shown' || form === 'not shown')).toHaveLength(48);
    expect(endpoints.filter(({ permission }) => permission !== undefined)).toHaveLength(9);
  });
});

describe('the first year of a school, with a client that knows only the specification', () => {
  test.each(names)('%s', (name) => {
    expect({ problems: client.problems.get(name) ?? [], succeeded: client.called.has(name) }).toEqual({
      problems: [],
      succeeded: true,
    });
  });

  test('completes without an error', () => {
    expect(stop).toBeUndefined();
  });

  test('calls every endpoint', () => {
    expect(names.filter((name) => !client.called.has(name))).toEqual([]);
  });

  test('sends records back as they were read, to every kind of record that it reads alone', () => {
    expect(client.writtenBack.size).toBeGreaterThan(15);
  });

  test('sends every documented field and every documented value', () => {
    expect(documented.filter((use) => !client.used.has(use))).toEqual([]);
  });

  test('can name the school by the subdomain of the request instead of the header X-Tenant-ID', async () => {
    const answer = await send(service.url, {
      path: '/api/school-setup/status',
      headers: { host: `${school?.subdomain ?? ''}.school.test` },
      token: school?.admin.accessToken ?? '',
    });
    expect(answer).toMatchObject({ status: 200, json: { success: true } });
  });
});
