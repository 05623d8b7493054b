import { pino, type Logger } from 'pino';
import { type Passwords, passwords } from '../domain/passwords.ts';
import { openTracing, type Tracing } from '../domain/tracing.ts';
import type { Config } from './config.ts';
import { rolePool } from '../database/pool/pool.ts';
import { type Metrics, openMetrics } from './metrics.ts';
import { serverWorkers } from './server-workers.ts';
import { defaultTiming, type Timing } from './timing.ts';
import { startApi } from './api.ts';
import { startJobWorker } from './job-worker.ts';

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
      stopParts.push(
        await serverWorkers({
          ownerUrl,
          canHaveNodes: config.DATABASE_URL !== undefined,
          names,
          logger,
          start: ({ id, name, url: address }) => startAt(address, id === null ? undefined : name),
        }),
      );
    }
    return { url, metricsUrl: metrics?.url, close };
  } catch (error) {
    await close();
    throw error;
  }
}
