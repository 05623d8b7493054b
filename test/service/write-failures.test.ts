import { expect, test } from '@jest/globals';
import { writeFailures } from '../../src/process/write-failures.ts';

test.each(['53100', '53200', '53400', '58030', '25006'])(
  'after the error %s, writes count as failing until one succeeds, at most for a minute',
  (sqlstate) => {
    let now = 1_000;
    const failures = writeFailures(() => now);
    expect(failures.areFailing()).toBe(false);
    failures.record(sqlstate);
    expect(failures.areFailing()).toBe(true);
    failures.record(undefined);
    expect(failures.areFailing()).toBe(false);
    failures.record(sqlstate);
    now += 59_999;
    expect(failures.areFailing()).toBe(true);
    now += 1;
    expect(failures.areFailing()).toBe(false);
  },
);

test.each(['53300', '23505', 'P0001', '40001', '57014', '08006'])(
  'the error %s does not tell that the database cannot write, and does not end a failure',
  (sqlstate) => {
    const failures = writeFailures(() => 0);
    failures.record(sqlstate);
    expect(failures.areFailing()).toBe(false);
    failures.record('53100');
    failures.record(sqlstate);
    expect(failures.areFailing()).toBe(true);
  },
);
