import { threadLine } from '../thread.ts';
import type { InvoiceData, PaymentData } from './invoice.ts';
import type { TimetableData } from './timetable.ts';

/** What is to be printed; each kind of document has its writer in a file of its own here. */
export type PrintJob = { kind: 'timetable'; data: TimetableData } | { kind: 'invoice'; data: InvoiceData } | { kind: 'payment'; data: PaymentData };

const line = threadLine<Uint8Array<ArrayBuffer>>({
  script: new URL('print.worker.ts', import.meta.url),
  resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 },
  most: 2,
  mostWaiting: 32,
  // To parse the fonts takes most of the time of a first document.
  keepMilliseconds: 10_000,
  busy: 'Too many documents are being printed. Try again in a moment.',
});

/**
 * Makes a PDF in a thread, since laying out text takes tens of milliseconds.
 * @throws ApiError unavailable when too many wait
 */
export async function print(job: PrintJob): Promise<Buffer> {
  return Buffer.from(await line(job, { maxMilliseconds: 10_000 }));
}
