import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { Deleted, flag, id, optionalText, page, pathId, text, timestamps } from '../http/schemas.ts';
import { Student } from './students.ts';

const ClassInput = z
  .strictObject({
    name: text(100).meta({ examples: ['Grade 5'] }),
    section: optionalText(50).meta({
      description: 'Name and section together are unique in the academic year.',
      examples: ['A'],
    }),
    grade_id: id.meta({ description: 'The grade of the class and, with it, of its students.' }),
    academic_year_id: id,
    class_teacher_id: id
      .nullish()
      .meta({ description: 'An active teacher who is class teacher of no other class of the year.' }),
    capacity: z
      .int()
      .min(1)
      .max(10_000)
      .nullish()
      .meta({ description: 'How many students the class takes; null is no limit.', examples: [30] }),
    room: optionalText(50).meta({ examples: ['R12'] }),
    school_unit_id: id.nullish(),
    programme_id: id.nullish(),
    medium_id: id.nullish(),
  })
  .meta({ id: 'ClassInput' });

export const Class = z
  .object({
    id,
    name: z.string(),
    section: z.string().nullable(),
    class_name: z.string().meta({ description: 'Name and section, as other records show them.' }),
    grade_id: id,
    grade_name: z.string(),
    academic_year_id: id,
    academic_year_name: z.string(),
    is_current_year: z.boolean(),
    class_teacher_id: id.nullable(),
    class_teacher_name: z.string().nullable(),
    capacity: z.int().nullable(),
    room: z.string().nullable(),
    school_unit_id: id.nullable(),
    school_unit_name: z.string().nullable(),
    programme_id: id.nullable(),
    programme_name: z.string().nullable(),
    medium_id: id.nullable(),
    medium_name: z.string().nullable(),
    student_count: z.int().meta({ description: 'Who is enrolled in the class, and who completed the year in it.' }),
    subject_count: z.int(),
    ...timestamps,
  })
  .meta({ id: 'Class' });

const ClassCopy = z
  .strictObject({
    from_academic_year_id: id,
    to_academic_year_id: id.meta({ description: 'Another academic year.' }),
    class_ids: z
      .array(id)
      .min(1)
      .max(1000)
      .optional()
      .meta({ description: 'Classes of the first year; all of them when it is not given.' }),
    include_subjects: z.boolean().optional().meta({ description: 'True unless it is said.' }),
    include_teachers: z
      .boolean()
      .optional()
      .meta({ description: 'True unless it is said; only teachers who are still active.' }),
  })
  .meta({ id: 'ClassCopy' });

export const CopiedClasses = z
  .object({
    copied: z.int(),
    skipped: z.int(),
    classes: z.array(z.object({ id, name: z.string(), section: z.string().nullable(), copied_from: id })),
    skipped_classes: z.array(
      z.object({ class_id: id, name: z.string(), section: z.string().nullable(), reason: z.string() }),
    ),
  })
  .meta({ id: 'CopiedClasses' });

const ClassTeacherInput = z
  .strictObject({
    teacher_id: id,
    subject: optionalText(100).meta({
      description:
        'A subject of the class, by name or code, goes over to this teacher; anything else is kept as it is written.',
      examples: ['Mathematics'],
    }),
    is_class_teacher: z
      .boolean()
      .optional()
      .meta({ description: 'True makes them the class teacher, in place of whoever is.' }),
  })
  .meta({ id: 'ClassTeacherInput' });

export const ClassTeacher = z
  .object({
    id: id.meta({ description: 'The teacher.' }),
    teacher_id: id,
    first_name: z.string(),
    last_name: z.string(),
    email: z.string().nullable(),
    is_active: z.boolean().meta({ description: 'False for a teacher who has left.' }),
    is_class_teacher: z.boolean(),
    subjects: z.array(z.string()).meta({ description: 'What they teach in this class.' }),
  })
  .meta({ id: 'ClassTeacher' });

const FreeTeacher = z
  .object({
    id,
    first_name: z.string(),
    last_name: z.string(),
    email: z.string().nullable(),
    specialization: z.string().nullable(),
  })
  .meta({ id: 'FreeTeacher', description: 'A teacher to choose.' });

const SubjectsByGrade = z
  .strictObject({
    grade_id: id,
    class_ids: z.array(id).min(1).max(1000).meta({ description: 'Classes of this grade.' }),
  })
  .meta({ id: 'SubjectsByGrade' });

const AddedSubjects = z
  .object({
    added: z.int(),
    skipped: z.int().meta({ description: 'Subjects that the classes had already.' }),
    classes: z.array(
      z.object({ class_id: id, added: z.array(z.string()).meta({ description: 'The names of the subjects.' }) }),
    ),
  })
  .meta({ id: 'AddedSubjects' });

const studentSorts: [string, ...string[]] = [
  'last_name',
  'first_name',
  'roll_number',
  'admission_number',
  'created_at',
];
const teacherSorts: [string, ...string[]] = ['last_name', 'first_name'];

export const classes = resource(
  '/classes',
  'Classes',
  'The classes of each academic year, who is in them and who teaches them.',
  {
    'GET /': {
      operation: 'classes_list',
      summary: 'List classes',
      description: 'By grade, name and section; searches name, section and room.',
      query: page(
        {
          academic_year_id: pathId.optional(),
          grade_id: pathId.optional(),
          school_unit_id: pathId.optional(),
          programme_id: pathId.optional(),
          medium_id: pathId.optional(),
          class_teacher_id: pathId.optional(),
        },
        ['grade', 'name', 'created_at', 'student_count'],
      ),
      answer: Class,
      isPage: true,
    },
    'POST /': { operation: 'classes_create', summary: 'Add a class', body: ClassInput, answer: Class, isCreate: true },
    'POST /copy': {
      operation: 'classes_copy',
      summary: 'Copy classes into another academic year',
      description:
        'Their structure, subjects and teachers, never their students. What the year has already by name and section is skipped.',
      body: ClassCopy,
      answer: CopiedClasses,
    },
    'POST /subjects/by-grade': {
      operation: 'classes_subjects_by_grade',
      summary: 'Give classes the subjects of their grade',
      description:
        'A grade without a template gives every subject of the school, 5 periods a week. Subjects that a class has stay as they are.',
      body: SubjectsByGrade,
      answer: AddedSubjects,
    },
    'GET /meta/available-class-teachers': {
      operation: 'classes_available_class_teachers',
      summary: 'List teachers who are not class teacher yet',
      description: 'Active teachers, in the current academic year unless another is named.',
      query: page({ academic_year_id: pathId.optional() }, teacherSorts),
      answer: FreeTeacher,
      isPage: true,
    },
    'GET /:id': { operation: 'classes_get', summary: 'Read a class', answer: Class },
    'PUT /:id': {
      operation: 'classes_update',
      summary: 'Change a class',
      description:
        'Another grade takes the students along. Once somebody was enrolled, a class stays in its academic year (409).',
      body: ClassInput.partial().meta({
        id: 'ClassChange',
        description: 'Any of the fields of a class; those that are not named stay.',
      }),
      answer: Class,
    },
    'DELETE /:id': {
      operation: 'classes_delete',
      summary: 'Remove a class',
      description: '409 in_use while students are in it or it has a history; its subjects and teachers go with it.',
      answer: Deleted,
    },
    'GET /:id/students': {
      operation: 'classes_students_list',
      summary: 'List the students of a class',
      description: 'Who is in it now; of a class of a past year who was in it to the end. Needs `class.read` too.',
      query: page({ is_active: flag.optional() }, studentSorts),
      answer: Student,
      isPage: true,
    },
    'POST /:id/students': {
      operation: 'classes_students_add',
      summary: 'Move a student into a class',
      description: '409 when they are in it already, or when it is full. Needs `student.read` too.',
      body: z.strictObject({ student_id: id }).meta({ id: 'ClassStudentInput' }),
      answer: Student,
    },
    'DELETE /:id/students/:student_id': {
      operation: 'classes_students_remove',
      summary: 'Take a student out of a class',
      answer: Deleted,
    },
    'GET /:id/unassigned-students': {
      operation: 'classes_unassigned_students',
      summary: 'List students who are not in a class',
      description: 'Active students who are not in this class. Needs `class.read` too.',
      query: page(
        {
          without_class: flag.optional().meta({ description: 'true: only who is in no class at all.' }),
          grade_id: pathId.optional(),
        },
        studentSorts,
      ),
      answer: Student,
      isPage: true,
    },
    'GET /:id/teachers': {
      operation: 'classes_teachers_list',
      summary: 'List the teachers of a class',
      query: page({}, teacherSorts),
      answer: ClassTeacher,
      isPage: true,
    },
    'POST /:id/teachers': {
      operation: 'classes_teachers_add',
      summary: 'Let a teacher teach a class',
      description:
        'In effect at the next request of the teacher. 409 for a class teacher who is that of another class of the year.',
      body: ClassTeacherInput,
      answer: ClassTeacher,
    },
    'DELETE /:id/teachers/:teacher_id': {
      operation: 'classes_teachers_remove',
      summary: 'Take a teacher out of a class',
      description: 'With all that they teach there, in effect at their next request.',
      answer: Deleted,
    },
    'GET /:id/unassigned-teachers': {
      operation: 'classes_unassigned_teachers',
      summary: 'List teachers who do not teach a class',
      description: 'Active teachers.',
      query: page({}, teacherSorts),
      answer: FreeTeacher,
      isPage: true,
    },
  },
);
