import { join } from 'node:path';
import type { GlobalConfig } from 'jest';
import { scratchSettings, startEmbedded } from '../../../src/database/embedded.ts';
import { warnWithoutBrowser } from './browsers.ts';
import { prepareBuilds } from './builds.ts';
import { startPooler } from './pooler.ts';
import { prepareClusters } from './prepared-cluster.ts';
import { type Run, startRun } from './run.ts';

declare global {
  var testRun: Run | undefined;
}

/**
 * The counts of template schools in the databases that test files clone. On a disk, copying a school costs half as
 * much as creating it: only as many as nearly every file needs. A run of a few files has fewer, which are created faster,
 * except in CI, where all runs share what the first has created.
 */
const templateSchools = (isInMemory: boolean, isWholeRun: boolean) =>
  isInMemory ? [3, 8, 20, ...(isWholeRun ? [45] : [])] : [2];

/** Starting a parallel worker takes longer than any query of the tests. */
const settings = [...scratchSettings, 'max_parallel_workers_per_gather=0'];
/** If there is memory: the databases of several files at once, so that their pages are neither written nor read again. */
const inMemory = ['shared_buffers=1GB'];

/**
 * Starts one Postgres server for the whole run, with the databases that test files clone: `template_school` is
 * migrated; the others also have the tables of the first schools (see template-schools.ts). Also keeps a copy of a
 * server's files with only the migrated database, for tests that need a server of their own.
 */
export default async function setup({ nonFlagArgs }: GlobalConfig): Promise<void> {
  prepareBuilds();
  warnWithoutBrowser();
  const run = await startRun();
  globalThis.testRun = run;
  const { folder, memoryFolder } = run;
  const dataDir = memoryFolder ?? folder;
  const isWholeRun = nonFlagArgs.length === 0 || process.env['CI'] !== undefined;
  const counts = templateSchools(memoryFolder !== undefined, isWholeRun);
  await prepareClusters(dataDir, counts);
  process.env['TEST_TEMPLATE_SCHOOLS'] = JSON.stringify(counts);
  const server = await startEmbedded(dataDir, memoryFolder === undefined ? settings : [...settings, ...inMemory]);
  process.env['TEST_SERVER_URL'] = server.url('DATABASE');
  const pooler = process.env['TEST_PGBOUNCER'];
  if (pooler) await startPooler(pooler, server);
  process.env['TEST_CLUSTER'] = join(dataDir, 'migrated');
  // file_copy first writes the changes of all databases to the disk, which is cheap only in memory.
  process.env['TEST_CLONE_STRATEGY'] = memoryFolder === undefined ? 'wal_log' : 'file_copy';
  // Child processes and threads share their compiled modules.
  process.env['TEST_COMPILE_CACHE'] = join(folder, 'compiled');
}
