import { spawn } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { end } from './child.ts';

/** The API as a child process. */
export interface ServiceChild {
  url: string;
  pid: number | undefined;
  /** From the start of the process to the first answer that it is ready. */
  startMs: number;
}

/** Finds a free port. */
function freePort(): Promise<number> {
  return new Promise((done, fail) => {
    const server = createServer();
    server.once('error', fail);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => done(port));
    });
  });
}

/** Starts a part of the service as in production. It logs to `folder`/`part`.log. */
async function startPart(
  part: 'api' | 'worker',
  folder: string,
  env: Record<string, string>,
  nodeOptions: string[] = [],
) {
  const log = createWriteStream(join(folder, `${part}.log`));
  await new Promise((done) => log.once('open', done));
  const child = spawn(
    process.execPath,
    ['--max-semi-space-size=8', ...nodeOptions, join(import.meta.dirname, '../src/main.ts'), '--only', part],
    {
      // Not in the process group of the terminal: this process forwards Ctrl-C.
      detached: true,
      stdio: ['ignore', log, 'inherit'],
      env: {
        PATH: process.env['PATH'],
        NODE_ENV: 'production',
        MIGRATE_ON_START: 'false',
        PUBLIC_URL: 'http://127.0.0.1',
        LOG_LEVEL: 'info',
        ...env,
      },
    },
  );
  const stop = async () => {
    await end(child);
    log.end();
  };
  return { child, stop };
}

/**
 * Starts a worker that writes emails to files.
 * @param onStop  receives a function that stops it
 */
export async function startWorker(
  databaseUrl: string,
  secret: string,
  folder: string,
  onStop: (stop: () => Promise<void>) => void,
): Promise<number | undefined> {
  const { child, stop } = await startPart('worker', folder, {
    DATABASE_URL: databaseUrl,
    DATA_DIR: join(folder, 'worker'),
    JWT_SECRETS: secret,
  });
  onStop(stop);
  return child.pid;
}

/**
 * Starts `node src/main.ts --only api` as in production, without rate limits. It logs to `folder`/api.log.
 * @param onStop  receives a function that stops it, before it is ready
 * @param nodeOptions  options for Node, for example `--cpu-prof`
 * @param hasMetrics  whether it counts requests for Prometheus
 * @param settings  additional environment variables of the service
 */
export async function startApi(
  databaseUrl: string,
  secret: string,
  poolSize: number,
  folder: string,
  onStop: (stop: () => Promise<void>) => void,
  nodeOptions: string[] = [],
  hasMetrics = false,
  settings: Record<string, string> = {},
): Promise<ServiceChild> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const start = performance.now();
  const { child, stop } = await startPart(
    'api',
    folder,
    {
      DATABASE_URL: databaseUrl,
      DATABASE_POOL_SIZE: String(poolSize),
      PORT: String(port),
      PUBLIC_URL: url,
      JWT_SECRETS: secret,
      RATE_LIMIT_PER_MINUTE: '0',
      USER_RATE_LIMIT_PER_MINUTE: '0',
      SCHOOL_RATE_LIMIT_PER_MINUTE: '0',
      PUBLIC_RATE_LIMIT_PER_MINUTE: '0',
      // Any free port: nobody reads the metrics, only their cost matters.
      ...(hasMetrics ? { METRICS_PORT: '0' } : {}),
      ...settings,
    },
    nodeOptions,
  );
  onStop(stop);
  for (let attempt = 0; ; attempt++) {
    const response = await fetch(`${url}/api/health/ready`, { signal: AbortSignal.timeout(500) }).catch(
      () => undefined,
    );
    await response?.arrayBuffer();
    if (response?.ok) break;
    if (child.exitCode !== null || attempt === 1000)
      throw new Error(`The service did not start, see ${join(folder, 'api.log')}.`);
    await new Promise((done) => setTimeout(done, 10));
  }
  return { url, pid: child.pid, startMs: performance.now() - start };
}
