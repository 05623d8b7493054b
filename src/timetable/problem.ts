/** What a timetable is made of, and what the generator answers. Days and periods are counted from 1. */

export type Id = number | string;
/** Day and period. */
export type Time = readonly [day: number, period: number];

export interface Teacher {
  id: Id;
  /** When they can not teach. */
  unavailable?: readonly Time[];
  /** Lessons that they already have with classes that are not planned here: not free, counted to both limits, and no gap. */
  busy?: readonly Time[];
  max_per_day?: number | null;
  max_per_week?: number | null;
}

export interface Class {
  id: Id;
  unavailable?: readonly Time[];
}

export interface Lesson {
  class: Id;
  subject: Id;
  teacher: Id;
  periods_per_week: number;
}

export interface Problem {
  /** 1 to 14. */
  days: number;
  /** 1 to 30. */
  periods_per_day: number;
  /** In which nobody is taught. */
  lunch_periods: readonly number[];
  classes: readonly (Id | Class)[];
  teachers: readonly Teacher[];
  /** The same class, subject and teacher may come several times: the periods are added. */
  lessons: readonly Lesson[];
}

export interface Options {
  /** Another seed gives another timetable, as good. */
  seed?: number;
  /** How much is searched: work, not time. An idle machine takes a third of a second for 1, one that is as slow as any a second. */
  effort?: number;
  /** When the clock ends the search, wherever it is. From 1. */
  time_limit_ms?: number;
  /** Where more is asked for than there is room for, as much as there is room for, rather than nothing. */
  allow_partial?: boolean;
}

export interface Placed {
  class: Id;
  subject: Id;
  teacher: Id;
  day: number;
  period: number;
}

/** Why a lesson has no place; what stands in the way in most of the periods that could be its own. */
export type UnplacedReason =
  | 'class_full' // the class has a lesson in every period in which it has school
  | 'teacher_clash' // the teacher teaches another class when this one is free
  | 'teacher_unavailable' // the teacher can't come when the class is free
  | 'teacher_busy' // the teacher has a lesson outside this plan when the class is free
  | 'teacher_day_limit' // the teacher has the most lessons for a day on the days on which the class is free
  | 'teacher_week_limit'; // the teacher has the most lessons for a week

export interface Unplaced {
  class: Id;
  subject: Id;
  teacher: Id;
  /** Periods a week that found no place. */
  missing: number;
  reason: UnplacedReason;
  /** English, with `{class}`, `{subject}` and `{teacher}` where names belong: see `withNames`. */
  message: string;
  /** All periods of the week in which there is school, each counted once, by the first of these that holds. */
  periods: {
    class_taken: number;
    teacher_unavailable: number;
    teacher_busy: number;
    teacher_clash: number;
    teacher_day_limit: number;
  };
}

export type CapacityReason =
  | 'class_periods' // more lessons than periods
  | 'class_teachers' // the lessons don't fit into the periods in which their teachers can come
  | 'teacher_week_limit'
  | 'teacher_periods' // more lessons than periods in which the teacher can come
  | 'teacher_day_limit' // more lessons than the day limits allow in the periods in which the teacher can come
  | 'teacher_classes' // the lessons don't fit into the periods in which the classes have school
  | 'day_teachers' // the classes need more lessons on a day than their teachers can give
  | 'day_classes' // the teachers have to give more lessons on a day than their classes can have
  | 'period_teachers' // the classes that have a lesson in every period have too few teachers in this one
  | 'period_classes' // the teachers who must teach in every period they can have too few classes in this one
  | 'week_teachers'; // all periods together: fewer lessons fit than there are

/** A proof that no timetable can exist, and who is to blame. */
export interface OverCapacity {
  kind: 'class' | 'teacher' | 'day' | 'period' | 'week';
  /** Of the class or teacher, or the number of the day; null for a period or the week. */
  id: Id | null;
  reason: CapacityReason;
  /** Periods. */
  required: number;
  available: number;
  day: number | null;
  period: number | null;
  /** Everybody who has a part in it. */
  classes: Id[];
  teachers: Id[];
  /** English, with `{class}`, `{teacher}`, `{classes}`, `{teachers}` and `{day}` where names belong: see `withNames`. */
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
  /** Why not all can be placed, where that is known before anything is searched; empty unless `allow_partial`. */
  over_capacity: OverCapacity[];
  figures: Figures;
  /** True when the clock ended the search before its effort was used: then another run may differ. */
  is_cut_short: boolean;
  seconds: number;
}

export interface Infeasible {
  status: 'infeasible';
  over_capacity: OverCapacity[];
  seconds: number;
}

export type Generated = Timetable | Infeasible;

/** Puts names into a message: `{class}` becomes what `names.class` says. */
export function withNames(message: string, names: Record<string, string>): string {
  return message.replace(/\{(\w+)\}/g, (placeholder, name: string) => names[name] ?? placeholder);
}
