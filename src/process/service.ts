import { EventEmitter } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import type { WorkerEvents } from 'graphile-worker';
import { pino, type Logger } from 'pino';
import type { Worker } from '../../workers/worker.ts';
import { type Analytics, analyticsProcess, fairAnalytics } from '../analytics/process.ts';
import { type Passwords, passwords } from '../domain/passwords.ts';
import { openTracing, type Tracing } from '../domain/tracing.ts';
import type { Operation } from '../http/operation.ts';
import type { Readiness, Services } from '../http/services.ts';
import { fairPasswords } from '../http/credentials/fair-passwords.ts';
import { openStreams } from '../http/streams/streams.ts';
import { pictureAddresses } from '../http/credentials/picture-addresses.ts';
import { apiKeys } from '../http/credentials/api-keys.ts';
import { rateLimitWindowMs } from '../http/limits/limiter.ts';
import { requestOwner } from '../http/request-owner.ts';
import { secondFactors, type SecondFactors } from '../http/credentials/second-factors.ts';
import { signedTokens } from '../http/credentials/signed-tokens.ts';
import { tokens } from '../http/credentials/tokens.ts';
import type { Config } from './config.ts';
import { exportsFolder } from '../database/archive.ts';
import { anonymousCallers } from '../database/anonymous-callers.ts';
import { dispatcher } from '../database/call.ts';
import { fingerprint } from '../database/migrate/install.ts';
import { apiPool, rolePool } from '../database/pool/pool.ts';
import type { SchoolPool } from '../database/pool/school-pool.ts';
import { watchServers } from '../servers/server-watch.ts';
import { operationTimes, schoolRequests } from '../database/counts.ts';
import { gracefulClose } from './graceful-close.ts';
import { listen } from './listen.ts';
import { type Metrics, openMetrics } from './metrics.ts';
import { endsWhileAnswered, endsWithin } from './end-in-time.ts';
import { nodeWorkers } from './node-workers.ts';
import { observedCall } from './observed-call.ts';
import { defaultTiming, type Timing } from './timing.ts';

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

async function readiness(pool: Pick<SchoolPool, 'query'>, expected: string): Promise<Readiness> {
  try {
    const { rows } = await pool.query<{
      ready: { fingerprint: string; served_fingerprints?: string[]; tenants_behind: number; worker: boolean };
    }>('select core.readiness() as ready');
    const state = rows[0]?.ready;
    return {
      database: true,
      migrations: state?.fingerprint === expected || (state?.served_fingerprints?.includes(expected) ?? false),
      worker: state?.worker ?? false,
      tenants_behind: state?.tenants_behind ?? null,
    };
  } catch {
    return { database: false, migrations: false, worker: false, tenants_behind: null };
  }
}

/** How many secrets one statement encrypts again. */
const secretsPerBatch = 500;

/** Encrypts second factors with the first of JWT_SECRETS, so that the others can be removed. */
async function reencryptSecondFactors(pool: Pick<SchoolPool, 'query'>, factors: SecondFactors): Promise<void> {
  for (let last: string | undefined = ''; last !== undefined;) {
    const { rows }: { rows: { secret: string }[] } = await pool.query<{ secret: string }>(
      {
        text: 'select secret from core.second_factor_secrets($1, $2, $3) secret',
        values: [factors.keyId, last, secretsPerBatch],
      },
      { planKey: 'second_factor_secrets', school: 'platform', isVerified: true },
    );
    last = rows.at(-1)?.secret;
    const changes = rows.flatMap(({ secret }) => {
      const next = factors.reencrypt(secret);
      return next === undefined ? [] : [{ secret, next }];
    });
    // What no secret decrypts stays, for the case that its secret comes back.
    if (changes.length === 0) continue;
    await pool.query(
      {
        text: 'select core.second_factor_reencrypt($1, $2)',
        values: [changes.map(({ secret }) => secret), changes.map(({ next }) => next)],
      },
      { planKey: 'second_factor_reencrypt', school: 'platform', isVerified: true },
    );
  }
}

/** How often the service asks whether there are analysts. */
const analystsCheckMs = 5 * 60_000;
/** How long a worker that has stopped waits for the end of its connections: a server may be silent. */
const closeTimeoutMs = 5_000;

/** Keeps the analytics process running while there are analysts. @returns a function that ends the checks */
function keepReadyForAnalysts(pool: Pick<SchoolPool, 'query'>, analytics: Analytics, logger: Logger): () => void {
  let isStopped = false;
  const check = () =>
    pool.query<{ has_analysts: boolean }>('select core.has_analysts()').then(
      ({ rows }) => {
        // A process that is started after the service was closed would keep it from exiting.
        if (!isStopped) analytics.keepRunning(rows[0]?.has_analysts ?? false);
      },
      (error: unknown) => logger.warn({ message: 'The service could not look for analysts.', cause: String(error) }),
    );
  const timer = setInterval(() => void check(), analystsCheckMs).unref();
  void check();
  return () => {
    isStopped = true;
    clearInterval(timer);
  };
}

/** The analytics process of the API or the worker. It starts when it is needed. */
const startAnalytics = (config: Config, ownerUrl: string, logger: Logger): Analytics =>
  analyticsProcess({
    url: config.ANALYTICS_DATABASE_URL ?? ownerUrl,
    isOwnLogIn: config.ANALYTICS_DATABASE_URL !== undefined,
    connections: config.ANALYTICS_CONNECTIONS,
    timeouts: {
      statementTimeoutMs: config.ANALYTICS_STATEMENT_TIMEOUT_MS,
      requestTimeoutMs: config.ANALYTICS_REQUEST_TIMEOUT_MS,
    },
    logger,
    compileCache: join(config.DATA_DIR, 'compile-cache'),
  });

/** What every part of the service needs. */
interface PartOptions {
  config: Config;
  timing: Timing;
  logger: Logger;
  metrics: Metrics | undefined;
  tracing: Tracing | undefined;
}

/** @param onListen  is called with the address before the first request is answered */
async function startApi({
  config,
  timing,
  logger,
  metrics,
  tracing,
  ownerUrl,
  hashing,
  onListen,
}: PartOptions & { ownerUrl: string; hashing: Passwords; onListen: (url: string) => void }): Promise<
  Pick<Service, 'url' | 'close'>
> {
  // Imported here to save memory and time in processes that run only the worker.
  const { createApp } = await import('./app.ts');
  const pool = apiPool(
    ownerUrl,
    config.API_DATABASE_URL,
    config.DATABASE_POOL_SIZE,
    config.DATABASE_CONNECTION_MB,
    config.PREPARED_STATEMENTS,
  );
  const listenUrl = config.SESSION_DATABASE_URL ?? config.API_DATABASE_URL;
  const listenUrls = config.LISTEN_DATABASE_URL ?? (listenUrl === undefined ? undefined : [listenUrl]);
  const streams = openStreams({
    pool,
    heartbeatMs: config.STREAM_HEARTBEAT_MS,
    systemIntervalMs: timing.systemStreamIntervalMs,
    maxStreams: config.STREAMS_AT_A_TIME,
    logger,
    listenUrls: listenUrls ?? [ownerUrl],
    listenRole: listenUrls === undefined ? 'school_api' : undefined,
  });
  const analytics = startAnalytics(config, ownerUrl, logger);
  metrics?.watchPool('api', pool);
  metrics?.watchSchoolPool(pool);
  metrics?.watchStreams(() => streams.count());
  const requestCounts = schoolRequests(pool, { intervalMs: timing.usageIntervalMs, logger });
  const times = operationTimes(pool, { intervalMs: timing.usageIntervalMs, logger });
  const server = createServer({ keepAliveTimeout: keepAliveMs });
  try {
    // Until the app is ready, requests get 503.
    let handle: (req: IncomingMessage, res: ServerResponse) => void = (_req, res) => {
      res.writeHead(503, { 'Retry-After': '1', 'Content-Type': 'application/json' });
      res.end(JSON.stringify({ success: false, error: 'unavailable', message: 'The service is starting.' }));
    };
    server.on('request', (req, res) => handle(req, res));
    const closeServer = gracefulClose(server);
    const url = await listen(
      server,
      config.HOST,
      config.PORT === undefined ? [...Array(20).keys()].map((n) => 3000 + n) : [config.PORT],
      'PORT',
    );
    onListen(url);
    const { rows } = await pool.query<Operation>('select * from core.operation').catch((cause: unknown) => {
      throw new Error('The database cannot be used. Check that it exists and is migrated (npm run migrate).', {
        cause,
      });
    });
    const call = dispatcher(pool, {
      readOperations: new Set(rows.filter(({ writes }) => !writes).map(({ name }) => name)),
      pausedSchoolWaitMs: config.CLOSED_SCHOOL_WAIT_MS,
    });
    const services: Services = {
      config: { ...config, PUBLIC_URL: config.PUBLIC_URL ?? url },
      timing,
      call: observedCall(call, {
        observe(operation, ms) {
          metrics?.observeCall(operation, ms / 1000);
          times.add(operation, { calls: 1, total: ms, max: ms });
        },
        tracing,
        logger,
        slowMs: config.SLOW_STATEMENT_MS,
      }),
      refuseOverload(req) {
        const { claims, apiKey } = req;
        const isVerified = claims !== undefined || apiKey?.isAdmitted === true;
        const school = (apiKey ?? claims) && (apiKey?.tenantId ?? claims?.tenant_id ?? 'platform');
        pool.refuseOverload({ school, isVerified, caller: String(requestOwner(req).userId) });
      },
      tracing,
      tokens: tokens(config.jwtSecrets),
      apiKeys: apiKeys(),
      pictures: pictureAddresses(config.jwtSecrets),
      refreshTokens: signedTokens(config.jwtSecrets, 'refresh tokens'),
      deviceTokens: signedTokens(config.jwtSecrets, 'device tokens'),
      anonymousCallers: anonymousCallers(pool, {
        secret: config.jwtSecrets[0] ?? '',
        windowMs: rateLimitWindowMs,
      }),
      secondFactors: secondFactors(config.jwtSecrets),
      passwords: fairPasswords(hashing),
      streams,
      analytics: fairAnalytics(analytics),
      logger,
      observeRequest: metrics?.observeRequest,
      countRequest: (school) => requestCounts.add(school, 1),
      readiness: await fingerprint().then((expected) => () => readiness(pool, expected)),
    };
    void reencryptSecondFactors(pool, services.secondFactors).catch((error: unknown) => {
      logger.error({ message: 'Second factors could not be encrypted with the new secret.', cause: String(error) });
    });
    handle = createApp(services, rows);
    const stopChecks = keepReadyForAnalysts(pool, analytics, logger);
    const stopWatch = watchServers({
      // A single server needs no watch.
      urls: listenUrls && listenUrls.length > 1 ? listenUrls : [],
      pool,
      logger,
    });
    return {
      url,
      async close() {
        stopChecks();
        const watchStopped = stopWatch();
        // First, so that a client whose stream ends connects to another process.
        const serverClosed = closeServer();
        // Streams never finish by themselves.
        await streams.close();
        await serverClosed;
        await analytics.close();
        await Promise.all([requestCounts.close(), times.close(), watchStopped]);
        await pool.end();
      },
    };
  } catch (error) {
    server.close();
    await Promise.all([requestCounts.close(), times.close()]);
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

/**
 * Starts a worker with its own connection pool.
 * @param node  the name of the node whose database it is; undefined for the database of this process
 */
async function startJobWorker({
  config,
  timing,
  logger,
  metrics,
  tracing,
  ownerUrl,
  node,
  publicUrl,
}: PartOptions & { ownerUrl: string; node: string | undefined; publicUrl: string }): Promise<Worker> {
  // Imported here to save memory in processes that run only the API.
  const [{ emailSender }, { push }, { webhooks }, { startWorker }] = await Promise.all([
    import('../../workers/email.ts'),
    import('../../workers/push.ts'),
    import('../../workers/webhooks.ts'),
    import('../../workers/worker.ts'),
  ]);
  const openPool = (url: string | undefined) => rolePool('school_worker', ownerUrl, url, config.WORKER_CONCURRENCY + 4);
  // The other URLs lead to the database of this process.
  const workerUrl = node === undefined ? config.WORKER_DATABASE_URL : undefined;
  const pool = openPool(workerUrl);
  const sessionPool =
    node !== undefined || config.SESSION_DATABASE_URL === undefined ? pool : openPool(config.SESSION_DATABASE_URL);
  const outbox = join(config.DATA_DIR, 'outbox');
  const sendEmail = emailSender({ smtpUrl: config.SMTP_URL, from: config.EMAIL_FROM, outbox });
  const links = { publicUrl, passwordPageUrl: config.PASSWORD_PAGE_URL, appUrl: config.APP_URL };
  const days = (count: number) => `${String(count)} days`;
  const retention = {
    days: config.TENANT_RETENTION_DAYS,
    exports: exportsFolder(config),
    exportDays: config.EXPORT_RETENTION_DAYS,
    outbox,
    outboxDays: config.OUTBOX_RETENTION_DAYS,
    rows: {
      sessions: days(config.SESSION_RETENTION_DAYS),
      audit_entries: days(config.AUDIT_RETENTION_DAYS),
      deliveries: days(config.DELIVERY_RETENTION_DAYS),
      notifications: days(config.NOTIFICATION_RETENTION_DAYS),
      idempotency_keys: `${String(config.IDEMPOTENCY_KEY_RETENTION_HOURS)} hours`,
      failed_jobs: days(config.FAILED_JOB_RETENTION_DAYS),
      usage: days(config.USAGE_RETENTION_DAYS),
    },
  };
  const pushSender = push(config, timing.pushTimeoutMs);
  const webhookSender = webhooks(config);
  const analytics = startAnalytics(config, ownerUrl, logger);
  const events: WorkerEvents = new EventEmitter();
  metrics?.watchPool(node === undefined ? 'worker' : `worker_${node}`, pool);
  metrics?.watchJobs(events);
  const closeConnections = async () => {
    pushSender.close();
    webhookSender.close();
    await analytics.close();
    await Promise.all([...new Set([pool, sessionPool])].map((each) => each.end()));
  };
  try {
    const worker = await startWorker(
      {
        pool,
        sessionPool,
        ownerUrl,
        sendEmail,
        push: pushSender,
        webhooks: webhookSender,
        analytics,
        logger,
        links,
        retention,
        observeDelivery: metrics?.observeDelivery,
        tracing,
      },
      config.WORKER_CONCURRENCY,
      { events, crashCheckMs: config.WORKER_CRASH_CHECK_MS, canPrepare: config.PREPARED_STATEMENTS },
    );
    return {
      isAlive: () => worker.isAlive(),
      async stop() {
        // Without its database, graphile-worker would not stop before hours of retries, unless the connections are closed.
        // The results of running jobs could not be stored anyway: another worker runs these jobs again.
        await endsWhileAnswered(workerUrl ?? ownerUrl, worker.stop());
        await endsWithin(closeTimeoutMs, closeConnections());
      },
    };
  } catch (error) {
    await closeConnections();
    throw error;
  }
}

/** The standard output. Buffered: one system call per line would cost as much as a third of a request. */
const standardOutput = () => pino.destination({ dest: 1, sync: false, minLength: 4096, periodicFlush: 500 });

interface ServiceOptions {
  hashing?: Passwords;
  logStream?: ReturnType<typeof standardOutput>;
  timing?: Partial<Timing>;
}

/**
 * Starts the API, the worker, or both on a migrated database.
 * @param ownerUrl  the database URL for the restricted roles, unless the settings have separate URLs for them
 * @param options  for tests: `logStream` is where the log goes
 */
export async function startService(
  config: Config,
  ownerUrl: string,
  parts: readonly Part[] = ['api', 'worker'],
  { hashing = passwords(), logStream = standardOutput(), timing }: ServiceOptions = {},
): Promise<Service> {
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
  let tracing: Tracing | undefined;
  const close = async () => {
    await Promise.all(stopParts.splice(0).map((stop) => stop()));
    // Metrics stop last, so that the shutdown can be observed.
    await metrics?.close();
    await tracing?.close();
    logStream.flushSync();
  };
  try {
    if (config.tracesUrl)
      tracing = await openTracing({
        url: config.tracesUrl,
        serviceName: config.OTEL_SERVICE_NAME,
        sampler: config.OTEL_TRACES_SAMPLER,
        ratio: config.OTEL_TRACES_SAMPLER_ARG,
      });
    metrics = await startMetrics(config, ownerUrl, parts, logger);
    const shared = { config, timing: { ...defaultTiming, ...timing }, logger, metrics, tracing };
    let url: string | undefined;
    if (parts.includes('api')) {
      const onListen = (listeningUrl: string) => {
        publicUrl = config.PUBLIC_URL ?? listeningUrl;
      };
      const api = await startApi({ ...shared, ownerUrl, hashing, onListen });
      stopParts.push(() => api.close());
      url = api.url;
    }
    if (parts.includes('worker')) {
      const { WORKER_NODES: names } = config;
      const startAt = (address: string, node?: string) => {
        const nodeLogger = node === undefined ? logger : logger.child({ node });
        return startJobWorker({ ...shared, logger: nodeLogger, ownerUrl: address, node, publicUrl });
      };
      if (names === undefined || names.includes('home')) {
        const worker = await startAt(ownerUrl);
        stopParts.push(() => worker.stop());
      }
      // The embedded server has no nodes.
      if (config.DATABASE_URL !== undefined && names?.join() !== 'home')
        stopParts.push(
          nodeWorkers({ ownerUrl, names, logger, start: ({ name, url: address }) => startAt(address, name) }),
        );
    }
    return { url, metricsUrl: metrics?.url, close };
  } catch (error) {
    await close();
    throw error;
  }
}
