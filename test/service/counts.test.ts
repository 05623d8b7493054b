import { expect, test } from '@jest/globals';
import type pg from 'pg';
import { operationTimes, schoolRequests } from '../../src/database/counts.ts';
import type { SchoolPool } from '../../src/database/pool/school-pool.ts';
import { until } from '../support/client/until.ts';

/** A database that stores figures, or fails, and the warnings about it. */
function figures() {
  const stored: unknown[][] = [];
  const warnings: object[] = [];
  const database = { isDown: false };
  const query = (statement: string | pg.QueryConfig) => {
    if (database.isDown) return Promise.reject(new Error('down'));
    stored.push((statement as pg.QueryConfig).values ?? []);
    return Promise.resolve({ rows: [] });
  };
  return {
    stored,
    warnings,
    database,
    pool: { query } as unknown as Pick<SchoolPool, 'query'>,
    logger: { warn: (warning: object) => void warnings.push(warning) },
  };
}

test('requests that could not be stored are added to the next ones', async () => {
  const { pool, logger, stored, warnings, database } = figures();
  database.isDown = true;
  const requests = schoolRequests(pool, { intervalMs: 10, logger });
  requests.add(1, 2);
  await until(() => warnings.length > 0 || undefined);
  requests.add(1, 3);
  requests.add(2, 1);
  database.isDown = false;
  await requests.close();
  expect(stored).toEqual([
    [
      [1, 2],
      [5, 1],
    ],
  ]);
  expect(warnings[0]).toMatchObject({
    message: 'Figures could not be stored.',
    statement: 'core.record_requests($1, $2)',
  });
});

test('closing stores the last figures, with the longest call of each operation', async () => {
  const { pool, logger, stored } = figures();
  const times = operationTimes(pool, { intervalMs: 60_000, logger });
  for (const milliseconds of [9.4, 3, 5.2])
    times.add('students_list', { calls: 1, total: milliseconds, max: milliseconds });
  times.add('students_get', { calls: 1, total: 1, max: 1 });
  await times.close();
  expect(stored).toEqual([
    [
      ['students_list', 'students_get'],
      [3, 1],
      [18, 1],
      [9, 1],
    ],
  ]);
});
