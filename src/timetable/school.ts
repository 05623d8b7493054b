import { type Id, type OverCapacity, type Placed, type Problem, type Unplaced, withNames } from './problem.ts';

/** What `api.timetable_generate` answers: what there is to place, and the names of whom it is about. */
export interface Begun {
  /** The name of the turn, for whoever saves or ends it. */
  run: string;
  digest: string;
  academic_year_id: number;
  class_ids: number[];
  /** Days are counted through `working_days`: the generator knows no week. */
  problem: Problem & {
    working_days: number[];
    /** Class subjects without an active teacher, whom the generator can't place; teacher is who is not active. */
    untaught: { class: number; subject: number; teacher: number | null; periods_per_week: number }[];
  };
  names: Record<'classes' | 'subjects' | 'teachers', Record<string, string>>;
}

/** A place in a school's week. */
export interface PlacedSlot {
  class_id: Id;
  subject_id: Id;
  teacher_id: Id;
  day_of_week: number;
  period: number;
}

export const dayNames = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];

/** The slots of the school's week. */
export const slotsOf = ({ problem }: Begun, placed: readonly Placed[]): PlacedSlot[] =>
  placed.map((one) => ({
    class_id: one.class,
    subject_id: one.subject,
    teacher_id: one.teacher,
    day_of_week: problem.working_days[one.day - 1] ?? one.day,
    period: one.period,
  }));

/** What has no place, and why: first what nobody teaches. */
export function unplacedOf({ problem, names }: Begun, unplaced: readonly Unplaced[]) {
  const line = (classId: Id, subjectId: Id, teacherId: Id | null, missing: number, reason: string, message: string) => {
    const [className = '', subjectName = ''] = [names.classes[classId], names.subjects[subjectId]];
    const teacherName = teacherId === null ? null : (names.teachers[teacherId] ?? '');
    return {
      ...{ class_id: classId, class_name: className, subject_id: subjectId, subject_name: subjectName, teacher_id: teacherId, teacher_name: teacherName },
      ...{ missing, reason, message: withNames(message, { class: className, subject: subjectName, teacher: teacherName ?? '' }) },
    };
  };
  return [
    ...problem.untaught.map(({ class: classId, subject, teacher, periods_per_week }) =>
      teacher === null
        ? line(classId, subject, null, periods_per_week, 'no_teacher', '{subject} in {class} has no teacher.')
        : line(classId, subject, teacher, periods_per_week, 'teacher_inactive', '{subject} in {class} is taught by {teacher}, who is not active.'),
    ),
    ...unplaced.map((one) => line(one.class, one.subject, one.teacher, one.missing, one.reason, one.message)),
  ];
}

const mostNames = 8;
const list = (ids: readonly Id[], names: Record<string, string>) =>
  ids
    .slice(0, mostNames)
    .map((id) => names[id] ?? String(id))
    .join(', ') + (ids.length > mostNames ? ` and ${String(ids.length - mostNames)} more` : '');

/** Who is asked for more than there is, by name; a day is called as the school's week calls it. */
export function overCapacityOf({ problem, names }: Begun, over: readonly OverCapacity[]): { path: string; message: string }[] {
  const dayName = (day: number) => dayNames[(problem.working_days[day - 1] ?? day) - 1] ?? '';
  return over.map(({ kind, id, day, classes, teachers, message }) => ({
    path: id === null || kind === 'day' ? kind : `${kind}.${String(id)}`,
    message: withNames(day === null ? message : message.replace(`On day ${String(day)} `, `On ${dayName(day)} `), {
      class: names.classes[id ?? ''] ?? '',
      teacher: names.teachers[id ?? ''] ?? '',
      classes: list(classes, names.classes),
      teachers: list(teachers, names.teachers),
    }),
  }));
}
