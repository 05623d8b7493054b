import PQueue from 'p-queue';
import { ApiError } from '../domain/errors.ts';
import { enqueue, isFull } from './queue.ts';

export interface SchoolQueueOptions {
  /** Maximum tasks of a school that wait in this process while another one runs. */
  maxWaiting: number;
  /** Message of the error when too many tasks wait, or when a wait is aborted. */
  busyMessage: string;
}

type RunInQueue = <Result>(school: number, waitSignal: AbortSignal, work: () => Promise<Result>) => Promise<Result>;

/**
 * Runs the tasks of a school one at a time in this process, so that waiting tasks use no database connection.
 * @returns a function that runs work; `waitSignal` ends only the wait
 * @throws ApiError `conflict` when too many tasks wait or `waitSignal` aborts; the signal's reason if it is an ApiError
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
