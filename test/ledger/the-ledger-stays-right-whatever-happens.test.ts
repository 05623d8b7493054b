import { expect, test } from '@jest/globals';
import { runLedger } from './ledger.ts';

// The short form; `npm run test:ledger` goes on for as long as it is told, with another seed each time.
test('clients who bill, pay, reverse, waive, void, promote and remove, over crashes of Postgres, leave a ledger in which everything adds up', async () => {
  const { answers, crashes } = await runLedger({ seed: 20_210_801, seconds: 5 });
  expect(crashes).toBeGreaterThan(0);
  // It has come to all of these, so that the rules were put to the test.
  for (const name of [
    '/finance/student-fees/generate 200',
    '/finance/payments 201',
    '/finance/payments 409',
    '/fees/payments 201',
    '/finance/payments/:id/reverse 200',
  ])
    expect(answers).toHaveProperty([`POST ${name}`]);
}, 180_000);
