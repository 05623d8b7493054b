import { type Id, type OverCapacity, type Placed, type Problem, type Unplaced, withNames } from './problem.ts';

/** The answer of `api.timetable_generate`: the generator's input, and the names of classes, subjects and teachers. */
export interface GenerationRun {
  /** The secret token of the lease. */
  run: string;
  digest: string;
  academic_year_id: number;
  class_ids: number[];
  /** How many slots the new timetable replaces. */
  replaced_slot_count: number;
  /** The generator numbers the `working_days` from 1. */
  problem: Problem & {
    working_days: number[];
    /** Class subjects without an active teacher, which the generator cannot place. `teacher` is the inactive one. */
    untaught: { class: number; subject: number; teacher: number | null; periods_per_week: number }[];
  };
  /** By id. */
  names: Record<'classes' | 'subjects' | 'teachers', Record<string, string>>;
}

/** The day of the week, 1 for Monday, that the generator counts as its `day`. */
const dayOfWeek = ({ problem }: GenerationRun, day: number) => problem.working_days[day - 1] ?? day;

const who = ({ names }: GenerationRun, classId: Id, subjectId: Id, teacherId: Id | null) => ({
  class_id: classId,
  class_name: names.classes[classId] ?? '',
  subject_id: subjectId,
  subject_name: names.subjects[subjectId] ?? '',
  teacher_id: teacherId,
  teacher_name: teacherId === null ? null : (names.teachers[teacherId] ?? ''),
});
/** Starts with Monday. */
export const dayNames = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];

/** The slots of the school's week. */
export const slotsOf = (begun: GenerationRun, placed: readonly Placed[]) =>
  placed.map((one) => ({
    ...who(begun, one.class, one.subject, one.teacher),
    day_of_week: dayOfWeek(begun, one.day),
    period: one.period,
  }));

/** The lessons that have no slot, each with the reason. Class subjects without an active teacher come first. */
export function unplacedOf(begun: GenerationRun, unplaced: readonly Unplaced[]) {
  const line = (classId: Id, subjectId: Id, teacherId: Id | null, missing: number, reason: string, message: string) => {
    const whose = who(begun, classId, subjectId, teacherId);
    const names = { class: whose.class_name, subject: whose.subject_name, teacher: whose.teacher_name ?? '' };
    return { ...whose, missing, reason, message: withNames(message, names) };
  };
  return [
    ...begun.problem.untaught.map(({ class: classId, subject, teacher, periods_per_week }) =>
      teacher === null
        ? line(classId, subject, null, periods_per_week, 'no_teacher', '{subject} in {class} has no teacher.')
        : line(
            classId,
            subject,
            teacher,
            periods_per_week,
            'teacher_inactive',
            '{subject} in {class} is taught by {teacher}, who is not active.',
          ),
    ),
    ...unplaced.map((one) => line(one.class, one.subject, one.teacher, one.missing, one.reason, one.message)),
  ];
}

const maxNames = 8;
const list = (ids: readonly Id[], names: Record<string, string>) =>
  ids
    .slice(0, maxNames)
    .map((id) => names[id] ?? String(id))
    .join(', ') + (ids.length > maxNames ? ` and ${String(ids.length - maxNames)} more` : '');

/**
 * The classes, teachers and times that are over capacity, each once. The path is `class.<id>`, `teacher.<id>`,
 * `day.<day_of_week>`, `period.<day_of_week>.<period>` or `week`.
 */
export function overCapacityOf(
  begun: GenerationRun,
  over: readonly OverCapacity[],
): { path: string; message: string }[] {
  const { names } = begun;
  const lines = over.map(({ kind, id, day, period, classes, teachers, message }) => {
    const inWeek = day === null ? null : dayOfWeek(begun, day);
    return {
      path: [
        kind,
        ...(kind === 'class' || kind === 'teacher' ? [id] : [inWeek, period].filter((part) => part !== null)),
      ].join('.'),
      message: withNames(message, {
        class: names.classes[id ?? ''] ?? '',
        teacher: names.teachers[id ?? ''] ?? '',
        classes: list(classes, names.classes),
        teachers: list(teachers, names.teachers),
        day: dayNames[(inWeek ?? 0) - 1] ?? '',
      }),
    };
  });
  return lines.filter(({ path }, index) => lines.findIndex((line) => line.path === path) === index);
}
