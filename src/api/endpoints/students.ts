import { z } from 'zod';
import { resource } from '../endpoint.ts';
import { date, Deleted, email, flag, id, optionalText, page, password, pathId, text, timestamp, timestamps } from '../schemas.ts';

const fields = {
  first_name: text(100).meta({ examples: ['Amina'] }),
  last_name: text(100).meta({ examples: ['Okafor'] }),
  roll_number: optionalText(50).meta({ examples: ['17'] }),
  admission_number: text(50)
    .optional()
    .meta({ description: "Unique in the school; the school's next one when it is not given.", examples: ['000417'] }),
  date_of_birth: date.nullish(),
  gender: optionalText(50).meta({ examples: ['female'] }),
  email: email.nullish(),
  phone: optionalText(50),
  class_id: id.nullish().meta({ description: 'The class of today; the grade follows it, and enrollments keep the history.' }),
  grade_id: id.nullish(),
  parent_name: optionalText(200),
  parent_phone: optionalText(50),
  parent_email: email.nullish(),
  address: optionalText(500),
  is_active: z.boolean().optional(),
  create_user_account: z
    .boolean()
    .optional()
    .meta({ description: 'Also provisions a log-in with the student role; needs email. Without password an invitation goes out.' }),
  password: password.optional().meta({ description: 'Only with create_user_account.' }),
};

/** What a student is made of. */
export const StudentInput = z
  .strictObject(fields)
  .refine((student) => !student.create_user_account || student.email, { path: ['email'], message: 'is required when create_user_account is true' })
  .refine((student) => !student.password || student.create_user_account, { path: ['password'], message: 'goes with create_user_account' })
  .meta({ id: 'StudentInput', description: 'Only first_name and last_name are required.' });

const StudentChange = z
  .strictObject(fields)
  .partial()
  .refine((student) => !student.password || student.create_user_account, { path: ['password'], message: 'goes with create_user_account' })
  .meta({ id: 'StudentChange', description: 'Any of the fields of a student; those that are not named stay.' });

const Student = z
  .object({
    id,
    first_name: z.string(),
    last_name: z.string(),
    roll_number: z.string().nullable(),
    admission_number: z.string(),
    date_of_birth: date.nullable(),
    gender: z.string().nullable(),
    email: z.string().nullable(),
    phone: z.string().nullable(),
    class_id: id.nullable(),
    class_name: z.string().nullable().meta({ description: 'Name and section of the class.' }),
    academic_year_id: id.nullable().meta({ description: 'The academic year of the class.' }),
    grade_id: id.nullable(),
    grade_name: z.string().nullable(),
    parent_name: z.string().nullable(),
    parent_phone: z.string().nullable(),
    parent_email: z.string().nullable(),
    address: z.string().nullable(),
    is_active: z.boolean(),
    user_id: id.nullable().meta({ description: 'The log-in of the student.' }),
    deleted_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'Student' });

export const students = resource('/students', 'Students', 'The students of a school.', {
  'GET /': {
    operation: 'students_list',
    summary: 'List students',
    description:
      'Searches name, admission and roll number, e-mail and parent. class_id and academic_year_id go by enrollment, so that a class of last year answers too.',
    query: page({ class_id: pathId.optional(), academic_year_id: pathId.optional(), grade_id: pathId.optional(), is_active: flag.optional() }, [
      'last_name',
      'first_name',
      'roll_number',
      'admission_number',
      'created_at',
    ]),
    answer: Student,
    isPage: true,
  },
  'GET /:id': { operation: 'students_get', summary: 'Read a student', answer: Student },
  'POST /': { operation: 'students_create', summary: 'Add a student', body: StudentInput, hashes: 'password', answer: Student, isCreate: true },
  'PUT /:id': { operation: 'students_update', summary: 'Change a student', body: StudentChange, hashes: 'password', answer: Student },
  'DELETE /:id': {
    operation: 'students_delete',
    summary: 'Remove a student',
    description: 'A soft delete: the student leaves every list, the admission number is free again, the history stays.',
    answer: Deleted,
  },
});
