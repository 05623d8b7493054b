import { expect, test } from '@jest/globals';
import { runLedger } from './ledger.ts';

/** A run without these steps would not test the invariants. */
const until = [
  'POST /finance/student-fees/generate 200',
  'POST /finance/payments 201',
  'POST /finance/payments 409',
  'POST /fees/payments 201',
  'POST /finance/payments/:id/reverse 200',
];

// The short form; `npm run test:ledger` runs for a given time, with a new seed each time.
test('the ledger stays consistent under concurrent billing, payments, reversals and promotions, and crashes of Postgres', async () => {
  const { answers, crashes } = await runLedger({ seed: 20_210_801, seconds: 1, until });
  expect(crashes).toBeGreaterThan(0);
  expect(Object.keys(answers)).toEqual(expect.arrayContaining(until));
}, 180_000);
