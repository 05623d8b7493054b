import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { Deleted, id, timestamps } from '../http/schemas.ts';
import { endsAfterStart, link, linkOutput } from './parts/guardian-link.ts';

const StudentGuardianInput = z
  .strictObject({ guardian_id: id, ...link })
  .refine(...endsAfterStart)
  .meta({ id: 'StudentGuardianInput' });

const StudentGuardianChange = z
  .strictObject(link)
  .partial()
  .refine(...endsAfterStart)
  .meta({ id: 'StudentGuardianChange' });

export const StudentGuardian = z
  .object({
    id: id.meta({ description: 'The id of the guardian.' }),
    student_id: id,
    guardian_id: id,
    first_name: z.string().meta({ examples: ['Lucía'] }),
    last_name: z.string(),
    guardian_name: z.string().meta({ examples: ['Lucía García'] }),
    email: z.string().nullable(),
    phone: z.string().nullable(),
    user_id: id.nullable(),
    ...linkOutput,
    ...timestamps,
  })
  .meta({ id: 'StudentGuardian' });

export const studentGuardians = resource(
  '/students',
  'Student guardians',
  'The guardians of a student, and what each of them may see and do. A change applies from their next request.',
  {
    'GET /:student_id/guardians': {
      operation: 'students_guardians_list',
      summary: 'List the guardians of a student',
      description: 'In the order in which the school calls them. `search` matches name, email and phone.',
      response: page(StudentGuardian),
    },
    'POST /:student_id/guardians': {
      operation: 'students_guardians_create',
      summary: 'Link a guardian to a student',
      description: '409 `conflict` if they are linked already.',
      body: StudentGuardianInput,
      response: created(StudentGuardian),
    },
    'GET /:student_id/guardians/:guardian_id': {
      operation: 'students_guardians_get',
      summary: 'Get a guardian of a student',
      response: json(StudentGuardian),
    },
    'PUT /:student_id/guardians/:guardian_id': {
      operation: 'students_guardians_update',
      summary: 'Change what a guardian may see and do for a student',
      description: '409 `conflict` if the student would have guardians but no primary one.',
      body: StudentGuardianChange,
      response: json(StudentGuardian),
    },
    'DELETE /:student_id/guardians/:guardian_id': {
      operation: 'students_guardians_delete',
      summary: 'Remove a guardian from a student',
      description:
        'The next guardian becomes the primary one. If they are linked again, the guardian does not see the records ' +
        'unless the request says so.',
      response: json(Deleted),
    },
  },
);
