import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { type Analytics, fairAnalytics } from '../analytics/process.ts';
import type { Passwords } from '../domain/passwords.ts';
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
import { anonymousCallers } from '../database/anonymous-callers.ts';
import { dispatcher } from '../database/call.ts';
import { fingerprint } from '../database/migrate/install.ts';
import { requireNamedStatements } from '../database/pool/pooler-checks.ts';
import { apiPool } from '../database/pool/pool.ts';
import type { SchoolPool } from '../database/pool/school-pool.ts';
import { schoolServers } from '../servers/school-servers.ts';
import { watchServers } from '../servers/server-watch.ts';
import { operationTimes, schoolRequests } from '../database/counts.ts';
import { endsWithin } from './end-in-time.ts';
import { gracefulClose } from './graceful-close.ts';
import { listen } from './listen.ts';
import { observedCall } from './observed-call.ts';
import { type PartOptions, startAnalytics } from './part.ts';
import { schoolLoad } from './school-load.ts';
import { writeFailures } from './write-failures.ts';

/** How long an API that has stopped waits for its connections: longer than the statements of requests may take. */
const poolTimeoutMs = 20_000;

/**
 * Longer than proxies and clients keep idle connections, so that the server does not close one that is about to be
 * used.
 */
const keepAliveMs = 65_000;

async function readiness(pool: Pick<SchoolPool, 'query'>, expected: string, writes: boolean): Promise<Readiness> {
  try {
    const { rows } = await pool.query<{
      ready: {
        fingerprint: string;
        served_fingerprints?: string[];
        tenants_behind: number;
        worker: boolean;
        writes_wait?: boolean;
      };
    }>('select core.readiness() as ready');
    const state = rows[0]?.ready;
    return {
      database: true,
      migrations: state?.fingerprint === expected || (state?.served_fingerprints?.includes(expected) ?? false),
      worker: state?.worker ?? false,
      tenants_behind: state?.tenants_behind ?? null,
      writes: writes && !state?.writes_wait,
    };
  } catch {
    return { database: false, migrations: false, worker: false, tenants_behind: null, writes };
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

/**
 * Starts the API.
 * @param onListen  is called with the address before the first request is answered
 */
export async function startApi({
  config,
  timing,
  logger,
  metrics,
  tracing,
  ownerUrl,
  hashing,
  onListen,
}: PartOptions & { ownerUrl: string; hashing: Passwords; onListen: (url: string) => void }): Promise<{
  url: string;
  close(): Promise<void>;
}> {
  // Imported here to save memory and time in processes that run only the worker.
  const { createApp } = await import('./app.ts');
  if (config.API_DATABASE_URL !== undefined && config.PREPARED_STATEMENTS)
    await requireNamedStatements('API_DATABASE_URL', config.API_DATABASE_URL);
  const listenUrl = config.SESSION_DATABASE_URL ?? config.API_DATABASE_URL;
  const listenUrls = config.LISTEN_DATABASE_URL ?? (listenUrl === undefined ? undefined : [listenUrl]);
  const hasSeveralServers = listenUrls !== undefined && listenUrls.length > 1;
  const pool: SchoolPool = apiPool(
    ownerUrl,
    config.API_DATABASE_URL,
    config.DATABASE_POOL_SIZE,
    config.DATABASE_CONNECTION_MB,
    config.PREPARED_STATEMENTS,
    hasSeveralServers ? schoolServers((...request) => pool.query(...request)) : undefined,
  );
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
  const load = schoolLoad({
    intervalMs: timing.schoolLoadIntervalMs,
    logFrom: config.BUSY_SCHOOL_CALLS_PER_MINUTE,
    logger,
  });
  metrics?.watchSchools(() => load.busiest());
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
    const readOperations = new Set(rows.filter(({ writes }) => !writes).map(({ name }) => name));
    const failures = writeFailures();
    metrics?.watchWrites(failures.areFailing);
    const call = dispatcher(pool, {
      readOperations,
      pausedSchoolWaitMs: config.CLOSED_SCHOOL_WAIT_MS,
    });
    const publicUrl = config.PUBLIC_URL ?? url;
    const services: Services = {
      config: { ...config, PUBLIC_URL: publicUrl },
      timing,
      call: observedCall(call, {
        observe({ operation, ms, failure, school }) {
          if (school !== undefined) load.add(school, ms, failure !== undefined);
          if (!readOperations.has(operation)) failures.record(failure);
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
      pictures: pictureAddresses(config.jwtSecrets, Date.now, publicUrl),
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
      readiness: await fingerprint().then((expected) => () => readiness(pool, expected, !failures.areFailing())),
    };
    void reencryptSecondFactors(pool, services.secondFactors).catch((error: unknown) => {
      logger.error({ message: 'Second factors could not be encrypted with the new secret.', cause: String(error) });
    });
    handle = createApp(services, rows);
    const stopChecks = keepReadyForAnalysts(pool, analytics, logger);
    const stopWatch = watchServers({
      // A single server needs no watch.
      urls: hasSeveralServers ? listenUrls : [],
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
        load.close();
        await Promise.all([requestCounts.close(), times.close(), watchStopped]);
        // A forwarder can wait without end for a statement that its server has cancelled.
        if (!(await endsWithin(poolTimeoutMs, pool.end())))
          logger.warn({ message: 'The API stops with requests that the database has not answered.' });
      },
    };
  } catch (error) {
    server.close();
    load.close();
    await Promise.all([requestCounts.close(), times.close()]);
    await pool.end();
    throw error;
  }
}
