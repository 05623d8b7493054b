import { answerWith } from '../concurrency/thread-worker.ts';
import { invoicePdf, paymentPdf } from './invoice.ts';
import type { PrintJob } from './print.ts';
import { timetablePdf } from './timetable.ts';

// The thread in which print.ts has documents made.
answerWith((job: PrintJob) => {
  switch (job.kind) {
    case 'timetable':
      return timetablePdf(job.data);
    case 'invoice':
      return invoicePdf(job.data);
    case 'payment':
      return paymentPdf(job.data);
  }
});
