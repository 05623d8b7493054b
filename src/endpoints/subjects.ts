import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import {
  Deleted,
  id,
  ignored,
  nameText,
  optionalText,
  pathId,
  timestamps,
  uniqueBy,
  withDefault,
} from '../http/schemas.ts';

/** Lessons of a subject in a class per week. */
export const periodsPerWeek = z
  .int()
  .min(1)
  .max(60)
  .meta({ description: 'Periods per week.', examples: [5] });

const fields = {
  name: nameText(100).meta({ examples: ['Mathematics'] }),
  code: nameText(50).meta({ description: 'Unique within the school, ignoring case.', examples: ['MATH'] }),
  subject_context_id: id.nullish().meta({ description: 'The context (kind) of the subject.' }),
  description: optionalText(500),
  room_ids: z
    .array(id)
    .max(100)
    .superRefine(uniqueBy())
    .optional()
    .meta({
      description:
        'Active rooms, such as laboratories. A generated timetable has the lessons of the subject in one of them; ' +
        'without any, in the home room of the class.',
      examples: [[]],
    }),
};

const SubjectInput = z.strictObject(fields).meta({ id: 'SubjectInput' });
const SubjectChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'SubjectChange', description: 'Any subset of the fields of a subject.' });

export const Subject = z
  .object({
    id,
    name: z.string(),
    code: z.string(),
    subject_context_id: id.nullable(),
    subject_context_name: z.string().nullable(),
    description: z.string().nullable(),
    room_ids: z.array(id).meta({ description: 'The rooms of its lessons, by id.' }),
    ...timestamps,
  })
  .meta({ id: 'Subject' });

export const subjects = resource('/subjects', 'Subjects', 'The subjects that a school teaches.', {
  'GET /': {
    operation: 'subjects_list',
    summary: 'List subjects',
    description: '`search` matches name and code.',
    response: page(Subject, { subject_context_id: pathId.optional() }),
  },
  'POST /': {
    operation: 'subjects_create',
    summary: 'Create a subject',
    description: '409 `conflict` if another subject has this code.',
    body: SubjectInput,
    response: created(Subject),
  },
  'GET /:id': { operation: 'subjects_get', summary: 'Get a subject', response: json(Subject) },
  'PUT /:id': {
    operation: 'subjects_update',
    summary: 'Update a subject',
    body: SubjectChange,
    response: json(Subject),
  },
  'DELETE /:id': {
    operation: 'subjects_delete',
    summary: 'Delete a subject',
    description:
      'Also removes the subject from the templates of all grades. 409 `in_use` while a class or a timetable uses it.',
    response: json(Deleted),
  },
});

const GradeSubjectsInput = z
  .array(
    z.strictObject({
      subject_id: id,
      subject_name: ignored,
      subject_code: ignored,
      periods_per_week: withDefault(periodsPerWeek, 5),
    }),
  )
  .max(200)
  .superRefine(uniqueBy('subject_id'))
  .meta({ id: 'GradeSubjectsInput', description: 'The subjects of the template. Each subject may occur once.' });

const GradeSubjects = z
  .array(
    z.object({ subject_id: id, subject_name: z.string(), subject_code: z.string(), periods_per_week: periodsPerWeek }),
  )
  .meta({ id: 'GradeSubjects', description: 'The subject template of a grade, ordered by subject name.' });

export const gradeSubjects = resource(
  '/grades',
  'Subject templates',
  'The standard subjects of the classes of a grade.',
  {
    'GET /:id/subjects': {
      operation: 'grade_subjects_list',
      summary: 'Get the subject template of a grade',
      response: json(GradeSubjects),
    },
    'PUT /:id/subjects': {
      operation: 'grade_subjects_replace',
      summary: 'Replace the subject template of a grade',
      description: 'Existing classes do not change until the template is applied to them.',
      body: GradeSubjectsInput,
      response: json(GradeSubjects),
    },
  },
);
