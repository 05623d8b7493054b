import { annealer } from './anneal.ts';
import { figuresOf, keepRules, placedLessons, unplacedLessons } from './answer.ts';
import { countBoard, firstBoard, randomFrom, type Totals } from './board.ts';
import { overCapacity } from './capacity.ts';
import { numbered } from './model.ts';
import type { Generated, Options, Problem } from './problem.ts';

export function generate(problem: Problem, { seed = 1, time_limit_ms = 20_000, stop }: Options = {}): Generated {
  const begin = performance.now();
  const seconds = () => Math.round(performance.now() - begin) / 1000;
  const model = numbered(problem);
  const over_capacity = overCapacity(model);
  if (over_capacity.length > 0) return { status: 'infeasible', over_capacity, seconds: seconds() };

  let isCutShort = false;
  const isLate = () => (isCutShort ||= performance.now() - begin > time_limit_ms || stop?.aborted === true);
  const rate = Number(process.env['RATE'] ?? 10_000);
  const budget = time_limit_ms * rate;
  const classAt = firstBoard(model, randomFrom(seed));
  const board = countBoard(model, classAt);
  const log = process.env['LOG'] ? (what: string) => process.stderr.write(`${what}\n`) : () => undefined;
  log(`first ${JSON.stringify(board.totals)} ${seconds()}`);
  const search = annealer(model, board, seed, isLate);
  const isFair = ({ hard, waiting, spread, classGaps }: Totals) => hard + waiting + spread + classGaps === 0;
  const isPerfect = (totals: Totals) => isFair(totals) && totals.teacherGaps === 0;
  for (let part = 1 / 32; search.work < budget && !isFair(search.best); part = Math.min(part * 2, 1)) {
    const ok = search.run({
      weights: { hard: 3, waiting: 3, spread: 1.5, classGaps: 1, teacherGaps: 0 },
      from: 1,
      to: 0.1,
      work: Math.min(budget - search.work, (budget * part) / 4),
      mayWait: false,
      isDone: isFair,
    });
    log(`A ${JSON.stringify(search.best)} now ${JSON.stringify(search.totals)} work ${search.work} steps ${search.steps} ${seconds()}`);
    if (!ok) break;
  }
  for (let part = 1 / 16; search.work < budget && !isPerfect(search.best) && !isLate(); part = part * 3) {
    search.run({
      weights: { hard: 8, waiting: 8, spread: 5, classGaps: 4, teacherGaps: 1 },
      from: Number(process.env['T0'] ?? 1),
      to: Number(process.env['T1'] ?? 0.1),
      work: part > 0.2 ? budget - search.work : Math.min(budget - search.work, budget * part),
      mayWait: false,
      isDone: isPerfect,
    });
    log(`B ${JSON.stringify(search.best)} now ${JSON.stringify(search.totals)} work ${search.work} steps ${search.steps} ${seconds()}`);
  }
  const done = search.bestClassAt;
  const missing = keepRules(model, done);
  const unplaced = unplacedLessons(model, done, missing);
  return {
    status: unplaced.length === 0 ? 'complete' : 'partial',
    placed: placedLessons(model, done),
    unplaced,
    figures: figuresOf(model, done),
    is_cut_short: isCutShort,
    seconds: seconds(),
  };
}
