import PQueue from 'p-queue';
import { ApiError } from '../domain/errors.ts';
import { enqueue, isFull } from './queue.ts';

export interface SchoolQueueOptions {
  /** How many of a school may wait in this process while another runs. */
  maxWaiting: number;
  /** Message of the error when too many wait, or when the wait took too long. */
  busyMessage: string;
}

type RunInQueue = <Result>(school: number, waitSignal: AbortSignal, work: () => Promise<Result>) => Promise<Result>;

/**
 * Runs work of one school one after the other in this process, so that waiting costs the database nothing.
 * @returns a function that runs work; `waitSignal` ends only the wait
 * @throws ApiError `conflict` when too many wait or `waitSignal` aborts; its reason where that is an ApiError
 */
export function queuePerSchool({ maxWaiting, busyMessage }: SchoolQueueOptions): RunInQueue {
  const queues = new Map<number, PQueue>();
  const busy = () => new ApiError('conflict', busyMessage);

  return async (school, waitSignal, work) => {
    let queue = queues.get(school);
    if (!queue) {
      queue = new PQueue({ concurrency: 1 });
      queue.on('idle', () => queues.delete(school));
      queues.set(school, queue);
    }
    if (isFull(queue) && queue.size >= maxWaiting) throw busy();
    const progress = { hasStarted: false };
    try {
      return await enqueue(
        queue,
        () => {
          progress.hasStarted = true;
          return work();
        },
        waitSignal,
      );
    } catch (error) {
      if (progress.hasStarted || error instanceof ApiError) throw error;
      throw busy();
    }
  };
}
