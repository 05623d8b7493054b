import { type ResourceLimits, Worker } from 'node:worker_threads';
import { ApiError } from './api/errors.ts';

/** Work that hurts an event loop, or whoever does it, is done in a thread of its own, some at a time. */
export interface ThreadLine {
  /** The script; it posts one message, its answer. */
  script: URL;
  resourceLimits: ResourceLimits;
  /** How many run at a time in this process, and how many more may wait. */
  most: number;
  mostWaiting: number;
  /** What whoever comes when as many wait is told. */
  busy: string;
}

/** Thrown when the thread wanted more time or memory than it may have; it has been ended. */
export class ThreadLimitError extends Error {
  readonly limit: 'time' | 'memory';
  constructor(limit: 'time' | 'memory') {
    super(`A thread was ended, since it wanted too much ${limit}.`);
    this.limit = limit;
  }
}

export interface ThreadOptions {
  /** From when it runs; what it waited before is not counted. */
  maxMilliseconds: number;
  /** Ends the waiting or the thread, for a request that is gone; its reason is thrown. */
  signal?: AbortSignal | undefined;
  /** Ends the waiting, and nothing else. */
  patience?: AbortSignal | undefined;
}

/**
 * A line of threads that all run one script: `run(workerData, options)` answers what the script posts.
 * @throws ApiError unavailable when too many wait, ThreadLimitError, the signal's reason, or what the script threw
 */
export function threadLine<Answer>(line: ThreadLine): (workerData: unknown, options: ThreadOptions) => Promise<Answer> {
  let running = 0;
  const waiting = new Set<() => void>();

  const turn = async (signal?: AbortSignal) => {
    if (running < line.most) {
      running++;
      return;
    }
    if (waiting.size >= line.mostWaiting) throw new ApiError('unavailable', line.busy, { retryAfter: 5 });
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const go = () => resolve(undefined);
    const leave = () => {
      // Whoever has been called already holds a place, and gives it back when its thread is done.
      if (waiting.delete(go)) reject(signal?.reason as Error);
    };
    waiting.add(go);
    signal?.addEventListener('abort', leave, { once: true });
    await promise.finally(() => signal?.removeEventListener('abort', leave));
  };

  const next = () => {
    const [first] = waiting;
    if (!first) running--;
    else {
      waiting.delete(first);
      first();
    }
  };

  return async (workerData, options) => {
    options.signal?.throwIfAborted();
    const ends = [options.signal, options.patience].filter((each) => each !== undefined);
    await turn(AbortSignal.any(ends));
    try {
      return await runInThread<Answer>(line.script, workerData, { ...options, resourceLimits: line.resourceLimits });
    } finally {
      next();
    }
  };
}

async function runInThread<Answer>(
  script: URL,
  workerData: unknown,
  { maxMilliseconds, signal, resourceLimits }: ThreadOptions & { resourceLimits: ResourceLimits },
): Promise<Answer> {
  signal?.throwIfAborted();
  const thread = new Worker(script, { workerData, resourceLimits });
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const timer = setTimeout(() => reject(new ThreadLimitError('time')), maxMilliseconds);
  const abort = () => reject(signal?.reason as Error);
  signal?.addEventListener('abort', abort, { once: true });
  thread.on('message', resolve);
  thread.on('error', (error: NodeJS.ErrnoException) => reject(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? new ThreadLimitError('memory') : error));
  thread.on('exit', () => reject(new Error(`${script.pathname} ended without an answer.`)));
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
    await thread.terminate();
  }
}
