import { expect, test } from '@jest/globals';
import { generateInThread } from '../../src/timetable/in-a-thread.ts';
import { judge } from '../support/timetable-checker.ts';
import { instances } from '../support/timetable-instances.ts';

const small = instances.find(({ name }) => name === 'S')?.problem;
const large = instances.find(({ name }) => name === 'L')?.problem;
if (!small || !large) throw new Error('S and L are needed.');

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
