import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import {
  attendanceRate,
  date,
  Deleted,
  email,
  flag,
  id,
  login,
  optionalText,
  page,
  pathId,
  text,
  timestamp,
  timestamps,
  uniqueBy,
} from '../http/schemas.ts';
import { Schedule } from './schedule.ts';

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
  class_id: id
    .nullish()
    .meta({ description: 'The class of today; the grade follows it, and enrollments keep the history.' }),
  grade_id: id.nullish(),
  religion_id: id.nullish(),
  parent_name: optionalText(200),
  parent_phone: optionalText(50),
  parent_email: email.nullish(),
  address: optionalText(500),
  is_active: z.boolean().optional(),
  ...login.fields('student'),
};

/** What a student is made of. */
export const StudentInput = z
  .strictObject(fields)
  .refine(...login.emailRule)
  .refine(...login.passwordRule)
  .meta({ id: 'StudentInput', description: 'Only first_name and last_name are required.' });

const StudentChange = z
  .strictObject(fields)
  .partial()
  .refine(...login.passwordRule)
  .meta({ id: 'StudentChange', description: 'Any of the fields of a student; those that are not named stay.' });

/** A student, as every list of students shows one. */
export const Student = z
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
    religion_id: id.nullable(),
    religion_name: z.string().nullable(),
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

const office = 'application/vnd.openxmlformats-officedocument';
const openDocument = 'application/vnd.oasis.opendocument';
const documentTypes = [
  ...['application/pdf', 'image/jpeg', 'image/png', 'image/webp'],
  ...[`${office}.wordprocessingml.document`, `${office}.spreadsheetml.sheet`, `${office}.presentationml.presentation`],
  ...[`${openDocument}.text`, `${openDocument}.spreadsheet`, `${openDocument}.presentation`],
  'application/x-cfb', // doc, xls, ppt
];

const DocumentInput = z
  .strictObject({
    document_type_id: z
      .union([pathId, z.literal('').transform(() => null)])
      .optional()
      .meta({ description: 'Identifier of a document type.', override: { type: 'integer', minimum: 1 } }),
    description: optionalText(500),
  })
  .meta({ id: 'StudentDocumentInput' });

export const StudentDocument = z
  .object({
    id,
    student_id: id,
    document_type_id: id.nullable(),
    document_type_name: z.string().nullable(),
    description: z.string().nullable(),
    name: z.string().meta({ description: 'The name of the file, with the ending of its type.' }),
    content_type: z.string().meta({ description: 'What its content shows.' }),
    size: z.int().meta({ description: 'In bytes.' }),
    uploaded_by: id.nullable().meta({ description: 'The user who sent it.' }),
    uploaded_by_name: z.string().nullable().meta({ description: 'What they were called then.' }),
    ...timestamps,
  })
  .meta({ id: 'StudentDocument' });

const Promotion = z
  .strictObject({
    student_ids: z.array(id).min(1).max(1000).superRefine(uniqueBy()),
    to_class_id: id,
    to_academic_year_id: id.meta({ description: 'The academic year of that class.' }),
  })
  .meta({ id: 'Promotion' });

export const PromotionPreview = z
  .object({
    to_class: z.object({
      id,
      name: z.string(),
      grade_id: id,
      grade_name: z.string(),
      academic_year_id: id,
      academic_year_name: z.string(),
      capacity: z.int().nullable(),
      student_count: z.int().meta({ description: 'Who is in it now.' }),
    }),
    eligible: z.int(),
    ineligible: z.int(),
    students: z.array(
      z.object({
        student_id: id,
        student_name: z.string(),
        current_class_id: id.nullable(),
        current_class_name: z.string().nullable(),
        next_class_id: id,
        next_class_name: z.string(),
        eligible: z.boolean(),
        reason: z.string().nullable().meta({ description: 'Why not.' }),
      }),
    ),
  })
  .meta({ id: 'PromotionPreview' });

export const Promoted = z
  .object({ promoted: z.int(), to_class_id: id, to_academic_year_id: id, students: z.array(id) })
  .meta({ id: 'Promoted', description: 'Who is in the new class now.' });

export const StudentDashboard = z
  .object({
    student: z.object({
      id,
      first_name: z.string(),
      last_name: z.string(),
      admission_number: z.string(),
      roll_number: z.string().nullable(),
    }),
    class: z
      .object({
        id,
        name: z.string().meta({ description: 'Name and section.' }),
        grade_id: id,
        grade_name: z.string(),
        room: z.string().nullable(),
        academic_year_id: id,
        academic_year_name: z.string(),
        class_teacher_id: id.nullable(),
        class_teacher_name: z.string().nullable(),
      })
      .nullable(),
    attendance: z
      .object({
        present: z.int().meta({ description: 'Days, those with a late arrival included.' }),
        absent: z.int(),
        late: z.int(),
        rate: attendanceRate,
        last: z
          .array(z.object({ date, status: z.enum(['present', 'absent', 'late']) }))
          .meta({ description: 'The ten latest, the last first.' }),
      })
      .nullable()
      .meta({ description: 'Of the current academic year. Null where the school has no `attendance`.' }),
    fees: z
      .object({
        total: z.number().meta({ description: 'What was billed: paid, waived and pending together.' }),
        paid: z.number(),
        waived: z.number(),
        pending: z.number().meta({ description: 'What is still to be paid.' }),
        overdue: z.number().meta({ description: 'What of it was to be paid before today.' }),
        next_due: z
          .object({
            kind: z.enum(['student_fee', 'invoice']),
            id,
            name: z.string().meta({ description: 'Of the fee structure, or the number of the invoice.' }),
            amount: z.number().meta({ description: 'What is left of it.' }),
            due_date: date,
          })
          .nullable()
          .meta({ description: 'What falls due next, today at the earliest.' }),
      })
      .nullable()
      .meta({
        description:
          'Student fees, and invoices that were issued, without void ones. Null where the school has no `fees_management`.',
      }),
    schedule: Schedule.nullable().meta({
      description: "Today's lessons of the class. Null where the school has no `timetable`.",
    }),
    notifications: z.object({ unread: z.int() }),
  })
  .meta({ id: 'StudentDashboard' });

export const students = resource('/students', 'Students', 'The students of a school.', {
  'GET /': {
    operation: 'students_list',
    summary: 'List students',
    description:
      'Searches name, admission and roll number, e-mail and parent. class_id and academic_year_id go by enrollment, so that a class of last year answers too.',
    query: page(
      {
        class_id: pathId.optional(),
        academic_year_id: pathId.optional(),
        grade_id: pathId.optional(),
        is_active: flag.optional(),
      },
      ['last_name', 'first_name', 'roll_number', 'admission_number', 'created_at'],
    ),
    answer: Student,
    isPage: true,
  },
  'GET /me/dashboard': {
    operation: 'students_me_dashboard',
    summary: 'Your own day as a student',
    description: 'Your class, attendance, fees and lessons of today.',
    answer: StudentDashboard,
  },
  'POST /promote': {
    operation: 'students_promote',
    summary: 'Promote students to a class of a later academic year',
    description:
      'All or none: when the preview finds somebody who can not be promoted, nothing changes and `details` says why, by their place in student_ids. It takes effect today, also when the new academic year begins later: a student has one class at a time, so the enrollment in the old class is completed and the old class keeps them in its list. Promote when the lessons of the old year are over.',
    body: Promotion,
    answer: Promoted,
  },
  'POST /promotion/preview': {
    operation: 'students_promotion_preview',
    summary: 'See whom a promotion would take',
    description:
      'Changes nothing. Who is inactive, in this class or academic year already, or in one that is not earlier can not be promoted; nor can those for whom, in the order of student_ids, the class has no place left.',
    body: Promotion,
    answer: PromotionPreview,
  },
  'GET /:id': { operation: 'students_get', summary: 'Read a student', answer: Student },
  'POST /': {
    operation: 'students_create',
    summary: 'Add a student',
    body: StudentInput,
    hashes: 'password',
    answer: Student,
    isCreate: true,
  },
  'PUT /:id': {
    operation: 'students_update',
    summary: 'Change a student',
    body: StudentChange,
    hashes: 'password',
    answer: Student,
  },
  'DELETE /:id': {
    operation: 'students_delete',
    summary: 'Remove a student',
    description: 'A soft delete: the student leaves every list, the admission number is free again, the history stays.',
    answer: Deleted,
  },
  'GET /:student_id/documents': {
    operation: 'students_documents_list',
    summary: 'List the documents of a student',
    description: 'Searches name and description.',
    query: page({ document_type_id: pathId.optional() }, ['created_at', 'name']),
    answer: StudentDocument,
    isPage: true,
  },
  'POST /:student_id/documents': {
    operation: 'students_documents_create',
    summary: 'Add a document to a student',
    description:
      'PDF, JPEG, PNG, WebP, or a text, spreadsheet or presentation of Office or OpenDocument, by content; 10 MB at most.',
    upload: { fields: ['file'], maxBytes: 10 * 1024 * 1024, types: documentTypes },
    body: DocumentInput,
    answer: StudentDocument,
    isCreate: true,
  },
  'GET /:student_id/documents/:id': {
    operation: 'students_documents_get',
    summary: 'Read what is kept of a document',
    answer: StudentDocument,
  },
  'DELETE /:student_id/documents/:id': {
    operation: 'students_documents_delete',
    summary: 'Remove a document and its file',
    answer: Deleted,
  },
  'GET /:student_id/documents/:document_id/file': {
    operation: 'students_documents_file',
    summary: 'The file of a document',
    description:
      'A browser shows PDF and pictures and saves the rest. `Range`, with or without `If-Range`, asks for a part of it.',
    bytes: documentTypes,
  },
});
