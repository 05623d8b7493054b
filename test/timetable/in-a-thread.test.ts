import { expect, test } from '@jest/globals';
import { generateInThread } from '../../src/timetable/in-a-thread.ts';
import { threadLine } from '../../src/thread.ts';
import { judge } from '../support/judge.ts';
import { instances } from '../support/stored-problems.ts';

const small = instances.find(({ name }) => name === 'S')?.problem;
const large = instances.find(({ name }) => name === 'L')?.problem;
if (!small || !large) throw new Error('S and L are needed.');

const script = (code: string) => new URL(`data:text/javascript,${encodeURIComponent(`import { parentPort, workerData } from 'node:worker_threads';${code}`)}`);
const line = (code: string, more = {}) =>
  threadLine<unknown>({ script: script(code), resourceLimits: { maxOldGenerationSizeMb: 32 }, most: 1, mostWaiting: 1, busy: 'Too many.', ...more });

test('A timetable is made in a thread while the event loop goes on', async () => {
  let turns = 0;
  const timer = setInterval(() => turns++, 5);
  const made = await generateInThread(small, { effort: 0.3 });
  clearInterval(timer);
  if (made.status === 'infeasible') throw new Error(made.status);
  expect(judge(small, made.placed)).toMatchObject({ broken: {}, unplaced: 0 });
  expect(turns).toBeGreaterThan(2);
});

test('A request that is gone ends its thread, and gives up its place in the line', async () => {
  const gone = new AbortController();
  const all = [1, 2, 3].map(() => generateInThread(large, { effort: 60 }, { signal: gone.signal }).catch((error: unknown) => error));
  setTimeout(() => gone.abort(new Error('gone')), 200);
  expect(await Promise.all(all)).toEqual([1, 2, 3].map(() => new Error('gone')));
  expect(await generateInThread(small, { effort: 0.01 })).toHaveProperty('figures');
});

test('Who waits for a thread waits as long as they have patience; whoever has one goes on', async () => {
  const gone = new AbortController();
  const running = generateInThread(large, { effort: 60 }, { signal: gone.signal, patience: AbortSignal.timeout(100) }).catch((error: unknown) => error);
  await expect(generateInThread(small, { effort: 0.01 }, { patience: AbortSignal.timeout(200) })).rejects.toMatchObject({ name: 'TimeoutError' });
  gone.abort(new Error('gone'));
  expect(await running).toEqual(new Error('gone'));
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
