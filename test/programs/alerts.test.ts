import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({ METRICS_PORT: '0' });
const read = (path: string) => readFile(join(import.meta.dirname, '../..', path), 'utf8');
const alerts = await read('packaging/prometheus/alerts.yml');

test('every metric in the alert rules and on the dashboard is on the metrics page', async () => {
  await school.admin.get('/api/students');
  const page = await (await fetch(service.metricsUrl ?? '')).text();
  const served = new Set([...page.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name));
  const used = `${alerts}${await read('packaging/grafana/dashboard.json')}`.matchAll(
    /\b(?:school|http|process|nodejs)_\w+/g,
  );
  const unknown = [...used]
    .map(([name]) => name)
    .filter((name) => !served.has(name) && !served.has(name.replace(/_(bucket|sum|count)$/, '')));
  expect([...new Set(unknown)]).toEqual([]);
});

test.each(['school_job_oldest_due_seconds', 'school_jobs_repeated'])(
  'an alert about %s of messages counts the events whose notifications are not written',
  (metric) => {
    const tasks = [...alerts.matchAll(new RegExp(`${metric}\\{task=~?"([^"]+)"\\}`, 'g'))];
    expect(tasks.flatMap(([, names]) => names?.split('|'))).toEqual(expect.arrayContaining(['outbox', 'send_email']));
  },
);

test('the programs of the package start the command line', async () => {
  const { stdout } = await promisify(execFile)(join(import.meta.dirname, '../../bin/school.js'), ['--help']);
  expect(stdout).toContain('Administer the school management service.');
});
