import { figuresOf, keepRules, placedLessons, unplacedLessons } from './answer.ts';
import { overCapacity } from './capacity.ts';
import { numbered } from './model.ts';
import type { Generated, Options, Problem } from './problem.ts';
import { search } from './search.ts';

export const defaultTimeLimit = 20_000;

/** Units of work for a millisecond of the time limit: what a machine does that is three times as slow as those of 2024. */
const workPerMillisecond = 10_000;
/** Units of work for a lesson and in all, beyond which little is gained however long the time limit is. */
const workPerLesson = 400_000;
const leastWork = 4_000_000;

/**
 * A timetable for a week. Rules that are never broken: no class and no teacher is in two lessons, none is at lunch, when a teacher or class can't, or above a
 * teacher's limits for a day and a week. Wishes, in this order: a subject at most `ceil(n / days)` times a day in a class, no gaps in a class's day, few in a
 * teacher's. It ends early when all wishes are met.
 *
 * Pure: the same problem, in whatever order its lists are, with the same seed and time limit gives the same timetable. For that the search is budgeted in
 * steps, not in time: `time_limit_ms` times a rate that a slow machine keeps, at most so much for each lesson. Most machines are done in a third of the limit; the clock only cuts off
 * where the machine is slower or busy, which `is_cut_short` tells. A longer limit is a larger budget, and gives fewer gaps.
 *
 * What can be proven impossible is refused at once, with who is to blame; what only may be is tried until the end of the budget, and answered as
 * `partial`: all rules kept, as few lessons left out as were found, each with the reason.
 * @throws RangeError for a problem that makes no sense: see `numbered`
 */
export function generate(problem: Problem, { seed = 1, time_limit_ms = defaultTimeLimit, effort_ms = time_limit_ms, stop }: Options = {}): Generated {
  const begin = performance.now();
  const seconds = () => Math.round(performance.now() - begin) / 1000;
  const model = numbered(problem);
  const over_capacity = overCapacity(model);
  if (over_capacity.length > 0) return { status: 'infeasible', over_capacity, seconds: seconds() };

  let isCutShort = false;
  const isLate = () => (isCutShort ||= performance.now() - begin > time_limit_ms || stop?.aborted === true);
  const budget = Math.min(effort_ms * workPerMillisecond, leastWork + model.required * workPerLesson);
  const board = search(model, { seed, budget, isLate });
  const missing = keepRules(model, board);
  const unplaced = unplacedLessons(model, board, missing);
  return {
    status: unplaced.length === 0 ? 'complete' : 'partial',
    placed: placedLessons(model, board),
    unplaced,
    figures: figuresOf(model, board),
    is_cut_short: isCutShort,
    seconds: seconds(),
  };
}
