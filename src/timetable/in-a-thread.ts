import { availableParallelism } from 'node:os';
import { ThreadLimitError, threadLine } from '../concurrency/thread-pool.ts';
import { defaultTimeLimit } from './generate.ts';
import type { Generated, Options, Problem } from './problem.ts';

export interface GenerateInThread {
  problem: Problem;
  options: Options;
}

/** A problem of 100 classes needs 30 MB. One processor is left for everybody else. */
const run = threadLine<Generated>({
  script: new URL('generate.worker.ts', import.meta.url),
  resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 },
  most: Math.max(1, availableParallelism() - 1),
  maxWaiting: 4,
  keepMilliseconds: 10_000,
  busy: 'Too many timetables are being generated. Try again in a moment.',
});

/** A thread that has not ended so long after its own time limit hangs: on a busy machine it takes seconds to begin. */
const graceMilliseconds = 15_000;

/** Thrown when a timetable wanted more time or memory than its thread may have. */
export class GeneratorLimitError extends Error {}

/** Who waits for a thread, and who is gone. */
export interface Signals {
  /** Of the request: when it is gone, so is the thread. */
  signal?: AbortSignal;
  /** Ends the waiting for a thread, and nothing else. */
  patience?: AbortSignal;
}

/**
 * `generate` in a thread of its own, some at a time, for it takes a processor for as long as it runs.
 * @throws GeneratorLimitError, the signals' reasons, or what `threadLine` throws when too many wait
 */
export async function generateInThread(
  problem: Problem,
  options: Options = {},
  { signal, patience }: Signals = {},
): Promise<Generated> {
  const maxMilliseconds = (options.time_limit_ms ?? defaultTimeLimit) + graceMilliseconds;
  try {
    return await run({ problem, options } satisfies GenerateInThread, { maxMilliseconds, signal, patience });
  } catch (error) {
    if (!(error instanceof ThreadLimitError)) throw error;
    const wanted = error.limit === 'time' ? 'took too long to generate' : 'needs too much memory';
    throw new GeneratorLimitError(`The timetable ${wanted}. Try again with fewer classes.`, { cause: error });
  }
}
