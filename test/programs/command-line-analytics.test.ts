import { afterAll, expect, test } from '@jest/globals';
import { provision } from '../support/database/tenants.ts';
import { testDatabase } from '../support/server/database.ts';
import { runProgram } from '../support/server/processes.ts';

const database = await testDatabase(2);
afterAll(() => database.drop());

test('an operator refreshes one school, or all', async () => {
  const { id } = await provision(database);
  const other = await provision(database);
  const refresh = (...args: string[]) =>
    runProgram('src/cli/main.ts', ['analytics', 'refresh', ...args], { DATABASE_URL: database.url });
  const [{ subdomain } = { subdomain: '' }] = await database.query<{ subdomain: string }>(
    'select subdomain from platform.tenant where id = $1',
    [id],
  );
  const isRefreshed = async () =>
    (
      await database.query<{ is_refreshed: boolean }>(
        `select refreshed_at is not null as is_refreshed from platform.tenant t left join mart.school s on s.tenant_id = t.id
         order by t.id`,
      )
    ).map(({ is_refreshed }) => is_refreshed);
  const one = await refresh('--tenant', subdomain);
  expect(one).toMatchObject({ code: 0, stderr: '' });
  expect(one.stdout).toMatch(
    new RegExp(`^\\[1/1\\] school ${String(id)} \\(${subdomain}\\): \\d+ rows changed in \\d+ ms\\n$`),
  );
  expect(await isRefreshed()).toEqual([true, false]);
  const lines = (await refresh()).stdout.trim().split('\n');
  expect(lines).toEqual([
    expect.stringContaining(`school ${String(id)} `),
    expect.stringContaining(`school ${String(other.id)} `),
  ]);
  expect(await isRefreshed()).toEqual([true, true]);
  expect(await refresh('--tenant', 'nowhere')).toMatchObject({
    code: 1,
    stderr: 'No school has the id or subdomain nowhere.\n',
  });
});
