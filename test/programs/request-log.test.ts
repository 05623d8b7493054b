import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { testDatabase } from '../support/server/database.ts';
import { ready, startProgram } from '../support/server/processes.ts';
import { operatorEmail, testPassword } from '../support/server/service.ts';

const { client } = shared;

interface Line {
  level: string;
  time: string;
  request_id?: string;
  method?: string;
  operation?: string;
  tenant?: number;
  status?: number;
  ms?: number;
}

/** Waits for the lines of a request. */
const linesOf = async (id: string): Promise<Line[]> => {
  const { input } = await program.prints(new RegExp(`"request_id":"${id}".*\\n`));
  return input
    .split('\n')
    .filter((line) => line.includes(`"request_id":"${id}"`))
    .map((line) => JSON.parse(line) as Line);
};

const database = await testDatabase(3);
const folder = await mkdtemp(join(tmpdir(), 'school-log-'));
const program = startProgram('src/main.ts', [], {
  DATABASE_URL: database.url,
  DATA_DIR: folder,
  PORT: '0',
  NODE_ENV: 'test',
  DEMO: 'false',
  PLATFORM_ADMIN_EMAIL: operatorEmail,
  PLATFORM_ADMIN_PASSWORD: testPassword,
});
afterAll(async () => {
  program.kill('SIGTERM');
  await program.ended;
  await database.drop();
  await rm(folder, { recursive: true, force: true });
});
const { url } = await ready(program);
const anonymous = await client(url);

test('the log has one JSON line per request, with id, method, operation, tenant, status and duration, and no personal data', async () => {
  const operator = await anonymous
    .with({ 'X-Request-Id': 'log-operator' })
    .login({ is_platform: true, email: operatorEmail, password: testPassword });
  const created = await operator.post<{ id: number }>(
    '/api/platform/tenants',
    {
      name: 'Nosy School',
      subdomain: 'nosy',
      contact_email: 'office@nosy.example',
      plan_id: 1,
      admin_password: testPassword,
    },
    201,
  );
  const admin = await anonymous
    .with({ 'X-Request-Id': 'log-in' })
    .login({ subdomain: 'nosy', email: 'office@nosy.example', password: testPassword });
  const requests: [string, (client: Client) => Promise<unknown>, Partial<Line>][] = [
    [
      'log-add',
      (client) =>
        client.post('/api/students', { first_name: 'Secretia', last_name: 'Hush', email: 'hush@nosy.example' }, 201),
      { method: 'POST', operation: 'students_create', status: 201 },
    ],
    [
      'log-list',
      (client) => client.get('/api/students?search=secretia'),
      { method: 'GET', operation: 'students_list', status: 200 },
    ],
    [
      'log-missing',
      (client) => client.get('/api/students/424242', 404),
      { method: 'GET', operation: 'students_get', status: 404 },
    ],
    [
      'log-invalid',
      (client) => client.put('/api/students/1', { email: 'not-an-address' }, 400),
      { method: 'PUT', operation: 'students_update', status: 400 },
    ],
    [
      'log-forbidden',
      (client) => client.get('/api/platform/tenants', 403),
      { method: 'GET', operation: 'platform_tenants_list', status: 403 },
    ],
    [
      'log-conflict',
      (client) =>
        client.post('/api/users', { email: 'office@nosy.example', first_name: 'Secretia', last_name: 'Hush' }, 409),
      { operation: 'users_create', status: 409 },
    ],
  ];
  for (const [id, send, expected] of requests) {
    await send(admin.with({ 'X-Request-Id': id }));
    const lines = await linesOf(id);
    expect(lines).toHaveLength(1);
    const [line] = lines;
    expect(line).toMatchObject({ level: 'info', request_id: id, tenant: created.data.id, ...expected });
    expect(line?.ms).toBeGreaterThan(0);
    expect(new Date(line?.time ?? '').toISOString()).toBe(line?.time);
    expect(Object.keys(line ?? {}).sort()).toEqual([
      'level',
      'method',
      'ms',
      'operation',
      'request_id',
      'status',
      'tenant',
      'time',
    ]);
  }
  expect((await linesOf('log-in'))[0]).toMatchObject({ operation: 'auth_credentials', status: 200 });
  const [, log = ''] = await program.prints(/ ready in .*\n([^]*"request_id":"log-conflict".*)\n/);
  expect(log).not.toMatch(/secretia|hush|@nosy|password":|eyJ|127\.0\.0\.1|argon2/i);
  expect(log.split('\n').filter((line) => !line.startsWith('{"level"'))).toEqual([]);
});

test('the log has the operation of requests that were rejected before it ran', async () => {
  await anonymous.with({ 'X-Request-Id': 'log-nobody' }).get('/api/students', 401);
  expect(await linesOf('log-nobody')).toMatchObject([{ method: 'GET', operation: 'students_list', status: 401 }]);
  await anonymous.with({ 'X-Request-Id': 'log-malformed' }).send('POST', '/api/auth/login', { body: '{' }, 400);
  expect(await linesOf('log-malformed')).toMatchObject([
    { method: 'POST', operation: 'auth_credentials', status: 400 },
  ]);
});
