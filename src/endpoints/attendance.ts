import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import {
  attendanceRate,
  date,
  dayHoliday,
  dayOfWeek,
  days,
  id,
  page,
  pathId,
  timestamp,
  uniqueBy,
} from '../http/schemas.ts';

const status = z.enum(['present', 'absent', 'late']).meta({ examples: ['present'] });
const counts = { present: z.int().meta({ description: 'On time.' }), absent: z.int(), late: z.int() };
/** Query parameters for some days, together no longer than a year. */
const range = { from_date: date.optional(), to_date: date.optional() };
const year = 366;

const AttendanceInput = z
  .strictObject({
    class_id: id,
    date,
    records: z
      .array(z.strictObject({ student_id: id, status }))
      .min(1)
      .max(500)
      .superRefine(uniqueBy('student_id')),
  })
  .meta({ id: 'AttendanceInput' });

export const Marked = z
  .object({
    class_id: id,
    date,
    marked: z.int().meta({ description: 'Students in the request.' }),
    ...counts,
    corrected: z.int().meta({ description: 'Had another status, or were marked in another class.' }),
    unchanged: z.int().meta({ description: 'Had this very mark already.' }),
  })
  .meta({ id: 'AttendanceMarked' });

const corrections = z
  .array(
    z.object({
      status,
      class_id: id,
      marked_by_name: z.string().nullable(),
      marked_at: timestamp,
      corrected_by_name: z.string().nullable(),
      corrected_at: timestamp,
    }),
  )
  .meta({ description: 'What the mark was before each correction, the oldest first.' });

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
    marked_by: id.nullable().meta({ description: 'The user who gave the mark that stands.' }),
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
    student_count: z.int().meta({ description: 'Who is in it now.' }),
    marked_today: z.int().meta({ description: 'How many are marked today, those who have left since among them.' }),
    is_marked_today: z.boolean().meta({ description: 'Everybody who is in it.' }),
  })
  .meta({ id: 'MarkableClass' });

const summary = z.object({ ...counts, total: z.int(), attendance_rate: attendanceRate });

export const StudentAttendance = z
  .object({
    student_id: id,
    student_name: z.string(),
    from_date: date,
    to_date: date,
    summary,
    records: z
      .array(
        z.object({
          id,
          date,
          status,
          class_id: id.meta({ description: 'The class that the student was marked in.' }),
          class_name: z.string(),
          marked_by_name: z.string().nullable(),
          marked_at: timestamp,
          corrections,
        }),
      )
      .meta({ description: 'By date.' }),
  })
  .meta({ id: 'StudentAttendance' });

export const ClassRegister = z
  .object({
    class_id: id,
    class_name: z.string(),
    from_date: date,
    to_date: date,
    summary,
    days: z.array(z.object({ date, ...counts, total: z.int() })).meta({ description: 'Days that have marks.' }),
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
          total: z.int(),
          attendance_rate: attendanceRate,
          marks: z.array(z.object({ date, status })).meta({ description: 'By date.' }),
        }),
      )
      .meta({ description: 'Everybody who was in the class on one of these days, by name.' }),
  })
  .meta({ id: 'ClassRegister' });

export const CalendarDay = z
  .object({
    date,
    day_of_week: dayOfWeek,
    is_working_day: z.boolean().meta({ description: 'Whether the school has this day of the week.' }),
    holiday: dayHoliday,
    status: status
      .nullable()
      .meta({ description: 'The mark of student_id, else your own; null for who is no student.' }),
    counts: z
      .object(counts)
      .nullable()
      .meta({ description: 'Marks of the classes within your reach; null without `attendance.read`.' }),
  })
  .meta({ id: 'CalendarDay' });

const studentQuery = days(z.strictObject({ ...range, academic_year_id: pathId.optional() }), year);
const studentDays =
  'The current academic year, unless academic_year_id, from_date or to_date say otherwise; together they narrow each other. One of the two dates alone means a year from it or up to it.';

export const attendance = resource(
  '/attendance',
  'Attendance',
  'Who was there on which day. Every correction keeps what the mark was before.',
  {
    'POST /mark': {
      operation: 'attendance_mark',
      summary: 'Mark the attendance of a class',
      description:
        'All or none; the same again changes nothing. Who is not named stays as they are. `present` counts those on time. A class out of your reach is a 422, one that you reach but do not teach needs `attendance.manage` as well (403). A day to come, or outside the academic year of the class, is a 400; a holiday is a 409, but marks that are there can still be corrected. A student who is in the class neither now nor on that day is a 422. Who changed class during the day is marked by the class that marks later; for earlier days the class that a student is in now may mark them where the one that they were in did not, else it is a 409 that names that one.',
      body: AttendanceInput,
      answer: Marked,
    },
    'GET /my-classes': {
      operation: 'attendance_my_classes',
      summary: 'List the classes that you can mark',
      description:
        'Of the current academic year: those that you teach, all with `attendance.manage`, none without `attendance.mark`.',
      query: page({}, ['grade_name', 'class_name']),
      answer: MarkableClass,
      isPage: true,
    },
    'GET /class/:class_id': {
      operation: 'attendance_class',
      summary: 'List the attendance of a class',
      description:
        'On one day (`date`, today unless said otherwise) everybody who is on the roll, marked or not, and whoever was marked; `day` says whether there was school. With from_date or to_date the marks of these days, a year at most. Searches the students.',
      query: days(
        page({ date: date.optional(), ...range, status: status.optional() }, [
          'date',
          'student_name',
          'roll_number',
          'status',
        ]).refine((query) => !query.date || !(query.from_date ?? query.to_date), {
          path: ['date'],
          message: 'goes without from_date and to_date',
        }),
        year,
      ),
      answer: AttendanceMark,
      isPage: true,
      extraFields: {
        day: z
          .object({
            date,
            is_working_day: z.boolean().meta({ description: 'Whether the school has this day of the week.' }),
            holiday: dayHoliday,
          })
          .optional()
          .meta({ description: 'The day that was asked for; not with from_date or to_date.' }),
      },
    },
    'GET /class/:class_id/summary': {
      operation: 'attendance_class_summary',
      summary: 'The register of a class',
      description:
        'Every student with their marks, and counts by student and by day: this month, unless from_date or to_date say otherwise, of at most a year. In one answer, to be printed.',
      query: days(z.strictObject(range), year),
      answer: ClassRegister,
    },
    'GET /student/:student_id': {
      operation: 'attendance_student',
      summary: 'The attendance of a student',
      description: `${studentDays} A teacher sees the marks of the classes that they teach.`,
      query: studentQuery,
      answer: StudentAttendance,
    },
    'GET /me': {
      operation: 'attendance_me',
      summary: 'Your own attendance',
      description: `${studentDays} 404 without a student behind the log-in.`,
      query: studentQuery,
      answer: StudentAttendance,
    },
    'GET /calendar-holidays': {
      operation: 'attendance_calendar_holidays',
      summary: 'The calendar with holidays and attendance',
      description:
        'Every day of this month, unless from_date or to_date say otherwise, of at most a year. One of them alone means its month. With student_id the status of each day is that of this student: whoever reads attendance may ask for any, a teacher for those of their classes and what they were marked there; a student for themself.',
      query: days(z.strictObject({ ...range, student_id: pathId.optional() }), year),
      answer: z.array(CalendarDay),
    },
  },
);
