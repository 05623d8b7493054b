/** The input and the output of the generator. Days and periods are counted from 1. */

export type Id = number | string;
/** Day and period. */
export type Time = readonly [day: number, period: number];

export interface Teacher {
  id: Id;
  /** Times at which they cannot teach. */
  unavailable?: readonly Time[];
  /** Lessons with classes outside this plan. They count towards both limits and are not gaps. */
  busy?: readonly Time[];
  max_per_day?: number | null;
  max_per_week?: number | null;
}

export interface Class {
  id: Id;
  unavailable?: readonly Time[];
  /** The room of the lessons whose subject has no rooms. */
  home_room?: Id | null;
}

export interface Room {
  id: Id;
  /** Whether it has room for any number of lessons at a time. */
  is_shared?: boolean;
  /** Lessons outside this plan. */
  busy?: readonly Time[];
}

export interface Lesson {
  class: Id;
  subject: Id;
  teacher: Id;
  periods_per_week: number;
  /** The lessons take place in one of these rooms. Without any, in the home room of the class, if it has one. */
  rooms?: readonly Id[];
}

export interface Problem {
  /** 1 to 14. */
  days: number;
  /** 1 to 30. */
  periods_per_day: number;
  /** Periods without lessons. */
  lunch_periods: readonly number[];
  classes: readonly (Id | Class)[];
  teachers: readonly Teacher[];
  rooms?: readonly Room[];
  /** Entries with the same class, subject and teacher are added up, and have the rooms of the first. */
  lessons: readonly Lesson[];
}

export interface Options {
  /** Different seeds give different timetables of the same quality. */
  seed?: number;
  /** The amount of search work. 1 takes a third of a second on an idle machine, and up to a second on a slow one. */
  effort?: number;
  /** Time limit of the search, at least 1. */
  time_limit_ms?: number;
  /** Returns a partial timetable when the capacity is exceeded, instead of nothing. */
  allow_partial?: boolean;
}

export interface Placed {
  class: Id;
  subject: Id;
  teacher: Id;
  day: number;
  period: number;
  /** One of the rooms of the lesson. Missing for the home room, and for lessons without rooms. */
  room?: Id;
}

/** Why a lesson has no slot: the most frequent obstacle in the periods of the class. */
export type UnplacedReason =
  | 'class_full' // the class has a lesson in every period in which it has school
  | 'teacher_clash' // the teacher teaches another class when this one is free
  | 'teacher_unavailable' // the teacher is not available when the class is free
  | 'teacher_busy' // the teacher has a lesson outside this plan when the class is free
  | 'teacher_day_limit' // the teacher has reached the day limit on the days on which the class is free
  | 'teacher_week_limit' // the teacher has reached the week limit
  | 'room_taken'; // no room of the lesson is free when the class and the teacher are

export interface Unplaced {
  class: Id;
  subject: Id;
  teacher: Id;
  /** Number of periods a week without a slot. */
  missing: number;
  reason: UnplacedReason;
  /** English, with `{class}`, `{subject}` and `{teacher}` where names belong: see `withNames`. */
  message: string;
  /** The school periods of the week by the first obstacle that applies. */
  periods: {
    class_taken: number;
    teacher_unavailable: number;
    teacher_busy: number;
    teacher_clash: number;
    teacher_day_limit: number;
    room_taken: number;
  };
}

export type CapacityReason =
  | 'class_periods' // more lessons than periods
  | 'class_teachers' // the lessons do not fit into the periods in which their teachers are available
  | 'teacher_week_limit'
  | 'teacher_periods' // more lessons than periods in which the teacher is available
  | 'teacher_day_limit' // more lessons than the day limits allow in the periods in which the teacher is available
  | 'teacher_classes' // the lessons do not fit into the periods in which the classes have school
  | 'day_teachers' // the classes need more lessons on a day than their teachers can teach
  | 'day_classes' // the teachers have to teach more lessons on a day than their classes can have
  | 'period_teachers' // the classes that have a lesson in every period have too few teachers in this one
  | 'period_classes' // the teachers who must teach whenever they are available have too few classes in this one
  | 'room_periods' // more lessons than periods in which their rooms are free
  | 'week_teachers'; // all periods together: fewer lessons fit than there are

/** A proof that no timetable exists, with its cause. */
export interface OverCapacity {
  kind: 'class' | 'teacher' | 'room' | 'day' | 'period' | 'week';
  /** Of the class, teacher or first room, or the number of the day; null for a period or the week. */
  id: Id | null;
  reason: CapacityReason;
  /** Periods. */
  required: number;
  available: number;
  day: number | null;
  period: number | null;
  /** The classes and teachers that cause it. */
  classes: Id[];
  teachers: Id[];
  rooms: Id[];
  /**
   * English, with `{class}`, `{teacher}`, `{classes}`, `{teachers}`, `{rooms}` and `{day}` where names belong: see `withNames`.
   */
  message: string;
}

export interface Figures {
  /** Lessons of a subject above `ceil(n / days)` on a day of its class, summed. */
  spread_excess: number;
  /** Free periods of a class before its last lesson of a day, counted from the first period. */
  class_gaps: number;
  /** Free periods of a teacher between two lessons of a day in which they could have taught. */
  teacher_gaps: number;
  required_periods: number;
  placed_periods: number;
}

export interface Timetable {
  status: 'complete' | 'partial';
  placed: Placed[];
  unplaced: Unplaced[];
  /** Why some lessons cannot be placed, as known before the search; empty unless `allow_partial`. */
  over_capacity: OverCapacity[];
  figures: Figures;
  /** Whether the time limit ended the search; then another run may give a different result. */
  is_cut_short: boolean;
  seconds: number;
}

export interface Infeasible {
  status: 'infeasible';
  over_capacity: OverCapacity[];
  seconds: number;
}

export type Generated = Timetable | Infeasible;

/** Replaces placeholders in a message: `{class}` by `names.class`. */
export function withNames(message: string, names: Record<string, string>): string {
  return message.replace(/\{(\w+)\}/g, (placeholder, name: string) => names[name] ?? placeholder);
}
