import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { testDatabase } from '../support/server/database.ts';

const { readConfig, startService } = shared;

test.each([
  ['the job queue does not exist', 'drop schema graphile_worker cascade', 'permission denied for database'],
  [
    'the worker may not take its locks',
    'revoke execute on function pg_advisory_lock_shared(integer, integer) from public',
    'permission denied for function pg_advisory_lock_shared',
  ],
])('a worker that cannot start, because %s, closes all of its connections', async (_reason, change, message) => {
  const database = await testDatabase(3);
  const folder = await mkdtemp(join(tmpdir(), 'school-failed-start-'));
  try {
    await database.query(change);
    const config = readConfig({ NODE_ENV: 'test', DATA_DIR: folder, LOG_LEVEL: 'silent' });
    await expect(startService(config, database.url, ['worker'])).rejects.toThrow(message);
  } finally {
    // Fails while a connection is open.
    await database.drop();
    await rm(folder, { recursive: true, force: true });
  }
});
