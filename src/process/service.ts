import { EventEmitter } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import type { WorkerEvents } from 'graphile-worker';
import { pino, type Logger } from 'pino';
import type { Worker } from '../../workers/worker.ts';
import { analyticsProcess } from '../analytics/process.ts';
import { createApp } from './app.ts';
import { type Passwords, passwords } from '../domain/passwords.ts';
import type { Operation } from '../http/operation.ts';
import type { Readiness } from '../http/services.ts';
import { openStreams } from '../http/streams.ts';
import { pictureAddresses } from '../http/picture-addresses.ts';
import { tokens } from '../http/tokens.ts';
import type { Config } from './config.ts';
import { exportsFolder } from '../database/archive.ts';
import { dispatcher } from '../database/call.ts';
import { fingerprint } from '../database/install.ts';
import { apiPool, rolePool } from '../database/pool.ts';
import type { SchoolPool } from '../database/school-pool.ts';
import { listen } from './listen.ts';
import { type Metrics, openMetrics } from './metrics.ts';

/** The parts of the service that one process may run. */
export type Part = 'api' | 'worker';

/** A running service. */
export interface Service {
  /** The base URL of the API; undefined when only the worker runs. */
  url: string | undefined;
  /** The URL of the metrics; undefined when they are off. */
  metricsUrl: string | undefined;
  /** Finishes requests and jobs in progress, then stops. */
  close(): Promise<void>;
}

/**
 * Longer than proxies and clients keep idle connections, so that the server does not close one that is about to be
 * used.
 */
const keepAliveMs = 65_000;

/** How long a stopping service waits for the requests in progress. */
const closeTimeoutMs = 10_000;

async function readiness(pool: Pick<SchoolPool, 'query'>, expected: string): Promise<Readiness> {
  try {
    const { rows } = await pool.query<{ ready: { fingerprint: string; tenants_behind: number; worker: boolean } }>(
      'select core.readiness() as ready',
    );
    const state = rows[0]?.ready;
    return {
      database: true,
      migrations: state?.fingerprint === expected,
      worker: state?.worker ?? false,
      tenants_behind: state?.tenants_behind ?? null,
    };
  } catch {
    return { database: false, migrations: false, worker: false, tenants_behind: null };
  }
}

async function startApi(
  config: Config,
  ownerUrl: string,
  logger: Logger,
  hashing: Passwords,
  onListen: (url: string) => void,
  metrics: Metrics | undefined,
): Promise<Pick<Service, 'url' | 'close'>> {
  const pool = apiPool(ownerUrl, config.API_DATABASE_URL, config.DATABASE_POOL_SIZE, config.DATABASE_CONNECTION_MB);
  const listenUrl = config.LISTEN_DATABASE_URL ?? config.API_DATABASE_URL;
  const streams = openStreams({
    pool,
    heartbeatMs: config.STREAM_HEARTBEAT_MS,
    logger,
    listenUrl: listenUrl ?? ownerUrl,
    listenRole: listenUrl === undefined ? 'school_api' : undefined,
  });
  const analytics = analyticsProcess({
    url: config.ANALYTICS_DATABASE_URL ?? ownerUrl,
    isOwnLogIn: config.ANALYTICS_DATABASE_URL !== undefined,
    connections: config.ANALYTICS_CONNECTIONS,
    timeouts: {
      statementTimeoutMs: config.ANALYTICS_STATEMENT_TIMEOUT_MS,
      requestTimeoutMs: config.ANALYTICS_REQUEST_TIMEOUT_MS,
    },
    logger,
  });
  metrics?.watchPool('api', pool);
  metrics?.watchSchoolPool(pool);
  metrics?.watchStreams(() => streams.count());
  const server = createServer({ keepAliveTimeout: keepAliveMs });
  try {
    // Until the app is ready, requests get 503.
    let handle: (req: IncomingMessage, res: ServerResponse) => void = (_req, res) => {
      res.writeHead(503, { 'Retry-After': '1', 'Content-Type': 'application/json' });
      res.end(JSON.stringify({ success: false, error: 'unavailable', message: 'The service is starting.' }));
    };
    server.on('request', (req, res) => handle(req, res));
    const url = await listen(
      server,
      config.HOST,
      config.PORT === undefined ? [...Array(20).keys()].map((n) => 3000 + n) : [config.PORT],
      'PORT',
    );
    onListen(url);
    const services = {
      config: { ...config, PUBLIC_URL: config.PUBLIC_URL ?? url },
      call: dispatcher(pool),
      tokens: tokens(config.jwtSecrets),
      pictures: pictureAddresses(config.jwtSecrets),
      passwords: hashing,
      streams,
      analytics,
      logger,
      observeRequest: metrics?.observeRequest,
      readiness: await fingerprint().then((expected) => () => readiness(pool, expected)),
    };
    const { rows } = await pool.query<Operation>('select * from core.operation').catch((cause: unknown) => {
      throw new Error('The database cannot be used. Check that it exists and is migrated (npm run migrate).', {
        cause,
      });
    });
    handle = createApp(services, rows);
    return {
      url,
      async close() {
        // Streams never finish by themselves.
        await streams.close();
        const closed = new Promise((done) => server.close(done));
        server.closeIdleConnections();
        const forceClose = setTimeout(() => server.closeAllConnections(), closeTimeoutMs);
        await closed;
        clearTimeout(forceClose);
        await analytics.close();
        await pool.end();
      },
    };
  } catch (error) {
    server.close();
    await pool.end();
    throw error;
  }
}

/** Serves metrics when METRICS_PORT is set, with a database role of one of the parts that this process runs. */
async function startMetrics(
  config: Config,
  ownerUrl: string,
  parts: readonly Part[],
  logger: Logger,
): Promise<Metrics | undefined> {
  if (config.METRICS_PORT === undefined) return undefined;
  const pool = parts.includes('api')
    ? rolePool('school_api', ownerUrl, config.API_DATABASE_URL, 1)
    : rolePool('school_worker', ownerUrl, config.WORKER_DATABASE_URL, 1);
  return openMetrics({ host: config.METRICS_HOST, port: config.METRICS_PORT, pool, logger });
}

/** Starts the worker with its own connection pool. */
async function startJobWorker(
  config: Config,
  ownerUrl: string,
  publicUrl: string,
  logger: Logger,
  metrics: Metrics | undefined,
): Promise<Pick<Worker, 'stop'>> {
  // Imported here to save memory in processes that run only the API.
  const [{ emailSender }, { push }, { startWorker }] = await Promise.all([
    import('../../workers/email.ts'),
    import('../../workers/push.ts'),
    import('../../workers/worker.ts'),
  ]);
  const pool = rolePool('school_worker', ownerUrl, config.WORKER_DATABASE_URL, config.WORKER_CONCURRENCY + 4);
  const sendEmail = emailSender({
    smtpUrl: config.SMTP_URL,
    from: config.EMAIL_FROM,
    outbox: join(config.DATA_DIR, 'outbox'),
  });
  const links = { publicUrl, passwordPageUrl: config.PASSWORD_PAGE_URL, appUrl: config.APP_URL };
  const retention = { exports: exportsFolder(config), days: config.TENANT_RETENTION_DAYS };
  const pushSender = push(config);
  const events: WorkerEvents = new EventEmitter();
  metrics?.watchPool('worker', pool);
  metrics?.watchJobs(events);
  const closeConnections = async () => {
    pushSender.close();
    await pool.end();
  };
  try {
    const worker = await startWorker(
      { pool, sendEmail, push: pushSender, logger, links, retention },
      config.WORKER_CONCURRENCY,
      { events, crashCheckMs: config.WORKER_CRASH_CHECK_MS },
    );
    return {
      async stop() {
        await worker.stop();
        await closeConnections();
      },
    };
  } catch (error) {
    await closeConnections();
    throw error;
  }
}

/**
 * Starts the API, the worker, or both on a migrated database.
 * @param ownerUrl  the database URL for the restricted roles, unless the settings have separate URLs for them
 */
export async function startService(
  config: Config,
  ownerUrl: string,
  parts: readonly Part[] = ['api', 'worker'],
  hashing: Passwords = passwords(),
): Promise<Service> {
  // Buffered: one system call per line would cost as much as a third of a request.
  const logStream = pino.destination({ dest: 1, sync: false, minLength: 4096, periodicFlush: 500 });
  const logger = pino(
    {
      level: config.LOG_LEVEL,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (level) => ({ level }) },
    },
    logStream,
  );
  let publicUrl = config.PUBLIC_URL ?? `http://${config.HOST}:${String(config.PORT ?? 3000)}`;
  const stopParts: (() => Promise<void>)[] = [];
  let metrics: Metrics | undefined;
  const close = async () => {
    await Promise.all(stopParts.splice(0).map((stop) => stop()));
    // Metrics stop last, so that the shutdown can be observed.
    await metrics?.close();
    logStream.flushSync();
  };
  try {
    metrics = await startMetrics(config, ownerUrl, parts, logger);
    let url: string | undefined;
    if (parts.includes('api')) {
      const onListen = (listeningUrl: string) => {
        publicUrl = config.PUBLIC_URL ?? listeningUrl;
      };
      const api = await startApi(config, ownerUrl, logger, hashing, onListen, metrics);
      stopParts.push(() => api.close());
      url = api.url;
    }
    if (parts.includes('worker')) {
      const worker = await startJobWorker(config, ownerUrl, publicUrl, logger, metrics);
      stopParts.push(() => worker.stop());
    }
    return { url, metricsUrl: metrics?.url, close };
  } catch (error) {
    await close();
    throw error;
  }
}
