import { annealer, type Weights } from './anneal.ts';
import { countBoard, firstBoard, type Totals } from './board.ts';
import { bits, type Model } from './model.ts';
import { randomFrom } from './random.ts';

/** Rules first: a broken one weighs so much more than a wish that all are kept soon, if that is possible. The teachers' gaps weigh nothing yet. */
const rulesFirst: Weights = { hard: 8, waiting: 8, spread: 2, classGaps: 2, teacherGaps: 0 };
/** Where no timetable keeps all rules, or none was found: better that a lesson waits. */
const someWait: Weights = { hard: 16, waiting: 8, spread: 1, classGaps: 1, teacherGaps: 0 };
/** All wishes; the earlier ones are seldom given up for a while. */
const allWishes: Weights = { hard: 20, waiting: 20, spread: 5, classGaps: 4, teacherGaps: 1 };

/** How much above the wished spread every timetable is: a lesson whose teacher comes on few days must be there more often on those. */
function leastSpread(model: Model): number {
  const { days, length } = model;
  const allPeriods = (1 << length) - 1;
  let least = 0;
  for (let kind = 0; kind < model.count.length; kind++) {
    const most = Math.ceil(model.count[kind]! / days);
    let room = 0;
    for (let day = 0; day < days; day++) {
      const who = model.classOf[kind]! * days + day;
      const teacher = model.teacherOf[kind]! * days + day;
      const both = allPeriods & ~(model.classClosed[who]! | model.teacherAway[teacher]! | model.teacherBusy[teacher]!);
      room += Math.min(most, bits(both), model.dayLimit[teacher]!);
    }
    least += Math.max(0, model.count[kind]! - room);
  }
  return least;
}

interface Search {
  seed: number;
  /** Units of work. */
  budget: number;
  isLate: () => boolean;
}

/**
 * The best board within the budget: rounds of annealing, each longer than the one before, so that an easy problem is done soon and a hard one uses all there
 * is. First until all rules are kept, then for the wishes; if the rules can't be kept, lessons may wait.
 */
export function search(model: Model, { seed, budget, isLate }: Search): Int32Array {
  const annealing = annealer(model, countBoard(model, firstBoard(model, randomFrom(seed))), seed, isLate);
  const { best } = annealing;
  const least = leastSpread(model);
  const isKept = ({ hard, waiting }: Totals) => hard + waiting === 0;
  const isFair = (totals: Totals) => isKept(totals) && totals.spread <= least && totals.classGaps === 0;
  const isPerfect = (totals: Totals) => isFair(totals) && totals.teacherGaps === 0;

  /** Rounds from a part of the budget on, until the work reaches another part of it. */
  const rounds = (
    weights: Weights,
    first: number,
    until: number,
    isDone: (totals: Totals) => boolean,
    mayWait = false,
  ) => {
    const end = budget * until;
    let { hard } = weights;
    for (let part = first; annealing.work < end && !isDone(best); part *= 2) {
      const left = end - annealing.work;
      // No short rest is left for a last round.
      const work = budget * part * 1.5 > left ? left : budget * part;
      if (!annealing.run({ weights: { ...weights, hard }, work, mayWait, isDone })) return;
      if (best.hard > 0) hard = Math.min(hard * 1.5, 32);
    }
  };
  rounds(rulesFirst, 1 / 128, 0.2, isFair);
  if (!isKept(best)) rounds(rulesFirst, 1 / 8, 0.4, isKept);
  if (!isKept(best)) {
    rounds(someWait, 1 / 16, 0.75, isKept, true);
    rounds(allWishes, 1 / 4, 1, isPerfect, true);
  }
  rounds(allWishes, 1 / 16, 1, isPerfect);
  return annealing.bestClassAt;
}
