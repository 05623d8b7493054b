import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { scrape, value } from '../support/client/metrics.ts';
import { send } from '../support/client/wire.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const { pino, readConfig, startService } = shared;
const { service, school } = await serviceWithSchool();
const quiet = await service.school();

const folder = await mkdtemp(join(tmpdir(), 'school-load-'));
const log = join(folder, 'log');
const api = await startService(
  readConfig({
    PORT: '0',
    METRICS_PORT: '0',
    NODE_ENV: 'test',
    DATA_DIR: folder,
    BUSY_SCHOOL_CALLS_PER_MINUTE: '3',
    ...service.settings,
  }),
  service.database.url,
  ['api'],
  // A minute is as long as the test needs for its requests.
  { timing: { schoolLoadIntervalMs: 2_000 }, logStream: pino.destination({ dest: log, sync: true }) },
);
afterAll(async () => {
  await api.close();
  await rm(folder, { recursive: true, force: true });
});

test('the metrics name the busiest schools, and the log those above the limit', async () => {
  const get = (token: string) => send(api.url ?? '', { path: '/api/subjects', token });
  await get(quiet.admin.token);
  for (let n = 0; n < 10; n++) await get(school.admin.token);
  const samples = await until(async () => {
    const found = await scrape(api.metricsUrl ?? '');
    return (value(found, 'school_busiest_calls', { school: String(school.id) }) ?? 0) > 3 ? found : undefined;
  });
  expect(value(samples, 'school_busiest_seconds', { school: String(school.id) })).toBeGreaterThan(0);
  expect(value(samples, 'school_busiest_failures', { school: String(school.id) })).toBe(0);
  const lines = await until(async () => {
    const busy = (await readFile(log, 'utf8'))
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as { busy?: string; tenant?: number; calls?: number })
      .filter((line) => line.busy === 'school');
    return busy.length > 0 ? busy : undefined;
  });
  expect(lines[0]).toMatchObject({ level: 'info', tenant: school.id, database_ms: expect.any(Number), failures: 0 });
  expect(lines.map(({ tenant }) => tenant)).not.toContain(quiet.id);
});
