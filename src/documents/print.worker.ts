import { parentPort, workerData } from 'node:worker_threads';
import { invoicePdf, paymentPdf } from './invoice.ts';
import type { PrintJob } from './print.ts';
import { timetablePdf } from './timetable.ts';

// The thread in which print.ts has a document made.
function write(job: PrintJob): Promise<Buffer> {
  switch (job.kind) {
    case 'timetable':
      return timetablePdf(job.data);
    case 'invoice':
      return invoicePdf(job.data);
    case 'payment':
      return paymentPdf(job.data);
  }
}

parentPort?.postMessage(await write(workerData as PrintJob));
