import { type Id, type OverCapacity, type Placed, type Problem, type Unplaced, withNames } from './problem.ts';

/** The response of `api.timetable_generate`: the problem, and the names of classes, subjects and teachers. */
export interface GenerationRun {
  /** The secret token of the lease: renews, saves or ends the run. */
  run: string;
  digest: string;
  academic_year_id: number;
  class_ids: number[];
  /** Number of existing slots that the new timetable replaces. */
  replaced_slot_count: number;
  /** Pinned slots that no longer fit, as the response has them. */
  pinned_conflicts: unknown[];
  /** The days of the problem are indexes into `working_days`. */
  problem: Problem & {
    working_days: number[];
    /** Class subjects without an active teacher, which cannot be placed; `teacher` is the inactive lesson. */
    untaught: { class: number; subject: number; teacher: number | null; periods_per_week: number }[];
  };
  /** By id. */
  names: Record<'classes' | 'subjects' | 'teachers' | 'rooms', Record<string, string>>;
}

/** Converts a day of the generator to a day of the week, 1 for Monday. */
const dayOfWeek = ({ problem }: GenerationRun, day: number) => problem.working_days[day - 1] ?? day;

const labels = ({ names }: GenerationRun, classId: Id, subjectId: Id, teacherId: Id | null) => ({
  class_id: classId,
  class_name: names.classes[classId] ?? '',
  subject_id: subjectId,
  subject_name: names.subjects[subjectId] ?? '',
  teacher_id: teacherId,
  teacher_name: teacherId === null ? null : (names.teachers[teacherId] ?? ''),
});
/** Starting with Monday. */
export const dayNames = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];

/** The placed lessons as timetable slots. */
export const slotsOf = (run: GenerationRun, placed: readonly Placed[]) =>
  placed.map((lesson) => ({
    ...labels(run, lesson.class, lesson.subject, lesson.teacher),
    day_of_week: dayOfWeek(run, lesson.day),
    period: lesson.period,
    room: lesson.room === undefined ? null : (run.names.rooms[lesson.room] ?? ''),
    room_id: lesson.room ?? null,
  }));

/** The unplaced lessons with reasons, starting with those without an active teacher. */
export function unplacedOf(run: GenerationRun, unplaced: readonly Unplaced[]) {
  const entry = (
    classId: Id,
    subjectId: Id,
    teacherId: Id | null,
    missing: number,
    reason: string,
    message: string,
  ) => {
    const label = labels(run, classId, subjectId, teacherId);
    const names = { class: label.class_name, subject: label.subject_name, teacher: label.teacher_name ?? '' };
    return { ...label, missing, reason, message: withNames(message, names) };
  };
  return [
    ...run.problem.untaught.map(({ class: classId, subject, teacher, periods_per_week }) =>
      teacher === null
        ? entry(classId, subject, null, periods_per_week, 'no_teacher', '{subject} in {class} has no teacher.')
        : entry(
            classId,
            subject,
            teacher,
            periods_per_week,
            'teacher_inactive',
            '{subject} in {class} is taught by {teacher}, who is not active.',
          ),
    ),
    ...unplaced.map((lesson) =>
      entry(lesson.class, lesson.subject, lesson.teacher, lesson.missing, lesson.reason, lesson.message),
    ),
  ];
}

const maxNames = 8;
const list = (ids: readonly Id[], names: Record<string, string>) =>
  ids
    .slice(0, maxNames)
    .map((id) => names[id] ?? String(id))
    .join(', ') + (ids.length > maxNames ? ` and ${String(ids.length - maxNames)} more` : '');

/**
 * The capacity problems with names, one per path. The path is `class.<id>`, `teacher.<id>`, `room.<id>`,
 * `day.<day_of_week>`, `period.<day_of_week>.<period>` or `week`.
 */
export function overCapacityOf(run: GenerationRun, over: readonly OverCapacity[]): { path: string; message: string }[] {
  const { names } = run;
  const lines = over.map(({ kind, id, day, period, classes, teachers, rooms, message }) => {
    const inWeek = day === null ? null : dayOfWeek(run, day);
    return {
      path: [
        kind,
        ...(['class', 'teacher', 'room'].includes(kind) ? [id] : [inWeek, period].filter((part) => part !== null)),
      ].join('.'),
      message: withNames(message, {
        class: names.classes[id ?? ''] ?? '',
        teacher: names.teachers[id ?? ''] ?? '',
        classes: list(classes, names.classes),
        teachers: list(teachers, names.teachers),
        rooms: list(rooms, names.rooms),
        day: dayNames[(inWeek ?? 0) - 1] ?? '',
      }),
    };
  });
  return lines.filter(({ path }, index) => lines.findIndex((line) => line.path === path) === index);
}
