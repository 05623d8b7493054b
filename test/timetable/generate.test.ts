import { describe, expect, test } from '@jest/globals';
import { generate } from '../../src/timetable/generate.ts';
import type { Problem, Timetable } from '../../src/timetable/problem.ts';
import { isFull } from '../support/client/share.ts';
import { findDefects } from '../support/fixtures/timetable-defects.ts';
import { instances } from '../support/fixtures/stored-problems.ts';
import { feasibleProblem, plainSchool, randomGenerator, type School } from '../support/fixtures/random-problems.ts';

/** A search budget that does not depend on the clock. */
const effort = (amount: number) => ({ effort: amount, time_limit_ms: 600_000 });

/** The result of `generate`, which must not refuse the problem. */
function timetable(problem: Problem, options: Parameters<typeof generate>[1]): Timetable {
  const result = generate(problem, options);
  if (result.status === 'infeasible') throw new Error(result.over_capacity.map(({ message }) => message).join('\n'));
  return result;
}

const instance = (name: string): Problem => {
  const found = instances.find((each) => each.name === name);
  if (!found) throw new Error(name);
  return found.problem;
};

describe('a generated timetable is complete, breaks no rule and meets the preferences of classes', () => {
  test.each(instances)('for the stored problem $name', ({ problem }) => {
    const result = timetable(problem, effort(3));
    const defects = findDefects(problem, result.placed);
    expect(defects).toMatchObject({ broken: {}, unplaced: 0, spread_excess: 0, class_gaps: 0 });
    expect(result).toMatchObject({ status: 'complete', unplaced: [] });
    const { spread_excess, class_gaps, teacher_gaps } = defects;
    expect(result.figures).toMatchObject({ spread_excess, class_gaps, teacher_gaps });
    expect(teacher_gaps).toBeLessThanOrEqual(problem.classes.length / 2);
  });

  const schools: Record<string, Partial<School>> = {
    'with full classes': { classLoad: 1, teacherLoad: 0.8 },
    'with full classes and no slack for half of the teachers': {
      classLoad: 1,
      teacherLoad: 0.85,
      withoutFreePeriods: 0.5,
      exactLimits: true,
    },
    'with no slack for anybody': {
      classLoad: 1,
      teacherLoad: 0.95,
      withoutFreePeriods: 1,
      exactLimits: true,
      doubles: 0.5,
    },
    'with teachers on two or three days': { teacherLoad: 0.5, partTime: 0.6, withoutFreePeriods: 0.1 },
    'with one teacher for a subject of all classes': { classLoad: 1, teacherLoad: 0.7, hasSharedTeacher: true },
    'with six days of twelve periods and a long lunch': {
      classes: 8,
      days: 6,
      periods: 12,
      lunch: [5, 6],
      withoutFreePeriods: 0.3,
      exactLimits: true,
    },
    'with five periods and no lunch': {
      classes: 16,
      periods: 5,
      lunch: [],
      classLoad: 1,
      teacherLoad: 0.8,
      withoutFreePeriods: 0.5,
      doubles: 0,
    },
  };
  test.each(Object.entries(schools))('for a random school %s', (_, school) => {
    for (const seed of isFull ? [1, 2] : [1]) {
      const { problem, hidden } = feasibleProblem({ ...plainSchool, classes: 10, ...school }, seed);
      const known = findDefects(problem, hidden);
      expect(known).toMatchObject({ broken: {}, unplaced: 0, class_gaps: 0 });
      const defects = findDefects(problem, timetable(problem, effort(1)).placed);
      expect(defects).toMatchObject({ broken: {}, unplaced: 0, class_gaps: 0 });
      expect(defects.spread_excess).toBeLessThanOrEqual(known.spread_excess);
    }
  });
});

describe('the same timetable', () => {
  const problem = instance('S');
  const shuffled = <T>(all: readonly T[], random: () => number) => all.map((each) => [random(), each] as const).sort((a, b) => a[0] - b[0]).map(([, each]) => each); // prettier-ignore

  test('results from the same problem and seed, in any order of the input lists', () => {
    const random = randomGenerator(7);
    const result = timetable(problem, { seed: 5, ...effort(0.3) });
    const again = timetable(
      {
        ...problem,
        classes: shuffled(problem.classes, random),
        teachers: shuffled(problem.teachers, random),
        lessons: shuffled(problem.lessons, random),
      },
      { seed: 5, ...effort(0.3) },
    );
    expect(again.placed).toEqual(result.placed);
    expect(timetable(problem, { seed: 6, ...effort(0.3) }).placed).not.toEqual(result.placed);
  });

  test('results from any time limit that the search does not reach; a search that reaches it breaks no rule', () => {
    const late = timetable(instance('L'), { time_limit_ms: 1 });
    expect(late.is_cut_short).toBe(true);
    expect(findDefects(instance('L'), late.placed).broken).toEqual({});
    const [one, other] = [
      timetable(problem, { effort: 0.3, time_limit_ms: 60_000 }),
      timetable(problem, { effort: 0.3, time_limit_ms: 600_000 }),
    ];
    expect([one.is_cut_short, other.is_cut_short]).toEqual([false, false]);
    expect(one.placed).toEqual(other.placed);
  });
});

describe('rooms', () => {
  const problem = (rooms: Problem['rooms'], lessons: [string, string[]][], home = {}): Problem => ({
    ...{ days: 1, periods_per_day: 2, lunch_periods: [] },
    classes: lessons.map(([id]) => ({ id, ...home })),
    teachers: lessons.map(([id]) => ({ id })),
    rooms: rooms ?? [],
    lessons: lessons.map(([id, own]) => ({ class: id, subject: 's', teacher: id, periods_per_week: 1, rooms: own })),
  });

  test('have one lesson at a time, unless they are shared or the lessons outside the plan leave no period', () => {
    const two: [string, string[]][] = [['a', ['gym']], ['b', ['gym']]]; // prettier-ignore
    const placed = (rooms: Problem['rooms']) => timetable(problem(rooms, two), {}).placed;
    expect(placed([{ id: 'gym' }]).map(({ period, room }) => [period, room])).toEqual(
      expect.arrayContaining([[1, 'gym'], [2, 'gym']]), // prettier-ignore
    );
    expect(placed([{ id: 'gym', is_shared: true, busy: [[1, 1], [1, 2]] }])).toMatchObject([
      { class: 'a', period: 1, room: 'gym' },
      { class: 'b', period: 1, room: 'gym' },
    ]); // prettier-ignore
    const result = generate(problem([{ id: 'gym', busy: [[1, 1]] }], two), {});
    expect(result).toMatchObject({ status: 'infeasible', over_capacity: [{ reason: 'room_periods' }] });
  });

  test('of a subject include a hall, which leaves the room for one lesson to the lessons that need it', () => {
    const lessons: [string, string[]][] = [['a', ['lab', 'hall']], ['b', ['lab']]]; // prettier-ignore
    const all = problem([{ id: 'lab' }, { id: 'hall', is_shared: true }], lessons);
    expect(timetable(all, {}).placed).toMatchObject([
      { class: 'a', period: 1, room: 'hall' },
      { class: 'b', period: 1, room: 'lab' },
    ]);
  });

  test('of a home are those of lessons without rooms, which are placed when it is free', () => {
    const shared = problem([{ id: 'R1', busy: [[1, 1]] }], [['a', []]], { home_room: 'R1' });
    expect(timetable(shared, {}).placed).toEqual([{ class: 'a', subject: 's', teacher: 'a', day: 1, period: 2 }]);
  });

  test('that overlap are given so that every lesson has one', () => {
    const lessons: [string, string[]][] = [['a', ['x', 'y']], ['b', ['x']], ['c', ['y', 'z']], ['d', ['x', 'z']]]; // prettier-ignore
    const all = problem([{ id: 'x' }, { id: 'y' }, { id: 'z', busy: [[1, 2]] }], lessons);
    const result = timetable(all, {});
    expect(findDefects(all, result.placed)).toMatchObject({ broken: {}, unplaced: 0 });
  });
});

describe('lessons of teachers', () => {
  test('elsewhere block the period, count toward limits, and are not gaps', () => {
    // Two lessons remain for each day, before and after the lesson elsewhere.
    const problem: Problem = {
      days: 2,
      periods_per_day: 3,
      lunch_periods: [],
      classes: ['a', { id: 'b', unavailable: [[1, 1], [1, 2], [2, 2], [2, 3]] }], // prettier-ignore
      teachers: [{ id: 1, busy: [[1, 2], [2, 2]], max_per_day: 3, max_per_week: 6 }], // prettier-ignore
      lessons: [
        { class: 'a', subject: 'x', teacher: 1, periods_per_week: 2 },
        { class: 'b', subject: 'x', teacher: 1, periods_per_week: 2 },
      ],
    };
    const result = timetable(problem, {});
    expect(result).toMatchObject({ status: 'complete', figures: { teacher_gaps: 0 } });
    expect(result.placed).toEqual([
      { class: 'a', subject: 'x', teacher: 1, day: 1, period: 1 },
      { class: 'a', subject: 'x', teacher: 1, day: 2, period: 3 },
      { class: 'b', subject: 'x', teacher: 1, day: 1, period: 3 },
      { class: 'b', subject: 'x', teacher: 1, day: 2, period: 1 },
    ]);
    expect(findDefects(problem, result.placed)).toMatchObject({ broken: {}, unplaced: 0, teacher_gaps: 0 });
  });

  test('are distinguished by the type of the id, and duplicate entries are added up', () => {
    const problem: Problem = {
      days: 1,
      periods_per_day: 4,
      lunch_periods: [],
      classes: [1, '1'],
      teachers: [{ id: 1 }, { id: '1' }],
      lessons: [
        { class: 1, subject: 1, teacher: '1', periods_per_week: 2 },
        { class: 1, subject: 1, teacher: '1', periods_per_week: 2 },
        { class: '1', subject: '1', teacher: 1, periods_per_week: 4 },
      ],
    };
    const result = timetable(problem, {});
    expect(result.placed).toHaveLength(8);
    expect(findDefects(problem, result.placed).broken).toEqual({});
  });

  test('without lessons, classes or valid days return an empty result or an error', () => {
    const nothing: Problem = { days: 5, periods_per_day: 8, lunch_periods: [], classes: [], teachers: [], lessons: [] };
    expect(timetable(nothing, {})).toMatchObject({ status: 'complete', placed: [] });
    expect(() => generate({ ...nothing, days: 0 })).toThrow(RangeError);
    expect(() =>
      generate({ ...nothing, lessons: [{ class: 1, subject: 1, teacher: 1, periods_per_week: 1 }] }),
    ).toThrow('There is no class 1.');
    expect(() => generate({ ...nothing, classes: [1, 1] })).toThrow('Two classes have the same id.');
  });
});
