import { parentPort, workerData } from 'node:worker_threads';
import type { PrintJob } from './print.ts';
import { timetablePdf } from './timetable.ts';

// The thread in which print.ts has a document made.
const { data } = workerData as PrintJob;
parentPort?.postMessage(await timetablePdf(data));
