import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { Deleted, id, pathId, timestamps } from '../http/schemas.ts';
import { periodsPerWeek } from './subjects.ts';

const fields = {
  periods_per_week: periodsPerWeek,
  teacher_id: id.nullish().meta({ description: 'The teacher of the subject in this class. Must be active.' }),
};

const ClassSubjectInput = z.strictObject({ class_id: id, subject_id: id, ...fields }).meta({
  id: 'ClassSubjectInput',
  description:
    'Without `teacher_id`, the subject gets the teacher who was assigned to the class with its name or code, if any.',
});
const ClassSubjectChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'ClassSubjectChange', description: 'Any subset of the fields. Class and subject cannot be changed.' });

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
  'The subjects of each class, with their periods per week and teachers.',
  {
    'GET /': {
      operation: 'class_subjects_list',
      summary: 'List class subjects',
      description: '`search` matches class, subject and teacher. A teacher sees only the classes that they teach.',
      response: page(ClassSubject, {
        class_id: pathId.optional(),
        academic_year_id: pathId.optional(),
        subject_id: pathId.optional(),
        teacher_id: pathId.optional(),
      }),
    },
    'POST /': {
      operation: 'class_subjects_create',
      summary: 'Create a class subject',
      description: 'Adds a subject to a class. 409 `conflict` if the class already has the subject.',
      body: ClassSubjectInput,
      response: created(ClassSubject),
    },
    'GET /:id': { operation: 'class_subjects_get', summary: 'Get a class subject', response: json(ClassSubject) },
    'PUT /:id': {
      operation: 'class_subjects_update',
      summary: 'Update a class subject',
      body: ClassSubjectChange,
      response: json(ClassSubject),
    },
    'DELETE /:id': {
      operation: 'class_subjects_delete',
      summary: 'Delete a class subject',
      description: 'Removes the subject from the class. The timetable does not change.',
      response: json(Deleted),
    },
  },
);
