import { figuresOf, keepRules, placedLessons, unplacedLessons } from './answer.ts';
import { overCapacity } from './capacity.ts';
import { numbered } from './model.ts';
import type { Generated, Options, Problem } from './problem.ts';
import { search } from './search.ts';

/** Units of work for a millisecond of the limit. A machine of 2024 does three to five times as many. */
const workPerMillisecond = 10_000;

export function generate(problem: Problem, { seed = 1, time_limit_ms = 20_000, stop }: Options = {}): Generated {
  const begin = performance.now();
  const seconds = () => Math.round(performance.now() - begin) / 1000;
  const model = numbered(problem);
  const over_capacity = overCapacity(model);
  if (over_capacity.length > 0) return { status: 'infeasible', over_capacity, seconds: seconds() };

  let isCutShort = false;
  const isLate = () => (isCutShort ||= performance.now() - begin > time_limit_ms || stop?.aborted === true);
  const board = search(model, { seed, budget: time_limit_ms * workPerMillisecond, isLate });
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
