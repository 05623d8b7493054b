import { invoicePdf, paymentPdf } from './invoice.ts';
import { drawablePicture } from './picture.ts';
import type { PrintJob } from './print.ts';
import { timetablePdf } from './timetable.ts';

/** Runs in the threads of print.ts. */
export default async (job: PrintJob): Promise<Buffer> => {
  const { letterhead } = job.data;
  if (letterhead.logo !== null) letterhead.logo = await drawablePicture(letterhead.logo);
  switch (job.kind) {
    case 'timetable':
      return timetablePdf(job.data);
    case 'invoice':
      return invoicePdf(job.data);
    case 'payment':
      return paymentPdf(job.data);
  }
};
