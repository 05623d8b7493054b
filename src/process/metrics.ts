import { createServer } from 'node:http';
import type { WorkerEvents } from 'graphile-worker';
import type pg from 'pg';
import type { Logger } from 'pino';
import packageJson from '../../package.json' with { type: 'json' };
import { refusalCounts } from '../concurrency/refusals.ts';
import type { SchoolPool } from '../database/pool/school-pool.ts';
import type { ObserveDelivery } from '../../workers/task-context.ts';
import { type Queue, type QueueState, readQueueWithin } from '../database/queue.ts';
import { listen } from './listen.ts';
import type { Load, SchoolLoad } from './school-load.ts';

/** The Prometheus metrics of one process, served on a separate port. */
export interface Metrics {
  /** The URL of the metrics. */
  url: string;
  /** Records a finished request. `route` is the route pattern: paths with ids would create unlimited series. */
  observeRequest: (method: string, route: string, status: number, seconds: number) => void;
  /** Records a call of the database. `operation` is one of `core.operation`. */
  observeCall: (operation: string, seconds: number) => void;
  /** Records the result of sending a message. */
  observeDelivery: ObserveDelivery;
  /** Reports the connections of a pool at each scrape. */
  /** @param name  `api`, `worker`, or `worker_` and the name of a node */
  watchPool(name: string, pool: WatchedPool): void;
  /** Reports how the API process uses its connections. */
  watchSchoolPool(pool: Pick<SchoolPool, 'counts'>): void;
  watchStreams(count: () => number): void;
  /** Reports the schools that have kept the database busiest in the last minute. */
  watchSchools(busiest: SchoolLoad['busiest']): void;
  /** Reports whether the writes of this process fail because the database cannot write, or wait for a replica. */
  watchWrites(areFailing: () => boolean): void;
  /** Records the duration of the jobs of this process. */
  watchJobs(events: WorkerEvents): void;
  close(): Promise<void>;
}

export interface MetricsOptions {
  host: string;
  port: number;
  /** A separate pool, so that metrics are available while all other connections are in use. */
  pool: pg.Pool;
  logger: Logger;
}

/** How long a scrape waits for the database. Prometheus gives up after 10 s. */
const databaseTimeoutMs = 2_000;

/** Seconds. A read takes a few milliseconds; the statement timeout of the API is 15 s. */
const requestBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15];
const jobBuckets = [0.01, 0.05, 0.25, 1, 5, 30, 120, 600];

/** Other methods are counted as `other`: clients could create unlimited series. */
const knownMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

const states = ['ready', 'waiting', 'running', 'failed'] as const;

type Prometheus = typeof import('prom-client');
type Registry = InstanceType<Prometheus['Registry']>;

/** What happens in this process: requests, calls of the database, jobs and deliveries. */
function createEventMetrics(prom: Prometheus, registers: Registry[]) {
  return {
    requests: new prom.Histogram({
      name: 'http_request_duration_seconds',
      help: 'Requests by route pattern. Status 499: the client disconnected. Streams are in school_streams_open.',
      labelNames: ['method', 'route', 'status'] as const,
      buckets: requestBuckets,
      registers,
    }),
    // Without buckets or quantiles: two series for each operation.
    calls: new prom.Summary({
      name: 'school_database_call_seconds',
      help: 'Calls of the database by operation, with their wait for a connection and their retries.',
      labelNames: ['operation'] as const,
      percentiles: [],
      registers,
    }),
    deliveries: new prom.Counter({
      name: 'school_deliveries_total',
      help: 'Attempts to send a notification or webhook. Outcome: sent, retry or failed (no further attempt).',
      labelNames: ['channel', 'outcome'] as const,
      registers,
    }),
    finishedJobs: new prom.Histogram({
      name: 'school_job_duration_seconds',
      help: 'Jobs run by this process. Outcome: done, error (will be retried) or failed (no attempts left).',
      labelNames: ['task', 'outcome'] as const,
      buckets: jobBuckets,
      registers,
    }),
  };
}

/** The gauges of what the database reports. @returns a function that sets them; without a state the database is down */
function createQueueGauges(prom: Prometheus, registers: Registry[]): (state?: QueueState) => void {
  const databaseUp = new prom.Gauge({
    name: 'school_database_up',
    help: 'Whether the database responded to this scrape in time.',
    registers,
  });
  const workerAlive = new prom.Gauge({
    name: 'school_worker_alive',
    help: 'Whether a worker is alive in any process. With a node: whether one serves it.',
    labelNames: ['node'] as const,
    registers,
  });
  const jobs = new prom.Gauge({
    name: 'school_jobs',
    help: 'Jobs in the queue (same in every process). waiting: scheduled or to be retried. failed: no attempts left. With a node: those of its queue at the last check.',
    labelNames: ['node', 'task', 'state'] as const,
    registers,
  });
  const oldestReady = new prom.Gauge({
    name: 'school_job_oldest_ready_seconds',
    help: 'Seconds since the oldest ready job became ready; 0 without one. With a node: of its queue.',
    labelNames: ['node', 'task'] as const,
    registers,
  });
  const repeated = new prom.Gauge({
    name: 'school_jobs_repeated',
    help: 'Jobs in the queue with three attempts or more, failed ones included. With a node: of its queue.',
    labelNames: ['node', 'task'] as const,
    registers,
  });
  const oldestDue = new prom.Gauge({
    name: 'school_job_oldest_due_seconds',
    help: 'Seconds since the oldest job that was due and has not succeeded was queued; 0 without one. With a node: of its queue.',
    labelNames: ['node', 'task'] as const,
    registers,
  });
  const factsAge = new prom.Gauge({
    name: 'school_analytics_oldest_seconds',
    help: 'Seconds since the facts of the least recently refreshed school were refreshed, the same from every process.',
    registers,
  });
  const tenantsBehind = new prom.Gauge({
    name: 'school_tenants_behind',
    help: 'Schools that wait for a migration, the same from every process. Their requests get 503.',
    registers,
  });
  const nodeUp = new prom.Gauge({
    name: 'school_node_up',
    help: 'Whether a node answered the last check of the worker, the same from every process. None on a single server.',
    labelNames: ['node'] as const,
    registers,
  });
  return (state) => {
    databaseUp.set(state ? 1 : 0);
    // Drop the values of the previous scrape.
    for (const gauge of [jobs, oldestReady, repeated, oldestDue, workerAlive, nodeUp]) gauge.reset();
    if (!state) {
      factsAge.remove();
      tenantsBehind.remove();
      return;
    }
    const { queue, facts, nodes, nodeQueues, tenantsBehind: behind } = state;
    tenantsBehind.set(behind);
    for (const [node, answers] of Object.entries(nodes)) if (answers !== null) nodeUp.set({ node }, answers ? 1 : 0);
    factsAge.set(facts.oldest_seconds);
    const setQueue = ({ worker, tasks }: Queue, server: { node?: string }) => {
      workerAlive.set(server, worker ? 1 : 0);
      for (const each of tasks) {
        for (const state of states) jobs.set({ ...server, task: each.task, state }, each[state]);
        oldestReady.set({ ...server, task: each.task }, each.oldest_ready_seconds ?? 0);
        // A node with an earlier release does not report them.
        repeated.set({ ...server, task: each.task }, each.repeated ?? 0);
        oldestDue.set({ ...server, task: each.task }, each.oldest_due_seconds ?? 0);
      }
    };
    setQueue(queue, {});
    for (const [node, ofNode] of Object.entries(nodeQueues)) setQueue(ofNode, { node });
  };
}

/** The state of a pool that is reported. */
type WatchedPool = Pick<pg.Pool, 'idleCount' | 'totalCount' | 'waitingCount'> & { options: { max: number } };

/** The counters of the pool of the API process. */
function createSchoolPoolCounters(prom: Prometheus, registers: Registry[], { counts }: Pick<SchoolPool, 'counts'>) {
  const counter = <Label extends string>(
    name: string,
    help: string,
    label: Label,
    read: () => Record<string, number>,
  ) =>
    new prom.Counter({
      name,
      help,
      labelNames: [label] as const,
      registers,
      collect() {
        this.reset();
        for (const [value, count] of Object.entries(read())) this.inc({ [label]: value } as never, count);
      },
    });
  counter(
    'school_database_checkouts_total',
    'Connections taken for requests: one of the first two of the school (preferred), or any other one (fallback).',
    'connection',
    () => ({ preferred: counts.preferred, fallback: counts.fallback }),
  );
  counter(
    'school_database_replacements_total',
    'Connections replaced because of the memory of their backend, or because of their age.',
    'reason',
    () => ({ memory: counts.replacedForMemory, age: counts.replacedForAge }),
  );
  counter(
    'school_database_abandoned_total',
    'Requests whose client disconnected while they waited for a connection, or while their read was running.',
    'state',
    () => ({ waiting: counts.cancelledWaiting, running: counts.cancelledRunning }),
  );
}

/** The counter of the tasks that the queues of this process have refused. */
function createRefusalCounter(prom: Prometheus, registers: Registry[]) {
  new prom.Counter({
    name: 'school_queue_refusals_total',
    help: 'Refused requests by queue. limit: too many. estimate: would wait too long. timeout: waited too long.',
    labelNames: ['queue', 'reason'] as const,
    registers,
    collect() {
      this.reset();
      for (const { queue, reason, count } of refusalCounts()) this.inc({ queue, reason }, count);
    },
  });
}

/** The gauges of the connection pools. @returns the pools to report, to which more can be added */
function createPoolGauges(prom: Prometheus, registers: Registry[]): Map<string, WatchedPool> {
  const pools = new Map<string, WatchedPool>();
  new prom.Gauge({
    name: 'school_database_connections',
    help: 'Connections of a pool by state: busy or idle.',
    labelNames: ['pool', 'state'] as const,
    registers,
    collect() {
      for (const [name, { idleCount, totalCount }] of pools) {
        this.set({ pool: name, state: 'idle' }, idleCount);
        this.set({ pool: name, state: 'busy' }, totalCount - idleCount);
      }
    },
  });
  new prom.Gauge({
    name: 'school_database_connections_max',
    help: 'Maximum number of connections of a pool.',
    labelNames: ['pool'] as const,
    registers,
    collect() {
      for (const [name, { options }] of pools) this.set({ pool: name }, options.max);
    },
  });
  new prom.Gauge({
    name: 'school_database_waiting',
    help: 'Requests and jobs that wait for a connection of a pool.',
    labelNames: ['pool'] as const,
    registers,
    collect() {
      for (const [name, { waitingCount }] of pools) this.set({ pool: name }, waitingCount);
    },
  });
  return pools;
}

/** Reads the queue into the gauges. Concurrent scrapes share one query; a failure is logged once, until it succeeds. */
function queueReader(pool: pg.Pool, logger: Logger, setGauges: ReturnType<typeof createQueueGauges>) {
  let reading: Promise<void> | undefined;
  let wasUp = true;
  return {
    read: () =>
      (reading ??= readQueueWithin(pool, databaseTimeoutMs)
        .then(
          (state) => {
            setGauges(state);
            wasUp = true;
          },
          (error: unknown) => {
            setGauges();
            if (wasUp) logger.warn({ cause: messageOf(error) }, 'The queue could not be read for /metrics.');
            wasUp = false;
          },
        )
        .finally(() => (reading = undefined))),
    /** Waits for the query in progress. */
    async finish() {
      await reading;
    },
  };
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** The HTTP server of /metrics. */
function metricsServer(collect: () => Promise<string>, contentType: string, logger: Logger) {
  return createServer((req, res) => {
    const answer = (status: number, headers: Record<string, string>, body: string) => {
      res.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store', ...headers });
      res.end(req.method === 'HEAD' ? undefined : body);
    };
    if (req.url?.split('?')[0] !== '/metrics') answer(404, {}, 'Metrics are at /metrics.\n');
    else if (req.method !== 'GET' && req.method !== 'HEAD')
      answer(405, { Allow: 'GET, HEAD' }, 'This path supports GET and HEAD.\n');
    else {
      collect().then(
        (body) => answer(200, { 'Content-Type': contentType }, body),
        (error: unknown) => {
          logger.error({ cause: messageOf(error) }, 'The metrics could not be collected.');
          answer(500, {}, 'The metrics could not be collected. See the log.\n');
        },
      );
    }
  });
}

/**
 * Serves /metrics.
 * @throws when the port is in use
 */
export async function openMetrics({ host, port, pool, logger }: MetricsOptions): Promise<Metrics> {
  // Imported here to save memory in processes without metrics.
  const { default: prom } = await import('prom-client');
  const register = new prom.Registry();
  const registers = [register];
  prom.collectDefaultMetrics({ register });
  new prom.Gauge({
    name: 'school_build_info',
    help: 'Always 1; the label is the version of the service.',
    labelNames: ['version'],
    registers,
  }).set({ version: packageJson.version }, 1);
  const { requests, calls, deliveries, finishedJobs } = createEventMetrics(prom, registers);
  const setGauges = createQueueGauges(prom, registers);
  let doWritesWait = false;
  const queue = queueReader(pool, logger, (state) => {
    doWritesWait = state?.writesWait ?? false;
    setGauges(state);
  });
  const pools = createPoolGauges(prom, registers);
  createRefusalCounter(prom, registers);

  const collect = () => queue.read().then(() => register.metrics());
  const server = metricsServer(collect, register.contentType, logger);
  const url = await listen(server, host, [port], 'METRICS_PORT').catch(async (error: unknown) => {
    await pool.end();
    throw error;
  });
  return {
    url: `${url}/metrics`,
    observeRequest(method, route, status, seconds) {
      requests.observe({ method: knownMethods.has(method) ? method : 'other', route, status }, seconds);
    },
    observeCall: (operation, seconds) => calls.observe({ operation }, seconds),
    observeDelivery: (channel, outcome) => deliveries.inc({ channel, outcome }),
    watchPool: (name, watched) => void pools.set(name, watched),
    watchSchoolPool: (watched) => createSchoolPoolCounters(prom, registers, watched),
    watchSchools(busiest) {
      const gauge = (name: string, help: string, read: (load: Load) => number) =>
        new prom.Gauge({
          name,
          help: `${help} in the last whole minute, by school: the 20 busiest of this process.`,
          labelNames: ['school'] as const,
          registers,
          collect() {
            this.reset();
            for (const [school, load] of busiest()) this.set({ school }, read(load));
          },
        });
      gauge('school_busiest_calls', 'Calls of the database', ({ calls }) => calls);
      gauge('school_busiest_seconds', 'Seconds in calls of the database', ({ ms }) => ms / 1000);
      gauge('school_busiest_failures', 'Calls of the database that failed', ({ failures }) => failures);
    },
    watchWrites(areFailing) {
      new prom.Gauge({
        name: 'school_writes_failing',
        help:
          'Whether the last write of this process failed because the database cannot write, at most a minute ago, or ' +
          'writes wait for a synchronous replica.',
        registers,
        collect() {
          this.set(areFailing() || doWritesWait ? 1 : 0);
        },
      });
    },
    watchStreams(count) {
      new prom.Gauge({
        name: 'school_streams_open',
        help: 'Open streams of this process: notifications, and the state of the installation for operators.',
        registers,
        collect() {
          this.set(count());
        },
      });
    },
    watchJobs(events) {
      const startTimes = new Map<string, number>();
      events.on('job:start', ({ job }) => void startTimes.set(job.id, performance.now()));
      events.on('job:complete', ({ job, error }) => {
        const outcome = error ? (job.attempts >= job.max_attempts ? 'failed' : 'error') : 'done';
        const start = startTimes.get(job.id) ?? performance.now();
        finishedJobs.observe({ task: job.task_identifier, outcome }, (performance.now() - start) / 1000);
        startTimes.delete(job.id);
      });
    },
    async close() {
      const closed = new Promise((done) => server.close(done));
      server.closeAllConnections();
      await closed;
      await queue.finish();
      await pool.end();
    },
  };
}
