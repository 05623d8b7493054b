import { readFile } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { scrape, value } from '../support/client/metrics.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

// A minute is as long as the test needs for its requests.
const { service, school } = await serviceWithSchool(
  { METRICS_PORT: '0', BUSY_SCHOOL_CALLS_PER_MINUTE: '8', LOG_LEVEL: 'info' },
  undefined,
  { schoolLoadIntervalMs: 2_000 },
);
const quiet = await service.school();

test('the metrics name the busiest schools, and the log those above the limit', async () => {
  await quiet.admin.get('/api/subjects');
  const samples = await until(async () => {
    // They may fall into two of the times that are counted.
    for (let n = 0; n < 10; n++) await school.admin.get('/api/subjects');
    const found = await scrape(service.metricsUrl ?? '');
    return (value(found, 'school_busiest_calls', { school: String(school.id) }) ?? 0) >= 8 ? found : undefined;
  });
  expect(value(samples, 'school_busiest_seconds', { school: String(school.id) })).toBeGreaterThan(0);
  expect(value(samples, 'school_busiest_failures', { school: String(school.id) })).toBe(0);
  const lines = await until(async () => {
    const busy = (await readFile(serviceLog, 'utf8'))
      .split('\n')
      .filter((line) => line.includes('"busy":"school"'))
      .map((line) => JSON.parse(line) as { tenant?: number; calls?: number })
      .filter(({ tenant }) => tenant === school.id || tenant === quiet.id);
    return busy.length > 0 ? busy : undefined;
  });
  expect(lines[0]).toMatchObject({ level: 'info', tenant: school.id, database_ms: expect.any(Number), failures: 0 });
  expect(lines.map(({ tenant }) => tenant)).not.toContain(quiet.id);
});
