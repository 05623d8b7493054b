import { setTimeout as pause } from 'node:timers/promises';
import { ApiError } from '../domain/errors.ts';

/** How many of a school wait in this process, behind the one that runs. */
const maxWaiting = 2;

interface Line {
  length: number;
  /** Resolves when the last of the line is done. */
  last: Promise<void>;
}
const lines = new Map<number, Line>();

const busy = () =>
  new ApiError(
    'conflict',
    'Other timetables of this school are being generated, and more wait. Try again when they are done.',
  );

/** Rejects when the signal ends. @returns also what stops listening to it */
function rejection(signal: AbortSignal): [Promise<never>, () => void] {
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = () => reject(signal.reason instanceof ApiError ? signal.reason : busy());
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort, { once: true });
  promise.catch(() => undefined);
  return [promise, () => signal.removeEventListener('abort', abort)];
}

/**
 * Runs `work` when nobody else of the school does in this process: those who wait cost the database nothing.
 * @param patience  ends the waiting
 * @throws ApiError conflict at once when enough wait, and when it took too long; the reason of `patience` where that is an ApiError
 */
export async function inLine<T>(school: number, patience: AbortSignal, work: () => Promise<T>): Promise<T> {
  const line = lines.get(school) ?? { length: 0, last: Promise.resolve() };
  if (line.length > maxWaiting) throw busy();
  lines.set(school, line);
  line.length++;
  const before = line.last;
  const { promise: done, resolve } = Promise.withResolvers<undefined>();
  // Whoever leaves the line early leaves those behind to wait for those before.
  line.last = before.then(() => done);
  const [gone, stop] = rejection(patience);
  try {
    await Promise.race([before, gone]);
    stop();
    return await work();
  } finally {
    stop();
    resolve(undefined);
    if (--line.length === 0) lines.delete(school);
  }
}

/** How long a turn lasts in the database is for it to say; this is how often it is renewed, several times as often. */
const renewal = 5_000;

export interface Turn<Begun> {
  /** Asks the database for the turn of the school; answers what there is to do, or since when another process has it. */
  begin: () => Promise<{ begun: Begun } | { busy_since: string }>;
  /** Keeps the turn; answers whether it is still held. */
  renew: (begun: Begun) => Promise<boolean>;
  /** Gives it back. */
  end: (begun: Begun) => Promise<void>;
}

/**
 * Runs `work` in the school's turn, which is the database's to give, since processes share it: asked for with growing pauses, renewed as long as it lasts, and
 * given back whatever happens.
 * @param signals  patience ends the waiting for the turn, signal the work: its own signal goes on to the work, and also tells when the turn is lost
 * @throws ApiError conflict when another process has it for too long, or when it is lost; the signals' reasons
 */
export async function inTurn<Begun, T>(
  { begin, renew, end }: Turn<Begun>,
  { signal, patience }: { signal: AbortSignal; patience: AbortSignal },
  work: (begun: Begun, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const begun = await ask(begin, signal, patience);
  const lost = new AbortController();
  const timer = setInterval(() => {
    // What fails now may work in a moment; the end of the turn is not before that.
    renew(begun).then(
      (isHeld) => {
        if (!isHeld)
          lost.abort(new ApiError('conflict', 'Another timetable of this school was begun meanwhile. Generate again.'));
      },
      () => undefined,
    );
  }, renewal);
  try {
    return await work(begun, AbortSignal.any([signal, lost.signal]));
  } finally {
    clearInterval(timer);
    await end(begun);
  }
}

async function ask<Begun>(begin: Turn<Begun>['begin'], signal: AbortSignal, patience: AbortSignal): Promise<Begun> {
  for (let wait = 200; ; wait = Math.min(wait * 1.5, 3_000)) {
    signal.throwIfAborted();
    const answer = await begin();
    if ('begun' in answer) return answer.begun;
    if (patience.aborted) {
      throw new ApiError(
        'conflict',
        `Another timetable of this school is being generated, since ${answer.busy_since}. Try again when it is done.`,
      );
    }
    await pause(wait * (0.5 + Math.random()), undefined, { signal: AbortSignal.any([signal, patience]) }).catch(
      () => undefined,
    );
  }
}
