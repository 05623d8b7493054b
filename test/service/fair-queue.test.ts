import { describe, expect, test } from '@jest/globals';
import { ApiError } from '../../src/domain/errors.ts';
import { fairQueue, type FairQueueOptions } from '../../src/concurrency/fair-queue.ts';

/** A queue, and the order in which its tasks start and end. A task is named after its school and user. */
function observedQueue(options: Partial<FairQueueOptions> = {}) {
  const queue = fairQueue({
    name: 'test',
    maxRunning: { total: 1 },
    maxInProgress: { total: 100 },
    refusal: (scope) => new ApiError('unavailable', `over the limit of the ${scope}`),
    ...options,
  });
  const started: string[] = [];
  const refused: string[] = [];
  const running: { name: string; finish: () => void }[] = [];
  return {
    started,
    refused,
    running,
    add(tenantId: number, userId: number, signal?: AbortSignal) {
      const name = `${tenantId}.${userId}`;
      const work = () => {
        started.push(name);
        return new Promise<void>((done) => running.push({ name, finish: done }));
      };
      return queue.run({ tenantId, userId }, work, signal).catch((error: unknown) => {
        refused.push(name);
        return error;
      });
    },
    /** Finishes the task that has run the longest, or the first one with a name, and lets the next one start. */
    async finish(name?: string) {
      await Promise.resolve();
      await new Promise(setImmediate);
      const index = name === undefined ? 0 : running.findIndex((task) => task.name === name);
      running.splice(index, 1)[0]?.finish();
      await new Promise(setImmediate);
    },
  };
}

type Observed = ReturnType<typeof observedQueue>;

async function finishAll(queue: Observed, count: number): Promise<string[]> {
  for (let n = 0; n < count; n++) await queue.finish();
  return queue.started;
}

describe('a queue shares its slots', () => {
  test('a school alone uses all of them', async () => {
    const queue = observedQueue({ maxRunning: { total: 3 } });
    for (let n = 0; n < 3; n++) void queue.add(1, 1);
    await new Promise(setImmediate);
    expect(queue.running).toHaveLength(3);
    await finishAll(queue, 3);
  });

  test('a free slot goes to the school that runs the fewest tasks, however long the others have waited', async () => {
    const queue = observedQueue({ maxRunning: { total: 2 } });
    for (let n = 0; n < 4; n++) void queue.add(1, 1);
    void queue.add(2, 1);
    void queue.add(2, 1);
    await queue.finish();
    expect(queue.started).toEqual(['1.1', '1.1', '2.1']);
    await queue.finish('1.1');
    expect(queue.started.slice(3)).toEqual(['1.1']);
    await finishAll(queue, 4);
  });

  test('schools that run equally many take turns, and so do the users of a school', async () => {
    const queue = observedQueue();
    for (let n = 0; n < 4; n++) void queue.add(1, 1);
    void queue.add(1, 2);
    void queue.add(1, 2);
    for (let n = 0; n < 3; n++) void queue.add(2, 1);
    expect(await finishAll(queue, 9)).toEqual(['1.1', '2.1', '1.2', '2.1', '1.1', '2.1', '1.2', '1.1', '1.1']);
  });

  test('schools that send one task after the other do not starve a school whose tasks wait', async () => {
    const queue = observedQueue();
    for (let n = 0; n < 3; n++) void queue.add(1, 1);
    void queue.add(2, 1);
    void queue.add(3, 1);
    for (let n = 0; n < 6; n++) {
      await queue.finish();
      // The school whose task has just ended sends the next one.
      const last = queue.started.at(-2);
      if (last === '2.1') void queue.add(2, 1);
      if (last === '3.1') void queue.add(3, 1);
    }
    expect(queue.started.slice(0, 6).filter((name) => name === '1.1').length).toBeGreaterThanOrEqual(2);
    expect((await finishAll(queue, 10)).filter((name) => name === '1.1')).toHaveLength(3);
  });

  test('a school that was away has saved up no turns', async () => {
    const queue = observedQueue();
    for (let n = 0; n < 10; n++) void queue.add(1, 1);
    for (let n = 0; n < 5; n++) await queue.finish();
    for (let n = 0; n < 4; n++) void queue.add(2, 1);
    const started = (await finishAll(queue, 9)).slice(6);
    expect(started).toEqual(['2.1', '2.1', '1.1', '2.1', '1.1', '2.1', '1.1', '1.1']);
  });

  test('no school and no user runs more tasks than its own limit', async () => {
    const queue = observedQueue({ maxRunning: { school: 2, user: 1 } });
    for (const user of [1, 1, 2, 3]) void queue.add(1, user);
    void queue.add(2, 1);
    await new Promise(setImmediate);
    expect(queue.started).toEqual(['1.1', '1.2', '2.1']);
    await queue.finish('1.2');
    expect(queue.started.slice(3)).toEqual(['1.3']);
    await finishAll(queue, 4);
  });
});

describe('a full queue', () => {
  test('refuses the newest task of the school with the most tasks', async () => {
    const queue = observedQueue({ maxInProgress: { total: 4 } });
    const first = [1, 2, 3, 4].map(() => queue.add(1, 1));
    void queue.add(2, 1);
    expect(await first[3]).toMatchObject({ error: 'unavailable', message: 'over the limit of the total' });
    expect((await finishAll(queue, 4)).sort()).toEqual(['1.1', '1.1', '1.1', '2.1']);
  });

  test('refuses a school that has the most tasks already, and of its users the one with the most', async () => {
    const queue = observedQueue({ maxInProgress: { total: 5 } });
    for (const user of [1, 1, 1, 2]) void queue.add(1, user);
    void queue.add(2, 1);
    void queue.add(1, 3);
    await finishAll(queue, 5);
    expect(queue.refused).toEqual(['1.1']);
    expect([...queue.started].sort()).toEqual(['1.1', '1.1', '1.2', '1.3', '2.1']);
  });

  test.each(['school', 'user'] as const)('has a limit per %s, which other schools do not count for', async (scope) => {
    const queue = observedQueue({ maxInProgress: { [scope]: 2 } });
    void queue.add(1, 1);
    void queue.add(1, 1);
    expect(await queue.add(1, 1)).toMatchObject({ message: `over the limit of the ${scope}` });
    void queue.add(2, 1);
    await finishAll(queue, 3);
    void queue.add(1, 1);
    await finishAll(queue, 1);
    expect(queue.started).toHaveLength(4);
  });
});

test('a task whose signal aborts leaves the queue, but a running one goes on', async () => {
  const queue = observedQueue({ maxInProgress: { total: 2 } });
  const client = new AbortController();
  void queue.add(1, 1, client.signal);
  const waiting = queue.add(1, 1, client.signal);
  client.abort(new Error('The client disconnected.'));
  expect(await waiting).toMatchObject({ message: 'The client disconnected.' });
  expect(queue.running).toHaveLength(1);
  void queue.add(1, 2);
  expect(await queue.add(1, 3, client.signal)).toBeInstanceOf(Error);
  await finishAll(queue, 2);
  expect(queue.started).toEqual(['1.1', '1.2']);
  const free = queue.add(1, 4, client.signal);
  await queue.finish();
  expect(await free).toBeUndefined();
});

test('a task that fails frees its slot', async () => {
  const queue = fairQueue({
    name: 'test',
    maxRunning: { total: 1 },
    maxInProgress: { total: 1 },
    refusal: () => new ApiError('unavailable', 'full'),
  });
  const owner = { tenantId: 1, userId: 1 };
  await expect(queue.run(owner, () => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
  const release = await queue.enter(owner);
  await expect(queue.enter(owner)).rejects.toThrow('full');
  release();
  release();
  const again = await queue.enter(owner);
  await expect(queue.enter(owner)).rejects.toThrow('full');
  again();
});
