import { invoicePdf, paymentPdf } from './invoice.ts';
import type { PrintJob } from './print.ts';
import { timetablePdf } from './timetable.ts';

/** Runs in the threads of print.ts. */
export default (job: PrintJob): Promise<Buffer> => {
  switch (job.kind) {
    case 'timetable':
      return timetablePdf(job.data);
    case 'invoice':
      return invoicePdf(job.data);
    case 'payment':
      return paymentPdf(job.data);
  }
};
