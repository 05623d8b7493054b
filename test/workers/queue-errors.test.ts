import { expect, test } from '@jest/globals';
import { asRepeatable } from '../../workers/queue-pool.ts';
import { classify } from '../../src/database/errors.ts';

const failure = (code: string | undefined, message = 'failed', severity?: string) =>
  Object.assign(new Error(message), code === undefined ? {} : { code }, severity ? { severity } : {});

test.each([
  ['a server that shuts down', failure('57P01', 'terminating connection', 'FATAL')],
  ['a server that refuses connections', failure('ECONNREFUSED')],
  ['a server that refuses the password', failure('28P01', 'password authentication failed', 'FATAL')],
  ['a connection that ends', failure(undefined, 'Connection terminated unexpectedly')],
  ['no free connection', failure(undefined, 'timeout exceeded when trying to connect')],
])('graphile-worker repeats its statement after %s', (_what, error) => {
  expect(asRepeatable(error)).toMatchObject({ code: '57P03', message: error.message });
});

test.each([
  ['a lost race, which graphile-worker repeats itself', failure('40001', 'could not serialize', 'ERROR')],
  ['a deadlock, which graphile-worker repeats itself', failure('40P01', 'deadlock detected', 'ERROR')],
  ['an error of the statement', failure('42P01', 'relation "x" does not exist', 'ERROR')],
  ['an error of the program', failure('ERR_INVALID_ARG_TYPE', 'The argument must be a string.')],
  ['an error without a code', failure(undefined, 'x is not a function')],
])('%s keeps its code', (_what, error) => {
  const { code } = error as { code?: string };
  expect((asRepeatable(error) as { code?: string }).code).toBe(code);
});

test('a connection is kept after an error that quotes what a client sent', () => {
  const quoting = failure('22P02', 'invalid input syntax for type integer: "cache lookup failed"', 'ERROR');
  expect(classify(quoting)).toMatchObject({ isRetryable: false, isConnectionUsable: true });
  const replaced = failure('XX000', 'could not open relation with OID 4711', 'ERROR');
  expect(classify(replaced)).toMatchObject({
    isRetryable: true,
    isConnectionUsable: false,
    apiError: { error: 'unavailable' },
  });
});
