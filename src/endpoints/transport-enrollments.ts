import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { clock, Deleted, id, optionalText, page, pathId, timestamp, timestamps } from '../http/schemas.ts';

const enrollmentType = z
  .enum(['pickup', 'drop', 'both'])
  .meta({ description: 'Whether they ride to school (pickup), home (drop) or both ways.' });
const status = z.enum(['active', 'cancelled']);

const EnrollmentInput = z
  .strictObject({
    student_id: id.meta({ description: 'An active student, who rides no other route.' }),
    route_id: id,
    stop_id: id.meta({ description: 'A stop of the route.' }),
    enrollment_type: enrollmentType,
  })
  .meta({ id: 'TransportEnrollmentInput' });

export const Enrollment = z
  .object({
    id,
    student_id: id,
    student_name: z.string(),
    admission_number: z.string(),
    class_id: id.nullable(),
    class_name: z.string().nullable(),
    route_id: id,
    route_name: z.string(),
    stop_id: id,
    stop_name: z.string(),
    stop_sequence: z.int().nullable().meta({ description: 'Null when the stop was removed.' }),
    pickup_time: clock.nullable(),
    drop_time: clock.nullable(),
    enrollment_type: enrollmentType,
    status,
    bus_id: id.nullable().meta({ description: 'The bus of today.' }),
    bus_registration_number: z.string().nullable(),
    driver_name: z.string().nullable().meta({ description: 'Who drives today.' }),
    driver_phone: z.string().nullable(),
    cancelled_at: timestamp.nullable(),
    cancelled_by: id.nullable(),
    cancelled_by_name: z.string().nullable(),
    cancel_reason: z.string().nullable(),
    ...timestamps,
  })
  .meta({ id: 'TransportEnrollment' });

export const transportEnrollments = resource(
  '/transport',
  'Transport enrolments',
  'Who rides which route from which stop. A student sees their own.',
  {
    'GET /enrollments': {
      operation: 'transport_enrollments_list',
      summary: 'List enrolments',
      description:
        'Cancelled ones too, unless status says otherwise. Searches the student by name and admission number.',
      query: page(
        {
          route_id: pathId.optional(),
          student_id: pathId.optional(),
          stop_id: pathId.optional(),
          class_id: pathId.optional().meta({ description: 'The class that the student is in now.' }),
          status: status.optional(),
          enrollment_type: enrollmentType.optional(),
        },
        ['created_at', 'student_name', 'stop'],
      ),
      answer: Enrollment,
      isPage: true,
    },
    'POST /enroll': {
      operation: 'transport_enroll_create',
      summary: 'Enrol a student',
      description:
        'A bus has its seats twice: on the way to school, and home. 409 when no seat is left on one of the ways, also in a bus that is assigned for later, and when the student rides already.',
      body: EnrollmentInput,
      answer: Enrollment,
      isCreate: true,
    },
    'GET /enroll/:id': { operation: 'transport_enroll_get', summary: 'Read an enrolment', answer: Enrollment },
    'DELETE /enroll/:id': {
      operation: 'transport_enroll_cancel',
      summary: 'Cancel an enrolment',
      description: 'It stays in the list as cancelled. 409 `invalid_state` when it was cancelled before.',
      query: z.strictObject({ reason: optionalText(500).meta({ examples: ['Moved house'] }) }),
      answer: Deleted,
    },
  },
);
