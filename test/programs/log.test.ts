import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { generateApiKey } from '../../src/http/credentials/api-keys.ts';
import { send } from '../support/client/wire.ts';
import { until } from '../support/client/until.ts';
import { ready, startProgram } from '../support/server/processes.ts';
import { serviceWithSchool, testJwtSecret, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();

/** Another process of the service, whose log can be read. Traces are off. */
const dataDir = await mkdtemp(join(tmpdir(), 'school-log-'));
const program = startProgram('src/main.ts', [], {
  DATABASE_URL: service.database.url,
  DATA_DIR: dataDir,
  DEMO: 'false',
  PORT: '0',
  JWT_SECRETS: testJwtSecret,
  SLOW_STATEMENT_MS: '1',
});
afterAll(async () => {
  program.kill('SIGKILL');
  await program.ended;
  await rm(dataDir, { recursive: true, force: true });
});
const { url } = await ready(program);

const spanId = '12'.repeat(8);
const newTrace = () => randomBytes(16).toString('hex');
/** Adds a user, who gets an email by a job. */
const addUser = (traceparent: string) =>
  send(url, {
    method: 'POST',
    path: '/api/users',
    token: school.admin.token,
    headers: { traceparent },
    body: { first_name: 'Logged', last_name: 'Person', email: `${unique('logged')}@test.example` },
  });
/** The first line with this text, parsed. */
const line = async (...texts: string[]) =>
  JSON.parse((await program.prints(new RegExp(`^.*${texts.join('.*')}.*$`, 'm')))[0]) as Record<string, unknown>;

test('without traces, the trace of the client is in the lines of its request, its slow call and its job', async () => {
  const trace = newTrace();
  const { status, headers } = await addUser(`00-${trace}-${spanId}-01`);
  expect(status).toBe(201);
  const request = { request_id: headers['x-request-id'], trace_id: trace, tenant: school.id };
  expect(await line('"slow":"users_create"', trace)).toMatchObject({
    level: 'warn',
    ...request,
    ms: expect.any(Number),
  });
  expect(await line(trace, '"method":"POST"')).toMatchObject({ ...request, operation: 'users_create', status: 201 });
  // The worker of the other process may take the job first.
  const job = program.prints(new RegExp(`"task":"send_email","trace_id":"${trace}"`));
  let isLogged = false;
  void job.then(() => (isLogged = true));
  await until(async () => {
    if (!isLogged) await addUser(`00-${trace}-${spanId}-01`);
    return isLogged ? true : undefined;
  });
});

test('a request with an API key is logged with the school of the key, unless there is no such key', async () => {
  const body = { name: unique('Log'), permissions: ['subject.read'] };
  const { data } = await school.admin.post<{ key: string }>('/api/api-keys', body, 201);
  for (const [token, status, tenant] of [
    [data.key, 200, school.id],
    [generateApiKey(school.id).key, 401, undefined],
  ] as const) {
    const response = await send(url, { path: '/api/subjects', token });
    expect(response.status).toBe(status);
    const logged = await line(`"request_id":"${String(response.headers['x-request-id'])}"`, '"method"');
    expect({ tenant: logged['tenant'], status: logged['status'] }).toEqual({ tenant, status });
  }
});

test('an invalid traceparent is not logged, and the log has no personal data', async () => {
  const invalid = [
    'x'.repeat(8000),
    `00-${'0'.repeat(32)}-${spanId}-01`,
    `00-${newTrace()}-${'0'.repeat(16)}-01`,
    `00-${newTrace().toUpperCase().replace(/^../, 'AB')}-${spanId}-01`,
    `00-${newTrace()}-${spanId}-01-more`,
    `00-${newTrace()}-${spanId}-01, 00-${newTrace()}-${spanId}-01`,
    `ff-${newTrace()}-${spanId}-01`,
    '","trace_id":"forged',
  ];
  for (const traceparent of invalid) {
    const { headers } = await send(url, {
      path: '/api/subjects',
      token: school.admin.token,
      headers: { traceparent, baggage: 'forged=1', tracestate: 'forged=1' },
    });
    expect(await line(`"request_id":"${String(headers['x-request-id'])}"`, '"method"')).not.toHaveProperty('trace_id');
  }
  program.kill('SIGTERM');
  const { stdout, code } = await program.ended;
  expect(code).toBe(0);
  expect(stdout).toContain('"slow":"subjects_list"');
  expect(stdout).not.toMatch(/forged|xxx|Logged|Person|logged-|@test/);
});
