import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { Deleted, flag, id, nameText, optionalNameText, pathId, timestamps } from '../http/schemas.ts';
import { Student } from './students.ts';

const ClassInput = z
  .strictObject({
    name: nameText(100).meta({ examples: ['Grade 5'] }),
    section: optionalNameText(50).meta({
      description: 'The combination of name and section is unique within the academic year, ignoring case.',
      examples: ['A'],
    }),
    grade_id: id.meta({ description: 'The grade of the class and of its students.' }),
    academic_year_id: id,
    class_teacher_id: id
      .nullish()
      .meta({ description: 'An active teacher who is not class teacher of another class in the same academic year.' }),
    capacity: z
      .int()
      .min(1)
      .max(10_000)
      .nullish()
      .meta({ description: 'Maximum number of students. Null means no limit.', examples: [30] }),
    room: optionalNameText(50).meta({
      description: 'The home room. A text that is the name of a room is that room; other texts have no conflicts.',
      examples: ['R12'],
    }),
    home_room_id: id.nullish().meta({
      description: 'An active room, in which the lessons of the class take place that have no other. Sets `room`.',
    }),
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
    class_name: z.string().meta({ description: 'Name and section, as shown in other records.' }),
    grade_id: id,
    grade_name: z.string(),
    academic_year_id: id,
    academic_year_name: z.string(),
    is_current_year: z.boolean(),
    class_teacher_id: id.nullable(),
    class_teacher_name: z.string().nullable(),
    capacity: z.int().nullable(),
    room: z.string().nullable().meta({ description: 'The name of the home room, or another text.' }),
    home_room_id: id.nullable(),
    school_unit_id: id.nullable(),
    school_unit_name: z.string().nullable(),
    programme_id: id.nullable(),
    programme_name: z.string().nullable(),
    medium_id: id.nullable(),
    medium_name: z.string().nullable(),
    student_count: z.int().meta({ description: 'Students who are enrolled in the class or completed the year in it.' }),
    subject_count: z.int(),
    ...timestamps,
  })
  .meta({ id: 'Class' });

const ClassCopy = z
  .strictObject({
    from_academic_year_id: id,
    to_academic_year_id: id.meta({ description: 'Must differ from `from_academic_year_id`.' }),
    class_ids: z
      .array(id)
      .min(1)
      .max(1000)
      .optional()
      .meta({ description: 'Classes of the source year. Defaults to all of them.' }),
    include_subjects: z.boolean().optional().meta({ description: 'Default: true.' }),
    include_teachers: z
      .boolean()
      .optional()
      .meta({ description: 'Default: true. Inactive teachers are never copied.' }),
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
    subject: optionalNameText(100).meta({
      description:
        'If it is the name or code of a subject of the class, the teacher of that subject is set. Any other text is ' +
        'stored as the subject of this assignment, and the teacher is linked as soon as the class gets a subject of ' +
        'that name or code.',
      examples: ['Mathematics'],
    }),
    is_class_teacher: z
      .boolean()
      .optional()
      .meta({ description: 'True makes this teacher the class teacher and replaces the previous one.' }),
  })
  .meta({ id: 'ClassTeacherInput' });

export const ClassTeacher = z
  .object({
    id: id.meta({ description: 'Identifier of the teacher, same as `teacher_id`.' }),
    teacher_id: id,
    first_name: z.string(),
    last_name: z.string(),
    email: z.string().nullable(),
    is_active: z.boolean().meta({ description: 'False for a teacher who is inactive or deleted.' }),
    is_class_teacher: z.boolean(),
    subject: z
      .string()
      .nullable()
      .meta({
        description:
          'In the answer of an assignment, its subject. Otherwise all `subjects`, separated by commas; null without ' +
          'any.',
        examples: ['Mathematics'],
      }),
    subjects: z.array(z.string()).meta({ description: 'What the teacher teaches in this class.' }),
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
  .meta({ id: 'FreeTeacher', description: 'An active teacher who can be assigned.' });

const SubjectsByGrade = z
  .strictObject({
    grade_id: id,
    class_ids: z.array(id).min(1).max(1000).meta({ description: 'Classes of this grade.' }),
  })
  .meta({ id: 'SubjectsByGrade' });

const AddedSubjects = z
  .object({
    added: z.int(),
    skipped: z.int().meta({ description: 'Number of subjects that the classes already had.' }),
    classes: z.array(
      z.object({ class_id: id, added: z.array(z.string()).meta({ description: 'Names of the subjects added.' }) }),
    ),
  })
  .meta({ id: 'AddedSubjects' });

export const classes = resource(
  '/classes',
  'Classes',
  'The classes of each academic year, their students and their teachers.',
  {
    'GET /': {
      operation: 'classes_list',
      summary: 'List classes',
      description: 'Ordered by grade, name and section. `search` matches name, section and room.',
      response: page(
        Class,
        {
          academic_year_id: pathId.optional(),
          grade_id: pathId.optional(),
          school_unit_id: pathId.optional(),
          programme_id: pathId.optional(),
          medium_id: pathId.optional(),
          class_teacher_id: pathId.optional(),
          home_room_id: pathId.optional(),
        },
        { sorts: ['grade'] },
      ),
    },
    'POST /': {
      operation: 'classes_create',
      summary: 'Create a class',
      description:
        '409 `conflict` if the academic year already has a class with this name and section, or if the class ' +
        'teacher has another class in that year.',
      body: ClassInput,
      response: created(Class),
    },
    'POST /copy': {
      operation: 'classes_copy',
      summary: 'Copy classes to another academic year',
      description:
        'Copies the classes with their subjects and teachers, but not their students. Skips a class whose name and ' +
        'section the target year already has.',
      body: ClassCopy,
      response: json(CopiedClasses),
    },
    'POST /subjects/by-grade': {
      operation: 'classes_subjects_by_grade',
      summary: 'Add the subjects of a grade to classes',
      description:
        'Adds the subjects of the subject template of the grade. If the grade has no template, adds every subject ' +
        'of the school with 5 periods per week. Does not change subjects that a class already has.',
      body: SubjectsByGrade,
      response: json(AddedSubjects),
    },
    'GET /meta/available-class-teachers': {
      operation: 'classes_available_class_teachers',
      summary: 'List available class teachers',
      description: 'Active teachers who are not class teacher in the academic year. Defaults to the current year.',
      response: page(FreeTeacher, { academic_year_id: pathId.optional() }),
    },
    'GET /:id': { operation: 'classes_get', summary: 'Get a class', response: json(Class) },
    'PUT /:id': {
      operation: 'classes_update',
      summary: 'Update a class',
      description:
        'A new grade also applies to the students of the class. 409 `conflict` for a new academic year once ' +
        'students have been enrolled, and for a capacity below the number of students.',
      body: ClassInput.partial().meta({
        id: 'ClassChange',
        description: 'Any subset of the fields of a class.',
      }),
      response: json(Class),
    },
    'DELETE /:id': {
      operation: 'classes_delete',
      summary: 'Delete a class',
      description:
        'Also deletes its subjects and teacher assignments. 409 `in_use` if the class has or had students, also ' +
        'deleted ones, or if fees refer to it.',
      response: json(Deleted),
    },
    'GET /:id/students': {
      operation: 'classes_students_list',
      summary: 'List the students of a class',
      description: 'Students who are enrolled in the class or completed the year in it. Also requires `class.read`.',
      response: page(Student, { is_active: flag.optional() }),
    },
    'POST /:id/students': {
      operation: 'classes_students_add',
      summary: 'Move a student to a class',
      description:
        '409 `conflict` if the student is already in the class or the class is full. Also requires `student.read`.',
      body: z.strictObject({ student_id: id }).meta({ id: 'ClassStudentInput' }),
      response: json(Student),
    },
    'DELETE /:id/students/:student_id': {
      operation: 'classes_students_remove',
      summary: 'Remove a student from a class',
      description: 'The student is then in no class.',
      response: json(Deleted),
    },
    'GET /:id/unassigned-students': {
      operation: 'classes_unassigned_students',
      summary: 'List students outside a class',
      description: 'Active students who are not in this class. Also requires `class.read`.',
      response: page(Student, {
        without_class: flag
          .optional()
          .meta({ description: 'true: only students without a class. false: only students with another class.' }),
        grade_id: pathId.optional(),
      }),
    },
    'GET /:id/teachers': {
      operation: 'classes_teachers_list',
      summary: 'List the teachers of a class',
      description: 'The class teacher, the teachers of its subjects and of its timetable, and other assigned teachers.',
      response: page(ClassTeacher),
    },
    'POST /:id/teachers': {
      operation: 'classes_teachers_add',
      summary: 'Assign a teacher to a class',
      description:
        'The teacher can access the class from their next request. 409 `conflict` if they would become class ' +
        'teacher of a second class in the academic year.',
      body: ClassTeacherInput,
      response: json(ClassTeacher),
    },
    'DELETE /:id/teachers/:teacher_id': {
      operation: 'classes_teachers_remove',
      summary: 'Remove a teacher from a class',
      description:
        'Also removes the teacher from the subjects of the class. The teacher loses access to the class with their ' +
        'next request. 409 `in_use` while the timetable of the class has lessons with this teacher.',
      response: json(Deleted),
    },
    'GET /:id/unassigned-teachers': {
      operation: 'classes_unassigned_teachers',
      summary: 'List teachers outside a class',
      description: 'Active teachers who do not teach this class.',
      response: page(FreeTeacher),
    },
  },
);
