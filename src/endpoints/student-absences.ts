import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { date, dateOf, Deleted, id, pathId, text, timestamps, withDayOrder } from '../http/schemas.ts';

const reason = { examples: ['Operation, with a medical certificate'] };
/** Longest absence that is announced at once: a leap year. */
const maxDays = 366;

const AbsenceInput = withDayOrder(
  z.strictObject({
    from_date: dateOf('school', 'The first day, also one that has passed.'),
    to_date: dateOf('school', 'The last day, less than a year after `from_date`.'),
    reason: text(500).meta(reason),
  }),
  { first: 'from_date', last: 'to_date', max_days: maxDays },
).meta({
  id: 'StudentAbsenceInput',
  examples: [{ from_date: '2026-03-02', to_date: '2026-03-06', reason: 'Operation, with a medical certificate' }],
});

export const StudentAbsence = z
  .object({
    id,
    student_id: id,
    student_name: z.string(),
    class_id: id.nullable().meta({ description: 'The present class of the student.' }),
    class_name: z.string().nullable(),
    from_date: date,
    to_date: date,
    reason: z.string().meta(reason),
    announced_by: id.nullable().meta({ description: 'The user who announced it.' }),
    announced_by_name: z
      .string()
      .nullable()
      .meta({ examples: ['Ada Admin'] }),
    ...timestamps,
  })
  .meta({ id: 'StudentAbsence' });

const range = { from_date: date.optional(), to_date: date.optional() };

export const attendanceAbsences = resource(
  '/attendance',
  'Announced absences',
  'The announced absences of all students, for the office: which students will be absent this week.',
  {
    'GET /absences': {
      operation: 'attendance_absences_list',
      summary: 'List the announced absences of all students',
      description:
        'The latest first. Teachers see the students of their classes, students themselves. With `from_date` or ' +
        '`to_date`, absences with a day in this range. `search` matches the name of the student and the reason.',
      response: page(StudentAbsence, { ...range, class_id: pathId.optional() }, { maxDays: Infinity }),
    },
  },
);

export const studentAbsences = resource(
  '/students',
  'Student absences',
  'Absences that are announced. They mark nothing: the attendance sheet shows them, and a mark on one of their days ' +
    'that says absent is excused unless `is_excused` says otherwise. An absence never changes: delete it and ' +
    'announce another one.',
  {
    'GET /:student_id/absences': {
      operation: 'students_absences_list',
      summary: 'List the announced absences of a student',
      description:
        'The latest first. With `from_date` or `to_date`, those with a day in this range. `search` matches the reason.',
      response: page(StudentAbsence, range, { maxDays: Infinity }),
    },
    'POST /:student_id/absences': {
      operation: 'students_absences_create',
      summary: 'Announce an absence of a student',
      description:
        'Existing marks stay as they are. Teachers announce absences of the students of their classes. 409 ' +
        '`conflict` if another announced absence of the student has one of these days.',
      body: AbsenceInput,
      response: created(StudentAbsence),
    },
    'DELETE /:student_id/absences/:id': {
      operation: 'students_absences_delete',
      summary: 'Delete an announced absence',
      description: 'Existing marks stay as they are.',
      response: json(Deleted),
    },
  },
);
