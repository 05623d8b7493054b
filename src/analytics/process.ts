import { type ChildProcess, fork } from 'node:child_process';
import { availableParallelism } from 'node:os';
import type { Logger } from 'pino';
import { ApiError } from '../domain/errors.ts';
import type { AnalyticsQuery } from './run-query.ts';

/** What the process is asked, and what it tells. */
export type ParentMessage =
  | { kind: 'begin'; url: string; isOwnLogIn: boolean; connections: number }
  | { kind: 'run'; id: number; query: AnalyticsQuery };
export type ChildMessage =
  | { kind: 'ready' }
  | { kind: 'failed'; message: string }
  | { kind: 'answer'; id: number; body: Uint8Array; isRefused: boolean; faults: object[] };

/** How long a process that nobody asks is kept, and how long one may take for an answer before it is ended, in milliseconds. */
const usualIdleLimit = 10 * 60_000;
const answerLimit = 90_000;
/** Megabytes of its heap. */
const heapLimit = 384;

export interface AnalyticsOptions {
  /** The database, and whether the address logs in as a role that may become the analysts'. */
  url: string;
  isOwnLogIn: boolean;
  /** How many queries run in the database at a time; others wait. */
  connections: number;
  logger: Logger;
  idleLimit?: number;
}

/** The process that runs the queries of analysts. */
export interface Analytics {
  /** @throws ApiError unavailable, when it can't be started, ended, or has not answered in time */
  run(query: AnalyticsQuery): Promise<Extract<ChildMessage, { kind: 'answer' }>>;
  close(): Promise<void>;
}

interface Running {
  child: ChildProcess;
  waiting: Map<number, PromiseWithResolvers<Extract<ChildMessage, { kind: 'answer' }>>>;
  /** What it said before it ended. */
  reason: string | undefined;
}

/** Starts the process when it is first asked for, and ends it when nobody has asked it for a while. */
export function analyticsProcess({
  url,
  isOwnLogIn,
  connections,
  logger,
  idleLimit = usualIdleLimit,
}: AnalyticsOptions): Analytics {
  let running: Running | undefined;
  let idle: NodeJS.Timeout | undefined;
  let last = 0;

  function start(): Running {
    const child = fork(new URL('main.ts', import.meta.url), {
      serialization: 'advanced',
      execArgv: [`--max-old-space-size=${String(heapLimit)}`],
      // Nothing of ours that it does not need: no secret of the tokens, no address of another database.
      env: {
        PATH: process.env['PATH'],
        NODE_ENV: 'production',
        GRAPHILE_ENV: 'production',
        UV_THREADPOOL_SIZE: String(Math.min(2, availableParallelism())),
      },
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    const made: Running = { child, waiting: new Map(), reason: undefined };
    child.on('message', (message: ChildMessage) => {
      if (message.kind === 'failed') made.reason = message.message;
      else if (message.kind === 'answer') {
        made.waiting.get(message.id)?.resolve(message);
        made.waiting.delete(message.id);
      }
    });
    const end = (why: string) => {
      if (running === made) running = undefined;
      if (made.waiting.size > 0) logger.error({ cause: made.reason ?? why }, 'The process of the analysts has ended.');
      const error = new ApiError('unavailable', 'The view of the analysts is not available. Try again in a moment.', {
        retryAfter: 5,
      });
      for (const { reject } of made.waiting.values()) reject(error);
      made.waiting.clear();
    };
    child.on('error', (error) => end(error.message));
    child.on('exit', (code, signal) => end(`ended with ${String(code ?? signal)}`));
    const begin: ParentMessage = { kind: 'begin', url, isOwnLogIn, connections };
    child.send(begin);
    return made;
  }

  const isRunning = (one: Running) => running === one;
  /** Who asks from now on starts another: this one hears nothing any more. */
  function leave(one: Running) {
    if (isRunning(one)) running = undefined;
    if (one.child.connected) one.child.disconnect();
  }

  return {
    async run(query) {
      clearTimeout(idle);
      const mine = (running ??= start());
      const { child, waiting } = mine;
      const id = ++last;
      const answer = Promise.withResolvers<Extract<ChildMessage, { kind: 'answer' }>>();
      waiting.set(id, answer);
      const late = setTimeout(() => child.kill('SIGKILL'), answerLimit);
      try {
        const message: ParentMessage = { kind: 'run', id, query };
        // What can't be sent is message by the end of the process.
        child.send(message, () => undefined);
        return await answer.promise;
      } finally {
        clearTimeout(late);
        if (waiting.size === 0 && isRunning(mine)) idle = setTimeout(leave, idleLimit, mine).unref();
      }
    },
    async close() {
      clearTimeout(idle);
      const child = running?.child;
      running = undefined;
      if (child?.exitCode !== null) return;
      const gone = new Promise((done) => child.once('exit', done));
      if (child.connected) child.disconnect();
      else child.kill('SIGKILL');
      await gone;
    },
  };
}
