import { z } from 'zod';
import { created, file, json, page, resource } from '../http/endpoint.ts';
import {
  date,
  dateOf,
  Deleted,
  email,
  flag,
  id,
  lastName,
  nameText,
  optionalNameText,
  optionalText,
  pathId,
  phone,
  timestamp,
  timestamps,
  uniqueBy,
} from '../http/schemas.ts';
import { Schedule } from './schedule.ts';
import { gender } from './parts/gender.ts';
import { leaving } from './parts/leaving.ts';
import { attendanceRate } from './parts/attendance-rate.ts';
import { newLogin } from './parts/new-login.ts';

const fields = {
  first_name: nameText(100).meta({ examples: ['Amina'] }),
  last_name: lastName.meta({ examples: ['Okafor'] }),
  roll_number: optionalNameText(50).meta({ examples: ['17'] }),
  admission_number: nameText(50)
    .optional()
    .meta({ description: 'Unique within the school. If omitted, the next free number is used.', examples: ['000417'] }),
  date_of_birth: dateOf('birth').nullish(),
  gender: gender.nullish(),
  email: email.nullish(),
  phone,
  class_id: id.nullish().meta({
    description: 'The current class. Its grade becomes the grade of the student. Earlier classes stay as enrollments.',
  }),
  grade_id: id.nullish(),
  religion_id: id.nullish(),
  parent_name: optionalNameText(200),
  parent_phone: phone,
  parent_email: email.nullish(),
  address: optionalText(500),
  ...leaving.input,
  ...newLogin.fields('student'),
};

export const StudentInput = z
  .strictObject(fields)
  .refine(...newLogin.emailRule)
  .refine(...newLogin.passwordRule)
  .meta({ id: 'StudentInput', description: 'Only `first_name` and `last_name` are required.' });

const StudentChange = z
  .strictObject({
    ...fields,
    deleted_at: z.iso
      .datetime({ offset: true, error: 'This field is read-only. Only null is allowed, which restores the student.' })
      .nullable()
      .meta({
        description:
          'Null restores a deleted student, without the login. Requires `student.delete`. The body must have no ' +
          'other field except `admission_number`; otherwise a deleted student is a 404. 409 `conflict` if the ' +
          'admission number is in use now; give another one. A timestamp is accepted only if a deleted student is ' +
          'sent back as it was listed, which changes nothing.',
      }),
  })
  .partial()
  .refine(...newLogin.passwordRule)
  .meta({ id: 'StudentChange', description: 'Any subset of the fields of a student. Omitted fields do not change.' });

export const Student = z
  .object({
    id,
    first_name: z.string(),
    last_name: z.string(),
    roll_number: z.string().nullable(),
    admission_number: z.string(),
    date_of_birth: date.nullable(),
    gender: z.enum(gender.options).nullable(),
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
    ...leaving.output,
    user_id: id.nullable().meta({ description: 'The login of the student.' }),
    deleted_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'Student' });

const UpdatedStudent = Student.extend({
  not_restored: z
    .array(z.object({ field: z.enum(['class_id', 'transport_enrollment']), message: z.string() }))
    .optional()
    .meta({ description: 'What a student who returns did not get back, and why. Absent if there is nothing.' }),
}).meta({ id: 'UpdatedStudent' });

const office = 'application/vnd.openxmlformats-officedocument';
const openDocument = 'application/vnd.oasis.opendocument';
const documentTypes = [
  'application/pdf',
  'image/jpeg',
  'image/png',
  'image/webp',
  `${office}.wordprocessingml.document`,
  `${office}.spreadsheetml.sheet`,
  `${office}.presentationml.presentation`,
  `${openDocument}.text`,
  `${openDocument}.spreadsheet`,
  `${openDocument}.presentation`,
  'application/x-cfb', // the container of .doc, .xls and .ppt files
];

const DocumentInput = z
  .strictObject({
    document_type_id: pathId.nullish().meta({ description: 'The id of a document type.' }),
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
    name: z.string().meta({ description: 'The file name. Its extension matches the content type.' }),
    content_type: z.string().meta({ description: 'Detected from the content of the file.' }),
    size: z.int().meta({ description: 'Size in bytes.' }),
    uploaded_by: id.nullable().meta({ description: 'The user who uploaded it.' }),
    uploaded_by_name: z.string().nullable().meta({ description: 'The name of this user at the time of the upload.' }),
    ...timestamps,
  })
  .meta({ id: 'StudentDocument' });

const Promotion = z
  .strictObject({
    student_ids: z.array(id).min(1).max(1000).superRefine(uniqueBy()),
    to_class_id: id.meta({ description: 'The new class.' }),
    to_academic_year_id: id.meta({ description: 'The academic year of the new class.' }),
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
      student_count: z.int().nullable().meta({
        description: 'Number of students now in the class. Null for users without `student.read`.',
      }),
    }),
    eligible: z.int().meta({ description: 'Number of students who can be promoted.' }),
    ineligible: z.int().meta({ description: 'Number of students who cannot be promoted.' }),
    students: z.array(
      z.object({
        student_id: id,
        student_name: z
          .string()
          .nullable()
          .meta({
            description:
              'Null for users without `student.read`. To them, every student is one who cannot be promoted, and ' +
              '`reason` says that they need the permission.',
          }),
        current_class_id: id.nullable(),
        current_class_name: z.string().nullable().meta({
          description: 'Null for students without a class, and for users without `student.read`.',
        }),
        next_class_id: id,
        next_class_name: z.string(),
        eligible: z.boolean(),
        reason: z.string().nullable().meta({ description: 'Why the student cannot be promoted.' }),
      }),
    ),
  })
  .meta({ id: 'PromotionPreview' });

export const Promoted = z
  .object({ promoted: z.int(), to_class_id: id, to_academic_year_id: id, students: z.array(id) })
  .meta({ id: 'Promoted', description: 'The students who were moved to the new class.' });

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
        name: z.string().meta({ description: 'Name and section of the class.' }),
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
        present: z.int().meta({ description: 'Number of days, including late arrivals.' }),
        absent: z.int(),
        late: z.int(),
        excused: z.int().meta({ description: 'The absences that are excused. `absent` counts them too.' }),
        rate: attendanceRate,
        last: z
          .array(z.object({ date, status: z.enum(['present', 'absent', 'late']), is_excused: z.boolean() }))
          .meta({ description: 'The ten latest days, latest first.' }),
      })
      .nullable()
      .meta({ description: 'Attendance in the current academic year. Null if the feature `attendance` is disabled.' }),
    fees: z
      .object({
        total: z.number().meta({ description: 'Amount billed: the sum of discounted, paid, waived and pending.' }),
        discounted: z.number().meta({ description: 'The sum of the discounts.' }),
        paid: z.number(),
        waived: z.number(),
        pending: z.number().meta({ description: 'Amount still owed, including overdue amounts.' }),
        overdue: z.number().meta({ description: 'The part of `pending` that was due before today.' }),
        next_due: z
          .object({
            kind: z.enum(['student_fee', 'invoice']),
            id,
            name: z.string().meta({ description: 'The name of the fee structure or the number of the invoice.' }),
            amount: z.number().meta({ description: 'The amount still owed.' }),
            due_date: date,
          })
          .nullable()
          .meta({ description: 'The next fee or invoice that is due today or later.' }),
      })
      .nullable()
      .meta({
        description: 'Fees and issued invoices, without void ones. Null if the feature `fees_management` is disabled.',
      }),
    schedule: Schedule.nullable().meta({
      description: 'The lessons of the class today. Null if the feature `timetable` is disabled.',
    }),
    notifications: z.object({ unread: z.int() }),
  })
  .meta({ id: 'StudentDashboard' });

export const students = resource(
  '/students',
  'Students',
  'Students, their documents and their promotion to the next academic year.',
  {
    'GET /': {
      operation: 'students_list',
      summary: 'List students',
      description:
        'By last name. `search` matches the names of student and parent, admission number, roll number and email.',
      response: page(Student, {
        class_id: pathId.optional().meta({
          description: 'A class. For a class of an earlier year: the students who were in it at the end of that year.',
        }),
        academic_year_id: pathId.optional().meta({ description: 'An academic year, current or earlier.' }),
        grade_id: pathId.optional(),
        is_active: flag.optional(),
        is_deleted: flag
          .optional()
          .meta({ description: '`true`: deleted students instead. Requires `student.delete`.' }),
      }),
    },
    'GET /me/dashboard': {
      operation: 'students_me_dashboard',
      summary: 'Get your student dashboard',
      description:
        'Your class, attendance, fees, lessons of today and unread notifications. 404 `not_found` if your account ' +
        'is not linked to a student.',
      response: json(StudentDashboard),
    },
    'POST /promote': {
      operation: 'students_promote',
      summary: 'Promote students to a class of a later academic year',
      description:
        'Promotes all students or none. 409 `conflict` if a student cannot be promoted; `details` gives the reason ' +
        'for each such student. Takes effect today, even if the new academic year has not begun, because a student ' +
        'has one class at a time: the old enrollment is completed and the new one begins. Promote after the last ' +
        'lesson of the old year.',
      body: Promotion,
      response: json(Promoted),
    },
    'POST /promotion/preview': {
      operation: 'students_promotion_preview',
      summary: 'Preview a promotion',
      description:
        'Changes nothing. A student cannot be promoted if they have left or are already enrolled in this or a later ' +
        'academic year. If the class does not have enough free seats, the first students of `student_ids` get them.',
      body: Promotion,
      response: json(PromotionPreview),
    },
    'GET /:id': { operation: 'students_get', summary: 'Get a student', response: json(Student) },
    'POST /': {
      operation: 'students_create',
      summary: 'Create a student',
      body: StudentInput,
      passwordField: 'password',
      response: created(Student),
    },
    'PUT /:id': {
      operation: 'students_update',
      summary: 'Update a student',
      description:
        'From the day `left_on` the student is on no attendance sheet, has no seat in the class and in the bus, gets ' +
        'no bills and no notifications, and cannot log in, unless the user has another role or another active ' +
        'record. Marks and bills from before stay and can be corrected. `is_active: true` returns the student to the ' +
        'class and the bus if they have room; `not_restored` says what could not be given back. A student with ' +
        '`class_id: null` has no class, but has not left.',
      body: StudentChange,
      passwordField: 'password',
      response: json(UpdatedStudent),
    },
    'DELETE /:id': {
      operation: 'students_delete',
      summary: 'Delete a student',
      description:
        'Soft delete: the history stays. The login is deleted, and the admission number can be used again. `PUT` ' +
        'with `deleted_at: null` restores the student.',
      response: json(Student),
    },
    'GET /:student_id/documents': {
      operation: 'students_documents_list',
      summary: 'List the documents of a student',
      description: 'Latest first. `search` matches name and description.',
      response: page(StudentDocument, { document_type_id: pathId.optional() }),
    },
    'POST /:student_id/documents': {
      operation: 'students_documents_create',
      summary: 'Create a document of a student',
      description:
        'Accepts PDF, JPEG, PNG, WebP, and Microsoft Office and OpenDocument files up to 10 MB. The type is ' +
        'detected from the content.',
      upload: { fields: ['file'], maxBytes: 10 * 1024 * 1024, types: documentTypes },
      body: DocumentInput,
      response: created(StudentDocument),
    },
    'GET /:student_id/documents/:id': {
      operation: 'students_documents_get',
      summary: 'Get the metadata of a document',
      response: json(StudentDocument),
    },
    'DELETE /:student_id/documents/:id': {
      operation: 'students_documents_delete',
      summary: 'Delete a document and its file',
      response: json(Deleted),
    },
    'GET /:student_id/documents/:document_id/file': {
      operation: 'students_documents_file',
      summary: 'Get the file of a document',
      description: 'Browsers display PDFs and images and download other files. Supports `Range` and `If-Range`.',
      response: file(documentTypes),
    },
  },
);
