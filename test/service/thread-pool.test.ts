import { setTimeout as sleep } from 'node:timers/promises';
import { expect, jest, test } from '@jest/globals';
import { createThreadPool, type TaskOptions, type ThreadPoolOptions } from '../../src/concurrency/thread-pool.ts';
import { until } from '../support/client/until.ts';
import type { ThreadTask } from '../support/fixtures/thread-pool.worker.ts';

/**
 * A pool of one thread, unless `options` says otherwise. A task waits 10 seconds at most: a test that finds no free
 * thread fails instead of hanging.
 */
function createPool(options: Partial<ThreadPoolOptions> = {}) {
  const run = createThreadPool<ThreadTask, { thread: number; tasks: number }>({
    name: 'test',
    script: new URL('../support/fixtures/thread-pool.worker.ts', import.meta.url),
    resourceLimits: { maxOldGenerationSizeMb: 32 },
    maxThreads: 1,
    maxQueue: 1,
    idleTimeoutMs: 60_000,
    queueFullMessage: 'The queue is full.',
    ...options,
  });
  return (task: ThreadTask = {}, taskOptions: Partial<TaskOptions> = {}) =>
    run(task, { timeoutMs: 60_000, waitSignal: AbortSignal.timeout(10_000), ...taskOptions });
}

/** Starts two tasks that both run before one of them ends, however long their threads take to start. */
function twoAtOnce(run: ReturnType<typeof createPool>) {
  const twoStarted = new Int32Array(new SharedArrayBuffer(4));
  return [run({ twoStarted }), run({ twoStarted })];
}

test('reuses an idle thread for the next task', async () => {
  const run = createPool();
  const first = await run();
  expect(first.tasks).toBe(1);
  expect(await run()).toEqual({ ...first, tasks: 2 });
  expect(await run()).toEqual({ ...first, tasks: 3 });
});

test('starts no more threads than allowed, and none while one is idle', async () => {
  const run = createPool({ maxThreads: 2, maxQueue: 8 });
  const results = await Promise.all([...twoAtOnce(run), ...[3, 4, 5, 6].map(() => run({ sleepMs: 50 }))]);
  expect(new Set(results.map(({ thread }) => thread)).size).toBe(2);
  const last = await run();
  expect((await run()).thread).toBe(last.thread);
});

test('runs one task at a time in a thread, and does not end a thread that works', async () => {
  const run = createPool({ maxThreads: 2, idleTimeoutMs: 1_000 });
  await Promise.all(twoAtOnce(run));
  const [long, short] = await Promise.all([run({ sleepMs: 1_500 }), run({ sleepMs: 10 })]);
  expect(long.thread).not.toBe(short.thread);
  expect([long.tasks, short.tasks]).toEqual([2, 2]);
});

test('ends an idle thread after its idle timeout', async () => {
  const run = createPool({ idleTimeoutMs: 50 });
  const first = await run();
  await sleep(300);
  const second = await run();
  expect(second.tasks).toBe(1);
  expect(second.thread).not.toBe(first.thread);
});

test('runs each task in a new thread when the idle timeout is 0, also when tasks wait', async () => {
  const run = createPool({ idleTimeoutMs: 0, maxThreads: 2, maxQueue: 8 });
  const results = await Promise.all([1, 2, 3, 4, 5].map(() => run()));
  results.push(await run());
  expect(results.map(({ tasks }) => tasks)).toEqual([1, 1, 1, 1, 1, 1]);
  expect(new Set(results.map(({ thread }) => thread)).size).toBe(6);
});

test.each([60_000, 0])(
  'reports whether a thread hung, failed, ran out of memory or exited (idle timeout %p)',
  async (idleTimeoutMs) => {
    const run = createPool({ idleTimeoutMs });
    const first = await run();
    await expect(run({ fault: 'endless loop' }, { timeoutMs: 500 })).rejects.toMatchObject({ limit: 'time' });
    const second = await run();
    expect(second).toMatchObject({ tasks: 1 });
    expect(second.thread).not.toBe(first.thread);
    await expect(run({ fault: 'exception' })).rejects.toThrow('The task failed.');
    await expect(run({ fault: 'memory' })).rejects.toMatchObject({ limit: 'memory' });
    await expect(run({ fault: 'exit' })).rejects.toThrow('worker exited with code: 0');
    expect(await run()).toMatchObject({ tasks: 1 });
  },
);

test('replaces a thread that fails while it is idle, and warns about it', async () => {
  const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
  const run = createPool();
  const { thread } = await run({ fault: 'exception while idle' });
  await until(() => warn.mock.calls.length > 0 || undefined);
  expect(warn.mock.calls).toMatchObject([[{ message: 'The idle thread failed.' }]]);
  warn.mockRestore();
  const result = await run();
  expect(result).toMatchObject({ tasks: 1 });
  expect(result.thread).not.toBe(thread);
});

test('terminates the thread of a task whose signal aborts', async () => {
  const run = createPool();
  const { thread } = await run();
  const client = new AbortController();
  const task = run({ fault: 'never done' }, { signal: client.signal });
  setTimeout(() => client.abort(new Error('The client disconnected.')), 100);
  await expect(task).rejects.toThrow('The client disconnected.');
  expect((await run()).thread).not.toBe(thread);
});

test('removes a waiting task whose signal aborts from the queue', async () => {
  const run = createPool();
  const running = run({ sleepMs: 300 });
  const client = new AbortController();
  const waiting = run({}, { signal: client.signal });
  client.abort(new Error('The client disconnected.'));
  await expect(waiting).rejects.toThrow('The client disconnected.');
  const next = run();
  expect([(await running).tasks, (await next).tasks]).toEqual([1, 2]);
});

test('ends the wait of a task when its waitSignal aborts, but never a running task', async () => {
  const run = createPool();
  const running = run({ sleepMs: 400 }, { waitSignal: AbortSignal.timeout(50) });
  await expect(run({}, { waitSignal: AbortSignal.timeout(50) })).rejects.toMatchObject({ name: 'TimeoutError' });
  const late = AbortSignal.abort(new Error('late'));
  await expect(run({}, { waitSignal: late })).rejects.toThrow('late');
  expect(await running).toMatchObject({ tasks: 1 });
});

test('answers unavailable when the queue is full', async () => {
  const run = createPool();
  const results = await Promise.allSettled([1, 2, 3].map(() => run({ sleepMs: 100 })));
  expect(results).toMatchObject([
    { value: { tasks: 1 } },
    { value: { tasks: 2 } },
    { reason: { error: 'unavailable', message: 'The queue is full.', retryAfter: 5 } },
  ]);
});

test('counts tasks with a signal toward the limit of the queue', async () => {
  const run = createPool();
  const { signal } = new AbortController();
  const results = await Promise.allSettled([1, 2, 3].map(() => run({ sleepMs: 100 }, { signal })));
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected']);
});
