import { type ChildProcess, fork } from 'node:child_process';
import { availableParallelism } from 'node:os';
import type { Logger } from 'pino';
import { ApiError } from '../domain/errors.ts';
import type { QueryTimeouts } from './database.ts';
import type { AnalyticsQuery } from './run-query.ts';

/** Messages to the process, and from it. */
export type ParentMessage =
  | { kind: 'begin'; url: string; isOwnLogIn: boolean; connections: number; timeouts: QueryTimeouts }
  | { kind: 'run'; id: number; query: AnalyticsQuery };
export type ChildMessage =
  | { kind: 'ready' }
  | { kind: 'failed'; message: string }
  | { kind: 'answer'; id: number; body: Uint8Array; isRefused: boolean; faults: object[] };

/** How long an idle process is kept. */
const defaultIdleTimeoutMs = 10 * 60_000;
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
  idleTimeoutMs?: number;
}

/** The process that runs analytics queries. */
export interface Analytics {
  /** @throws ApiError unavailable when the process cannot be started, has exited, or does not respond in time */
  run(query: AnalyticsQuery): Promise<Extract<ChildMessage, { kind: 'answer' }>>;
  close(): Promise<void>;
}

interface Running {
  child: ChildProcess;
  waiting: Map<number, PromiseWithResolvers<Extract<ChildMessage, { kind: 'answer' }>>>;
  /** The error that it reported before it exited. */
  reason: string | undefined;
}

/** Starts the process at the first query, and stops it when it is idle. */
export function analyticsProcess({
  url,
  isOwnLogIn,
  connections,
  timeouts,
  logger,
  idleTimeoutMs = defaultIdleTimeoutMs,
}: AnalyticsOptions): Analytics {
  let running: Running | undefined;
  let idle: NodeJS.Timeout | undefined;
  let lastId = 0;

  function start(): Running {
    const child = fork(new URL('main.ts', import.meta.url), {
      serialization: 'advanced',
      execArgv: [`--max-old-space-size=${String(maxHeapMb)}`],
      // Only what it needs: no token secrets, no URLs of other databases.
      env: {
        PATH: process.env['PATH'],
        NODE_ENV: 'production',
        GRAPHILE_ENV: 'production',
        UV_THREADPOOL_SIZE: String(Math.min(2, availableParallelism())),
      },
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    const started: Running = { child, waiting: new Map(), reason: undefined };
    child.on('message', (message: ChildMessage) => {
      if (message.kind === 'failed') started.reason = message.message;
      else if (message.kind === 'answer') {
        started.waiting.get(message.id)?.resolve(message);
        started.waiting.delete(message.id);
      }
    });
    const end = (why: string) => {
      if (running === started) running = undefined;
      if (started.waiting.size > 0) logger.error({ cause: started.reason ?? why }, 'The analytics process has exited.');
      const error = new ApiError('unavailable', 'Analytics are not available. Try again in a moment.', {
        retryAfter: 5,
      });
      for (const { reject } of started.waiting.values()) reject(error);
      started.waiting.clear();
    };
    child.on('error', (error) => end(error.message));
    child.on('exit', (code, signal) => end(`exited with ${String(code ?? signal)}`));
    const begin: ParentMessage = { kind: 'begin', url, isOwnLogIn, connections, timeouts };
    child.send(begin);
    return started;
  }

  const isRunning = (candidate: Running) => running === candidate;
  /** Disconnects an idle process, which then exits. The next query starts a new one. */
  function stopIdle(candidate: Running) {
    if (isRunning(candidate)) running = undefined;
    if (candidate.child.connected) candidate.child.disconnect();
  }

  return {
    async run(query) {
      clearTimeout(idle);
      const current = (running ??= start());
      const { child, waiting } = current;
      const id = ++lastId;
      const answer = Promise.withResolvers<Extract<ChildMessage, { kind: 'answer' }>>();
      waiting.set(id, answer);
      const timeout = setTimeout(() => child.kill('SIGKILL'), queryTimeoutMs);
      try {
        const message: ParentMessage = { kind: 'run', id, query };
        // A send failure means that the process has exited, which rejects the query.
        child.send(message, () => undefined);
        return await answer.promise;
      } finally {
        clearTimeout(timeout);
        if (waiting.size === 0 && isRunning(current)) idle = setTimeout(stopIdle, idleTimeoutMs, current).unref();
      }
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
