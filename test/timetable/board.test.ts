import { expect, test } from '@jest/globals';
import { countBoard } from '../../src/timetable/board.ts';
import { buildModel } from '../../src/timetable/model.ts';
import type { Problem } from '../../src/timetable/problem.ts';

/** The board of a problem with class a, subject by subject in the order of names, at [day, period] each. */
function totals(teacher: Partial<Problem['teachers'][number]>, places: [day: number, period: number][]) {
  const problem: Problem = {
    ...{ days: 2, periods_per_day: 5, lunch_periods: [3], classes: ['a'] },
    teachers: [{ id: 1, ...teacher }],
    lessons: places.map((_, n) => ({ class: 'a', subject: n, teacher: 1, periods_per_week: 1 })),
  };
  const model = buildModel(problem);
  const classAt = new Int32Array((model.days + 1) * model.length).fill(-1);
  for (const [n, [day, period]] of places.entries())
    classAt[(day - 1) * model.length + model.periods.indexOf(period)] = n;
  return countBoard(model, classAt).totals;
}

const threeOnMonday: [number, number][] = [
  [1, 1],
  [1, 2],
  [1, 4],
  [2, 1],
];

test('every lesson above the daily limit is counted, including lessons taught elsewhere', () => {
  expect(totals({}, threeOnMonday).hard).toBe(0);
  expect(totals({ max_per_day: 3 }, threeOnMonday).hard).toBe(0);
  expect(totals({ max_per_day: 2 }, threeOnMonday).hard).toBe(1);
  expect(totals({ max_per_day: 1 }, threeOnMonday).hard).toBe(2);
  expect(totals({ max_per_day: 3, busy: [[1, 5], [2, 5]] }, threeOnMonday).hard).toBe(1); // prettier-ignore
});

test('a lesson of an unavailable teacher is counted once, and not again for the daily limit', () => {
  expect(totals({ unavailable: [[1, 1]] }, threeOnMonday).hard).toBe(1);
  expect(totals({ unavailable: [[1, 1]], max_per_day: 2 }, threeOnMonday).hard).toBe(1);
  expect(totals({ busy: [[1, 4]], max_per_day: 2 }, threeOnMonday).hard).toBe(2);
});
