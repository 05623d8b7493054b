import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { Schedule } from './schedule.ts';
import { gender } from './parts/gender.ts';
import { leaving } from './parts/leaving.ts';
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
  withDayOrder,
} from '../http/schemas.ts';
import { newLogin } from './parts/new-login.ts';
import { dayOfWeek, maxPeriods, period } from './parts/school-day.ts';

const fields = {
  first_name: nameText(100).meta({ examples: ['Ngozi'] }),
  last_name: lastName.meta({ examples: ['Bello'] }),
  email: email.nullish(),
  phone,
  employee_number: optionalNameText(50).meta({ description: 'Unique within the school.', examples: ['T017'] }),
  qualification: optionalNameText(200).meta({ examples: ['M.Sc. Mathematics'] }),
  specialization: optionalNameText(100).meta({ examples: ['Mathematics'] }),
  joined_on: dateOf('joining').nullish(),
  date_of_birth: dateOf('birth').nullish(),
  gender: gender.nullish(),
  address: optionalText(500),
  ...leaving.input,
  ...newLogin.fields('teacher'),
};

export const TeacherInput = z
  .strictObject(fields)
  .refine(...newLogin.emailRule)
  .refine(...newLogin.passwordRule)
  .meta({ id: 'TeacherInput', description: 'Only `first_name` and `last_name` are required.' });

const TeacherChange = z
  .strictObject(fields)
  .partial()
  .refine(...newLogin.passwordRule)
  .meta({ id: 'TeacherChange', description: 'Any subset of the fields of a teacher. Omitted fields do not change.' });

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
    gender: z.enum(gender.options).nullable(),
    address: z.string().nullable(),
    ...leaving.output,
    user_id: id.nullable().meta({ description: 'The login of the teacher.' }),
    max_periods_per_day: z.int().nullable().meta({ description: 'Set with `PUT /api/teachers/{id}/workload-rule`.' }),
    max_periods_per_week: z.int().nullable().meta({ description: 'Set with `PUT /api/teachers/{id}/workload-rule`.' }),
    deleted_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({
    id: 'Teacher',
    description:
      'Other teachers see only name, `email`, `specialization`, `is_active` and `left_on`; the other fields are null.',
  });

export const TaughtClass = z
  .object({
    class_id: id,
    class_name: z.string().meta({ description: 'Name and section of the class.' }),
    grade_id: id,
    grade_name: z.string(),
    academic_year_id: id,
    is_class_teacher: z.boolean(),
    subjects: z.array(z.string()).meta({ description: 'The subjects that you teach in this class.' }),
    student_count: z.int(),
  })
  .meta({ id: 'TaughtClass' });

const decisions = { approved: ['approve', 'accepted', 'accept'], rejected: ['reject', 'declined', 'decline'] };
const status = choice(['pending', 'approved', 'rejected'], { synonyms: decisions });

const LeaveInput = withDayOrder(
  z.strictObject({
    leave_type: nameText(50).meta({ examples: ['sick'] }),
    start_date: dateOf('school'),
    end_date: dateOf('school', 'Less than a year after `start_date`.'),
    reason: optionalText(1000),
    teacher_id: id.nullish().meta({
      description:
        'The teacher who takes the leave. By default you; for another teacher you need the permission `leave.manage`.',
    }),
  }),
  { first: 'start_date', last: 'end_date', max_days: 366 },
).meta({ id: 'LeaveInput' });

const LeaveDecision = z
  .strictObject({
    status: status.meta({ description: '`pending` only sends a pending leave back as it was read.' }),
    decision_note: optionalText(1000),
  })
  .meta({ id: 'LeaveDecision' });

export const Leave = z
  .object({
    id,
    teacher_id: id,
    teacher_name: z.string(),
    leave_type: z.string(),
    start_date: date,
    end_date: date,
    days: z.int().meta({ description: 'Number of calendar days, including the first and the last.' }),
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
  academic_year_id: pathId.optional().meta({ description: 'Leaves that overlap this academic year.' }),
};

export const AvailabilitySlot = z
  .strictObject({
    day_of_week: dayOfWeek,
    period,
    is_available: z.boolean(),
  })
  .meta({ id: 'AvailabilitySlot' });

const AvailabilityInput = z
  // The school decides how many periods a day has, and the error says how many.
  .array(
    AvailabilitySlot.extend({
      period: z
        .int()
        .min(1)
        .meta(period.meta() ?? {}),
    }).meta({ id: 'AvailabilitySlotInput' }),
  )
  .max(7 * maxPeriods)
  .superRefine(uniqueBy('day_of_week', 'period'))
  .meta({
    id: 'AvailabilityInput',
    description:
      'Periods that are not listed are available. A day that is no working day is stored too: it matters when the ' +
      'working days change. A period that the school day does not have is a 400.',
  });

const Availability = z.array(AvailabilitySlot).meta({
  id: 'Availability',
  description: 'Every period of the working days, and the periods of other days that were set.',
});

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
      message: 'must not be greater than max_periods_per_week',
    },
  )
  .meta({ id: 'WorkloadRule', description: 'Null means no limit. Omitted fields do not change.' });

export const Workload = z
  .object({
    teacher_id: id,
    max_periods_per_day: z.int().nullable(),
    max_periods_per_week: z.int().nullable(),
    assigned_periods: z.int().meta({ description: 'Number of slots in the timetable of the current academic year.' }),
    planned_periods: z
      .int()
      .meta({ description: 'Periods per week of the class subjects in the current academic year.' }),
    per_day: z
      .array(z.object({ day_of_week: dayOfWeek, periods: z.int() }))
      .meta({ description: 'Number of slots on each working day, and on other days that have slots.' }),
    is_over_limit: z.boolean().meta({
      description: 'Whether the slots of a day, or the slots or planned periods of the week, exceed a limit.',
    }),
  })
  .meta({ id: 'Workload' });

export const teachers = resource(
  '/teachers',
  'Teachers',
  'Teachers, their classes, leaves, availability and workload.',
  {
    'GET /': {
      operation: 'teachers_list',
      summary: 'List teachers',
      description:
        'By last name. `search` matches name, email, employee number and phone. Teachers see only the public fields ' +
        'of other teachers, and their search matches only name and email.',
      response: page(Teacher, {
        class_id: pathId.optional().meta({ description: 'Teachers of this class.' }),
        is_active: flag.optional(),
        specialization: nameText(100).optional().meta({ description: 'Case and accents are ignored.' }),
      }),
    },
    'POST /': {
      operation: 'teachers_create',
      summary: 'Create a teacher',
      body: TeacherInput,
      passwordField: 'password',
      response: created(Teacher),
    },
    'GET /me': {
      operation: 'teachers_me',
      summary: 'Get your teacher record',
      description: '404 `not_found` if your account is not linked to a teacher.',
      response: json(Teacher),
    },
    'GET /me/today-schedule': {
      operation: 'teachers_me_today',
      summary: 'Get your schedule of today',
      description: 'Today in the time zone of the school. 404 `not_found` if your account is not linked to a teacher.',
      response: json(Schedule),
    },
    'GET /me/classes': {
      operation: 'teachers_me_classes',
      summary: 'List the classes that you teach',
      description: '404 `not_found` if your account is not linked to a teacher.',
      response: page(TaughtClass, {
        academic_year_id: pathId.optional().meta({ description: 'By default the current academic year.' }),
      }),
    },
    'GET /leaves': {
      operation: 'teachers_leaves_list_all',
      summary: 'List the leaves of all teachers',
      description: 'Latest first. `search` matches teacher, leave type and reason.',
      response: page(Leave, { teacher_id: pathId.optional(), ...leaveFilters }),
    },
    'POST /leaves': {
      operation: 'teachers_leaves_create',
      summary: 'Create a leave request',
      body: LeaveInput,
      response: created(Leave),
    },
    'PUT /leaves/:id': {
      operation: 'teachers_leaves_decide',
      summary: 'Approve or reject a leave',
      description:
        'Notifies the teacher. 409 `invalid_state` if the leave is not pending, 409 `conflict` if it overlaps an ' +
        'approved leave of the teacher. You cannot decide on your own leave.',
      body: LeaveDecision,
      response: json(Leave),
    },
    'DELETE /leaves/:id': {
      operation: 'teachers_leaves_delete',
      summary: 'Delete a leave',
      description:
        'A teacher can delete their own pending leave; otherwise 409 `invalid_state`. With `leave.manage`, any ' +
        'leave can be deleted.',
      response: json(Deleted),
    },
    'GET /:id': { operation: 'teachers_get', summary: 'Get a teacher', response: json(Teacher) },
    'PUT /:id': {
      operation: 'teachers_update',
      summary: 'Update a teacher',
      description:
        'From the day `left_on` the teacher cannot log in, unless the user has another role or another active ' +
        'record, gets no notifications, and cannot be chosen for a class or a lesson. Lessons from that day on have ' +
        'no teacher until another one is chosen. `is_active: true` returns the teacher.',
      body: TeacherChange,
      passwordField: 'password',
      response: json(Teacher),
    },
    'DELETE /:id': {
      operation: 'teachers_delete',
      summary: 'Delete a teacher',
      description:
        'Soft delete: the history stays. The login is deleted, and the employee number can be used again. 409 ' +
        '`in_use` while the teacher teaches a class of the current academic year or a later one.',
      response: json(Deleted),
    },
    'GET /:id/leaves': {
      operation: 'teachers_leaves_list',
      summary: 'List the leaves of a teacher',
      description: 'Latest first. `search` matches leave type and reason.',
      response: page(Leave, leaveFilters),
    },
    'GET /:id/availability': {
      operation: 'teachers_availability_get',
      summary: 'Get the availability of a teacher',
      response: json(Availability),
    },
    'PUT /:id/availability': {
      operation: 'teachers_availability_set',
      summary: 'Replace the availability of a teacher',
      description:
        'Returns the new availability. 409 `schedule_conflict` if the teacher has slots of the current or a later ' +
        'academic year in a period that becomes unavailable. The details name up to five of them.',
      body: AvailabilityInput,
      response: json(Availability),
    },
    'GET /:id/workload': {
      operation: 'teachers_workload_get',
      summary: 'Get the workload of a teacher',
      response: json(Workload),
    },
    'PUT /:id/workload-rule': {
      operation: 'teachers_workload_set',
      summary: 'Update the workload limits of a teacher',
      body: WorkloadRule,
      response: json(Workload),
    },
  },
);
