import { bits, classGaps, lessonsAgainstRules, type Model, teacherGaps } from './model.ts';

/**
 * An assignment of lessons to slots. No class or teacher is ever double-booked, because boards change only along chains
 * (see anneal.ts). Other violations are counted. The last day holds waiting lessons.
 */
export interface Board {
  /** By class and slot, and by teacher and slot: the kind of lesson, or -1. */
  classAt: Int32Array;
  teacherAt: Int32Array;
  /** By class and day, by teacher and day: a mask of the periods with lessons, broken rules and gaps. */
  classMask: Int32Array;
  teacherMask: Int32Array;
  classHard: Int32Array;
  classGap: Int32Array;
  teacherHard: Int32Array;
  teacherGap: Int32Array;
  /** By kind of lesson and day: the number of lessons minus the wished maximum. */
  above: Int32Array;
  /** By limit of rooms and slot: the lessons that it counts. */
  roomUse: Int32Array;
  totals: Totals;
}

export interface Totals {
  /** Lessons that break a rule. */
  hard: number;
  /** Lessons without a slot. */
  waiting: number;
  spread: number;
  classGaps: number;
  teacherGaps: number;
}

/** So small that adding lessons never makes it positive. */
const never = -1_000_000;

/** Computes a board and its totals from `classAt`. */
export function countBoard(model: Model, classAt: Int32Array): Board {
  const { days, length } = model;
  const slots = (days + 1) * length;
  const classes = model.classIds.length;
  const teachers = model.teacherIds.length;
  const allDays = days + 1;
  const board: Board = {
    classAt,
    teacherAt: new Int32Array(teachers * slots).fill(-1),
    classMask: new Int32Array(classes * allDays),
    teacherMask: new Int32Array(teachers * allDays),
    classHard: new Int32Array(classes * allDays),
    classGap: new Int32Array(classes * allDays),
    teacherHard: new Int32Array(teachers * allDays),
    teacherGap: new Int32Array(teachers * allDays),
    above: new Int32Array(model.count.length * allDays),
    roomUse: new Int32Array(model.roomLimits.length * slots),
    totals: { hard: 0, waiting: 0, spread: 0, classGaps: 0, teacherGaps: 0 },
  };
  for (let kind = 0; kind < model.count.length; kind++) {
    for (let day = 0; day < allDays; day++)
      board.above[kind * allDays + day] = day === days ? never : -Math.ceil(model.count[kind]! / days);
  }
  for (let classIndex = 0; classIndex < classes; classIndex++) {
    for (let slot = 0; slot < slots; slot++) {
      const kind = classAt[classIndex * slots + slot]!;
      if (kind < 0) continue;
      const day = Math.floor(slot / length);
      const bit = 1 << (slot % length);
      const teacher = model.teacherOf[kind]!;
      board.teacherAt[teacher * slots + slot] = kind;
      board.classMask[classIndex * allDays + day]! |= bit;
      board.teacherMask[teacher * allDays + day]! |= bit;
      board.above[kind * allDays + day]!++;
      for (const limit of model.limitsOf[kind]!) board.roomUse[limit * slots + slot]!++;
    }
  }
  const { totals } = board;
  for (let day = 0; day < days; day++) {
    for (let classIndex = 0; classIndex < classes; classIndex++) {
      const mask = board.classMask[classIndex * allDays + day]!;
      const closed = model.classClosed[classIndex * days + day]!;
      totals.hard += board.classHard[classIndex * allDays + day] = bits(mask & closed);
      totals.classGaps += board.classGap[classIndex * allDays + day] = classGaps(mask, closed);
    }
    for (let teacher = 0; teacher < teachers; teacher++) {
      const mask = board.teacherMask[teacher * allDays + day]!;
      const away = model.teacherAway[teacher * days + day]!;
      const busy = model.teacherBusy[teacher * days + day]!;
      totals.hard += board.teacherHard[teacher * allDays + day] = lessonsAgainstRules(
        mask,
        away | busy,
        model.dayLimit[teacher * days + day]!,
      );
      totals.teacherGaps += board.teacherGap[teacher * allDays + day] = teacherGaps(mask, away, busy);
    }
    for (let kind = 0; kind < model.count.length; kind++)
      totals.spread += Math.max(0, board.above[kind * allDays + day]!);
  }
  for (const [limit, { capacity }] of model.roomLimits.entries()) {
    for (let slot = 0; slot < days * length; slot++)
      totals.hard += Math.max(0, board.roomUse[limit * slots + slot]! - capacity[slot]!);
  }
  for (let classIndex = 0; classIndex < classes; classIndex++)
    totals.waiting += bits(board.classMask[classIndex * allDays + days]!);
  return board;
}

/**
 * The initial board: an edge coloring of the graph of classes and teachers, which exists if nobody has more lessons
 * than slots (Kőnig). Each lesson gets a slot where both are free, preferably early and without broken rules. Without
 * such a slot, a chain of lessons is swapped to free one.
 */
export function firstBoard(model: Model, random: () => number): Int32Array {
  const { days, length } = model;
  const slots = (days + 1) * length;
  const usable = days * length;
  const classAt = new Int32Array(model.classIds.length * slots).fill(-1);
  const teacherAt = new Int32Array(model.teacherIds.length * slots).fill(-1);
  const lessons: number[] = [];
  for (let kind = 0; kind < model.count.length; kind++) for (let n = 0; n < model.count[kind]!; n++) lessons.push(kind);
  for (let left = lessons.length; left > 1;) {
    const other = random() % left--;
    const last = lessons[left]!;
    lessons[left] = lessons[other]!;
    lessons[other] = last;
  }
  const put = (kind: number, slot: number) => {
    classAt[model.classOf[kind]! * slots + slot] = kind;
    teacherAt[model.teacherOf[kind]! * slots + slot] = kind;
  };
  const onDay = new Int32Array(model.count.length * days);
  for (const kind of lessons) {
    const classIndex = model.classOf[kind]!;
    const teacher = model.teacherOf[kind]!;
    let best = -1;
    let bestValue = Infinity;
    let classFree = -1;
    let teacherFree = -1;
    for (let slot = 0; slot < usable; slot++) {
      const isClassFree = classAt[classIndex * slots + slot]! < 0;
      const isTeacherFree = teacherAt[teacher * slots + slot]! < 0;
      if (isClassFree) classFree = slot;
      if (isTeacherFree) teacherFree = slot;
      if (!isClassFree || !isTeacherFree) continue;
      const day = Math.floor(slot / length);
      const bit = 1 << (slot % length);
      const away =
        model.teacherAway[teacher * days + day]! |
        model.teacherBusy[teacher * days + day]! |
        model.classClosed[classIndex * days + day]!;
      const value = (away & bit ? 1000 : 0) + onDay[kind * days + day]! * 100 + (slot % length) * 4 + (random() & 3);
      if (value < bestValue) {
        bestValue = value;
        best = slot;
      }
    }
    if (best < 0) {
      // Swap the two slots along a chain, so that the teacher is free in the slot in which the class is.
      const from = classFree;
      const to = teacherFree;
      let moved = teacherAt[teacher * slots + from]!;
      teacherAt[teacher * slots + from] = -1;
      while (moved >= 0) {
        const inClass = model.classOf[moved]!;
        const met = classAt[inClass * slots + to]!;
        classAt[inClass * slots + from] = -1;
        put(moved, to);
        if (met < 0) break;
        const itsTeacher = model.teacherOf[met]!;
        const next = teacherAt[itsTeacher * slots + from]!;
        // Move `met` from `to` to `from`.
        classAt[inClass * slots + from] = met;
        if (teacherAt[itsTeacher * slots + to] === met) teacherAt[itsTeacher * slots + to] = -1;
        teacherAt[itsTeacher * slots + from] = met;
        moved = next;
      }
      best = from;
    }
    put(kind, best);
    if (best < usable) onDay[kind * days + Math.floor(best / length)]!++;
  }
  return classAt;
}
