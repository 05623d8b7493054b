import { expect, test } from '@jest/globals';
import { generateInThread } from '../../src/timetable/generate-in-thread.ts';
import { findDefects } from '../support/fixtures/timetable-defects.ts';
import { instances } from '../support/fixtures/stored-problems.ts';

const small = instances.find(({ name }) => name === 'S')?.problem;
const large = instances.find(({ name }) => name === 'L')?.problem;
if (!small || !large) throw new Error('The problems S and L are required.');

test('generates a timetable without blocking the event loop', async () => {
  let ticks = 0;
  const timer = setInterval(() => ticks++, 5);
  const generated = await generateInThread(small, { effort: 0.3 });
  clearInterval(timer);
  if (generated.status === 'infeasible') throw new Error(generated.status);
  expect(findDefects(small, generated.placed)).toMatchObject({ broken: {}, unplaced: 0 });
  expect(ticks).toBeGreaterThan(2);
});

test('terminates the thread and frees the queue when the client disconnects', async () => {
  const client = new AbortController();
  const all = [1, 2, 3].map(() =>
    generateInThread(large, { effort: 60 }, { signal: client.signal }).catch((error: unknown) => error),
  );
  setTimeout(() => client.abort(new Error('disconnected')), 200);
  expect(await Promise.all(all)).toEqual([1, 2, 3].map(() => new Error('disconnected')));
  expect(await generateInThread(small, { effort: 0.01 })).toHaveProperty('figures');
});

test('ends the wait for a thread when waitSignal aborts, but not a running search', async () => {
  const client = new AbortController();
  const running = generateInThread(
    large,
    { effort: 60 },
    { signal: client.signal, waitSignal: AbortSignal.timeout(100) },
  ).catch((error: unknown) => error);
  await expect(
    generateInThread(small, { effort: 0.01 }, { waitSignal: AbortSignal.timeout(200) }),
  ).rejects.toMatchObject({ name: 'TimeoutError' });
  const late = AbortSignal.abort(new Error('late'));
  await expect(generateInThread(small, { effort: 0.01 }, { waitSignal: late })).rejects.toThrow('late');
  client.abort(new Error('disconnected'));
  expect(await running).toEqual(new Error('disconnected'));
});
