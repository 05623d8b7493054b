import { z } from 'zod';
import { json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { date, dateOf, dateRange, flag, id, pathId, timestamp, uniqueBy } from '../http/schemas.ts';
import { attendanceRate } from './parts/attendance-rate.ts';
import { dayHoliday, dayOfWeek } from './parts/school-day.ts';

const status = choice(['present', 'absent', 'late'], {
  synonyms: { present: ['p'], absent: ['a'], late: ['l', 'tardy'] },
}).meta({ examples: ['present'] });
const counts = { present: z.int().meta({ description: 'Students who were on time.' }), absent: z.int(), late: z.int() };
const excused = z.int().meta({ description: 'The absences that are excused. `absent` counts them too.' });
const isExcused = z
  .boolean()
  .meta({ description: 'Whether the school accepts the reason of the absence or lateness.' });
const note = z
  .string()
  .nullable()
  .meta({ examples: ['Fever, the mother called'] });
/** The two rates of a summary. */
const rates = {
  attendance_rate: attendanceRate,
  attendance_rate_without_excused: attendanceRate.meta({
    description:
      'Percentage of marks that are present or late among those that are not excused absences, with up to 2 ' +
      'decimals; null without such marks.',
  }),
};
const range = { from_date: date.optional(), to_date: date.optional() };
/** Longest range of days of a request: a leap year. */
const maxDays = 366;

const AttendanceInput = z
  .strictObject({
    class_id: id,
    date: dateOf('school'),
    records: z
      .array(
        z
          .strictObject({
            student_id: id,
            status,
            is_excused: z
              .boolean()
              .nullish()
              .meta({
                description:
                  'Whether the absence or lateness is excused. Without it, a mark keeps it while its status stays, ' +
                  'and a new mark that says absent is excused on the days of an announced absence.',
              }),
            note: z
              .string()
              .trim()
              .max(500)
              .nullish()
              .meta({
                description: 'An empty text removes it. Without it, a mark keeps it while its status stays.',
                examples: ['Fever, the mother called'],
              }),
          })
          .refine((mark) => !(mark.is_excused && mark.status === 'present'), {
            path: ['is_excused'],
            message: 'A student who is present needs no excuse.',
          }),
      )
      .min(1)
      .max(500)
      .superRefine(uniqueBy('student_id')),
  })
  .meta({ id: 'AttendanceInput' });

export const Marked = z
  .object({
    class_id: id,
    date,
    marked: z.int().meta({ description: 'Number of students in the request.' }),
    ...counts,
    corrected: z.int().meta({ description: 'Number of students whose existing mark changed.' }),
    unchanged: z.int().meta({ description: 'Number of students who already had this mark.' }),
  })
  .meta({ id: 'AttendanceMarked' });

const corrections = z
  .array(
    z
      .object({
        status,
        is_excused: isExcused,
        note: note.meta({
          description:
            'The note, if the correction changed the status. A note that is only replaced or removed is not kept.',
        }),
        class_id: id,
        marked_by_name: z.string().nullable(),
        marked_at: timestamp,
        corrected_by_name: z.string().nullable(),
        corrected_at: timestamp,
      })
      .meta({ id: 'AttendanceCorrection' }),
  )
  .meta({ description: 'The previous values of the mark, oldest first.' });

export const AttendanceMark = z
  .object({
    id: id.nullable().meta({ description: 'Null while the student is not marked.' }),
    student_id: id,
    student_name: z.string(),
    first_name: z.string(),
    last_name: z.string(),
    roll_number: z.string().nullable(),
    admission_number: z.string(),
    class_id: id,
    class_name: z.string(),
    date,
    status: status.nullable(),
    is_excused: isExcused.nullable().meta({ description: 'Null while the student is not marked.' }),
    note,
    announced_absence: z
      .object({ id, from_date: date, to_date: date, reason: z.string().meta({ examples: ['Operation'] }) })
      .nullable()
      .meta({ id: 'AnnouncedAbsence', description: 'The announced absence that has this day.' }),
    marked_by: id.nullable().meta({ description: 'The user who made the current mark.' }),
    marked_by_name: z.string().nullable(),
    marked_at: timestamp.nullable(),
    corrections,
  })
  .meta({ id: 'AttendanceMark' });

const MarkableClass = z
  .object({
    class_id: id,
    class_name: z.string().meta({ description: 'Name and section.' }),
    grade_id: id,
    grade_name: z.string(),
    academic_year_id: id,
    student_count: z.int().meta({ description: 'Number of students who are in the class now.' }),
    marked_today: z
      .int()
      .meta({ description: 'Number of students marked today, including those who have left the class since.' }),
    is_marked_today: z.boolean().meta({ description: 'Whether all current students are marked today.' }),
  })
  .meta({ id: 'MarkableClass' });

const summary = z.object({ ...counts, excused, total: z.int(), ...rates }).meta({ id: 'AttendanceSummary' });

const StudentMark = z.object({
  id,
  date,
  status,
  is_excused: isExcused,
  note,
  class_id: id.meta({ description: 'The class in which the student was marked.' }),
  class_name: z.string(),
  marked_by_name: z.string().nullable(),
  marked_at: timestamp,
  corrections,
});

export const StudentAttendance = z
  .object({
    student_id: id,
    student_name: z.string(),
    from_date: date,
    to_date: date,
    summary: summary.meta({ description: 'Counts of all records, not only of this page.' }),
    records: z.array(StudentMark).meta({ description: 'One page, by default sorted by date.' }),
  })
  .meta({ id: 'StudentAttendance' });

export const ClassRegister = z
  .object({
    class_id: id,
    class_name: z.string(),
    from_date: date,
    to_date: date,
    summary,
    days: z
      .array(z.object({ date, ...counts, excused, total: z.int() }))
      .meta({ description: 'Only days with marks, sorted by date.' }),
    students: z
      .array(
        z.object({
          student_id: id,
          student_name: z.string(),
          first_name: z.string(),
          last_name: z.string(),
          roll_number: z.string().nullable(),
          admission_number: z.string(),
          ...counts,
          excused,
          total: z.int(),
          ...rates,
          marks: z.array(z.object({ date, status, is_excused: isExcused })).meta({ description: 'Sorted by date.' }),
        }),
      )
      .meta({ description: 'Students who were enrolled or marked in the class on one of these days, sorted by name.' }),
  })
  .meta({ id: 'ClassRegister' });

export const CalendarDay = z
  .object({
    date,
    day_of_week: dayOfWeek,
    is_working_day: z.boolean().meta({ description: 'Whether school takes place on this day of the week.' }),
    holiday: dayHoliday,
    status: status
      .nullable()
      .meta({ description: 'The mark of `student_id`, by default your own. Null if you are not a student.' }),
    is_excused: isExcused.nullable(),
    counts: z
      .object({ ...counts, excused })
      .nullable()
      .meta({ description: 'Number of marks in the classes that you can read. Null without `attendance.read`.' }),
  })
  .meta({ id: 'CalendarDay' });

const studentMarks = page(
  StudentMark,
  { ...range, academic_year_id: pathId.optional() },
  { defaultSize: 100, maxDays, within: { data: StudentAttendance, field: 'records' } },
);
const studentDays =
  'By default of the current academic year. `academic_year_id`, `from_date` and `to_date` narrow each other; one of ' +
  'the two dates alone means a year from it or up to it.';

export const attendance = resource(
  '/attendance',
  'Attendance',
  'Which students were present, absent or late on which day. Corrected marks keep their previous values.',
  {
    'POST /mark': {
      operation: 'attendance_mark',
      summary: 'Mark the attendance of a class',
      description:
        'Writes all marks or none. Students who are not in the request keep their marks. If a student changes class ' +
        'during the day, the last mark counts. For earlier days, the current class of a student may mark them if ' +
        'their class of that day has not. 400 for a day in the future or outside the academic year of the class. ' +
        '403 if you do not teach the class and do not have `attendance.manage`. 409 `conflict` for new marks on a ' +
        'holiday (existing marks can be corrected) and for a student whom the class of that day has marked. 422 ' +
        '`invalid_reference` for a class that you cannot read and for a student who is not in the class, neither ' +
        'now nor on that day.',
      body: AttendanceInput,
      response: json(Marked),
    },
    'GET /my-classes': {
      operation: 'attendance_my_classes',
      summary: 'List the classes that you can mark',
      description:
        'Classes of the current academic year: those that you teach, all of them with `attendance.manage`, none ' +
        'without `attendance.mark`.',
      response: page(MarkableClass),
    },
    'GET /class/:class_id': {
      operation: 'attendance_class',
      summary: 'List the attendance of a class',
      description:
        'With `date` (by default today), every student who was enrolled or marked in the class on that day, marked ' +
        'or not; `day` tells whether it was a school day. With `from_date` or `to_date`, the marks of that range of ' +
        'at most a year, or of `date` within it. `search` matches names, admission and roll number.',
      response: page(
        AttendanceMark,
        { date: date.optional(), ...range, status: status.optional(), is_excused: flag.optional() },
        {
          maxDays,
          extraFields: {
            day: z
              .object({
                date,
                is_working_day: z
                  .boolean()
                  .meta({ description: 'Whether school takes place on this day of the week.' }),
                holiday: dayHoliday,
              })
              .optional()
              .meta({ description: 'The requested day. Not returned with `from_date` or `to_date`.' }),
          },
        },
      ),
    },
    'GET /class/:class_id/summary': {
      operation: 'attendance_class_summary',
      summary: 'Get the register of a class',
      description:
        'Every student with their marks, and counts per student and per day, for a range of at most a year, by ' +
        'default the current month. Not paginated, so that it can be printed.',
      query: dateRange(z.strictObject(range), maxDays),
      response: json(ClassRegister),
    },
    'GET /student/:student_id': {
      operation: 'attendance_student',
      summary: 'Get the attendance of a student',
      description: `${studentDays} Teachers see the marks of the classes that they teach.`,
      response: studentMarks,
    },
    'GET /me': {
      operation: 'attendance_me',
      summary: 'Get your own attendance',
      description: `${studentDays} 404 if your account is not linked to a student.`,
      response: studentMarks,
    },
    'GET /calendar-holidays': {
      operation: 'attendance_calendar_holidays',
      summary: 'Get the calendar with holidays and attendance',
      description:
        'Every day of a range of at most a year, by default the current month; one of the two dates alone means the ' +
        'month of that date. `student_id` selects the student whose status is returned: any student with ' +
        '`attendance.read`, for teachers those of their classes with the marks of those classes, for students ' +
        'themselves. 404 for other students.',
      response: page(CalendarDay, { ...range, student_id: pathId.optional() }, { defaultSize: 100, maxDays }),
    },
  },
);
