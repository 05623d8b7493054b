import { fairQueue, type RequestOwner } from '../concurrency/fair-queue.ts';
import { createThreadPool, ThreadLimitError } from '../concurrency/thread-pool.ts';
import { ApiError } from '../domain/errors.ts';
import type { InvoiceData, PaymentData } from './invoice.ts';
import type { TimetableData } from './timetable.ts';

/** A document to print. Each kind is laid out by a file in this directory. */
export type PrintJob =
  | { kind: 'timetable'; data: TimetableData }
  | { kind: 'invoice'; data: InvoiceData }
  | { kind: 'payment'; data: PaymentData };

const printInPool = createThreadPool<PrintJob, Uint8Array<ArrayBuffer>>({
  name: 'print_threads',
  script: new URL('print.worker.ts', import.meta.url),
  resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 },
  maxThreads: 2,
  maxQueue: 32,
  // Parsing the fonts takes most of the time of the first document in a thread.
  idleTimeoutMs: 10_000,
  queueFullMessage: 'Too many documents are being printed. Try again in a moment.',
});
const timeoutMs = 10_000;

/** The request that a document is printed for. */
export interface PrintRequest extends RequestOwner {
  /** Aborts when the client disconnects. */
  signal: AbortSignal;
}

const requests = fairQueue({
  name: 'documents',
  maxInProgress: { school: 6, user: 3 },
  refusal: () =>
    new ApiError('rate_limited', 'You or your school have other documents in progress. Try again in a moment.', {
      retryAfter: 3,
    }),
});

/**
 * Makes a PDF in a thread, since the layout takes tens of milliseconds.
 * @param request  undefined for a background job, which has no limit per school
 * @throws ApiError `rate_limited` when the school or the user has too many documents in progress, `unavailable` when
 *   too many documents wait or this one exceeds the limits of its thread; the reason of the signal
 */
export async function print(job: PrintJob, request?: PrintRequest): Promise<Buffer> {
  const release = await (request && requests.enter(request));
  try {
    return await printWithLogo(job, request);
  } catch (error) {
    if (!(error instanceof ThreadLimitError)) throw error;
    const reason = error.limit === 'time' ? 'took too long' : 'takes too much memory';
    throw new ApiError('unavailable', `The document ${reason} to print.`, { retryAfter: 30, cause: error });
  } finally {
    release?.();
  }
}

/** Prints again without the logo when that may be why the document could not be printed. */
async function printWithLogo(job: PrintJob, request: PrintRequest | undefined): Promise<Buffer> {
  const signal = request?.signal;
  const options = { timeoutMs, signal, owner: request };
  try {
    return Buffer.from(await printInPool(job, options));
  } catch (error) {
    const isTimeout = error instanceof ThreadLimitError && error.limit === 'time';
    if (signal?.aborted || isTimeout || error instanceof ApiError || job.data.letterhead.logo === null) throw error;
    const letterhead = { ...job.data.letterhead, logo: null };
    return Buffer.from(await printInPool({ ...job, data: { ...job.data, letterhead } } as PrintJob, options));
  }
}
