import { fileURLToPath } from 'node:url';
import type { ResourceLimits } from 'node:worker_threads';
import { Piscina } from 'piscina';
import { ApiError } from '../domain/errors.ts';
import { fairQueue, noOwner, type RequestOwner } from './fair-queue.ts';

/** A pool of worker threads for work that would block the event loop, or that untrusted input could make fail. */
export interface ThreadPoolOptions {
  /** The name of its queue in the metrics. */
  name: string;
  /** The script of a thread. Its default export is called with the task and returns, or resolves to, the result. */
  script: URL;
  /** Limits of each thread. */
  resourceLimits: ResourceLimits;
  maxThreads: number;
  /** How many tasks may wait for a thread. */
  maxQueue: number;
  /** How long a thread without a task stays alive. With 0, every task gets a new thread, which ends after the task. */
  idleTimeoutMs: number;
  /** Message of the error for a task that is refused because the queue is full. */
  queueFullMessage: string;
}

/** The thread exceeded its time or memory limit and was terminated. */
export class ThreadLimitError extends Error {
  readonly limit: 'time' | 'memory';
  constructor(limit: 'time' | 'memory') {
    super(`A thread exceeded its ${limit} limit and was terminated.`);
    this.limit = limit;
  }
}

export interface TaskOptions {
  /** The user and the school that the thread is shared out to. Without one, a task of the service itself. */
  owner?: RequestOwner | undefined;
  /** Time limit for running, without the time spent waiting for a thread. */
  timeoutMs: number;
  /** Ends the wait, or terminates the thread, with the signal's reason. For a client that has disconnected. */
  signal?: AbortSignal | undefined;
  /** Ends only the wait for a thread, with the signal's reason. */
  waitSignal?: AbortSignal | undefined;
}

type RunTask<Task, Result> = (task: Task, options: TaskOptions) => Promise<Result>;

/**
 * Creates a pool and returns the function that runs a task in it. Idle threads do not keep the process alive.
 *
 * Piscina runs the threads. The queue is our own: it shares the threads between schools. Piscina does not apply
 * `maxQueue` to tasks with an AbortSignal, and has no time limit that starts when a task runs.
 * @throws ApiError `unavailable` when the queue is full, also after a wait; ThreadLimitError; the reason of a signal; or
 *   the error of the task
 */
export function createThreadPool<Task, Result>(options: ThreadPoolOptions): RunTask<Task, Result> {
  const { name, maxThreads, maxQueue, idleTimeoutMs, queueFullMessage } = options;
  const queue = fairQueue({
    name,
    maxRunning: { total: maxThreads },
    maxInProgress: { total: maxThreads + maxQueue },
    refusal: () => new ApiError('unavailable', queueFullMessage, { retryAfter: 5 }),
  });
  const shared = idleTimeoutMs > 0 ? createThreads(options, maxThreads) : undefined;

  return async (task, { owner = noOwner, timeoutMs, signal, waitSignal }) => {
    signal?.throwIfAborted();
    const run = async () => {
      const threads = shared ?? createThreads(options, 1);
      try {
        return await runInThread<Result>(threads, task, timeoutMs, signal);
      } finally {
        if (!shared) await threads.destroy();
      }
    };
    const ends = [signal, waitSignal].filter((each) => each !== undefined);
    return queue.run(owner, run, ends.length > 0 ? AbortSignal.any(ends) : undefined);
  };
}

function createThreads({ script, resourceLimits, idleTimeoutMs }: ThreadPoolOptions, maxThreads: number): Piscina {
  const threads = new Piscina({
    filename: fileURLToPath(script),
    resourceLimits,
    minThreads: 0,
    maxThreads,
    idleTimeout: idleTimeoutMs,
    // With atomics an idle thread blocks its event loop.
    atomics: 'disabled',
    recordTiming: false,
  });
  // A thread without a task failed. Without a listener the process would end.
  threads.on('error', (error: Error) => process.emitWarning(error));
  return threads;
}

async function runInThread<Result>(
  threads: Piscina,
  task: unknown,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Result> {
  const timeout = AbortSignal.timeout(timeoutMs);
  try {
    return (await threads.run(task, { signal: signal ? AbortSignal.any([signal, timeout]) : timeout })) as Result;
  } catch (error) {
    signal?.throwIfAborted();
    if (timeout.aborted) throw new ThreadLimitError('time');
    if ((error as NodeJS.ErrnoException).code === 'ERR_WORKER_OUT_OF_MEMORY') throw new ThreadLimitError('memory');
    throw error;
  }
}
