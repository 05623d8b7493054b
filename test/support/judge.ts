import type { Placed, Problem } from '../../src/timetable/problem.ts';

/** What is wrong with a timetable, counted from the problem alone: it shares no code with the generator. */
export interface Verdict {
  /** Broken rules by name; none of those that are kept. */
  broken: Record<string, number>;
  unplaced: number;
  spread_excess: number;
  class_gaps: number;
  /** Free periods between two lessons of a teacher, here or outside the plan, in which they could have taught. */
  teacher_gaps: number;
}

export function judge(problem: Problem, placed: readonly Placed[]): Verdict {
  const broken: Record<string, number> = {};
  const fault = (name: string, times = 1) => (broken[name] = (broken[name] ?? 0) + times);
  const name = (...parts: unknown[]) => JSON.stringify(parts);
  const add = (counts: Map<string, number>, of: string, by = 1) => {
    counts.set(of, (counts.get(of) ?? 0) + by);
    return counts.get(of) ?? 0;
  };
  const required = new Map<string, number>();
  for (const { class: who, subject, teacher, periods_per_week } of problem.lessons) add(required, name(who, subject, teacher), periods_per_week);

  const given = new Map<string, number>();
  const classes = new Map<string, number>();
  const teachers = new Map<string, number>();
  const onDay = new Map<string, number>();
  const classDays = new Map<string, Set<number>>();
  for (const { class: who, subject, teacher, day, period } of placed) {
    const inRange = (n: number, most: number) => Number.isInteger(n) && n >= 1 && n <= most;
    if (!inRange(day, problem.days) || !inRange(period, problem.periods_per_day)) fault('outside');
    if (problem.lunch_periods.includes(period)) fault('lunch');
    if (add(given, name(who, subject, teacher)) > (required.get(name(who, subject, teacher)) ?? 0)) fault('not asked for');
    if (add(classes, name(who, day, period)) > 1) fault('class twice');
    if (add(teachers, name(teacher, day, period)) > 1) fault('teacher twice');
    add(onDay, name(who, subject, teacher, day));
    const key = name(who, day);
    classDays.set(key, (classDays.get(key) ?? new Set()).add(period));
  }
  const open = Array.from({ length: problem.periods_per_day }, (_, index) => index + 1).filter((period) => !problem.lunch_periods.includes(period));
  const result: Verdict = { broken, unplaced: 0, spread_excess: 0, class_gaps: 0, teacher_gaps: 0 };
  for (const [lesson, n] of required) result.unplaced += Math.max(0, n - (given.get(lesson) ?? 0));
  for (const [at, n] of onDay) {
    const [who, subject, teacher] = JSON.parse(at) as unknown[];
    result.spread_excess += Math.max(0, n - Math.ceil((required.get(name(who, subject, teacher)) ?? 0) / problem.days));
  }
  for (const each of problem.classes) {
    const { id, unavailable = [] } = typeof each === 'object' ? each : { id: each };
    for (let day = 1; day <= problem.days; day++) {
      const taught = classDays.get(name(id, day)) ?? new Set<number>();
      const closed = new Set(unavailable.filter(([on]) => on === day).map(([, period]) => period));
      for (const period of taught) if (closed.has(period)) fault('class unavailable');
      result.class_gaps += open.filter((period) => period < Math.max(...taught) && !taught.has(period) && !closed.has(period)).length;
    }
  }
  for (const { id, unavailable = [], busy = [], max_per_day, max_per_week } of problem.teachers) {
    let week = 0;
    for (let day = 1; day <= problem.days; day++) {
      const away = new Set(unavailable.filter(([on]) => on === day).map(([, period]) => period));
      const elsewhere = new Set(busy.filter(([on]) => on === day).map(([, period]) => period));
      const taught = new Set(open.filter((period) => teachers.has(name(id, day, period))));
      for (const period of taught) {
        if (away.has(period)) fault('teacher unavailable');
        if (elsewhere.has(period)) fault('teacher busy');
      }
      const all = [...taught, ...[...elsewhere].filter((period) => open.includes(period))];
      const lessons = taught.size + elsewhere.size;
      if (taught.size > 0 && lessons > (max_per_day ?? Infinity)) fault('day limit', lessons - (max_per_day ?? 0));
      week += lessons;
      result.teacher_gaps += open.filter(
        (period) => period > Math.min(...all) && period < Math.max(...all) && !all.includes(period) && !away.has(period),
      ).length;
    }
    if (week > (max_per_week ?? Infinity)) fault('week limit', week - (max_per_week ?? 0));
  }
  return result;
}
