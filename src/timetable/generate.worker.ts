import { generate } from './generate.ts';
import type { GenerateTask } from './generate-in-thread.ts';

/** Runs in the threads of generate-in-thread.ts. */
export default ({ problem, options }: GenerateTask): ReturnType<typeof generate> => generate(problem, options);
