import { expect, test } from '@jest/globals';
import { generateInThread } from '../../src/timetable/in-a-thread.ts';
import { threadLine } from '../../src/thread.ts';
import { judge } from '../support/timetable-checker.ts';
import { instances } from '../support/timetable-instances.ts';

const small = instances.find(({ name }) => name === 'S')?.problem;
const large = instances.find(({ name }) => name === 'L')?.problem;
if (!small || !large) throw new Error('S and L are needed.');

const script = (code: string) => new URL(`data:text/javascript,${encodeURIComponent(`import { parentPort, workerData } from 'node:worker_threads';${code}`)}`);
const line = (code: string, more = {}) =>
  threadLine<unknown>({ script: script(code), resourceLimits: { maxOldGenerationSizeMb: 32 }, most: 1, mostWaiting: 1, busy: 'Too many.', ...more });

test('A timetable is made in a thread while the event loop goes on', async () => {
  let turns = 0;
  const timer = setInterval(() => turns++, 5);
  const made = await generateInThread(small, { effort_ms: 300, time_limit_ms: 60_000 });
  clearInterval(timer);
  if (made.status === 'infeasible') throw new Error(made.status);
  expect(judge(small, made.placed)).toMatchObject({ broken: {}, unplaced: 0 });
  expect(turns).toBeGreaterThan(2);
});

test('A request that is gone ends its thread, and gives up its place in the line', async () => {
  const gone = new AbortController();
  const all = [1, 2, 3].map(() => generateInThread(large, { time_limit_ms: 600_000 }, gone.signal).catch((error: unknown) => error));
  setTimeout(() => gone.abort(new Error('gone')), 200);
  expect(await Promise.all(all)).toEqual([1, 2, 3].map(() => new Error('gone')));
  expect(await generateInThread(small, { effort_ms: 10, time_limit_ms: 60_000 })).toHaveProperty('figures');
});

test('A thread that hangs, fails or says nothing is told apart, and the line goes on', async () => {
  const run = line(`
    if (workerData === 'hang') for (;;);
    if (workerData === 'fail') throw new Error('failed');
    if (workerData !== 'silent') parentPort.postMessage(workerData);`);
  await expect(run('hang', { maxMilliseconds: 200 })).rejects.toMatchObject({ limit: 'time' });
  await expect(run('fail', { maxMilliseconds: 60_000 })).rejects.toThrow('failed');
  await expect(run('silent', { maxMilliseconds: 60_000 })).rejects.toThrow('ended without an answer');
  expect(await run('echo', { maxMilliseconds: 60_000 })).toBe('echo');
});

test('One more than may wait is told to come again', async () => {
  const run = line('setTimeout(() => parentPort.postMessage(workerData), 100)');
  const answers = await Promise.allSettled([1, 2, 3].map((n) => run(n, { maxMilliseconds: 60_000 })));
  expect(answers).toMatchObject([{ value: 1 }, { value: 2 }, { reason: { error: 'unavailable', message: 'Too many.', retryAfter: 5 } }]);
});
