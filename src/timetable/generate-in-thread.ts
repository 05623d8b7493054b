import { availableParallelism } from 'node:os';
import type { RequestOwner } from '../concurrency/fair-queue.ts';
import { createThreadPool, ThreadLimitError } from '../concurrency/thread-pool.ts';
import { defaultTimeLimit } from './generate.ts';
import type { Generated, Options, Problem } from './problem.ts';

export interface GenerateTask {
  problem: Problem;
  options: Options;
}

/** A problem with 100 classes needs 30 MB. One processor is left for the event loop. */
const run = createThreadPool<GenerateTask, Generated>({
  name: 'generator_threads',
  script: new URL('generate.worker.ts', import.meta.url),
  resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 },
  maxThreads: Math.max(1, availableParallelism() - 1),
  maxQueue: 4,
  idleTimeoutMs: 10_000,
  queueFullMessage: 'Too many timetables are being generated. Try again in a moment.',
});

/**
 * The search ends by itself at its time limit. On a busy machine a thread takes seconds to start, so it is terminated
 * this much later.
 */
const graceMs = 15_000;

/** The generator exceeded the time or memory limit of its thread. */
export class GeneratorLimitError extends Error {}

export interface GenerateRequest {
  /** The user and the school that the threads are shared out to. */
  owner?: RequestOwner;
  /** Ends the wait, or terminates the thread, for a client that has disconnected. */
  signal?: AbortSignal;
  /** Ends only the wait for a thread. */
  waitSignal?: AbortSignal;
}

/**
 * Runs `generate` in a thread, since it occupies a processor as long as it runs.
 * @throws GeneratorLimitError, ApiError `unavailable` when too many wait, or the reason of a signal
 */
export async function generateInThread(
  problem: Problem,
  options: Options = {},
  { owner, signal, waitSignal }: GenerateRequest = {},
): Promise<Generated> {
  const timeoutMs = (options.time_limit_ms ?? defaultTimeLimit) + graceMs;
  try {
    return await run({ problem, options }, { owner, timeoutMs, signal, waitSignal });
  } catch (error) {
    if (!(error instanceof ThreadLimitError)) throw error;
    const reason = error.limit === 'time' ? 'took too long to generate' : 'needs too much memory';
    throw new GeneratorLimitError(`The timetable ${reason}. Try again with fewer classes.`, { cause: error });
  }
}
