import { annealer, type Weights } from './anneal.ts';
import { countBoard, firstBoard, type Totals } from './board.ts';
import { bits, type Model } from './model.ts';
import { randomFrom } from './random.ts';

/** Rules first: a broken rule weighs much more than a soft goal. Gaps of teachers are ignored in this phase. */
const rulesFirst: Weights = { hard: 8, waiting: 8, spread: 2, classGaps: 2, teacherGaps: 0 };
/** If no timetable that keeps all rules was found: leave lessons out instead of breaking rules. */
const someWait: Weights = { hard: 16, waiting: 8, spread: 1, classGaps: 1, teacherGaps: 0 };
/** All soft goals, with high weights that protect what was achieved before. */
const allWishes: Weights = { hard: 20, waiting: 20, spread: 5, classGaps: 4, teacherGaps: 1 };

/**
 * A lower bound for the spread excess: subjects whose teacher is available on few days must be taught more often on
 * them.
 */
function leastSpread(model: Model): number {
  const { days, length } = model;
  const allPeriods = (1 << length) - 1;
  let least = 0;
  for (let kind = 0; kind < model.count.length; kind++) {
    const most = Math.ceil(model.count[kind]! / days);
    let room = 0;
    for (let day = 0; day < days; day++) {
      const classDay = model.classOf[kind]! * days + day;
      const teacherDay = model.teacherOf[kind]! * days + day;
      const both =
        allPeriods & ~(model.classClosed[classDay]! | model.teacherAway[teacherDay]! | model.teacherBusy[teacherDay]!);
      room += Math.min(most, bits(both), model.dayLimit[teacherDay]!);
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
 * Finds the best board within the budget, by rounds of annealing of increasing length, so that easy problems finish
 * early. First until all rules are kept, then for the soft goals. If the rules cannot be kept, lessons may be left
 * out.
 */
export function search(model: Model, { seed, budget, isLate }: Search): Int32Array {
  const annealing = annealer(model, countBoard(model, firstBoard(model, randomFrom(seed))), seed, isLate);
  const { best } = annealing;
  const least = leastSpread(model);
  const isKept = ({ hard, waiting }: Totals) => hard + waiting === 0;
  const isFair = (totals: Totals) => isKept(totals) && totals.spread <= least && totals.classGaps === 0;
  const isPerfect = (totals: Totals) => isFair(totals) && totals.teacherGaps === 0;

  /**
   * Runs rounds of doubling length, starting with the fraction `first` of the budget, until the fraction `until` is
   * used.
   */
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
      // Avoid a very short last round.
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
