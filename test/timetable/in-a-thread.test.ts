import { expect, test } from '@jest/globals';
import { generateInThread } from '../../src/timetable/in-a-thread.ts';
import { judge } from '../support/fixtures/judge.ts';
import { instances } from '../support/fixtures/stored-problems.ts';

const small = instances.find(({ name }) => name === 'S')?.problem;
const large = instances.find(({ name }) => name === 'L')?.problem;
if (!small || !large) throw new Error('S and L are needed.');

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
  const all = [1, 2, 3].map(() =>
    generateInThread(large, { effort: 60 }, { signal: gone.signal }).catch((error: unknown) => error),
  );
  setTimeout(() => gone.abort(new Error('gone')), 200);
  expect(await Promise.all(all)).toEqual([1, 2, 3].map(() => new Error('gone')));
  expect(await generateInThread(small, { effort: 0.01 })).toHaveProperty('figures');
});

test('Who waits for a thread waits as long as they have patience; whoever has one goes on', async () => {
  const gone = new AbortController();
  const running = generateInThread(
    large,
    { effort: 60 },
    { signal: gone.signal, patience: AbortSignal.timeout(100) },
  ).catch((error: unknown) => error);
  await expect(generateInThread(small, { effort: 0.01 }, { patience: AbortSignal.timeout(200) })).rejects.toMatchObject(
    { name: 'TimeoutError' },
  );
  // Who has none left when they come does not begin to wait.
  await expect(
    generateInThread(small, { effort: 0.01 }, { patience: AbortSignal.abort(new Error('late')) }),
  ).rejects.toThrow('late');
  gone.abort(new Error('gone'));
  expect(await running).toEqual(new Error('gone'));
});
