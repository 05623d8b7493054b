import { type ChildProcess, fork } from 'node:child_process';
import { addAbortListener } from 'node:events';
import { availableParallelism } from 'node:os';
import type { Logger } from 'pino';
import { fairQueue, type RequestOwner } from '../concurrency/fair-queue.ts';
import { ApiError } from '../domain/errors.ts';
import type { QueryTimeouts } from './database.ts';
import { prebuiltFolder, prebuiltProgram } from './prebuilt-program.ts';
import type { AnalyticsQuery } from './run-query.ts';

/** The program that builds the schema from the catalog of the database. */
const schemaBuilder = new URL('main.ts', import.meta.url);

/** Messages to the process, and from it. */
export type ParentMessage =
  | { kind: 'begin'; url: string; isOwnLogIn: boolean; connections: number; timeouts: QueryTimeouts }
  | { kind: 'run'; id: number; query: AnalyticsQuery }
  | { kind: 'cancel'; id: number };
export type ChildMessage =
  | { kind: 'ready' }
  | { kind: 'failed'; message: string }
  /** The prebuilt schema is not that of the database. */
  | { kind: 'outdated' }
  | { kind: 'answer'; id: number; body: Uint8Array; isRefused: boolean; faults: object[] };

/** How long an idle process is kept: longer than an access token lasts, so that analysts at work never wait for a start. */
const defaultIdleTimeoutMs = 20 * 60_000;
/** A process that takes longer for a query is killed. */
const queryTimeoutMs = 90_000;
const maxHeapMb = 384;

export interface AnalyticsOptions {
  /** The URL of the database, and whether it logs in as a role that can switch to the analyst role. */
  url: string;
  isOwnLogIn: boolean;
  /** Maximum number of concurrent queries in the database; others wait. */
  connections: number;
  timeouts: QueryTimeouts;
  logger: Logger;
  /** A folder for compiled code, which halves the time to load the modules. */
  compileCache?: string;
  idleTimeoutMs?: number;
  /** The folder of the program with a prebuilt schema. Without such a program, the process builds the schema. */
  prebuilt?: string;
}

/** The process that runs analytics queries. */
export interface Analytics {
  /**
   * @param signal  cancels the query, in the database too. Its answer is then an error.
   * @throws ApiError unavailable when the process cannot be started, has exited, or does not respond in time
   */
  run(query: AnalyticsQuery, signal?: AbortSignal): Promise<Extract<ChildMessage, { kind: 'answer' }>>;
  /** Starts the process now and keeps it while it is idle, or returns to starting it at the first query. */
  keepRunning(isKept: boolean): void;
  close(): Promise<void>;
}

interface Waiting {
  query: AnalyticsQuery;
  signal: AbortSignal | undefined;
  answer: PromiseWithResolvers<Extract<ChildMessage, { kind: 'answer' }>>;
}

interface Running {
  /** The process. One with a prebuilt schema that cannot be used is replaced before its first query. */
  child: ChildProcess;
  waiting: Map<number, Waiting>;
  /** The error that it reported before it exited. */
  reason: string | undefined;
}

/** Starts the process at the first query, and stops it when it is idle, unless `keepRunning` changes that. */
export function analyticsProcess({
  url,
  isOwnLogIn,
  connections,
  timeouts,
  logger,
  compileCache,
  idleTimeoutMs = defaultIdleTimeoutMs,
  prebuilt = prebuiltFolder,
}: AnalyticsOptions): Analytics {
  let running: Running | undefined;
  let idle: NodeJS.Timeout | undefined;
  let isKept = false;
  let lastId = 0;

  function launch(program: string | URL): ChildProcess {
    const child = fork(program, {
      serialization: 'advanced',
      // The small semi-space keeps the process at 100 MB instead of 130 and costs no time.
      execArgv: [`--max-old-space-size=${String(maxHeapMb)}`, '--max-semi-space-size=2'],
      // Only what it needs: no token secrets, no URLs of other databases.
      env: {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] ?? compileCache,
        NODE_ENV: 'production',
        GRAPHILE_ENV: 'production',
        UV_THREADPOOL_SIZE: String(Math.min(2, availableParallelism())),
      },
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    const begin: ParentMessage = { kind: 'begin', url, isOwnLogIn, connections, timeouts };
    child.send(begin, () => undefined);
    return child;
  }

  function start(): Running {
    const program = prebuiltProgram(prebuilt);
    if (program === undefined)
      logger.info('There is no current prebuilt schema for analytics, so this start takes longer. Run: npm run build');
    const started: Running = { child: launch(program ?? schemaBuilder), waiting: new Map(), reason: undefined };
    watch(started, program !== undefined);
    return started;
  }

  /** @param isPrebuilt  whether a process that builds the schema can replace this one */
  function watch(started: Running, isPrebuilt: boolean) {
    const { child, waiting } = started;
    let isReady = false;
    let isOutdated = false;
    child.on('message', (message: ChildMessage) => {
      if (message.kind === 'failed') started.reason = message.message;
      else if (message.kind === 'outdated') isOutdated = true;
      else if (message.kind === 'ready') isReady = true;
      else {
        waiting.get(message.id)?.answer.resolve(message);
        waiting.delete(message.id);
      }
    });
    const end = (why: string) => {
      if (running === started) running = undefined;
      if (waiting.size > 0) logger.error({ cause: started.reason ?? why }, 'The analytics process has exited.');
      const error = new ApiError('unavailable', 'Analytics are not available. Try again in a moment.', {
        retryAfter: 5,
      });
      for (const { answer } of waiting.values()) answer.reject(error);
      waiting.clear();
    };
    child.on('error', (error) => end(error.message));
    child.on('exit', (code, signal) => {
      // Without a reported error, the program is broken, or its schema is not that of the database.
      if (isPrebuilt && !isReady && started.reason === undefined && signal === null && running === started) {
        const cause = isOutdated
          ? 'The views of the database are not those of this version.'
          : `The program ended with ${String(code)}.`;
        logger.warn({ cause }, 'The prebuilt schema for analytics cannot be used, so each start takes longer.');
        started.child = launch(schemaBuilder);
        watch(started, false);
        for (const [id, { query, signal: cancellation }] of waiting) {
          send(started, { kind: 'run', id, query });
          if (cancellation?.aborted) send(started, { kind: 'cancel', id });
        }
      } else end(`exited with ${String(code ?? signal)}`);
    });
  }

  // A send failure means that the process has exited, which rejects the query.
  const send = ({ child }: Running, message: ParentMessage) => child.send(message, () => undefined);
  const isRunning = (candidate: Running) => running === candidate;
  /** Disconnects an idle process, which then exits. The next query starts a new one. */
  function stopIdle(candidate: Running) {
    if (isRunning(candidate)) running = undefined;
    if (candidate.child.connected) candidate.child.disconnect();
  }

  function stopWhenIdle(candidate: Running) {
    clearTimeout(idle);
    if (!isKept && candidate.waiting.size === 0 && isRunning(candidate))
      idle = setTimeout(stopIdle, idleTimeoutMs, candidate).unref();
  }

  return {
    async run(query, signal) {
      clearTimeout(idle);
      const current = (running ??= start());
      const id = ++lastId;
      const answer: Waiting['answer'] = Promise.withResolvers();
      current.waiting.set(id, { query, signal, answer });
      const timeout = setTimeout(() => current.child.kill('SIGKILL'), queryTimeoutMs);
      send(current, { kind: 'run', id, query });
      const listener = signal && addAbortListener(signal, () => send(current, { kind: 'cancel', id }));
      try {
        return await answer.promise;
      } finally {
        clearTimeout(timeout);
        listener?.[Symbol.dispose]();
        stopWhenIdle(current);
      }
    },
    keepRunning(next) {
      const wasKept = isKept;
      isKept = next;
      if (isKept) {
        clearTimeout(idle);
        running ??= start();
      }
      // Not at each call: the service calls this more often than the process may be idle.
      else if (wasKept && running) stopWhenIdle(running);
    },
    async close() {
      clearTimeout(idle);
      const child = running?.child;
      running = undefined;
      if (child?.exitCode !== null) return;
      const exited = new Promise((done) => child.once('exit', done));
      if (child.connected) child.disconnect();
      else child.kill('SIGKILL');
      await exited;
    },
  };
}

/** The analytics queries of requests: those of all operators share four slots, and others wait. */
const queries = { maxRunning: { total: 4 }, maxInProgress: { total: 20, user: 2 } };

/** Runs the queries of requests. */
export interface FairAnalytics {
  /**
   * @param signal  ends the wait, or cancels the query
   * @throws ApiError as `Analytics.run`; rate_limited if the operator has too many in progress
   */
  run(owner: RequestOwner, query: AnalyticsQuery, signal: AbortSignal): ReturnType<Analytics['run']>;
}

/** Limits the concurrent queries of requests. */
export function fairAnalytics(analytics: Analytics): FairAnalytics {
  const inProgress = fairQueue({
    name: 'analytics',
    ...queries,
    refusal: (scope) =>
      scope === 'user'
        ? new ApiError('rate_limited', 'You have other queries in progress. Try again when they are done.', {
            retryAfter: 3,
          })
        : new ApiError('unavailable', 'Too many queries are in progress. Try again in a moment.', { retryAfter: 3 }),
  });
  return {
    run: (owner, query, signal) => inProgress.run(owner, () => analytics.run(query, signal), signal),
  };
}
