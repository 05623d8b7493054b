import { answerWith } from '../concurrency/thread-worker.ts';
import { generate } from './generate.ts';
import type { GenerateInThread } from './in-a-thread.ts';

// The thread in which in-a-thread.ts has timetables generated.
answerWith(({ problem, options }: GenerateInThread) => generate(problem, options));
