import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { Schedule } from './schedule.ts';
import {
  date,
  dayOfWeek,
  Deleted,
  email,
  flag,
  id,
  login,
  maxPeriods,
  optionalText,
  page,
  pathId,
  period,
  text,
  timestamp,
  timestamps,
  uniqueBy,
} from '../http/schemas.ts';

const fields = {
  first_name: text(100).meta({ examples: ['Ngozi'] }),
  last_name: text(100).meta({ examples: ['Bello'] }),
  email: email.nullish(),
  phone: optionalText(50),
  employee_number: optionalText(50).meta({ description: 'Unique in the school.', examples: ['T017'] }),
  qualification: optionalText(200).meta({ examples: ['M.Sc. Mathematics'] }),
  specialization: optionalText(100).meta({ examples: ['Mathematics'] }),
  joined_on: date.nullish(),
  date_of_birth: date.nullish(),
  gender: optionalText(50).meta({ examples: ['female'] }),
  address: optionalText(500),
  is_active: z.boolean().optional(),
  ...login.fields('teacher'),
};

/** What a teacher is made of. */
export const TeacherInput = z
  .strictObject(fields)
  .refine(...login.emailRule)
  .refine(...login.passwordRule)
  .meta({ id: 'TeacherInput', description: 'Only first_name and last_name are required.' });

const TeacherChange = z
  .strictObject(fields)
  .partial()
  .refine(...login.passwordRule)
  .meta({ id: 'TeacherChange', description: 'Any of the fields of a teacher; those that are not named stay.' });

export const Teacher = z
  .object({
    id,
    first_name: z.string(),
    last_name: z.string(),
    email: z.string().nullable(),
    phone: z.string().nullable(),
    employee_number: z.string().nullable(),
    qualification: z.string().nullable(),
    specialization: z.string().nullable(),
    joined_on: date.nullable(),
    date_of_birth: date.nullable(),
    gender: z.string().nullable(),
    address: z.string().nullable(),
    is_active: z.boolean(),
    user_id: id.nullable().meta({ description: 'The log-in of the teacher.' }),
    max_periods_per_day: z.int().nullable().meta({ description: 'Set by PUT /api/teachers/{id}/workload-rule.' }),
    max_periods_per_week: z.int().nullable().meta({ description: 'Set by PUT /api/teachers/{id}/workload-rule.' }),
    deleted_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({
    id: 'Teacher',
    description: 'To other teachers all but names, email, specialization and is_active is null.',
  });

export const TaughtClass = z
  .object({
    class_id: id,
    class_name: z.string().meta({ description: 'Name and section.' }),
    grade_id: id,
    grade_name: z.string(),
    academic_year_id: id,
    is_class_teacher: z.boolean(),
    subjects: z.array(z.string()).meta({ description: 'What you teach there.' }),
    student_count: z.int(),
  })
  .meta({ id: 'TaughtClass' });

const status = z.enum(['pending', 'approved', 'rejected']);

const LeaveInput = z
  .strictObject({
    leave_type: text(50).meta({ examples: ['sick'] }),
    start_date: date,
    end_date: date,
    reason: optionalText(1000),
    teacher_id: id
      .nullish()
      .meta({ description: 'Yourself when it is not given; another teacher needs the permission `leave.manage`.' }),
  })
  .refine((leave) => leave.end_date >= leave.start_date, {
    path: ['end_date'],
    message: 'must not be before start_date',
  })
  .meta({ id: 'LeaveInput' });

const LeaveDecision = z
  .strictObject({ status: z.enum(['approved', 'rejected']), decision_note: optionalText(1000) })
  .meta({ id: 'LeaveDecision' });

export const Leave = z
  .object({
    id,
    teacher_id: id,
    teacher_name: z.string(),
    leave_type: z.string(),
    start_date: date,
    end_date: date,
    days: z.int().meta({ description: 'Calendar days, the first and the last included.' }),
    reason: z.string().nullable(),
    status,
    decided_by: id.nullable().meta({ description: 'The user who approved or rejected it.' }),
    decided_by_name: z.string().nullable(),
    decided_at: timestamp.nullable(),
    decision_note: z.string().nullable(),
    ...timestamps,
  })
  .meta({ id: 'Leave' });

const leaveFilters = {
  status: status.optional(),
  academic_year_id: pathId.optional().meta({ description: 'Leaves of which a day lies in this academic year.' }),
};

export const AvailabilitySlot = z
  .strictObject({
    day_of_week: dayOfWeek,
    period,
    is_available: z.boolean(),
  })
  .meta({ id: 'AvailabilitySlot' });

const AvailabilityInput = z
  .array(AvailabilitySlot)
  .max(7 * maxPeriods)
  .superRefine(uniqueBy('day_of_week', 'period'))
  .meta({ id: 'AvailabilityInput', description: 'What is not named is available.' });

const Availability = z
  .array(AvailabilitySlot)
  .meta({ id: 'Availability', description: 'Every period of the working days.' });

const WorkloadRule = z
  .strictObject({
    max_periods_per_day: z.int().min(1).max(24).nullish(),
    max_periods_per_week: z.int().min(1).max(168).nullish(),
  })
  .refine(
    (rule) =>
      !rule.max_periods_per_day || !rule.max_periods_per_week || rule.max_periods_per_day <= rule.max_periods_per_week,
    {
      path: ['max_periods_per_day'],
      message: 'must not be above max_periods_per_week',
    },
  )
  .meta({ id: 'WorkloadRule', description: 'null is no limit; what is not named stays.' });

export const Workload = z
  .object({
    teacher_id: id,
    max_periods_per_day: z.int().nullable(),
    max_periods_per_week: z.int().nullable(),
    assigned_periods: z.int().meta({ description: 'Slots of the timetable, in the current academic year.' }),
    planned_periods: z
      .int()
      .meta({ description: 'Periods a week of the class subjects, in the current academic year.' }),
    per_day: z
      .array(z.object({ day_of_week: dayOfWeek, periods: z.int() }))
      .meta({ description: 'Slots on each working day, and on any other that has some.' }),
    is_over_limit: z
      .boolean()
      .meta({ description: 'A day has more slots, or the week more slots or planned periods, than the rule allows.' }),
  })
  .meta({ id: 'Workload' });

export const teachers = resource(
  '/teachers',
  'Teachers',
  'The teachers of a school: their classes, leaves, availability and workload.',
  {
    'GET /': {
      operation: 'teachers_list',
      summary: 'List teachers',
      description:
        'Searches name, e-mail, employee number and phone. To a teacher it is a directory: what is private of others is null and not searched.',
      query: page(
        {
          class_id: pathId.optional().meta({ description: 'Who teaches this class.' }),
          is_active: flag.optional(),
          specialization: text(100).optional().meta({ description: 'In any case and without regard to accents.' }),
        },
        ['last_name', 'first_name', 'employee_number', 'joined_on', 'created_at'],
      ),
      answer: Teacher,
      isPage: true,
    },
    'POST /': {
      operation: 'teachers_create',
      summary: 'Add a teacher',
      body: TeacherInput,
      hashes: 'password',
      answer: Teacher,
      isCreate: true,
    },
    'GET /me': {
      operation: 'teachers_me',
      summary: 'Read yourself',
      description: '404 for a user who is no teacher.',
      answer: Teacher,
    },
    'GET /me/today-schedule': {
      operation: 'teachers_me_today',
      summary: 'What you teach today',
      description: "Today in the school's time zone. 404 for a user who is no teacher.",
      answer: Schedule,
    },
    'GET /me/classes': {
      operation: 'teachers_me_classes',
      summary: 'List the classes that you teach',
      description:
        'Of the current academic year unless academic_year_id says otherwise. 404 for a user who is no teacher.',
      query: page({ academic_year_id: pathId.optional() }, ['grade_name', 'class_name']),
      answer: TaughtClass,
      isPage: true,
    },
    'GET /leaves': {
      operation: 'teachers_leaves_list_all',
      summary: 'List the leaves of all teachers',
      description: 'Searches teacher, leave type and reason.',
      query: page({ teacher_id: pathId.optional(), ...leaveFilters }, ['start_date', 'created_at']),
      answer: Leave,
      isPage: true,
    },
    'POST /leaves': {
      operation: 'teachers_leaves_create',
      summary: 'Ask for a leave',
      body: LeaveInput,
      answer: Leave,
      isCreate: true,
    },
    'PUT /leaves/:id': {
      operation: 'teachers_leaves_decide',
      summary: 'Approve or reject a leave',
      description:
        '409 invalid_state when that was done before; 409 conflict when it overlaps an approved leave of the teacher.',
      body: LeaveDecision,
      answer: Leave,
    },
    'DELETE /leaves/:id': {
      operation: 'teachers_leaves_delete',
      summary: 'Take a leave back',
      description: 'A teacher while it is pending (else 409 invalid_state), whoever decides on leaves at any time.',
      answer: Deleted,
    },
    'GET /:id': { operation: 'teachers_get', summary: 'Read a teacher', answer: Teacher },
    'PUT /:id': {
      operation: 'teachers_update',
      summary: 'Change a teacher',
      body: TeacherChange,
      hashes: 'password',
      answer: Teacher,
    },
    'DELETE /:id': {
      operation: 'teachers_delete',
      summary: 'Remove a teacher',
      description:
        'A soft delete: the log-in goes, the employee number is free again, the history stays. 409 in_use while they teach a class of this year or a later one.',
      answer: Deleted,
    },
    'GET /:id/leaves': {
      operation: 'teachers_leaves_list',
      summary: 'List the leaves of a teacher',
      description: 'Searches leave type and reason.',
      query: page(leaveFilters, ['start_date', 'created_at']),
      answer: Leave,
      isPage: true,
    },
    'GET /:id/availability': {
      operation: 'teachers_availability_get',
      summary: 'When a teacher can be given a period',
      answer: Availability,
    },
    'PUT /:id/availability': {
      operation: 'teachers_availability_set',
      summary: 'Say when a teacher can be given a period',
      description: 'Replaces the grid; answers it.',
      body: AvailabilityInput,
      answer: Availability,
    },
    'GET /:id/workload': { operation: 'teachers_workload_get', summary: 'How much a teacher has', answer: Workload },
    'PUT /:id/workload-rule': {
      operation: 'teachers_workload_set',
      summary: 'Limit what a teacher can be given',
      body: WorkloadRule,
      answer: Workload,
    },
  },
);
