import { describe, expect, test } from '@jest/globals';
import { generate } from '../../src/timetable/generate.ts';
import { type CapacityReason, type Problem, type Teacher, type Time, withNames } from '../../src/timetable/problem.ts';
import { findDefects } from '../support/fixtures/timetable-defects.ts';
import { instances } from '../support/fixtures/stored-problems.ts';
import { feasibleProblem, plainSchool, randomGenerator } from '../support/fixtures/random-problems.ts';

const week = (days: number, periods: number, only: (day: number, period: number) => boolean = () => true): Time[] =>
  Array.from({ length: days * periods }, (_, n): Time => [Math.floor(n / periods) + 1, (n % periods) + 1]).filter(
    ([day, period]) => only(day, period),
  );

const lesson = (inClass: string, teacher: string, periods_per_week: number) => ({
  class: inClass,
  subject: `s-${teacher}`,
  teacher,
  periods_per_week,
});

const small = (teachers: Teacher[], lessons: Problem['lessons'], rest: Partial<Problem> = {}): Problem => ({
  days: 2,
  periods_per_day: 4,
  lunch_periods: [3],
  classes: ['a', 'b', 'c'],
  teachers,
  lessons,
  ...rest,
});

const cases: Record<Exclude<CapacityReason, 'week_teachers'>, { problem: Problem; blamed: object }> = {
  class_periods: {
    problem: small([{ id: 'x' }, { id: 'y' }], [lesson('a', 'x', 4), lesson('a', 'y', 3), lesson('b', 'y', 1)]),
    blamed: { kind: 'class', id: 'a', required: 7, available: 6 },
  },
  teacher_week_limit: {
    problem: small([{ id: 'x', max_per_week: 3, busy: [[1, 1]] }], [lesson('a', 'x', 2), lesson('b', 'x', 1)]), // prettier-ignore
    blamed: { kind: 'teacher', id: 'x', required: 3, available: 2 },
  },
  teacher_periods: {
    problem: small(
      [{ id: 'x', unavailable: week(2, 4, (day) => day === 1) }],
      [lesson('a', 'x', 2), lesson('b', 'x', 2)],
    ),
    blamed: { kind: 'teacher', id: 'x', required: 4, available: 3 },
  },
  teacher_day_limit: {
    problem: small([{ id: 'x', max_per_day: 2, busy: [[2, 3]] }], [lesson('a', 'x', 2), lesson('b', 'x', 2)]), // prettier-ignore
    blamed: { kind: 'teacher', id: 'x', required: 4, available: 3 },
  },
  class_teachers: {
    problem: small(
      [
        { id: 'x', unavailable: week(2, 4, (day) => day === 1) },
        { id: 'y', unavailable: week(2, 4, (day) => day === 1) },
        { id: 'z' },
      ],
      [lesson('a', 'x', 2), lesson('a', 'y', 2), lesson('a', 'z', 1)],
    ),
    blamed: { kind: 'class', id: 'a', required: 4, available: 3, teachers: ['x', 'y'] },
  },
  teacher_classes: {
    problem: small([{ id: 'x' }], [lesson('a', 'x', 2), lesson('b', 'x', 2), lesson('c', 'x', 1)], {
      classes: ['a', 'b', 'c'].map((id) => ({ id, unavailable: id === 'c' ? [] : week(2, 4, (day) => day === 1) })),
    }),
    blamed: { kind: 'teacher', id: 'x', required: 4, available: 3, classes: ['a', 'b'] },
  },
  // Two classes have lessons in every period. On day 1 only two teachers are available, for two lessons each.
  day_teachers: {
    problem: small(
      [
        { id: 'x', max_per_day: 2 },
        { id: 'y', max_per_day: 2 },
        ...['z', 'w'].map((id) => ({ id, unavailable: week(2, 4, (day) => day === 1) })),
      ],
      [
        ...[lesson('a', 'x', 2), lesson('a', 'y', 1), lesson('a', 'z', 2), lesson('a', 'w', 1)],
        ...[lesson('b', 'x', 2), lesson('b', 'y', 2), lesson('b', 'z', 1), lesson('b', 'w', 1)],
      ],
    ),
    blamed: { kind: 'day', id: 1, required: 6, available: 4, classes: ['a', 'b'], teachers: ['x', 'y'] },
  },
  // Each of the three teachers has one lesson more than fits on day 2, but on day 1 only classes a and b are available,
  // for one period each.
  day_classes: {
    problem: small(
      ['x', 'y', 'z'].map((id) => ({ id, max_per_day: 2 })),
      ['a', 'b', 'c'].flatMap((name) => [lesson(name, 'x', 1), lesson(name, 'y', 1), lesson(name, 'z', 1)]),
      {
        classes: ['a', 'b', 'c'].map((id) => ({
          id,
          unavailable: week(2, 4, (day, period) => day === 1 && (id === 'c' || period > 1)),
        })),
      },
    ),
    blamed: { kind: 'day', id: 1, required: 3, available: 2, teachers: ['x', 'y', 'z'] },
  },
  // Two classes have lessons in every period, but only x is available in period 1 of day 1.
  period_teachers: {
    problem: small(
      ['x', 'y', 'z'].map((id) => ({
        id,
        unavailable: week(2, 4, (day, period) => id !== 'x' && day === 1 && period === 1),
      })),
      ['a', 'b'].flatMap((name) => [lesson(name, 'x', 2), lesson(name, 'y', 2), lesson(name, 'z', 2)]),
    ),
    blamed: { kind: 'period', day: 1, period: 1, required: 2, available: 1, classes: ['a', 'b'], teachers: ['x'] },
  },
  // Two teachers are available only in period 1 and teach on both days, but on day 1 only class a has period 1.
  period_classes: {
    problem: small(
      ['x', 'y'].map((id) => ({ id, unavailable: week(2, 4, (_, period) => period > 1) })),
      [lesson('a', 'x', 1), lesson('a', 'y', 1), lesson('b', 'x', 1), lesson('c', 'y', 1)],
      {
        classes: ['a', 'b', 'c'].map((id) => ({
          id,
          unavailable: week(2, 4, (day, period) => id !== 'a' && day === 1 && period === 1),
        })),
      },
    ),
    blamed: { kind: 'period', day: 1, period: 1, required: 2, available: 1, classes: ['a'], teachers: ['x', 'y'] },
  },
  room_periods: {
    // The union of both sets of rooms has too many lessons, each set alone has not.
    problem: small(
      [{ id: 'x' }, { id: 'y' }, { id: 'z' }],
      [
        { ...lesson('a', 'x', 5), rooms: ['lab', 'gym'] },
        { ...lesson('b', 'y', 5), rooms: ['gym'] },
        { ...lesson('c', 'z', 1), rooms: ['lab'] },
      ],
      {
        rooms: [
          { id: 'lab', busy: week(2, 4, (day) => day === 1) },
          { id: 'gym', busy: [[1, 3]] },
        ],
      },
    ),
    blamed: { kind: 'room', id: 'gym', required: 11, available: 9, classes: ['a', 'b', 'c'], rooms: ['gym', 'lab'] },
  },
};

describe('impossible requirements are refused at once, with the reasons', () => {
  test.each(Object.entries(cases))('is %s', (reason, { problem, blamed }) => {
    const result = generate(problem);
    // The generator may report the same conflict for another class or teacher too.
    expect(result.status === 'infeasible' && result.over_capacity[0]).toMatchObject({ reason, ...blamed });
  });

  test('all reasons are reported, by name', () => {
    const lessons = [lesson('a', 'x', 7), lesson('b', 'y', 7)];
    const result = generate(small([{ id: 'x', max_per_week: 5 }, { id: 'y' }], lessons));
    if (result.status !== 'infeasible') throw new Error(result.status);
    expect(result.over_capacity.map(({ message }) => withNames(message, { class: 'Class 1', teacher: 'Ann' }))).toEqual(
      [
        'Class 1 has 7 lessons a week but only 6 periods.',
        'Class 1 has 7 lessons a week but only 6 periods.',
        'Ann has 7 lessons a week but the week limit allows only 5.',
        'Ann has 7 lessons a week but is available in only 6 periods.',
        'Ann has 7 lessons a week but is available in only 6 periods.',
      ],
    );
  });

  test('one overloaded teacher is found in a large school', () => {
    const { problem } = instances.find(({ name }) => name === 'L') ?? { problem: small([], []) };
    const teachers = problem.teachers.map((teacher) =>
      teacher.id === 'T001' ? { ...teacher, max_per_day: 2 } : teacher,
    );
    expect(generate({ ...problem, teachers })).toMatchObject({
      status: 'infeasible',
      over_capacity: [{ id: 'T001', reason: 'teacher_day_limit' }],
    });
  });
});

describe('lessons beyond the capacity are left out on request', () => {
  test('as few as possible, spread over the subjects of the overloaded teacher or class, with the reasons', () => {
    // x may teach 5 of 9 lessons, and a has 7 lessons for 6 periods.
    const lessons = [
      lesson('a', 'x', 4),
      lesson('a', 'y', 3),
      lesson('b', 'x', 3),
      lesson('c', 'x', 2),
      lesson('b', 'y', 2),
    ];
    const problem = small([{ id: 'x', max_per_week: 5 }, { id: 'y' }], lessons);
    expect(generate(problem)).toMatchObject({
      status: 'infeasible',
      over_capacity: [{ id: 'a' }, { id: 'x', reason: 'teacher_week_limit' }, {}],
    });
    const result = generate(problem, { allow_partial: true });
    if (result.status === 'infeasible') throw new Error(result.status);
    expect(result).toMatchObject({
      status: 'partial',
      over_capacity: [{ id: 'a' }, { id: 'x', reason: 'teacher_week_limit' }, {}],
    });
    expect(findDefects(problem, result.placed)).toMatchObject({ broken: {}, unplaced: 4 });
    expect(result.unplaced.reduce((sum, { missing }) => sum + missing, 0)).toBe(4);
    expect(new Set(result.unplaced.map(({ teacher, reason }) => `${String(teacher)} ${reason}`))).toEqual(
      new Set(['x teacher_week_limit']),
    );
    expect(
      Math.min(
        ...['a', 'b', 'c'].map(
          (name) => result.placed.filter((one) => one.class === name && one.teacher === 'x').length,
        ),
      ),
    ).toBeGreaterThan(0);
  });

  test('in a large school with one teacher and one class too many', () => {
    const { problem } = instances.find(({ name }) => name === 'L') ?? { problem: small([], []) };
    const teachers = problem.teachers.map((teacher) =>
      teacher.id === 'T001' ? { ...teacher, max_per_day: 2 } : teacher,
    );
    const [first] = problem.lessons;
    const more = first ? [{ ...first, subject: 'one more', periods_per_week: 40 }] : [];
    const crowded = { ...problem, teachers, lessons: [...problem.lessons, ...more] };
    const result = generate(crowded, { effort: 1, allow_partial: true });
    if (result.status === 'infeasible') throw new Error(result.status);
    expect(findDefects(crowded, result.placed).broken).toEqual({});
    const blamed = new Set(['T001', first?.teacher]);
    expect(result.unplaced.filter((one) => !blamed.has(one.teacher) && one.class !== first?.class)).toEqual([]);
    expect(result.unplaced.length).toBeGreaterThan(0);
  });

  test('and those for which no room is left', () => {
    const lessons = [lesson('a', 'x', 4), lesson('b', 'y', 4)].map((one) => ({ ...one, rooms: ['gym'] }));
    const problem = small([{ id: 'x' }, { id: 'y' }], lessons, { rooms: [{ id: 'gym', busy: [[1, 1]] }] });
    const result = generate(problem, { allow_partial: true });
    if (result.status === 'infeasible') throw new Error(result.status);
    expect(findDefects(problem, result.placed)).toMatchObject({ broken: {}, unplaced: 3 });
    expect(result.over_capacity).toMatchObject([{ kind: 'room', id: 'gym', required: 8, available: 5 }]);
    expect(new Set(result.unplaced.map(({ reason }) => reason))).toEqual(new Set(['room_taken']));
  });

  test('up to all lessons of a teacher, or of the school', () => {
    const problem = small([{ id: 'x', max_per_week: 0 }, { id: 'y' }], [lesson('a', 'x', 2), lesson('b', 'y', 2)]); // prettier-ignore
    expect(generate(problem, { allow_partial: true })).toMatchObject({
      status: 'partial',
      unplaced: [{ teacher: 'x', missing: 2, reason: 'teacher_week_limit' }],
    });
    const none = small([{ id: 'x', max_per_day: 0 }], [lesson('a', 'x', 2)]);
    expect(generate(none, { allow_partial: true })).toMatchObject({
      status: 'partial',
      placed: [],
      unplaced: [{ missing: 2, reason: 'teacher_day_limit' }],
    });
  });
});

/** The maximum number of lessons that a timetable can place, by exhaustive search. */
function maxPlaced({ days, periods_per_day, classes, teachers, lessons }: Problem): number {
  const each = lessons.flatMap((one) => Array.from({ length: one.periods_per_week }, () => one));
  const slots = days * periods_per_day;
  const taken = new Set<string>();
  const onDay = new Map<string, number>();
  let max = 0;
  const place = (index: number, placed: number) => {
    max = Math.max(max, placed);
    const one = each[index];
    if (!one || placed + each.length - index <= max) return;
    const teacher = teachers.find(({ id }) => id === one.teacher);
    for (let slot = 0; slot < slots; slot++) {
      const [day, period] = [Math.floor(slot / periods_per_day) + 1, (slot % periods_per_day) + 1];
      const keys = [`class ${one.class} ${slot}`, `teacher ${one.teacher} ${slot}`];
      const today = `${one.teacher} ${day}`;
      if (keys.some((key) => taken.has(key)) || (onDay.get(today) ?? 0) >= (teacher?.max_per_day ?? slots)) continue;
      const inClass = classes.find((each) => typeof each === 'object' && each.id === one.class);
      if (
        [teacher, inClass].some(
          (who) => typeof who === 'object' && who.unavailable?.some(([d, p]) => d === day && p === period),
        )
      )
        continue;
      for (const key of keys) taken.add(key);
      onDay.set(today, (onDay.get(today) ?? 0) + 1);
      place(index + 1, placed + 1);
      for (const key of keys) taken.delete(key);
      onDay.set(today, (onDay.get(today) ?? 0) - 1);
    }
    place(index + 1, placed);
  };
  place(0, 0);
  return max;
}

test('no small problem with a solution is refused, and as few lessons as possible are left out', () => {
  const seen = { complete: 0, partial: 0, infeasible: 0 };
  for (let seed = 1; seed <= 200; seed++) {
    const random = randomGenerator(seed);
    const problem = small(
      ['x', 'y', 'z'].map((id) => ({ id, unavailable: week(2, 2, () => random() < 0.22), max_per_day: null })),
      ['a', 'b', 'c'].flatMap((name) =>
        ['x', 'y', 'z'].map((teacher) => lesson(name, teacher, random() < 0.75 ? 1 : 0)),
      ),
      { periods_per_day: 2, lunch_periods: [] },
    );
    const result = generate(problem, { effort: 0.02 });
    seen[result.status]++;
    const required = problem.lessons.reduce((sum, { periods_per_week }) => sum + periods_per_week, 0);
    const max = maxPlaced(problem);
    if (result.status === 'infeasible') expect({ seed, most: max }).not.toEqual({ seed, most: required });
    else {
      expect(findDefects(problem, result.placed).broken).toEqual({});
      expect({ seed, placed: result.placed.length }).toEqual({ seed, placed: max });
    }
  }
  expect(Math.min(seen.complete, seen.infeasible)).toBeGreaterThan(20);
});

test('an unsolved problem returns a partial timetable that breaks no rule, with a reason for each missing lesson', () => {
  // Every class and every teacher has as many lessons as available periods, so no capacity check finds a problem.
  const random = randomGenerator(926);
  const [classes, teachers] = [['a', 'b', 'c', 'd'], ['x', 'y', 'z', 'w']]; // prettier-ignore
  const lessons = classes.flatMap((name) => teachers.map((teacher) => lesson(name, teacher, random() < 0.85 ? 1 : 0)));
  const unavailablePeriods = (load: number) =>
    [1, 2, 3, 4, 5]
      .map((period) => [random(), period] as const)
      .sort((a, b) => a[0] - b[0])
      .slice(load)
      .map(([, period]): Time => [1, period]);
  const load = (id: string) =>
    lessons.filter((one) => one.class === id || one.teacher === id).reduce((sum, one) => sum + one.periods_per_week, 0);
  const withoutFreePeriods = (ids: string[]) => ids.map((id) => ({ id, unavailable: unavailablePeriods(load(id)) }));
  const problem: Problem = {
    days: 1,
    periods_per_day: 5,
    lunch_periods: [],
    classes: withoutFreePeriods(classes),
    teachers: withoutFreePeriods(teachers),
    lessons,
  };
  const required = lessons.reduce((sum, one) => sum + one.periods_per_week, 0);

  const result = generate(problem, { effort: 0.2 });
  if (result.status === 'infeasible') throw new Error(result.status);
  expect(result.status).toBe('partial');
  expect(findDefects(problem, result.placed).broken).toEqual({});
  expect(result.placed).toHaveLength(maxPlaced(problem));
  expect(result.unplaced.reduce((sum, { missing }) => sum + missing, 0)).toBe(required - result.placed.length);
  for (const { reason, message, periods, ...one } of result.unplaced) {
    expect(reason).toMatch(/^(class_full|teacher_(clash|unavailable))$/);
    const names = { class: 'Class 1', teacher: 'Ann', subject: 'Art' };
    expect(withNames(message, names)).toMatch(/^1 of 1 periods of Art with Ann have no slot in Class 1: .*\.$/);
    expect(Object.values(periods).reduce((sum, n) => sum + n, 0)).toBe(load(one.class as string));
  }
});

test('a short search for a hard timetable reports the missing lessons and breaks no rule', () => {
  const { problem } = feasibleProblem(
    {
      ...plainSchool,
      classes: 24,
      classLoad: 1,
      teacherLoad: 0.5,
      withoutFreePeriods: 1,
      exactLimits: true,
      doubles: 0,
    },
    1,
  );
  const result = generate(problem, { effort: 0.03 });
  if (result.status === 'infeasible') throw new Error(result.status);
  const verdict = findDefects(problem, result.placed);
  expect(verdict.broken).toEqual({});
  expect(result.unplaced.reduce((sum, { missing }) => sum + missing, 0)).toBe(verdict.unplaced);
  expect(result.status).toBe('partial');
});
