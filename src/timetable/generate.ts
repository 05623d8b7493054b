import { figuresOf, keepRules, placedLessons, unplacedLessons } from './result.ts';
import { overCapacity, withinCapacity } from './capacity.ts';
import { type Model, buildModel } from './model.ts';
import type { Generated, Options, Problem } from './problem.ts';
import { search } from './search.ts';

export const defaultEffort = 10;
export const defaultTimeLimit = 60_000;

/** Units of work for an effort of 1: about a second on a slow machine, a third of a second on one of 2024. */
const workPerEffort = 10_000_000;
/** More work than this improves the result little: a base amount plus an amount per lesson. */
const workPerLesson = 400_000;
const workBesides = 4_000_000;

/**
 * Generates a timetable for a week. Hard rules: no class or teacher is double-booked, no lesson is at lunch or when
 * the class or teacher is unavailable, each lesson has one of its rooms for itself, and teachers' limits per day and week are kept. Soft goals, in this order: a
 * subject at most `ceil(n / days)` times a day per class, no gaps for classes, few gaps for teachers. Stops early
 * when all are met.
 *
 * Deterministic: the same problem, seed and effort give the same timetable, regardless of the order of the lists and
 * the load of the machine, unless `time_limit_ms` ended the search (`is_cut_short`). More effort gives fewer gaps.
 *
 * A provably impossible problem is rejected at once with the cause, unless `allow_partial`. If no complete timetable
 * is found, the result is `partial`: it keeps all rules, leaves out as few lessons as possible, and has the reason
 * for each.
 * @throws RangeError for an invalid problem, see `buildModel`
 */
export function generate(
  problem: Problem,
  { seed = 1, effort = defaultEffort, time_limit_ms = defaultTimeLimit, allow_partial = false }: Options = {},
): Generated {
  const begin = performance.now();
  const seconds = () => Math.round(performance.now() - begin) / 1000;
  const model = buildModel(problem);
  const over_capacity = overCapacity(model);
  if (over_capacity.length > 0 && !allow_partial) return { status: 'infeasible', over_capacity, seconds: seconds() };

  let isCutShort = false;
  const isLate = () => (isCutShort ||= performance.now() - begin > time_limit_ms);
  const budget = Math.min(effort * workPerEffort, workBesides + model.required * workPerLesson);
  const sought: Model = over_capacity.length > 0 ? { ...model, count: withinCapacity(model) } : model;
  const board = search(sought, { seed, budget, isLate });
  const { missing, rooms } = keepRules(model, board);
  const unplaced = unplacedLessons(model, board, missing, rooms);
  return {
    status: unplaced.length === 0 ? 'complete' : 'partial',
    placed: placedLessons(model, board, rooms),
    unplaced,
    over_capacity,
    figures: figuresOf(model, board),
    is_cut_short: isCutShort,
    seconds: seconds(),
  };
}
