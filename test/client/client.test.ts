import { createHash } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, jest, test } from '@jest/globals';
import { ApiError, createSchoolClient, isApiError, type SchoolClientOptions } from '../../client/src/index.ts';
import { attendanceHelpers } from '../support/fixtures/attendance.ts';
import { app, enable } from '../support/fixtures/second-factors.ts';
import { operatorEmail, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { addClass } = attendanceHelpers(service, school);
const root = join(import.meta.dirname, '../..');
const credentials = { subdomain: school.subdomain, email: school.adminEmail, password: testPassword };

/** A client that records the paths of its requests. */
function recordingClient(options: Partial<SchoolClientOptions> = {}) {
  const sent: string[] = [];
  const client = createSchoolClient({
    url: service.url,
    ...options,
    fetch: (request) => {
      sent.push(`${request.method} ${new URL(request.url).pathname}`);
      return (options.fetch ?? globalThis.fetch)(request);
    },
  });
  return { client, sent };
}

async function loggedIn(options: Partial<SchoolClientOptions> = {}) {
  const { client, sent } = recordingClient(options);
  expect(await client.login(credentials)).toMatchObject({
    kind: 'logged_in',
    login: { user: { email: school.adminEmail } },
  });
  return { client, sent };
}

const addStudent = (client: Awaited<ReturnType<typeof loggedIn>>['client'], last_name: string) =>
  client.post('/api/students', { body: { first_name: 'Amina', last_name } });

/** The error with which a promise is rejected. */
async function refusalOf(answer: Promise<unknown>): Promise<ApiError> {
  const error: unknown = await answer.catch((reason: unknown) => reason);
  if (!isApiError(error)) throw new Error('The request was not refused.', { cause: error });
  return error;
}

describe('the generated types', () => {
  test('are those of the document of the service, and nobody has edited them', async () => {
    const text = await readFile(join(root, 'client/src/schema.ts'), 'utf8');
    const [, documentHash, typesHash, types = ''] =
      /^.*\n\/\/ document (\w+)\n\/\/ types (\w+)\n([^]*)$/.exec(text) ?? [];
    const sha256 = (content: string) => createHash('sha256').update(content).digest('hex');
    const { paths, components } = (await (await fetch(`${service.url}/api/openapi.json`)).json()) as {
      paths: object;
      components: object;
    };
    // If this fails: npm ci --prefix client && npm run client:generate
    expect(documentHash).toBe(sha256(JSON.stringify({ paths, components })));
    expect(typesHash).toBe(sha256(types));
  });
});

describe('a client', () => {
  test('creates, reads, changes and deletes a record with typed methods', async () => {
    const { client } = await loggedIn();
    const { id } = await addStudent(client, 'Okafor');
    const params = { path: { id } };
    expect(await client.get('/api/students/{id}', { params })).toMatchObject({ id, last_name: 'Okafor' });
    const changed = await client.put('/api/students/{id}', { params, body: { last_name: 'Haddad' } });
    expect(changed.last_name).toBe('Haddad');
    expect(await client.delete('/api/students/{id}', { params })).toMatchObject({ id });
    const error = await refusalOf(client.get('/api/students/{id}', { params }));
    expect([error.error, error.status, isApiError(error, 'not_found'), isApiError(error, 'conflict')]).toEqual([
      'not_found',
      404,
      true,
      false,
    ]);
  });

  test('throws an ApiError with one detail per field', async () => {
    const { client } = await loggedIn();
    const error = await refusalOf(client.post('/api/students', { body: { first_name: '', last_name: 'Okafor' } }));
    expect(error).toMatchObject({
      error: 'validation_error',
      status: 400,
      message: 'first_name: must not be empty',
      details: [{ path: 'first_name', message: 'must not be empty' }],
    });
    expect(error.requestId).toMatch(/^[\w-]{10,}$/);
  });

  test('turns the error page of a proxy into an ApiError', async () => {
    const { client } = recordingClient({
      fetch: () =>
        Promise.resolve(new Response('<h1>Bad gateway</h1>', { status: 502, headers: { 'Retry-After': '3' } })),
    });
    expect(await refusalOf(client.get('/api/health'))).toMatchObject({ error: 'unavailable', retryAfterSeconds: 3 });
  });

  test('returns a file as a Blob', async () => {
    const { client } = await loggedIn();
    const file = await client.get('/api/students/import/template', { params: { query: { format: 'csv' } } });
    expect(await file.text()).toContain('first_name');
  });

  test('lists the entries of all pages, and requests a page only when it is needed', async () => {
    const { client, sent } = await loggedIn();
    const marker = unique('Paged');
    const ids = [];
    for (let n = 0; n < 5; n++) ids.push((await addStudent(client, marker)).id);
    sent.length = 0;
    const params = { query: { search: marker, pageSize: 2, sort: 'id' as const } };
    const listed = [];
    for await (const { id } of client.list('/api/students', { params })) listed.push(id);
    expect(listed).toEqual(ids);
    expect(sent).toEqual(['GET /api/students', 'GET /api/students', 'GET /api/students']);
    for await (const { id } of client.list('/api/students', { params })) {
      expect(id).toBe(ids[0]);
      break;
    }
    expect(sent.length).toBe(4);
  });

  test('works with an API key instead of a login', async () => {
    const { client } = await loggedIn();
    const { key } = await client.post('/api/api-keys', {
      body: { name: unique('Key'), permissions: ['student.read'] },
    });
    const { client: program } = recordingClient({ apiKey: key ?? '' });
    for await (const { id } of program.list('/api/students')) expect(id).toBeGreaterThan(0);
    expect(await refusalOf(addStudent(program, 'Okafor'))).toMatchObject({ error: 'forbidden' });
  });
});

describe('a session', () => {
  test('a wrong password is an ApiError, and not a challenge', async () => {
    const { client } = recordingClient();
    expect(await refusalOf(client.login({ ...credentials, password: 'wrong' }))).toMatchObject({
      error: 'invalid_credentials',
      challenge: undefined,
    });
  });

  test('a login that needs a second factor returns the challenge, and completes with a code', async () => {
    const teacher = await school.user(['teacher']);
    const { recoveryCodes, code } = await enable(teacher);
    const { client } = recordingClient();
    const result = await client.login({ ...credentials, email: teacher.email });
    if (result.kind !== 'second_factor_required') throw new Error('The login needed no second factor.');
    expect(result.challenge).toMatchObject({ is_enrollment: false, methods: ['totp', 'recovery_code'] });
    expect(client.tokens).toEqual({});
    expect(await refusalOf(result.verify({ code: code(9) }))).toMatchObject({ error: 'invalid_code' });
    const { user } = await result.verify({ recovery_code: recoveryCodes[0] ?? '' });
    expect(user.email).toBe(teacher.email);
    expect((await client.get('/api/auth/profile')).email).toBe(teacher.email);
  });

  test('a login that requires an authenticator app sets it up and returns recovery codes', async () => {
    const own = await service.school();
    const teacher = await own.user(['teacher']);
    await enable(own.admin);
    await own.admin.post('/api/school-setup/school-info', { is_second_factor_required: true });
    const { client } = recordingClient();
    const result = await client.login({ ...credentials, subdomain: own.subdomain, email: teacher.email });
    if (result.kind !== 'second_factor_required') throw new Error('The login needed no second factor.');
    expect(result.challenge.is_enrollment).toBe(true);
    const { secret } = await result.enroll();
    const { recovery_codes } = await result.verify({ code: app(secret).code() });
    expect(recovery_codes?.length).toBeGreaterThan(5);
  });

  test('requests whose access token has expired share one refresh', async () => {
    const { client: first } = await loggedIn();
    const onTokens = jest.fn();
    const { client, sent } = recordingClient({ tokens: { ...first.tokens, accessToken: 'expired' }, onTokens });
    const answers = await Promise.all([1, 2, 3, 4].map(() => client.get('/api/auth/profile')));
    expect(answers.map(({ email }) => email)).toEqual(Array(4).fill(school.adminEmail));
    expect(sent.filter((path) => path === 'POST /api/auth/refresh').length).toBe(1);
    expect(onTokens.mock.calls).toEqual([[client.tokens]]);
    expect(client.tokens.refreshToken).not.toBe(first.tokens.refreshToken);
  });

  test('a request is sent again with its body after the refresh', async () => {
    const { client: first } = await loggedIn();
    const { client } = recordingClient({ tokens: { ...first.tokens, accessToken: 'expired' } });
    expect((await addStudent(client, 'Repeated')).last_name).toBe('Repeated');
  });

  test('a session that has ended is an ApiError, and its tokens are forgotten', async () => {
    const { client: first } = await loggedIn();
    const { client, sent } = recordingClient({ tokens: first.tokens });
    await first.logout();
    expect(first.tokens).toEqual({ deviceToken: first.tokens.deviceToken });
    expect(await refusalOf(client.get('/api/auth/profile'))).toMatchObject({ error: 'invalid_token' });
    expect(await refusalOf(client.get('/api/auth/profile'))).toMatchObject({ error: 'unauthenticated' });
    expect(sent.filter((path) => path === 'POST /api/auth/refresh').length).toBe(1);
  });

  test('a logout ends the session although its access token has expired, or was not stored', async () => {
    for (const accessToken of ['expired', undefined]) {
      const { client: first } = await loggedIn();
      const { client } = recordingClient({ tokens: { ...first.tokens, accessToken } });
      await client.logout();
      expect(client.tokens).toEqual({ deviceToken: first.tokens.deviceToken });
      expect(await refusalOf(first.get('/api/auth/profile'))).toMatchObject({ error: 'invalid_token' });
      // The session has ended, so there is nothing left to do.
      await client.logout();
    }
  });

  test('of several requests of a session that has ended, each gets the same ApiError', async () => {
    const { client: first } = await loggedIn();
    const { promise: forgotten, resolve: forget } = Promise.withResolvers<unknown>();
    let requests = 0;
    const { client } = recordingClient({
      tokens: first.tokens,
      onTokens: forget,
      fetch: async (request) => {
        const isSecond = request.url.endsWith('/profile') && ++requests === 2;
        const response = await fetch(request);
        // Its answer arrives after the refresh of the first request has failed.
        if (isSecond) await forgotten;
        return response;
      },
    });
    await first.logout();
    const errors = await Promise.all([1, 2].map(() => refusalOf(client.get('/api/auth/profile'))));
    expect(errors.map(({ error }) => error)).toEqual(['invalid_token', 'invalid_token']);
  });

  test('the next login of the same device sends its token', async () => {
    const { client } = await loggedIn();
    const { deviceToken } = client.tokens;
    expect(deviceToken).toBeDefined();
    const headers: (string | null)[] = [];
    const { client: second } = recordingClient({
      tokens: { deviceToken },
      fetch: (request) => {
        headers.push(request.headers.get('X-Known-Device'));
        return fetch(request);
      },
    });
    await second.login(credentials);
    expect(headers).toEqual([deviceToken]);
  });
});

describe('the stream of notifications', () => {
  test('reconnects after an interruption and misses no notification', async () => {
    const user = await school.user(['teacher']);
    const notify = (title: string) =>
      school.admin.post('/api/notifications/send', { user_ids: [user.id], title, message: 'In the hall.' });
    let cut = new AbortController();
    const lastIds: (string | null)[] = [];
    const { client } = recordingClient({
      fetch: (request) => {
        if (!request.url.endsWith('/stream')) return fetch(request);
        lastIds.push(request.headers.get('Last-Event-ID'));
        cut = new AbortController();
        return fetch(request, { signal: AbortSignal.any([request.signal, cut.signal]) });
      },
    });
    await client.login({ ...credentials, email: user.email });
    const stop = new AbortController();
    const { last_event_id } = await client.post('/api/notifications/stream-token');
    const stream = client.notifications({ signal: stop.signal, lastEventId: last_event_id });
    await notify('First');
    const first = await stream.next();
    expect(first.value).toMatchObject({ title: 'First', message: 'In the hall.' });
    cut.abort();
    await notify('Second');
    expect((await stream.next()).value).toMatchObject({ title: 'Second' });
    expect(lastIds).toEqual([String(last_event_id), String((first.value as { id: number }).id)]);
    const end = stream.next();
    stop.abort();
    expect(await end).toEqual({ done: true, value: undefined });
  });

  test('starts with the next notification, and ends with an ApiError if there is no session', async () => {
    const { client } = recordingClient();
    expect(await refusalOf(client.notifications().next())).toMatchObject({ error: 'unauthenticated' });
  });
});

describe('the stream of the state of the installation', () => {
  test('sends the state to an operator, and sends it again when it has changed', async () => {
    const { client } = recordingClient();
    await client.login({ is_platform: true, email: operatorEmail, password: testPassword });
    const stop = new AbortController();
    const stream = client.system({ signal: stop.signal });
    expect((await stream.next()).value).toMatchObject({ workers: 1, schools: [{ status: 'active' }] });
    await service.database.query("select graphile_worker.add_job('live_task', run_at => now() + interval '1 day')");
    for await (const { queue } of stream) if (queue.tasks.some(({ task }) => task === 'live_task')) break;
    stop.abort();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });
});

test('today is the day in the time zone of the school, in the client, the status and the answer of a login', async () => {
  for (const zone of ['Pacific/Kiritimati', 'Pacific/Pago_Pago', 'Asia/Kolkata']) {
    await school.database.query('update platform.tenant set time_zone = $2 where id = $1', [school.id, zone]);
    const day = new Intl.DateTimeFormat('en-CA', { timeZone: zone }).format(new Date());
    const client = createSchoolClient({ url: service.url });
    const result = await client.login(credentials);
    expect(result).toMatchObject({ kind: 'logged_in', login: { today: day, time_zone: zone } });
    expect(await client.today()).toBe(day);
    expect(await client.get('/api/school-setup/status')).toMatchObject({ today: day, time_zone: zone });
  }
  await school.database.query("update platform.tenant set time_zone = 'UTC' where id = $1", [school.id]);
});

test('the example of the README runs: log in, mark attendance, list open fees, read notifications', async () => {
  const readme = await readFile(join(root, 'README.md'), 'utf8');
  const [, example = ''] = /```ts\n(import \{ createSchoolClient[^]*?)```/.exec(readme) ?? [];
  const { classId, students } = await addClass(3);
  const code = example
    .replace("'school-management-client'", "'../../client/src/index.ts'")
    .replace('http://127.0.0.1:3000', service.url)
    .replace("'demo'", `'${school.subdomain}'`)
    .replace('admin@demo.example', school.adminEmail)
    .replace('demo-password', testPassword);
  const file = join(import.meta.dirname, 'readme-example.tmp.ts');
  const lines = jest.spyOn(console, 'log').mockImplementation(() => undefined);
  try {
    await writeFile(file, code);
    await import(file);
  } finally {
    await rm(file);
  }
  const output = lines.mock.calls.map((words) => words.join(' '));
  lines.mockRestore();
  expect(output).toContainEqual(expect.stringMatching(/: 3 students marked$/));
  const register = await school.admin.get(`/api/attendance/class/${classId}/summary`);
  expect(register.data).toMatchObject({ days: [{ present: students.length, total: students.length }] });
});
