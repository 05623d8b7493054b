import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, test } from '@jest/globals';
import { until } from '../support/client/until.ts';
import type { Client } from '../support/client/client.ts';
import { fileForm, png } from '../support/fixtures/pictures.ts';
import { serviceOfFile } from '../support/server/service.ts';

const uploadsAtATime = 2;
const service = await serviceOfFile({
  UPLOADS_AT_A_TIME: String(uploadsAtATime),
  BODY_STALL_MS: '1500',
  BODY_TIMEOUT_MS: '4000',
});
const school = await service.school();
const other = await service.school();
const { id: studentId } = (
  await school.admin.post<{ id: number }>('/api/students', { first_name: 'A', last_name: 'B' }, 201)
).data;

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** Sends the beginning of a request, and collects what is answered. */
function begin(path: string, headers: Record<string, string | number>, start: string | Buffer) {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  sockets.push(socket);
  let answer = '';
  let isClosed = false;
  socket.on('data', (data) => (answer += data.toString()));
  socket.on('error', () => undefined);
  socket.on('close', () => (isClosed = true));
  const lines = Object.entries({ Host: hostname, ...headers }).map(([name, value]) => `${name}: ${value}`);
  socket.write(`POST ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  socket.write(start);
  return {
    socket,
    status: () => Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0),
    answer: () => answer,
    isClosed: () => isClosed,
  };
}

const declaredBytes = 5_100_000;
const head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n';

/** One buffer for all uploads, so that the test itself takes no memory that counts. */
const stalledBody = Buffer.concat([Buffer.from(head), Buffer.alloc(4_900_000, 'x')]);

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** The bytes in buffers of this process, without garbage. */
function usedBytes(): number {
  collectGarbage();
  return process.memoryUsage().arrayBuffers;
}

/** An upload of a document that stops shortly before its end. */
const stalledUpload = (who: Client, sentBytes = 4_900_000) =>
  begin(
    `/api/students/${studentId}/documents`,
    {
      Authorization: `Bearer ${who.token}`,
      'Content-Type': 'multipart/form-data; boundary=b',
      'Content-Length': declaredBytes,
    },
    stalledBody.subarray(0, head.length + sentBytes),
  );

test('an upload that stalls gets a 408, and its connection is closed', async () => {
  const upload = stalledUpload(school.admin);
  await until(() => upload.isClosed() || undefined);
  expect(upload.status()).toBe(408);
  expect(upload.answer()).toMatch(/connection: close/i);
  expect(upload.answer()).toContain('"error":"request_timeout"');
});

test.each([
  ['JSON', () => school.admin.token, '/api/students'],
  ['JSON without a login', () => undefined, '/api/auth/login'],
  ['GraphQL', () => service.operator.token, '/graphql'],
])('a body of %s that stalls gets a 408', async (_what, token, path) => {
  const bearer = token();
  const headers = {
    ...(bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }),
    'Content-Type': 'application/json',
    'Content-Length': 100,
  };
  const sent = begin(path, headers, '{"a"');
  await until(() => sent.isClosed() || undefined);
  expect([sent.status(), sent.answer()]).toEqual([408, expect.stringContaining('request_timeout')]);
});

test('an upload that is slow all the time gets a 408, though it never stalls', async () => {
  const upload = stalledUpload(school.admin, 0);
  const chunk = Buffer.alloc(100_000, 'x');
  for (let n = 0; n < 40 && !upload.isClosed(); n++) {
    upload.socket.write(chunk);
    await sleep(200);
  }
  expect(upload.status()).toBe(408);
});

test('stalled uploads take memory only for as many as are received at a time', async () => {
  const users = await Promise.all([1, 2, 3, 4, 5].map(() => school.user(['admin'])));
  const before = usedBytes();
  const uploads = users.flatMap((user) => [1, 2, 3, 4].map(() => stalledUpload(user)));
  // At most 8 of the school are in progress; the others are refused.
  await until(() => uploads.filter((upload) => upload.status() === 429).length >= uploads.length - 8 || undefined);
  expect(uploads.find((upload) => upload.status() === 429)?.answer()).toMatch(/retry-after: 5/i);
  // All twenty would take 100 MB. The process needs some memory besides, more on a busy machine.
  expect(usedBytes() - before).toBeLessThan((uploads.length * declaredBytes) / 2);
});

test('stalled uploads of one school leave a place to another school', async () => {
  const users = await Promise.all([1, 2, 3].map(() => school.user(['admin'])));
  const uploads = users.flatMap((user) => [stalledUpload(user), stalledUpload(user)]);
  const body = fileForm(Buffer.concat([png, Buffer.alloc(200_000)]), 'me.png', 'image/png');
  await other.admin.send('POST', '/api/auth/profile/picture', { body }, 200);
  expect(uploads.filter((upload) => upload.status() === 408)).toEqual([]);
});

test('an upload waits for its turn, and a user who sends too many gets a 429 for the others', async () => {
  // The uploads of the last test may not have ended yet.
  const third = await service.school();
  const picture = () => fileForm(Buffer.concat([png, Buffer.alloc(200_000)]), 'me.png', 'image/png');
  const answers = await Promise.all(
    Array.from({ length: 6 }, () => third.admin.send('POST', '/api/auth/profile/picture', { body: picture() })),
  );
  const statuses = answers.map(({ status }) => status);
  expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(uploadsAtATime);
  expect(statuses.every((status) => status === 200 || status === 429)).toBe(true);
});
