import { beforeAll, describe, expect, test } from '@jest/globals';
import { platformKind, platformRecords } from '../support/fixtures/platform-records.ts';
import { populate } from '../support/fixtures/populate.ts';
import {
  findErrors,
  isForOperators,
  isForSchools,
  type Registered,
  registry,
  sampleRequest,
} from '../support/server/registry.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { errorMismatch, send } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();
const { endpoints, document } = await registry(service);
const known = 500_001;

let ofPlatform: Record<string, number>;
beforeAll(async () => {
  ofPlatform = await platformRecords(service, school);
  expect(await populate(service, school, { endpoints, document }, known - 1, 'stored')).toEqual([]);
});

const idOf = (endpoint: Registered) =>
  isForOperators(endpoint) ? (ofPlatform[platformKind(endpoint.path)] ?? known) : known;

test('no write ignores an If-Match that names no version of what it changes', async () => {
  const writes = endpoints.filter(
    (each) =>
      (isForSchools(each) || isForOperators(each)) &&
      each.operation.role === null &&
      each.operation.writes &&
      each.method !== 'GET',
  );
  let count = 0;
  const lines = await findErrors(writes, async (write) => {
    const sent = sampleRequest(document, write, { id: idOf(write) });
    const answer = await send(service.url, {
      ...sent,
      token: isForOperators(write) ? service.operator.token : school.admin.token,
      headers: { ...sent.headers, 'if-match': '"other"' },
    });
    if (answer.status === 404 || answer.json?.error?.startsWith('invalid_c')) return undefined;
    count += 1;
    return errorMismatch(answer, 412, 'precondition_failed');
  });
  expect(lines).toEqual([]);
  expect(count).toBeGreaterThan(150);
  await school.admin.send('POST', '/api/notifications/read-all', { headers: { 'If-Match': '*' } }, 200);
});

describe('of two requests at once with the same If-Match', () => {
  const writers: [string, string, [unknown, unknown], 'operator'?][] = [
    ['a student', `/api/students/${known}`, [{ phone: '1' }, { phone: '2' }]],
    ['a stop', `/api/transport/stops/${known}`, [{ name: 'One' }, { name: 'Two' }]],
    ['a profile', '/api/auth/profile', [{ phone: '1' }, { phone: '2' }]],
    ['an operator profile', '/api/auth/profile', [{ phone: '1' }, { phone: '2' }], 'operator'],
    ['an event', '/api/notifications/events/holiday.added', [{ channels: ['push'] }, { channels: ['email'] }]],
    ['the settings', '/api/platform/settings', [{ currency: 'CHF' }, { currency: 'GBP' }], 'operator'],
    [
      'the notification settings',
      '/api/platform/notification-settings',
      [{ sender_name: 'One' }, { sender_name: 'Two' }],
      'operator',
    ],
    [
      'the subjects of a grade',
      `/api/grades/${known}/subjects`,
      [[{ subject_id: known, periods_per_week: 3 }], [{ subject_id: known, periods_per_week: 4 }]],
    ],
    [
      'the availability of a teacher',
      `/api/teachers/${known}/availability`,
      [1, 2].map((period) => [{ day_of_week: 7, period, is_available: false }]) as [unknown, unknown],
    ],
  ];

  test.each(writers.map(([name, path, bodies, by]) => [name, path, bodies, by ?? 'admin'] as const))(
    'exactly one changes %s',
    async (_name, path, bodies, by) => {
      const token = by === 'operator' ? service.operator.token : school.admin.token;
      const before = await send(service.url, { path, token });
      const headers = { 'if-match': String(before.headers.etag) };
      const answers = await Promise.all(
        bodies.map((body) => send(service.url, { method: 'PUT', path, token, body, headers })),
      );
      const winner = answers.find(({ status }) => status === 200);
      expect([answers.map(({ status }) => status).toSorted((a, b) => a - b), winner?.text]).toEqual([
        [200, 412],
        expect.anything(),
      ]);
      const after = await send(service.url, { path, token });
      expect(after.json?.data).toEqual(winner?.json?.data);
      expect(after.headers.etag).toBe(winner?.headers.etag);
      const again = await send(service.url, { method: 'PUT', path, token, body: bodies[0], headers });
      expect(errorMismatch(again, 412, 'precondition_failed')).toBeUndefined();
      const any = await send(service.url, {
        method: 'PUT',
        path,
        token,
        body: bodies[0],
        headers: { 'if-match': '*' },
      });
      expect(any.status).toBe(200);
    },
  );
});
