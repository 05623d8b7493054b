import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { Deleted, id, optionalText, page, pathId, text, timestamps, uniqueBy } from '../http/schemas.ts';

/** How often a week a class has a subject. */
export const periodsPerWeek = z
  .int()
  .min(1)
  .max(60)
  .meta({ description: 'How often a week.', examples: [5] });

const fields = {
  name: text(100).meta({ examples: ['Mathematics'] }),
  code: text(50).meta({ description: 'Unique in the school, in any case.', examples: ['MATH'] }),
  subject_context_id: id.nullish().meta({ description: 'What kind of subject it is.' }),
  description: optionalText(500),
};

const SubjectInput = z.strictObject(fields).meta({ id: 'SubjectInput' });
const SubjectChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'SubjectChange', description: 'Any of the fields of a subject; those that are not named stay.' });

export const Subject = z
  .object({
    id,
    name: z.string(),
    code: z.string(),
    subject_context_id: id.nullable(),
    subject_context_name: z.string().nullable(),
    description: z.string().nullable(),
    ...timestamps,
  })
  .meta({ id: 'Subject' });

export const subjects = resource('/subjects', 'Subjects', 'What is taught.', {
  'GET /': {
    operation: 'subjects_list',
    summary: 'List subjects',
    description: 'Searches name and code.',
    query: page({ subject_context_id: pathId.optional() }, ['name', 'code', 'created_at']),
    answer: Subject,
    isPage: true,
  },
  'POST /': {
    operation: 'subjects_create',
    summary: 'Add a subject',
    body: SubjectInput,
    answer: Subject,
    isCreate: true,
  },
  'GET /:id': { operation: 'subjects_get', summary: 'Read a subject', answer: Subject },
  'PUT /:id': { operation: 'subjects_update', summary: 'Change a subject', body: SubjectChange, answer: Subject },
  'DELETE /:id': {
    operation: 'subjects_delete',
    summary: 'Remove a subject',
    description: 'It leaves the standard templates of grades; 409 in_use while a class has it or a timetable shows it.',
    answer: Deleted,
  },
});

const asRead = text(100).optional().meta({ description: 'As it was read; it is not changed here.' });

const GradeSubjectsInput = z
  .array(
    z.strictObject({
      subject_id: id,
      subject_name: asRead,
      subject_code: asRead,
      periods_per_week: periodsPerWeek.default(5),
    }),
  )
  .max(200)
  .superRefine(uniqueBy('subject_id'))
  .meta({ id: 'GradeSubjectsInput', description: 'Each subject once.' });

const GradeSubjects = z
  .array(
    z.object({ subject_id: id, subject_name: z.string(), subject_code: z.string(), periods_per_week: periodsPerWeek }),
  )
  .meta({ id: 'GradeSubjects', description: 'The standard template of a grade, by name of the subject.' });

export const gradeSubjects = resource(
  '/grades',
  'Standard templates',
  'Which subjects the classes of a grade have, as a rule.',
  {
    'GET /:id/subjects': {
      operation: 'grade_subjects_list',
      summary: 'Read the standard template of a grade',
      answer: GradeSubjects,
    },
    'PUT /:id/subjects': {
      operation: 'grade_subjects_replace',
      summary: 'Replace the standard template of a grade',
      description: 'Classes keep what they have until the template is applied to them.',
      body: GradeSubjectsInput,
      answer: GradeSubjects,
    },
  },
);
