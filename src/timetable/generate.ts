import { figuresOf, keepRules, placedLessons, unplacedLessons } from './result.ts';
import { overCapacity, withinCapacity } from './capacity.ts';
import { type Model, numbered } from './model.ts';
import type { Generated, Options, Problem } from './problem.ts';
import { search } from './search.ts';

export const defaultEffort = 10;
export const defaultTimeLimit = 60_000;

/** Units of work for an effort of 1: what a machine does in a second that is three times as slow as those of 2024. */
const workPerEffort = 10_000_000;
/** Units of work beyond which little is gained, however much effort is allowed: so many for each lesson, and so many besides. */
const workPerLesson = 400_000;
const workBesides = 4_000_000;

/**
 * A timetable for a week. Rules that are never broken: no class and no teacher is in two lessons, none is at lunch, when a teacher or class can't, or above a
 * teacher's limits for a day and a week. Wishes, in this order: a subject at most `ceil(n / days)` times a day in a class, no gaps in a class's day, few in a
 * teacher's. It ends early when all wishes are met.
 *
 * Pure: the same problem, in whatever order its lists are, with the same seed and effort gives the same timetable, however busy the machine is, unless
 * `is_cut_short` tells that the clock (`time_limit_ms`) ended the search before its work was done. More effort gives fewer gaps.
 *
 * What can be proven impossible is refused at once, with who is to blame, unless `allow_partial`; what only may be is tried until the effort is used, and
 * answered as `partial`: all rules kept, as few lessons left out as were found, each with the reason.
 * @throws RangeError for a problem that makes no sense: see `numbered`
 */
export function generate(
  problem: Problem,
  { seed = 1, effort = defaultEffort, time_limit_ms = defaultTimeLimit, allow_partial = false }: Options = {},
): Generated {
  const begin = performance.now();
  const seconds = () => Math.round(performance.now() - begin) / 1000;
  const model = numbered(problem);
  const over_capacity = overCapacity(model);
  if (over_capacity.length > 0 && !allow_partial) return { status: 'infeasible', over_capacity, seconds: seconds() };

  let isCutShort = false;
  const isLate = () => (isCutShort ||= performance.now() - begin > time_limit_ms);
  const budget = Math.min(effort * workPerEffort, workBesides + model.required * workPerLesson);
  const sought: Model = over_capacity.length > 0 ? { ...model, count: withinCapacity(model) } : model;
  const board = search(sought, { seed, budget, isLate });
  const missing = keepRules(model, board);
  const unplaced = unplacedLessons(model, board, missing);
  return {
    status: unplaced.length === 0 ? 'complete' : 'partial',
    placed: placedLessons(model, board),
    unplaced,
    over_capacity,
    figures: figuresOf(model, board),
    is_cut_short: isCutShort,
    seconds: seconds(),
  };
}
