import { availableParallelism } from 'node:os';
import { ApiError } from '../api/errors.ts';
import { ThreadLimitError, threadLine } from '../thread.ts';
import { defaultTimeLimit } from './generate.ts';
import type { Generated, Options, Problem } from './problem.ts';

export interface GenerateInThread {
  problem: Problem;
  options: Omit<Options, 'stop'>;
}

/** A problem of 100 classes needs 30 MB. One processor is left for everybody else. */
const run = threadLine<Generated>({
  script: new URL('generate.worker.ts', import.meta.url),
  resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 },
  most: Math.max(1, availableParallelism() - 1),
  mostWaiting: 4,
  keepMilliseconds: 10_000,
  busy: 'Too many timetables are being generated. Try again in a moment.',
});

/** A thread that has not ended so long after its own time limit hangs. */
const graceMilliseconds = 5_000;

/**
 * `generate` in a thread of its own, some at a time, for it takes a processor for as long as it runs.
 * @param signal  of the request: when it is gone, so is the thread
 * @throws ApiError unavailable when too many wait, or when the thread had to be ended; the signal's reason
 */
export async function generateInThread(problem: Problem, options: Omit<Options, 'stop'> = {}, signal?: AbortSignal): Promise<Generated> {
  const maxMilliseconds = (options.time_limit_ms ?? defaultTimeLimit) + graceMilliseconds;
  try {
    return await run({ problem, options } satisfies GenerateInThread, { maxMilliseconds, signal });
  } catch (error) {
    if (!(error instanceof ThreadLimitError)) throw error;
    const wanted = error.limit === 'time' ? 'took too long to generate' : 'needs too much memory';
    throw new ApiError('unavailable', `The timetable ${wanted}. Try again with fewer classes.`, { retryAfter: 60, cause: error });
  }
}
