import { parentPort, workerData } from 'node:worker_threads';
import { generate } from './generate.ts';
import type { GenerateInThread } from './in-a-thread.ts';

// The thread in which in-a-thread.ts has a timetable generated.

const { problem, options } = workerData as GenerateInThread;
parentPort?.postMessage(generate(problem, options));
