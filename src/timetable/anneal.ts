import type { Board, Totals } from './board.ts';
import {
  bits,
  classGaps as gapsOfClass,
  lessonsAgainstRules,
  type Model,
  teacherGaps as gapsOfTeacher,
} from './model.ts';
import { xorshift } from './random.ts';

/**
 * Simulated annealing over Kempe chains. A step swaps two slots along a chain of classes and teachers that alternate
 * between them, so no class or teacher is ever double-booked. Inside a chain everybody keeps a lesson in both slots,
 * so only the spread changes there. Gaps and broken rules change only at the two ends, and most steps are rejected at
 * the first end, before the chain is walked.
 */
export interface Weights {
  hard: number;
  waiting: number;
  spread: number;
  classGaps: number;
  teacherGaps: number;
}

interface Phase {
  weights: Weights;
  /** Units of work; one unit is about one step along a chain. */
  work: number;
  /** Whether lessons may move to the waiting day and back. */
  mayWait: boolean;
  /** Ends the phase early when no improvement is possible. */
  isDone: (totals: Totals) => boolean;
}

interface Annealer {
  totals: Totals;
  /** The best totals so far, and their board. */
  best: Totals;
  bestClassAt: Int32Array;
  /** Units of work done so far. */
  readonly work: number;
  /** @returns false when `isLate` stopped it */
  run: (phase: Phase) => boolean;
}

/** Compares boards lexicographically. */
function isBetter(a: Totals, b: Totals): boolean {
  if (a.hard + a.waiting !== b.hard + b.waiting) return a.hard + a.waiting < b.hard + b.waiting;
  if (a.spread !== b.spread) return a.spread < b.spread;
  if (a.classGaps !== b.classGaps) return a.classGaps < b.classGaps;
  return a.teacherGaps < b.teacherGaps;
}

/** A capacity that is never exceeded. */
const never = 1_000_000;

/** Temperatures at the start and the end of a phase, in units of the weights. */
const hot = 1;
const cold = 0.1;

/** -ln of a number between 0 and 1. */
const exponents = Float64Array.from({ length: 8192 }, (_, index) => -Math.log((index + 0.5) / 8192));

export function annealer(model: Model, board: Board, seed: number, isLate: () => boolean): Annealer {
  const { days, length, classOf, teacherOf, classClosed, teacherAway, teacherBusy, dayLimit } = model;
  const { classAt, teacherAt, classMask, teacherMask, classHard, classGap, teacherHard, teacherGap, above, totals } =
    board;
  const { roomUse } = board;
  const { limitsOf } = model;
  const hasRooms = model.roomLimits.length > 0;
  const allDays = days + 1;
  const slots = allDays * length;
  const classes = model.classIds.length;

  const load = new Int32Array(model.teacherIds.length);
  for (let kind = 0; kind < model.count.length; kind++) load[teacherOf[kind]!]! += model.count[kind]!;
  const working = Int32Array.from([...load.keys()].filter((teacher) => load[teacher]! > 0));
  const occupied = Int32Array.from([...Array(classes).keys()].filter((classIndex) => classOf.includes(classIndex)));

  const dayOf = Int32Array.from({ length: slots }, (_, slot) => Math.floor(slot / length));
  const bitOf = Int32Array.from({ length: slots }, (_, slot) => 1 << (slot % length));

  let rng = (Math.imul(seed, 0x85ebca6b) ^ 0x1f123bb5) | 0 || 1;
  let work = 0;
  const best: Totals = { ...totals };
  const bestClassAt = Int32Array.from(classAt);

  // Changes of the totals by the current step.
  let dHard = 0;
  let dWaiting = 0;
  let dSpread = 0;
  let dClass = 0;
  let dTeacher = 0;
  const chain = new Int32Array(classes * 2 + 2);
  let links = 0;
  /** By limit of rooms and slot: the capacity. The waiting day has no limit. */
  const roomCapacity = Int32Array.from(
    model.roomLimits.flatMap(({ capacity }) => [...capacity, ...Array<number>(length).fill(never)]),
  );
  /** By limit of rooms: the lessons that the current step adds to the second slot and takes from the first. */
  const roomShift = new Int32Array(model.roomLimits.length);
  const shifted: number[] = [];

  const shiftRooms = (kind: number, by: number) => {
    for (const limit of limitsOf[kind]!) {
      if (roomShift[limit] === 0) shifted.push(limit);
      roomShift[limit]! += by;
    }
  };
  const roomExcess = (limit: number, slot: number, more: number) => {
    const at = limit * slots + slot;
    const excess = roomUse[at]! + more - roomCapacity[at]!;
    return excess > 0 ? excess : 0;
  };
  /** Adds the changes of the lessons that lack a room when the current chain swaps two slots. */
  const changeRooms = (one: number, two: number) => {
    for (let link = 0; link < links; link++) {
      const base = chain[link]! * slots;
      const first = classAt[base + one]!;
      const second = classAt[base + two]!;
      if (first >= 0) shiftRooms(first, 1);
      if (second >= 0) shiftRooms(second, -1);
    }
    for (const limit of shifted) {
      const by = roomShift[limit]!;
      roomShift[limit] = 0;
      if (by === 0) continue;
      dHard += roomExcess(limit, two, by) - roomExcess(limit, two, 0);
      dHard += roomExcess(limit, one, -by) - roomExcess(limit, one, 0);
    }
    shifted.length = 0;
  };

  /** Adds the changes when the mask of a class on a day becomes `mask`. */
  const changeClass = (classIndex: number, day: number, mask: number) => {
    const at = classIndex * allDays + day;
    if (day === days) {
      dWaiting += bits(mask) - bits(classMask[at]!);
      return;
    }
    const dayIndex = classIndex * days + day;
    dHard += bits(mask & classClosed[dayIndex]!) - classHard[at]!;
    dClass += gapsOfClass(mask, classClosed[dayIndex]!) - classGap[at]!;
  };
  const changeTeacher = (teacher: number, day: number, mask: number) => {
    if (day === days) return;
    const at = teacher * allDays + day;
    const dayIndex = teacher * days + day;
    dHard +=
      lessonsAgainstRules(mask, teacherAway[dayIndex]! | teacherBusy[dayIndex]!, dayLimit[dayIndex]!) -
      teacherHard[at]!;
    dTeacher += gapsOfTeacher(mask, teacherAway[dayIndex]!, teacherBusy[dayIndex]!) - teacherGap[at]!;
  };
  /** A class or teacher at the end of a chain leaves one slot for another. */
  const endClass = (classIndex: number, from: number, to: number) => {
    const a = dayOf[from]!;
    const b = dayOf[to]!;
    const base = classIndex * allDays;
    if (a === b) changeClass(classIndex, a, classMask[base + a]! ^ bitOf[from]! ^ bitOf[to]!);
    else {
      changeClass(classIndex, a, classMask[base + a]! ^ bitOf[from]!);
      changeClass(classIndex, b, classMask[base + b]! ^ bitOf[to]!);
    }
  };
  const endTeacher = (teacher: number, from: number, to: number) => {
    const a = dayOf[from]!;
    const b = dayOf[to]!;
    const base = teacher * allDays;
    if (a === b) changeTeacher(teacher, a, teacherMask[base + a]! ^ bitOf[from]! ^ bitOf[to]!);
    else {
      changeTeacher(teacher, a, teacherMask[base + a]! ^ bitOf[from]!);
      changeTeacher(teacher, b, teacherMask[base + b]! ^ bitOf[to]!);
    }
  };

  /**
   * Walks the chain from a class whose lesson `first` moves from `from` to `to`, and adds up the changes. `start` is
   * the class that closes a cycle, or -1.
   * @returns the teacher or class (as -2 - class) at the other end, -1 for a cycle
   */
  const walk = (first: number, from: number, to: number, start: number): number => {
    const a = dayOf[from]!;
    const b = dayOf[to]!;
    let kind = first;
    for (;;) {
      const classIndex = classOf[kind]!;
      chain[links++] = classIndex;
      const met = classAt[classIndex * slots + to]!;
      if (a !== b && kind !== met) {
        if (above[kind * allDays + a]! > 0) dSpread--;
        if (above[kind * allDays + b]! >= 0) dSpread++;
        if (met >= 0) {
          if (above[met * allDays + b]! > 0) dSpread--;
          if (above[met * allDays + a]! >= 0) dSpread++;
        }
      }
      if (met < 0) return -2 - classIndex;
      const teacher = teacherOf[met]!;
      const next = teacherAt[teacher * slots + from]!;
      if (next < 0) return teacher;
      if (classOf[next] === start) return -1;
      kind = next;
    }
  };

  const moveRooms = (kind: number, from: number, to: number) => {
    for (const limit of limitsOf[kind]!) {
      roomUse[limit * slots + from]!--;
      roomUse[limit * slots + to]!++;
    }
  };
  const flipClass = (classIndex: number, from: number, to: number) => {
    const base = classIndex * slots;
    const a = dayOf[from]!;
    const b = dayOf[to]!;
    const one = classAt[base + from]!;
    const two = classAt[base + to]!;
    classAt[base + from] = two;
    classAt[base + to] = one;
    if (hasRooms) {
      if (one >= 0) moveRooms(one, from, to);
      if (two >= 0) moveRooms(two, to, from);
    }
    if (a !== b) {
      if (one >= 0) {
        above[one * allDays + a]!--;
        above[one * allDays + b]!++;
      }
      if (two >= 0) {
        above[two * allDays + b]!--;
        above[two * allDays + a]!++;
      }
    }
  };
  const setClassDay = (classIndex: number, day: number, mask: number) => {
    const at = classIndex * allDays + day;
    classMask[at] = mask;
    if (day === days) return;
    const closed = classClosed[classIndex * days + day]!;
    classHard[at] = bits(mask & closed);
    classGap[at] = gapsOfClass(mask, closed);
  };
  const setTeacherDay = (teacher: number, day: number, mask: number) => {
    const at = teacher * allDays + day;
    teacherMask[at] = mask;
    if (day === days) return;
    const dayIndex = teacher * days + day;
    teacherHard[at] = lessonsAgainstRules(mask, teacherAway[dayIndex]! | teacherBusy[dayIndex]!, dayLimit[dayIndex]!);
    teacherGap[at] = gapsOfTeacher(mask, teacherAway[dayIndex]!, teacherBusy[dayIndex]!);
  };
  const moveEnd = (end: number, one: number, two: number) => {
    const a = dayOf[one]!;
    const b = dayOf[two]!;
    if (end >= 0) {
      const base = end * allDays;
      setTeacherDay(end, a, teacherMask[base + a]! ^ bitOf[one]!);
      setTeacherDay(end, b, teacherMask[base + b]! ^ bitOf[two]!);
    } else if (end < -1) {
      const classIndex = -2 - end;
      const base = classIndex * allDays;
      setClassDay(classIndex, a, classMask[base + a]! ^ bitOf[one]!);
      setClassDay(classIndex, b, classMask[base + b]! ^ bitOf[two]!);
    }
  };
  /** Swaps the two slots along the current chain. */
  const apply = (one: number, two: number, end: number, otherEnd: number) => {
    for (let link = 0; link < links; link++) {
      const base = chain[link]! * slots;
      const first = classAt[base + one]!;
      const second = classAt[base + two]!;
      // First clear both slots of all teachers in the chain.
      if (first >= 0) teacherAt[teacherOf[first]! * slots + one] = -1;
      if (second >= 0) teacherAt[teacherOf[second]! * slots + two] = -1;
      flipClass(chain[link]!, one, two);
    }
    for (let link = 0; link < links; link++) {
      // Then set the new slots.
      const base = chain[link]! * slots;
      const first = classAt[base + one]!;
      const second = classAt[base + two]!;
      if (first >= 0) teacherAt[teacherOf[first]! * slots + one] = first;
      if (second >= 0) teacherAt[teacherOf[second]! * slots + two] = second;
    }
    moveEnd(end, one, two);
    moveEnd(otherEnd, one, two);
    totals.hard += dHard;
    totals.waiting += dWaiting;
    totals.spread += dSpread;
    totals.classGaps += dClass;
    totals.teacherGaps += dTeacher;
  };

  const run = ({ weights, work: budget, mayWait, isDone }: Phase): boolean => {
    const { hard, waiting, spread, classGaps, teacherGaps } = weights;
    const begin = work;
    const cooling = Math.log(cold / hot);
    // The most that the other end can gain to offset a loss at the first.
    const slack = Math.max(hard, mayWait ? waiting : 0) + 2 * teacherGaps + (hasRooms ? hard : 0);
    let temperature = hot;
    let nextLook = work;
    while (work - begin < budget) {
      if (work >= nextLook) {
        nextLook = work + 4096;
        temperature = hot * Math.exp((cooling * (work - begin)) / budget);
        if (isLate()) return false;
      }
      work++;
      rng = xorshift(rng);
      const r = rng >>> 0;
      rng = xorshift(rng);
      const q = rng >>> 0;
      const threshold = temperature * exponents[(q >>> 19) & 8191]!;
      // Two random slots, in half of the steps on the same day.
      const p1 = (((r & 0xffff) * length) >>> 16) | 0;
      const p2 = (((q & 0xffff) * length) >>> 16) | 0;
      const d1 = ((r >>> 16) * days) >>> 16;
      let d2 = d1;
      rng = xorshift(rng);
      const w = rng >>> 0;
      if (w & 1) {
        d2 = (((w >>> 8) & 0xff) * (mayWait ? allDays : days)) >>> 8;
      }
      let one = d1 * length + p1;
      let two = d2 * length + p2;
      if (one === two) continue;
      dHard = dWaiting = dSpread = dClass = dTeacher = 0;
      links = 0;
      let end = -1;
      let otherEnd = -1;
      if ((w & 14) !== 0) {
        // Start at a teacher classIndex teaches in one of the slots and is free in the other.
        const teacher = working[((w >>> 16) * working.length) >>> 16]!;
        const base = teacher * slots;
        let kind = teacherAt[base + one]!;
        const other = teacherAt[base + two]!;
        if (kind >= 0 === other >= 0) continue;
        if (kind < 0) {
          const swap = one;
          one = two;
          two = swap;
          kind = other;
        }
        endTeacher(teacher, one, two);
        if (hard * dHard + teacherGaps * dTeacher > threshold + slack) continue;
        end = teacher;
        otherEnd = walk(kind, one, two, -1);
        if (otherEnd >= 0) endTeacher(otherEnd, two, one);
        else endClass(-2 - otherEnd, one, two);
      } else {
        const classIndex = occupied[((w >>> 16) * occupied.length) >>> 16]!;
        const base = classIndex * slots;
        let kind = classAt[base + one]!;
        const other = classAt[base + two]!;
        if (kind >= 0 && other >= 0) {
          if (kind === other) continue;
          // Inside a chain, which is useful only for cycles: other chains are started from an end.
          otherEnd = walk(kind, one, two, classIndex);
          if (otherEnd !== -1) {
            work += links;
            continue;
          }
        } else {
          if (kind < 0) {
            if (other < 0) continue;
            const swap = one;
            one = two;
            two = swap;
            kind = other;
          }
          endClass(classIndex, one, two);
          if (hard * dHard + waiting * dWaiting + classGaps * dClass > threshold + slack + classGaps) continue;
          // The lesson moves to `two`, where the class is free. The chain continues with the teacher's lesson in `two`.
          end = -2 - classIndex;
          const teacher = teacherOf[kind]!;
          if (dayOf[one] !== dayOf[two]) {
            if (above[kind * allDays + dayOf[one]!]! > 0) dSpread--;
            if (above[kind * allDays + dayOf[two]!]! >= 0) dSpread++;
          }
          chain[links++] = classIndex;
          const next = teacherAt[teacher * slots + two]!;
          if (next < 0) {
            otherEnd = teacher;
            endTeacher(teacher, one, two);
          } else {
            otherEnd = walk(next, two, one, -1);
            if (otherEnd >= 0) endTeacher(otherEnd, one, two);
            else endClass(-2 - otherEnd, two, one);
          }
        }
      }
      work += links;
      if (hasRooms) changeRooms(one, two);
      if (
        hard * dHard + waiting * dWaiting + spread * dSpread + classGaps * dClass + teacherGaps * dTeacher >
        threshold
      )
        continue;
      apply(one, two, end, otherEnd);
      if (isBetter(totals, best)) {
        Object.assign(best, totals);
        bestClassAt.set(classAt);
        if (isDone(totals)) return true;
      }
    }
    return true;
  };

  return {
    totals,
    best,
    bestClassAt,
    get work() {
      return work;
    },
    run,
  };
}
