import { fairQueue, type RequestOwner } from '../concurrency/fair-queue.ts';
import { type Lease, withLease } from '../concurrency/lease.ts';
import { ApiError } from '../domain/errors.ts';
import { GeneratorLimitError, generateInThread } from './generate-in-thread.ts';
import type { Options } from './problem.ts';
import { type GenerationRun, overCapacityOf, slotsOf, unplacedOf } from './school.ts';

/** What a request for a timetable asks for. The other fields are those of the operation. */
interface GenerationInput {
  time_limit_seconds?: number | undefined;
  effort?: number | undefined;
  seed?: number | undefined;
  dry_run?: boolean | undefined;
  allow_partial?: boolean | undefined;
  replace_pinned?: boolean | undefined;
}

/** Who generates a timetable, and how to reach the database. */
interface Generation {
  schoolId: number;
  owner: RequestOwner;
  /** Aborts when the client disconnects. */
  disconnect: AbortSignal;
  call: (operation: string, params: object) => Promise<string>;
  callAfterDisconnect: (operation: string, params: object) => Promise<string>;
  logger: { warn: (entry: object) => void };
  leaseRenewMs: number;
  /** How long a request waits for its turn, in addition to its time limit. */
  timetableQueueWaitMs: number;
}

const schoolBusy = () =>
  new ApiError(
    'conflict',
    'Other timetables of this school are being generated or waiting. Try again when they are done.',
  );

/** A school generates one timetable at a time in this process, so that waiting requests use no database connection. */
const generations = fairQueue({
  name: 'timetables',
  maxRunning: { school: 1 },
  maxInProgress: { school: 3 },
  refusal: schoolBusy,
});

/** The school's lease on generating a timetable. */
function generationLease(
  { schoolId, call, callAfterDisconnect, logger }: Generation,
  input: object,
): Lease<GenerationRun> {
  return {
    acquire: async () => {
      const answer = JSON.parse(await call('timetable_generate', input)) as GenerationRun | { busy_since: string };
      return 'run' in answer ? { granted: answer } : answer;
    },
    renew: async ({ run }) => {
      const answer = await call('timetable_generate_renew', { tenant_id: schoolId, run });
      return (JSON.parse(answer) as { is_held: boolean }).is_held;
    },
    // A lease that cannot be released expires by itself.
    release: async ({ run }) => {
      await callAfterDisconnect('timetable_generate_end', { tenant_id: schoolId, run }).catch((error: unknown) =>
        logger.warn({ operation: 'timetable_generate_end', error }),
      );
    },
  };
}

/** @throws ApiError unavailable if the thread exceeded its limits or no thread became free in time */
function refuse(error: unknown): never {
  if (error instanceof GeneratorLimitError)
    throw new ApiError('unavailable', error.message, { retryAfter: 60, cause: error });
  if (error instanceof DOMException && error.name === 'TimeoutError') {
    throw new ApiError('unavailable', 'Too many timetables are being generated. Try again in a moment.', {
      retryAfter: 30,
      cause: error,
    });
  }
  throw error;
}

/** How to search, and whether to save. */
type Search = Pick<Options, 'time_limit_ms'> & {
  seed: number;
  effort: number;
  allow_partial: boolean;
  dry_run: boolean;
  replace_pinned: boolean;
};

/** Searches without an open transaction, and saves. @returns the JSON of the response */
async function search(
  run: GenerationRun,
  { dry_run, replace_pinned, ...options }: Search,
  { owner, call }: Generation,
  signals: { signal: AbortSignal; waitSignal: AbortSignal },
): Promise<string> {
  const result = await generateInThread(run.problem, options, { owner, ...signals }).catch(refuse);
  if (result.status === 'infeasible') {
    const details = overCapacityOf(run, result.over_capacity);
    const message = `No timetable has room for all lessons. ${details[0]?.message ?? ''}`.trim();
    throw new ApiError('schedule_conflict', message, { details: details.slice(0, 20) });
  }
  const slots = slotsOf(run, result.placed);
  const unplaced = unplacedOf(run, result.unplaced);
  signals.signal.throwIfAborted();
  let saved: { removed: number; ids: number[] } = { removed: run.replaced_slot_count, ids: [] };
  if (!dry_run) {
    const { digest, academic_year_id, class_ids } = run;
    const given = { run: run.run, digest, academic_year_id, class_ids, replace_pinned, slots };
    saved = JSON.parse(await call('timetable_generate_save', given)) as typeof saved;
  }
  const { spread_excess, class_gaps, teacher_gaps } = result.figures;
  return JSON.stringify({
    status: unplaced.length === 0 ? 'complete' : 'partial',
    placed: slots.length,
    removed: saved.removed,
    pinned_conflicts: run.pinned_conflicts,
    unplaced,
    over_capacity: overCapacityOf(run, result.over_capacity),
    seconds: result.seconds,
    figures: { spread_excess, class_gaps, teacher_gaps },
    seed: options.seed,
    effort: options.effort,
    is_cut_short: result.is_cut_short,
    slots: slots.map((slot, index) => ({ id: saved.ids[index] ?? null, ...slot })),
  });
}

/**
 * Generates a timetable: waits in the queue of the school, for its lease and for a thread, searches and saves. The lease
 * is always released, including when the client disconnects or logs out.
 */
export async function generateTimetable(given: GenerationInput, generation: Generation): Promise<string> {
  const {
    time_limit_seconds = 60,
    effort = Math.min(10, time_limit_seconds),
    seed = 1,
    dry_run = false,
    allow_partial = false,
    replace_pinned = false,
    ...input
  } = given;
  const { owner, disconnect, leaseRenewMs, timetableQueueWaitMs } = generation;
  const time_limit_ms = time_limit_seconds * 1000;
  const waitSignal = AbortSignal.any([disconnect, AbortSignal.timeout(time_limit_ms + timetableQueueWaitMs)]);
  const leaseOptions = {
    renewIntervalMs: leaseRenewMs,
    signal: disconnect,
    waitSignal,
    busyMessage: (since: string) =>
      `Another timetable of this school has been generating since ${since}. Try again when it is done.`,
    lostMessage: 'Another timetable of this school was started in the meantime. Generate again.',
  };
  const release = await generations.enter(owner, waitSignal).catch((error: unknown) => {
    throw error instanceof ApiError ? error : schoolBusy();
  });
  try {
    const lease = generationLease(generation, { ...input, replace_pinned });
    const options = { seed, effort, time_limit_ms, allow_partial, dry_run, replace_pinned };
    return await withLease(lease, leaseOptions, (run, signal) =>
      search(run, options, generation, { signal, waitSignal }),
    );
  } finally {
    release();
  }
}
