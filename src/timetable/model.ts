import type { Id, Problem, Time } from './problem.ts';
import { type RoomLimit, roomLimits } from './rooms.ts';

/**
 * A problem in numeric form. Classes and teachers are sorted by id, and lessons of the same class, subject and
 * teacher are added up, so that the order of the input does not matter. A slot is `day * length + period`, without
 * lunch periods. An additional last day holds lessons without a slot.
 */
export interface Model {
  days: number;
  /** Periods of a day without lunch, at most 30: a day is a bit mask. */
  length: number;
  /** The number of each period in the problem, which includes lunch. */
  periods: number[];
  classIds: Id[];
  teacherIds: Id[];
  /** By kind of lesson. */
  subjects: Id[];
  classOf: Int32Array;
  teacherOf: Int32Array;
  count: Int32Array;
  /** Periods to place. */
  required: number;
  /** By class and day: mask of periods without school. */
  classClosed: Int32Array;
  /** By teacher and day: masks of unavailable periods, and of lessons outside this plan. */
  teacherAway: Int32Array;
  teacherBusy: Int32Array;
  /** By teacher and day: maximum number of lessons of this plan. */
  dayLimit: Int32Array;
  /** By teacher: the week limit minus lessons outside this plan, possibly negative; `noLimit` without a limit. */
  weekLimit: Int32Array;
  roomIds: Id[];
  /** By room: whether it has room for any number of lessons. */
  isShared: boolean[];
  /** By room and day: mask of lessons outside this plan. */
  roomBusy: Int32Array;
  /** By kind of lesson: the rooms in which it can take place; empty if it needs none. */
  roomsOf: number[][];
  /** By kind of lesson: whether it takes place in the home room of its class. */
  isAtHome: boolean[];
  /** What limits the lessons of a period; empty if no two lessons can want the same room. */
  roomLimits: RoomLimit[];
  /** By kind of lesson: the limits that count it. */
  limitsOf: number[][];
}

const rank = (id: Id) => (typeof id === 'number' ? 0 : 1);
const compareIds = (a: Id, b: Id) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0);
const key = (id: Id) => `${typeof id}:${id}`;

const noLimit = 1_000_000;

/** @throws RangeError for days, periods or counts out of range, and for unknown or duplicate ids */
export function buildModel(problem: Problem): Model {
  const { days, periods_per_day } = problem;
  const requireInteger = (value: number, least: number, most: number, what: string) => {
    if (!Number.isInteger(value) || value < least || value > most)
      throw new RangeError(`${what} must be a whole number from ${least} to ${most}, not ${value}.`);
  };
  requireInteger(days, 1, 14, 'days');
  requireInteger(periods_per_day, 1, 30, 'periods_per_day');
  const lunch = new Set(problem.lunch_periods);
  const periods = Array.from({ length: periods_per_day }, (_, index) => index + 1).filter(
    (period) => !lunch.has(period),
  );
  const indexOf = new Map(periods.map((period, index) => [period, index]));
  const length = periods.length;

  const classes = problem.classes
    .map((each) => (typeof each === 'object' ? each : { id: each }))
    .sort((a, b) => compareIds(a.id, b.id));
  const teachers = [...problem.teachers].sort((a, b) => compareIds(a.id, b.id));
  const rooms = [...(problem.rooms ?? [])].sort((a, b) => compareIds(a.id, b.id));
  const numbers = (ids: Id[], what: string) => {
    const map = new Map(ids.map((id, index) => [key(id), index]));
    if (map.size !== ids.length)
      throw new RangeError(`Two ${what === 'class' ? 'classes' : `${what}s`} have the same id.`);
    return (id: Id) => {
      const number = map.get(key(id));
      if (number === undefined) throw new RangeError(`There is no ${what} ${id}.`);
      return number;
    };
  };
  const classNumber = numbers(classes.map(({ id }) => id), 'class'); // prettier-ignore
  const teacherNumber = numbers(teachers.map(({ id }) => id), 'teacher'); // prettier-ignore
  const roomNumber = numbers(rooms.map(({ id }) => id), 'room'); // prettier-ignore

  const merged = new Map<
    string,
    { class: number; subject: Id; teacher: number; count: number; rooms: readonly Id[] | undefined }
  >();
  for (const lesson of problem.lessons) {
    requireInteger(lesson.periods_per_week, 0, 100_000, 'periods_per_week');
    if (lesson.periods_per_week === 0) continue;
    const kind = {
      class: classNumber(lesson.class),
      subject: lesson.subject,
      teacher: teacherNumber(lesson.teacher),
      count: lesson.periods_per_week,
      rooms: lesson.rooms,
    };
    const name = `${kind.class} ${kind.teacher} ${key(kind.subject)}`;
    const known = merged.get(name);
    if (known) known.count += kind.count;
    else merged.set(name, kind);
  }
  const kinds = [...merged.values()].sort(
    (a, b) => a.class - b.class || compareIds(a.subject, b.subject) || a.teacher - b.teacher,
  );

  /** Ignores times outside the week and at lunch. */
  const masks = (all: (readonly Time[] | undefined)[]) => {
    const mask = new Int32Array(all.length * days);
    for (const [who, times] of all.entries()) {
      for (const [day, period] of times ?? []) {
        const bit = indexOf.get(period);
        if (bit !== undefined && day >= 1 && day <= days)
          mask[who * days + day - 1] = (mask[who * days + day - 1] ?? 0) | (1 << bit);
      }
    }
    return mask;
  };
  const dayLimit = new Int32Array(teachers.length * days);
  const weekLimit = new Int32Array(teachers.length);
  for (const [who, { max_per_day, max_per_week, busy = [] }] of teachers.entries()) {
    // Lessons outside this plan count even at lunch.
    const times = [...new Set(busy.map(([day, period]) => day * 100 + period))];
    for (let day = 0; day < days; day++) {
      const there = times.filter((time) => Math.floor(time / 100) === day + 1).length;
      dayLimit[who * days + day] = Math.min(length, Math.max(0, (max_per_day ?? length + there) - there));
    }
    weekLimit[who] = (max_per_week ?? noLimit) - times.length;
  }
  const isAtHome = kinds.map((kind) => (kind.rooms ?? []).length === 0);
  const roomsOf = kinds.map((kind, index) => {
    const home = classes[kind.class]?.home_room ?? null;
    const ids = isAtHome[index] ? (home === null ? [] : [home]) : (kind.rooms ?? []);
    return ids.map(roomNumber).sort((a, b) => a - b);
  });
  const isShared = rooms.map((room) => room.is_shared ?? false);
  const roomBusy = masks(rooms.map(({ busy }) => busy));
  const classOf = Int32Array.from(kinds, (kind) => kind.class);
  const classClosed = masks(classes.map(({ unavailable }) => unavailable));
  return {
    days,
    length,
    periods,
    classIds: classes.map(({ id }) => id),
    teacherIds: teachers.map(({ id }) => id),
    subjects: kinds.map(({ subject }) => subject),
    classOf,
    teacherOf: Int32Array.from(kinds, (kind) => kind.teacher),
    count: Int32Array.from(kinds, (kind) => kind.count),
    required: kinds.reduce((sum, kind) => sum + kind.count, 0),
    classClosed,
    teacherAway: masks(teachers.map(({ unavailable }) => unavailable)),
    teacherBusy: masks(teachers.map(({ busy }) => busy)),
    dayLimit,
    weekLimit,
    roomIds: rooms.map(({ id }) => id),
    isShared,
    roomBusy,
    roomsOf,
    isAtHome,
    ...roomLimits({ days, length, classOf, classClosed, roomsOf, isShared, roomBusy }),
  };
}

// Read once, because access to globals is slow in a vm context, as in tests.
const { clz32 } = Math;

/** The number of set bits. */
export function bits(mask: number): number {
  let v = mask;
  v -= (v >>> 1) & 0x55555555;
  v = (v & 0x33333333) + ((v >>> 2) & 0x33333333);
  return (((v + (v >>> 4)) & 0x0f0f0f0f) * 0x01010101) >>> 24;
}

/** The free periods before the last lesson of a class, except periods without school. */
export function classGaps(mask: number, closed: number): number {
  return mask === 0 ? 0 : bits(((1 << (31 - clz32(mask))) - 1) & ~mask & ~closed);
}

/** The available free periods between the first and the last lesson of a teacher, in this plan or outside. */
export function teacherGaps(mask: number, away: number, busy: number): number {
  const taught = mask | busy;
  return taught === 0 ? 0 : bits(((1 << (31 - clz32(taught))) - 1) & ~((taught & -taught) - 1) & ~taught & ~away);
}

/** The lessons of a teacher on a day that break a rule: when unavailable or busy, or above the day limit. */
export function lessonsAgainstRules(mask: number, blocked: number, limit: number): number {
  const excess = bits(mask & ~blocked) - limit;
  return bits(mask & blocked) + (excess > 0 ? excess : 0);
}
