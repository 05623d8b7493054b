import { addAbortListener } from 'node:events';
import type PQueue from 'p-queue';

/**
 * Adds work to a queue and returns its result.
 *
 * p-queue's own `signal` also abandons work that is already running, and frees its slot while it runs. `waitSignal`
 * ends only the wait, with its reason.
 */
export async function enqueue<Result>(
  queue: PQueue,
  work: () => Promise<Result>,
  waitSignal: AbortSignal | undefined,
): Promise<Result> {
  if (!waitSignal || !isFull(queue)) return queue.add(work);
  const waiting = new AbortController();
  if (waitSignal.aborted) throw waitSignal.reason;
  const listener = addAbortListener(waitSignal, () => waiting.abort(waitSignal.reason));
  try {
    return await queue.add(
      () => {
        listener[Symbol.dispose]();
        return work();
      },
      { signal: waiting.signal },
    );
  } finally {
    listener[Symbol.dispose]();
  }
}

/** Whether new work would have to wait. */
export const isFull = (queue: PQueue): boolean => queue.size > 0 || queue.pending >= queue.concurrency;
