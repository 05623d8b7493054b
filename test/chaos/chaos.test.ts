import { expect, test } from '@jest/globals';
import type { FaultName } from './cluster.ts';
import { runChaos } from './run.ts';

/** A run without these requests would not test the invariants. */
const until = [
  'POST /finance/student-fees/generate 200',
  'POST /finance/payments 201',
  'POST /finance/payments 409',
  'POST /fees/payments 201',
  'POST /finance/payments/:id/reverse 200',
  'POST /students/import 201',
  'POST /timetable/slots 201',
  'POST /transport/enroll 201',
];
const faults: FaultName[] = ['kill an API', 'kill a worker', 'crash Postgres', 'break connections to Postgres'];

// The short form; `npm run test:chaos` runs for a given time with all faults, with a new seed each time.
test('every acknowledged change is stored once while API processes, workers and Postgres are killed', async () => {
  const report = await runChaos({ seed: 20_210_801, seconds: 1, until, faults, clients: 5 });
  expect(Object.keys(report.faults).sort()).toEqual([...faults].sort());
  expect(Object.keys(report.answers)).toEqual(expect.arrayContaining(until));
}, 300_000);
