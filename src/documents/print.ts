import { ApiError } from '../domain/errors.ts';
import { type Asker, places } from '../concurrency/concurrency-limit.ts';
import { ThreadLimitError, threadLine } from '../concurrency/thread-pool.ts';
import type { InvoiceData, PaymentData } from './invoice.ts';
import type { TimetableData } from './timetable.ts';

/** What is to be printed; each kind of document has its writer in a file of its own here. */
export type PrintJob =
  | { kind: 'timetable'; data: TimetableData }
  | { kind: 'invoice'; data: InvoiceData }
  | { kind: 'payment'; data: PaymentData };

const line = threadLine<Uint8Array<ArrayBuffer>>({
  script: new URL('print.worker.ts', import.meta.url),
  resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 },
  most: 2,
  maxWaiting: 32,
  // To parse the fonts takes most of the time of a first document.
  keepMilliseconds: 10_000,
  busy: 'Too many documents are being printed. Try again in a moment.',
});

/** Who prints, and whether they are still there. */
export interface Printer extends Asker {
  signal: AbortSignal;
}

const takePlaces = places(
  { school: 6, user: 3 },
  'Other documents of yours are still being printed. Try again in a moment.',
);

/**
 * Makes a PDF in a thread, since laying out text takes tens of milliseconds. A logo that can not be drawn after all is left out.
 * @param by  whose request it is; without it a job of the service itself
 * @throws ApiError rate_limited when the school or the user prints as much already, unavailable when too many wait or the document
 * took too much; the signal's reason
 */
export async function print(job: PrintJob, by?: Printer): Promise<Buffer> {
  const giveBack = by && takePlaces(by);
  try {
    return await printInThread(job, by?.signal);
  } catch (error) {
    if (!(error instanceof ThreadLimitError)) throw error;
    const wanted = error.limit === 'time' ? 'took too long' : 'takes too much memory';
    throw new ApiError('unavailable', `The document ${wanted} to print.`, { retryAfter: 30, cause: error });
  } finally {
    giveBack?.();
  }
}

async function printInThread(job: PrintJob, signal: AbortSignal | undefined): Promise<Buffer> {
  const options = { maxMilliseconds: 10_000, signal };
  try {
    return Buffer.from(await line(job, options));
  } catch (error) {
    const isLate = error instanceof ThreadLimitError && error.limit === 'time';
    if (signal?.aborted || isLate || error instanceof ApiError || job.data.letterhead.logo === null) throw error;
    const letterhead = { ...job.data.letterhead, logo: null };
    return Buffer.from(await line({ ...job, data: { ...job.data, letterhead } }, options));
  }
}
