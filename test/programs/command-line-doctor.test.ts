import { expect, test } from '@jest/globals';
import { serviceWithSchool } from '../support/server/service.ts';
import { runProgram } from '../support/server/processes.ts';

const { service, school } = await serviceWithSchool();
const doctor = (...args: string[]) =>
  runProgram('src/cli/main.ts', ['doctor', ...args], { DATABASE_URL: service.database.url });

test('school doctor reports a school with consistent data, and ends with 0', async () => {
  await school.admin.post('/api/students', { first_name: 'Ada', last_name: 'Byron' }, 201);
  expect(await doctor('--tenant', school.subdomain)).toMatchObject({
    stdout: `school ${String(school.id)} (${school.subdomain}): consistent\n`,
    stderr: '',
    code: 0,
  });
});

test('school doctor names the violated rule with an example, and ends with 1; other schools are consistent', async () => {
  const other = await service.school();
  await service.database.query(`update ${school.schema}.school_usage set students = students + 1`);
  const text = await doctor();
  expect(text.code).toBe(1);
  expect(text.stdout).toContain(`school ${String(school.id)} (${school.subdomain}): violates 1 rule\n`);
  expect(text.stdout).toContain(
    'The stored numbers of students and teachers who have not left, and of classes, are right.',
  );
  expect(text.stdout).toContain(`school ${String(other.id)} (${other.subdomain}): consistent\n`);

  const { stdout } = await doctor('--json', '--tenant', String(school.id));
  expect(JSON.parse(stdout)).toMatchObject({
    tenant_id: school.id,
    violations: [{ invariant: 'usage_counts', violations: '1', examples: [{ stored: { students: 2 } }] }],
  });
});

test('school doctor refuses a school that does not exist', async () => {
  expect(await doctor('--tenant', 'nowhere')).toMatchObject({
    stderr: 'No school has the id or subdomain nowhere.\n',
    code: 1,
  });
});
