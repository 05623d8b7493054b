import { createServer } from 'node:http';
import type { WorkerEvents } from 'graphile-worker';
import type pg from 'pg';
import type { Logger } from 'pino';
import packageJson from '../../package.json' with { type: 'json' };
import { type Facts, type Queue, readQueueWithin } from '../database/queue.ts';
import { listen } from './listen.ts';

/** What one process tells Prometheus, on a port of its own. */
export interface Metrics {
  /** Of the page itself. */
  url: string;
  /** A request was answered. `route` is a pattern, never a path: a path names records, and there is no end of them. */
  observeRequest: (method: string, route: string, status: number, seconds: number) => void;
  /** Tells of a pool of connections whenever it is asked. */
  watchPool(name: 'api' | 'worker', pool: pg.Pool): void;
  watchStreams(count: () => number): void;
  /** Tells how long the jobs of this process took. */
  watchJobs(events: WorkerEvents): void;
  close(): Promise<void>;
}

export interface MetricsOptions {
  host: string;
  port: number;
  /** Its own connections, so that it answers when the others are all in use. */
  pool: pg.Pool;
  logger: Logger;
}

/** Milliseconds that a scrape waits for the database; Prometheus itself gives up after 10 s. */
const patience = 2_000;

/** Seconds. A get takes some milliseconds; statements of the API end after 15 s. */
const requestBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15];
const jobBuckets = [0.01, 0.05, 0.25, 1, 5, 30, 120, 600];

/** Whatever else a client may call a method would be another series. */
const methods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

const states = ['ready', 'waiting', 'running', 'failed'] as const;

/**
 * Serves /metrics.
 * @throws when the port is taken
 */
export async function openMetrics({ host, port, pool, logger }: MetricsOptions): Promise<Metrics> {
  // Only where it is wanted: it is memory that others need not have.
  const { default: prom } = await import('prom-client');
  const register = new prom.Registry();
  const registers = [register];
  prom.collectDefaultMetrics({ register });
  new prom.Gauge({
    name: 'school_build_info',
    help: 'Always 1; the label has the version of the service.',
    labelNames: ['version'],
    registers,
  }).set({ version: packageJson.version }, 1);
  const requests = new prom.Histogram({
    name: 'http_request_duration_seconds',
    help: 'Requests by the pattern of their route. 499 is a client that left. Streams are in school_streams_open.',
    ...{ labelNames: ['method', 'route', 'status'] as const, buckets: requestBuckets, registers },
  });
  const jobsDone = new prom.Histogram({
    name: 'school_job_duration_seconds',
    help: 'Jobs that this process has run: outcome done, error (to be tried again) or failed (for good).',
    ...{ labelNames: ['task', 'outcome'] as const, buckets: jobBuckets, registers },
  });
  const up = new prom.Gauge({
    name: 'school_database_up',
    help: 'Whether the database answered this scrape in time.',
    registers,
  });
  const worker = new prom.Gauge({
    name: 'school_worker_alive',
    help: 'Whether some worker is alive, in any process.',
    registers,
  });
  const jobs = new prom.Gauge({
    name: 'school_jobs',
    help: 'Jobs in the queue; the same from every process. waiting: for their time, also to be tried again; failed: for good.',
    ...{ labelNames: ['task', 'state'] as const, registers },
  });
  const oldest = new prom.Gauge({
    name: 'school_job_oldest_ready_seconds',
    help: 'How long the oldest job that is ready has been so; 0 without one.',
    ...{ labelNames: ['task'] as const, registers },
  });
  const factsAge = new prom.Gauge({
    name: 'school_analytics_oldest_seconds',
    help: 'How long ago the facts of the school with the oldest were found or made right; the same from every process.',
    registers,
  });
  const pools = new Map<string, pg.Pool>();
  new prom.Gauge({
    name: 'school_database_connections',
    help: 'Connections of a pool: busy or idle.',
    ...{ labelNames: ['pool', 'state'] as const, registers },
    collect() {
      for (const [name, { idleCount, totalCount }] of pools) {
        this.set({ pool: name, state: 'idle' }, idleCount);
        this.set({ pool: name, state: 'busy' }, totalCount - idleCount);
      }
    },
  });
  new prom.Gauge({
    name: 'school_database_connections_max',
    help: 'How many connections a pool may have.',
    ...{ labelNames: ['pool'] as const, registers },
    collect() {
      for (const [name, { options }] of pools) this.set({ pool: name }, options.max);
    },
  });
  new prom.Gauge({
    name: 'school_database_waiting',
    help: 'Who waits for a connection of a pool.',
    ...{ labelNames: ['pool'] as const, registers },
    collect() {
      for (const [name, { waitingCount }] of pools) this.set({ pool: name }, waitingCount);
    },
  });

  function tellQueue(queue: Queue | undefined, facts?: Facts): void {
    up.set(queue ? 1 : 0);
    // What was read before is no answer to what is now.
    for (const gauge of [jobs, oldest, worker]) gauge.reset();
    if (!queue) {
      worker.remove();
      factsAge.remove();
      return;
    }
    factsAge.set(facts?.oldest_seconds ?? 0);
    worker.set(queue.worker ? 1 : 0);
    for (const each of queue.tasks) {
      for (const state of states) jobs.set({ task: each.task, state }, each[state]);
      oldest.set({ task: each.task }, each.oldest_ready_seconds ?? 0);
    }
  }

  let reading: Promise<void> | undefined;
  let wasUp = true;
  /** Asks the database once, for however many ask us. */
  const readQueue = () =>
    (reading ??= readQueueWithin(pool, patience)
      .then(
        ({ queue, facts }) => {
          tellQueue(queue, facts);
          wasUp = true;
        },
        (error: unknown) => {
          tellQueue(undefined);
          if (wasUp)
            logger.warn(
              { cause: error instanceof Error ? error.message : String(error) },
              'The queue could not be read for /metrics.',
            );
          wasUp = false;
        },
      )
      .finally(() => (reading = undefined)));

  const server = createServer((req, res) => {
    const answer = (status: number, headers: Record<string, string>, body: string) => {
      res.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store', ...headers });
      res.end(req.method === 'HEAD' ? undefined : body);
    };
    if (req.url?.split('?')[0] !== '/metrics') answer(404, {}, 'Metrics are at /metrics.\n');
    else if (req.method !== 'GET' && req.method !== 'HEAD')
      answer(405, { Allow: 'GET, HEAD' }, 'This path takes GET, HEAD.\n');
    else {
      readQueue()
        .then(() => register.metrics())
        .then(
          (body) => answer(200, { 'Content-Type': register.contentType }, body),
          (error: unknown) => {
            logger.error(
              { cause: error instanceof Error ? error.message : String(error) },
              'Metrics could not be told.',
            );
            answer(500, {}, 'Metrics could not be told; the log says why.\n');
          },
        );
    }
  });
  const url = await listen(server, host, [port], 'METRICS_PORT').catch(async (error: unknown) => {
    await pool.end();
    throw error;
  });
  return {
    url: `${url}/metrics`,
    observeRequest(method, route, status, seconds) {
      requests.observe({ method: methods.has(method) ? method : 'other', route, status }, seconds);
    },
    watchPool: (name, watched) => void pools.set(name, watched),
    watchStreams(count) {
      new prom.Gauge({
        name: 'school_streams_open',
        help: 'Streams of notifications that are open in this process.',
        registers,
        collect() {
          this.set(count());
        },
      });
    },
    watchJobs(events) {
      const begun = new Map<string, number>();
      events.on('job:start', ({ job }) => void begun.set(job.id, performance.now()));
      events.on('job:complete', ({ job, error }) => {
        const outcome = error ? (job.attempts >= job.max_attempts ? 'failed' : 'error') : 'done';
        jobsDone.observe(
          { task: job.task_identifier, outcome },
          (performance.now() - (begun.get(job.id) ?? performance.now())) / 1000,
        );
        begun.delete(job.id);
      });
    },
    async close() {
      const closed = new Promise((done) => server.close(done));
      server.closeAllConnections();
      await closed;
      await reading;
      await pool.end();
    },
  };
}
