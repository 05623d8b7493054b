import { type ResourceLimits, Worker } from 'node:worker_threads';
import { ApiError } from '../domain/errors.ts';

/** Work that hurts an event loop, or whoever does it, is done in threads of its own, some at a time. */
export interface ThreadLine {
  /** The script: it hands what it does to `answerWith`. */
  script: URL;
  /** Of each thread. */
  resourceLimits: ResourceLimits;
  /** How many run at a time in this process, and how many more may wait. */
  most: number;
  maxWaiting: number;
  /** How long a thread that has answered is there for the next request; 0 where nothing of one may be left to another. */
  keepMilliseconds: number;
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
 * A line of threads that all run one script: `run(request, options)` answers what the script makes of the request. A thread that answers
 * is kept for a while; one that fails or is ended has no successor until one is needed. Threads that wait keep no process from ending.
 * @throws ApiError unavailable when too many wait, ThreadLimitError, the signal's reason, or what the script threw
 */
export function threadLine<Answer>(line: ThreadLine): (request: unknown, options: ThreadOptions) => Promise<Answer> {
  let running = 0;
  const waiting = new Set<() => void>();
  /** The threads that have nothing to do, the last that had at the end, with what will end them. */
  const idle = new Map<Worker, NodeJS.Timeout>();

  const turn = async (signal: AbortSignal) => {
    if (running < line.most) {
      running++;
      return;
    }
    signal.throwIfAborted();
    if (waiting.size >= line.maxWaiting) throw new ApiError('unavailable', line.busy, { retryAfter: 5 });
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const go = () => resolve(undefined);
    const leave = () => {
      // Whoever has been called already holds a place, and gives it back when its thread is done.
      if (waiting.delete(go)) reject(signal.reason as Error);
    };
    waiting.add(go);
    signal.addEventListener('abort', leave, { once: true });
    await promise.finally(() => signal.removeEventListener('abort', leave));
  };

  const next = () => {
    const [first] = waiting;
    if (!first) running--;
    else {
      waiting.delete(first);
      first();
    }
  };

  const leaveIdle = (thread: Worker) => {
    clearTimeout(idle.get(thread));
    return idle.delete(thread);
  };

  const take = () => {
    const kept = [...idle.keys()].at(-1);
    if (kept) {
      leaveIdle(kept);
      kept.ref();
      return kept;
    }
    const thread = new Worker(line.script, { resourceLimits: line.resourceLimits });
    // Also while it has nothing to do, when nobody else hears of it.
    thread.on('error', () => leaveIdle(thread));
    thread.on('exit', () => leaveIdle(thread));
    return thread;
  };

  const keep = (thread: Worker) => {
    thread.unref();
    const timer = setTimeout(() => leaveIdle(thread) && void thread.terminate(), line.keepMilliseconds);
    idle.set(thread, timer.unref());
  };

  return async (request, options) => {
    options.signal?.throwIfAborted();
    const ends = [options.signal, options.patience].filter((each) => each !== undefined);
    await turn(AbortSignal.any(ends));
    try {
      options.signal?.throwIfAborted();
      const thread = take();
      let isFit = false;
      try {
        const answer = await answerOf<Answer>(thread, request, line.script, options);
        isFit = line.keepMilliseconds > 0;
        return answer;
      } finally {
        if (isFit) keep(thread);
        else await thread.terminate();
      }
    } finally {
      next();
    }
  };
}

async function answerOf<Answer>(
  thread: Worker,
  request: unknown,
  script: URL,
  { maxMilliseconds, signal }: ThreadOptions,
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const timer = setTimeout(() => reject(new ThreadLimitError('time')), maxMilliseconds);
  const abort = () => reject(signal?.reason as Error);
  const fail = (error: NodeJS.ErrnoException) =>
    reject(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? new ThreadLimitError('memory') : error);
  const end = () => reject(new Error(`${script.pathname} ended without an answer.`));
  signal?.addEventListener('abort', abort, { once: true });
  thread.on('message', resolve).on('error', fail).on('exit', end);
  try {
    thread.postMessage(request);
    return await promise;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
    thread.off('message', resolve).off('error', fail).off('exit', end);
  }
}
