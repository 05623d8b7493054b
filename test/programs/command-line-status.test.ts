import pg from 'pg';
import { expect, test } from '@jest/globals';
import { runProgram, startProgram } from '../support/server/processes.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile();
const env = { DATABASE_URL: service.database.url };
const status = (...args: string[]) => runProgram('src/cli/main.ts', ['status', ...args], env);

test('school status counts schools by status and version, workers, jobs and connections, and names long transactions', async () => {
  const school = await service.school();
  const behind = await service.school();
  await service.database.query('update platform.tenant set schema_version = 1 where id = $1', [behind.id]);
  await service.operator.post(`/api/platform/tenants/${school.id}/suspend`, {}, 200);
  const { stdout, stderr, code } = await status('--json');
  expect({ stderr, code }).toEqual({ stderr: '', code: 0 });
  const found = JSON.parse(stdout) as {
    schools: { status: string; schema_version: number; schools: number }[];
    connections: { name: string }[];
  };
  expect(found).toMatchObject({
    server: { is_replica: false },
    workers: 1,
    queue: { worker: true },
    missing_grant: null,
    long_transactions: [],
    replicas: [],
  });
  expect(found.schools).toContainEqual({ status: 'active', schema_version: 1, schools: 1 });
  expect(found.schools.filter((each) => each.status === 'suspended')).toMatchObject([{ schools: 1 }]);
  expect(found.connections.map((each) => each.name)).toContain('school_worker');

  const text = await status();
  expect(text.stdout).toMatch(/^Workers +1$/m);
  expect(text.stdout).toMatch(/^active +1 \(behind\) +1$/m);
  expect(text.stdout).toMatch(/^school_worker +\d+ +\d+ +\d+ +\d+$/m);
  expect(text.stdout).toContain('No transaction has been open for more than 30 seconds.');
});

test('school status --watch prints a line of JSON again and again, with what has changed', async () => {
  const program = startProgram('src/cli/main.ts', ['status', '--watch', '--json', '--interval', '1'], env);
  await program.prints(/^\{.*\}\n/);
  const client = new pg.Client({ connectionString: service.database.url, application_name: 'newcomer' });
  await client.connect();
  await program.prints(/"name" ?: ?"newcomer"/);
  await client.end();
  program.kill('SIGTERM');
  expect((await program.ended).signal).toBe('SIGTERM');
});
