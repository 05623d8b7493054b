import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { Deleted, id, page, pathId, timestamps } from '../http/schemas.ts';
import { periodsPerWeek } from './subjects.ts';

const fields = {
  periods_per_week: periodsPerWeek,
  teacher_id: id.nullish().meta({ description: 'Who teaches it; an active teacher.' }),
};

const ClassSubjectInput = z.strictObject({ class_id: id, subject_id: id, ...fields }).meta({ id: 'ClassSubjectInput' });
const ClassSubjectChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'ClassSubjectChange', description: 'Either of the fields, or both; class and subject stay.' });

export const ClassSubject = z
  .object({
    id,
    class_id: id,
    class_name: z.string().meta({ description: 'Name and section of the class.' }),
    academic_year_id: id.meta({ description: 'The academic year of the class.' }),
    subject_id: id,
    subject_name: z.string(),
    subject_code: z.string(),
    periods_per_week: periodsPerWeek,
    teacher_id: id.nullable(),
    teacher_name: z.string().nullable(),
    ...timestamps,
  })
  .meta({ id: 'ClassSubject' });

export const classSubjects = resource(
  '/class-subjects',
  'Class subjects',
  'Which subjects a class has, how often a week, and who teaches them.',
  {
    'GET /': {
      operation: 'class_subjects_list',
      summary: 'List class subjects',
      description: 'Searches class, subject and teacher. A teacher sees those of the classes that they teach.',
      query: page(
        {
          class_id: pathId.optional(),
          academic_year_id: pathId.optional(),
          subject_id: pathId.optional(),
          teacher_id: pathId.optional(),
        },
        ['class_name', 'subject_name', 'periods_per_week'],
      ),
      answer: ClassSubject,
      isPage: true,
    },
    'POST /': {
      operation: 'class_subjects_create',
      summary: 'Give a class a subject',
      description: '409 when the class has it already.',
      body: ClassSubjectInput,
      answer: ClassSubject,
      isCreate: true,
    },
    'GET /:id': { operation: 'class_subjects_get', summary: 'Read a class subject', answer: ClassSubject },
    'PUT /:id': {
      operation: 'class_subjects_update',
      summary: 'Change a class subject',
      body: ClassSubjectChange,
      answer: ClassSubject,
    },
    'DELETE /:id': {
      operation: 'class_subjects_delete',
      summary: 'Take a subject from a class',
      description: 'The slots of the timetable stay.',
      answer: Deleted,
    },
  },
);
