import { expect, test } from '@jest/globals';
import { openStream } from '../support/client/stream.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile({ STREAMS_AT_A_TIME: '4' });
const [large, small] = [await service.school(), await service.school()];

test('a school that has all streams of a process loses the newest to other schools, until each has its share', async () => {
  const users = [await large.user(['teacher']), await large.user(['teacher'])];
  const ofLarge = [];
  for (const { token } of [...users, ...users]) ofLarge.push(await openStream(service.url, token));
  expect(ofLarge.map(({ status }) => status)).toEqual([200, 200, 200, 200]);

  const refused = await openStream(service.url, large.admin.token);
  expect([refused.status, refused.refusal?.error, Number(refused.headers['retry-after']) > 0]).toEqual([
    503,
    'unavailable',
    true,
  ]);

  const ofSmall = [await openStream(service.url, small.admin.token), await openStream(service.url, small.admin.token)];
  expect(ofSmall.map(({ status }) => status)).toEqual([200, 200]);
  await ofLarge[3]?.end();
  await ofLarge[2]?.end();
  expect((await openStream(service.url, small.admin.token)).status).toBe(503);
  expect(ofLarge.map(({ ended }) => ended)).toEqual([undefined, undefined, 'end', 'end']);

  await small.admin.post('/api/notifications/send', { all: true, title: 'Still', message: 'x' });
  await Promise.all(ofSmall.map((stream) => stream.has(1)));
  await Promise.all([...ofSmall, ...ofLarge].map((stream) => stream.close()));
});
