import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { type ThreadOptions, threadLine } from '../../src/concurrency/thread-pool.ts';

const side = new URL('../../src/concurrency/thread-worker.ts', import.meta.url).href;

/**
 * A line of threads that do this with a `request`; each says its number and how many it has served. Nobody waits longer than
 * 10 seconds for a place: where one is lost, the test that misses it fails, and does not hang.
 */
const line = (
  code: string,
  more = {},
): ((request: unknown, options: ThreadOptions) => Promise<{ thread: number; served: number }>) => {
  const run = threadLine<{ thread: number; served: number }>({
    script: new URL(
      `data:text/javascript,${encodeURIComponent(`
        import { threadId as thread } from 'node:worker_threads';
        import { answerWith } from '${side}';
        let served = 0;
        answerWith(async (request) => { ${code}; return { thread, served: ++served }; });`)}`,
    ),
    resourceLimits: { maxOldGenerationSizeMb: 32 },
    most: 1,
    maxWaiting: 1,
    keepMilliseconds: 60_000,
    busy: 'Too many.',
    ...more,
  });
  return (request, given) => run(request, { patience: AbortSignal.timeout(10_000), ...given });
};
const options = { maxMilliseconds: 60_000 };

test('A thread that has answered serves the next request', async () => {
  const run = line('');
  const first = await run(1, options);
  expect(first.served).toBe(1);
  expect(await run(2, options)).toEqual({ ...first, served: 2 });
  expect(await run(3, options)).toEqual({ ...first, served: 3 });
});

test('There are no more threads than needed, and no more than may be', async () => {
  const run = line('await new Promise((done) => setTimeout(done, 50))', { most: 2, maxWaiting: 8 });
  const answers = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => run(n, options)));
  expect(new Set(answers.map(({ thread }) => thread)).size).toBe(2);
  const last = await run(7, options);
  expect((await run(8, options)).thread).toBe(last.thread);
});

test('A thread that has been kept serves one request at a time, and is not ended while it works', async () => {
  const run = line('await new Promise((done) => setTimeout(done, request))', { most: 2, keepMilliseconds: 1_000 });
  const work = (...milliseconds: number[]) => Promise.all(milliseconds.map((each) => run(each, options)));
  await work(20, 20);
  const [long, short] = await work(1_500, 10);
  expect(long?.thread).not.toBe(short?.thread);
  expect([long?.served, short?.served]).toEqual([2, 2]);
});

test('A thread without work ends after a while; where nothing of a request may be left to another, at once', async () => {
  const soon = line('', { keepMilliseconds: 50 });
  const { thread } = await soon(1, options);
  await pause(300);
  const later = await soon(2, options);
  expect(later.served).toBe(1);
  expect(later.thread).not.toBe(thread);
  const once = line('', { keepMilliseconds: 0 });
  const [one, two] = [await once(1, options), await once(2, options)];
  expect([one.served, two.served]).toEqual([1, 1]);
  expect(one.thread).not.toBe(two.thread);
});

test('A thread that hangs, fails, wants too much memory or ends is told apart, and another takes its place', async () => {
  const run = line(`
    if (request === 'hang') for (;;);
    if (request === 'fail') throw new Error('failed');
    if (request === 'swell') for (const all = []; ; ) all.push(new Array(1e6).fill(0));
    if (request === 'end') process.exit()`);
  const { thread } = await run('echo', options);
  await expect(run('hang', { maxMilliseconds: 200 })).rejects.toMatchObject({ limit: 'time' });
  const second = await run('echo', options);
  expect(second).toMatchObject({ served: 1 });
  expect(second.thread).not.toBe(thread);
  await expect(run('fail', options)).rejects.toThrow('failed');
  await expect(run('swell', options)).rejects.toMatchObject({ limit: 'memory' });
  await expect(run('end', options)).rejects.toThrow('ended without an answer');
  expect(await run('echo', options)).toMatchObject({ served: 1 });
});

test('A thread that ends while it has nothing to do is missed by nobody', async () => {
  const run = line('if (request === "later") setTimeout(() => { throw new Error("later") }, 50)');
  const { thread } = await run('later', options);
  await pause(300);
  const answer = await run('echo', options);
  expect(answer).toMatchObject({ served: 1 });
  expect(answer.thread).not.toBe(thread);
});

test('A request that is gone ends its thread', async () => {
  const run = line('if (request === "long") await new Promise(() => undefined)');
  const { thread } = await run('echo', options);
  const gone = new AbortController();
  const long = run('long', { ...options, signal: gone.signal });
  setTimeout(() => gone.abort(new Error('gone')), 100);
  await expect(long).rejects.toThrow('gone');
  expect((await run('echo', options)).thread).not.toBe(thread);
});

test('One more than may wait is told to come again', async () => {
  const run = line('await new Promise((done) => setTimeout(done, 100))');
  const answers = await Promise.allSettled([1, 2, 3].map((n) => run(n, options)));
  expect(answers).toMatchObject([
    { value: { served: 1 } },
    { value: { served: 2 } },
    { reason: { error: 'unavailable', message: 'Too many.', retryAfter: 5 } },
  ]);
});
