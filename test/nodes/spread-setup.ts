import type { GlobalConfig } from 'jest';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { withoutSchedule } from '../support/server/database.ts';
import { startRun } from '../support/server/run.ts';
import { spreadTemplate } from '../support/server/spread.ts';
import { createServer, serverUrl } from './servers.ts';

/** A home and two nodes. */
const serversPerWorker = 3;

/** Starts the servers of each Jest worker, with a migrated database that each test file clones. */
export default async function setup({ maxWorkers }: Pick<GlobalConfig, 'maxWorkers'>): Promise<void> {
  globalThis.testRun = await startRun();
  const servers = await Promise.all(Array.from({ length: maxWorkers * serversPerWorker }, createServer));
  await Promise.all(
    servers.map(async (server) => {
      await withOwner(serverUrl(server, 'postgres'), (client) => client.query(`create database ${spreadTemplate}`));
      await migrate({ ownerUrl: serverUrl(server, spreadTemplate) });
      await withOwner(serverUrl(server, spreadTemplate), (client) => client.query(withoutSchedule));
    }),
  );
  const groups = Array.from({ length: maxWorkers }, (_, worker) =>
    servers.slice(worker * serversPerWorker, (worker + 1) * serversPerWorker),
  );
  process.env['TEST_SPREAD'] = JSON.stringify(groups);
}
