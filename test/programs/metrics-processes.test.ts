import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { type Sample, scrape, value } from '../support/client/metrics.ts';
import { testDatabase } from '../support/server/database.ts';
import { ready, runProgram, startProgram } from '../support/server/processes.ts';

const database = await testDatabase();
const dataDir = await mkdtemp(join(tmpdir(), 'school-metrics-'));
afterAll(async () => {
  await database.drop();
  await rm(dataDir, { recursive: true, force: true });
});

test('the API and the worker serve separate metrics; a port in use is reported in one line', async () => {
  const env = {
    DATABASE_URL: database.url,
    DATA_DIR: dataDir,
    DEMO: 'false',
    PORT: '0',
    METRICS_PORT: '0',
    LOG_LEVEL: 'silent',
  };
  const api = startProgram('src/main.ts', ['--only', 'api'], env);
  const worker = startProgram('src/main.ts', ['--only', 'worker'], env);
  try {
    const [ofApi = [], ofWorker = []] = await Promise.all(
      [api, worker].map(async (program) => scrape((await ready(program)).metrics ?? '')),
    );
    const pools = (samples: Sample[]) =>
      samples.flatMap(({ name, labels }) => (name === 'school_database_connections_max' ? [labels['pool']] : []));
    expect([pools(ofApi), pools(ofWorker)]).toEqual([['api'], ['worker']]);
    expect([value(ofApi, 'school_database_up'), value(ofWorker, 'school_database_up')]).toEqual([1, 1]);
    expect([value(ofApi, 'school_streams_open'), value(ofWorker, 'school_streams_open')]).toEqual([0, undefined]);
    const occupant = createServer();
    await new Promise<void>((done) => void occupant.listen(0, '127.0.0.1', done));
    const address = occupant.address();
    const port = String(typeof address === 'object' && address ? address.port : 0);
    const refused = await runProgram('src/main.ts', ['--only', 'worker'], { ...env, METRICS_PORT: port });
    await new Promise((done) => occupant.close(done));
    expect(refused).toMatchObject({
      code: 1,
      stdout: '',
      stderr: `Port ${port} is in use. Set METRICS_PORT to another port.\n`,
    });
    for (const program of [api, worker]) program.kill('SIGTERM');
    expect([await api.ended, await worker.ended]).toMatchObject([
      { code: 0, stderr: '' },
      { code: 0, stderr: '' },
    ]);
  } finally {
    for (const program of [api, worker]) program.kill('SIGKILL');
    await Promise.all([api.ended, worker.ended]);
  }
});
