import { expect, test } from '@jest/globals';
import { runLedger } from './ledger.ts';

/** Without these the rules would not be put to the test. */
const until = [
  'POST /finance/student-fees/generate 200',
  'POST /finance/payments 201',
  'POST /finance/payments 409',
  'POST /fees/payments 201',
  'POST /finance/payments/:id/reverse 200',
];

// The short form; `npm run test:ledger` goes on for as long as it is told, with another seed each time.
test('clients who bill, pay, reverse, waive, void, promote and remove, over crashes of Postgres, leave a ledger in which everything adds up', async () => {
  const { answers, crashes } = await runLedger({ seed: 20_210_801, seconds: 1, until });
  expect(crashes).toBeGreaterThan(0);
  expect(Object.keys(answers)).toEqual(expect.arrayContaining(until));
}, 180_000);
