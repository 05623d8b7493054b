import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { addNode } from '../../src/servers/nodes/join.ts';
import { until } from '../support/client/until.ts';
import { type Program, ready, startProgram } from '../support/server/processes.ts';
import {
  createServer,
  removeServer,
  servers,
  serverUrl,
  signalServer,
  startServer,
  stopServer,
  type TestServer,
} from './servers.ts';

const { home, homeServer } = servers();
const { withOwner } = shared;
const dataDir = await mkdtemp(join(tmpdir(), 'school-workers-'));
afterAll(() => rm(dataDir, { recursive: true, force: true }));

const command = (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home }).ended;

/** Adds a node with a new database on a server. @returns its URL */
async function addNodeOn(server: TestServer, name: string): Promise<string> {
  await withOwner(serverUrl(server, 'postgres'), (client) => client.query(`create database ${name}`));
  const url = serverUrl(server, name);
  await withOwner(home, (client) => addNode(client, { name, url, homeUrl: home, onStep: () => undefined }));
  return url;
}

const workersOn = (url: string) =>
  withOwner(url, async (client) => {
    const { rows } = await client.query<{ workers: number }>(
      "select (core.status(false) ->> 'workers')::integer as workers",
    );
    return rows[0]?.workers ?? 0;
  });

const startWorker = (names: string) =>
  startProgram('src/main.ts', ['--only', 'worker'], {
    DATABASE_URL: home,
    DATA_DIR: dataDir,
    MIGRATE_ON_START: 'false',
    DEMO: 'false',
    WORKER_CONCURRENCY: '1',
    WORKER_NODES: names,
  });

async function stop(worker: Program): Promise<void> {
  worker.kill('SIGTERM');
  await until(() => worker.hasEnded || undefined);
  expect(await worker.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('Stopped.') });
}

test('a worker whose node was lost and removed serves a node that is added later, and stops', async () => {
  const server = await createServer();
  let worker: Program | undefined;
  try {
    const url = await addNodeOn(server, 'south');
    worker = startWorker('home,south,late');
    await until(async () => (await workersOn(url)) === 1 || undefined);
    await stopServer(server);
    expect(await command('node', 'remove', 'south', '--lost')).toMatchObject({ code: 0, stderr: '' });
    const late = await addNodeOn(homeServer, 'late');
    await until(async () => (await workersOn(late)) === 1 || undefined);
    await stop(worker);
    // The lines of its attempts to connect.
    expect(worker.output()).toMatch(/"node":"south".*"worker":"/);
  } finally {
    worker?.kill('SIGKILL');
    await command('node', 'remove', 'late');
    await removeServer(server);
  }
});

type Change = (server: TestServer) => Promise<void> | void;
const outages: [string, Change, Change][] = [
  ['down', stopServer, startServer],
  ['silent', (server) => signalServer(server, 'SIGSTOP'), (server) => signalServer(server, 'SIGCONT')],
];

describe.each(outages)('a worker stops', (name, begin, end) => {
  async function stopDuringOutage(worker: Program, server: TestServer): Promise<void> {
    await begin(server);
    try {
      // After these it waits before it looks for jobs again.
      if (name === 'down') await worker.prints(/(Error with notify listener[^]*){5}/);
      await stop(worker);
    } finally {
      worker.kill('SIGKILL');
      await end(server);
    }
  }

  test(`while the home is ${name}`, async () => {
    const worker = startWorker('home,nowhere');
    await ready(worker);
    await stopDuringOutage(worker, homeServer);
  });

  test(`while its node is ${name}`, async () => {
    const server = await createServer();
    let worker: Program | undefined;
    try {
      const url = await addNodeOn(server, name);
      worker = startWorker(name);
      await until(async () => (await workersOn(url)) === 1 || undefined);
      await stopDuringOutage(worker, server);
    } finally {
      worker?.kill('SIGKILL');
      await removeServer(server);
      await command('node', 'remove', name, '--lost');
    }
  });
});
