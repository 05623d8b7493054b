import { readFile } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { schoolLoad } from '../../src/process/school-load.ts';
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

test('the twenty schools with the most time in the database are counted, the busiest first, of the last time only', async () => {
  const lines: object[] = [];
  const load = schoolLoad({ intervalMs: 50, logFrom: 2, logger: { info: (line: object) => lines.push(line) } });
  try {
    // The first of 1,000 schools has called most often, and the last one has taken the most time.
    for (let tenant = 1; tenant <= 1_000; tenant++) load.add(tenant, tenant, tenant === 1_000);
    for (let n = 0; n < 5; n++) load.add(1, 0.1, false);
    load.add(1_000, 0.4, false);
    const busiest = await until(() => (load.busiest().length > 0 ? load.busiest() : undefined));
    expect(busiest.map(([tenant]) => tenant)).toEqual(Array.from({ length: 20 }, (_, n) => 1_000 - n));
    expect(busiest[0]).toEqual([1_000, { calls: 2, ms: 1_000.4, failures: 1 }]);
    expect(lines).toEqual([{ busy: 'school', tenant: 1_000, calls: 2, database_ms: 1_000, failures: 1 }]);
    await until(() => load.busiest().length === 0 || undefined);
  } finally {
    load.close();
  }
});

test('without a limit there is no line in the log', async () => {
  const lines: object[] = [];
  const load = schoolLoad({ intervalMs: 50, logFrom: 0, logger: { info: (line: object) => lines.push(line) } });
  try {
    load.add(1, 1, false);
    await until(() => load.busiest().length > 0 || undefined);
    expect(lines).toEqual([]);
  } finally {
    load.close();
  }
});
