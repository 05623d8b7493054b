import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { clock, Deleted, id, includeEnded, optionalText, pathId, timestamp, timestamps } from '../http/schemas.ts';

const chooseTrip = 'must be pickup (to school) or drop (home): choose one, because one way could be either';
const enrollmentType = choice(['pickup', 'drop', 'both'], {
  description: 'The trips that the student rides: to school (pickup), home (drop) or both.',
  synonyms: {
    pickup: ['to school', 'morning'],
    drop: ['drop-off', 'home', 'to home', 'from school', 'afternoon'],
    both: ['two-way', 'both ways', 'round trip', 'return', 'pickup and drop'],
  },
  ambiguous: { one_way: chooseTrip, single: chooseTrip },
});
const status = choice(['active', 'cancelled'], { synonyms: { cancelled: ['canceled'] } });

const EnrollmentInput = z
  .strictObject({
    student_id: id.meta({ description: 'An active student without another active enrollment.' }),
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
    stop_sequence: z.int().nullable().meta({ description: 'Null if the stop was deleted.' }),
    pickup_time: clock.nullable(),
    drop_time: clock.nullable(),
    enrollment_type: enrollmentType,
    status,
    bus_id: id.nullable().meta({ description: "Today's bus." }),
    bus_registration_number: z.string().nullable(),
    driver_name: z.string().nullable().meta({ description: "Today's driver." }),
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
  'Transport enrollments',
  'Enrollments of students in routes and stops. A student sees only their own.',
  {
    'GET /enrollments': {
      operation: 'transport_enrollments_list',
      summary: 'List enrollments',
      description:
        'Active enrollments. `status=cancelled` lists the cancelled ones, `include_ended=true` all. `search` ' +
        'matches the name and admission number of the student.',
      response: page(
        Enrollment,
        {
          route_id: pathId.optional(),
          student_id: pathId.optional(),
          stop_id: pathId.optional(),
          class_id: pathId.optional().meta({ description: 'The current class of the student.' }),
          status: status.optional(),
          include_ended: includeEnded,
          enrollment_type: enrollmentType.optional(),
        },
        { sorts: ['stop'] },
      ),
    },
    'POST /enroll': {
      operation: 'transport_enroll_create',
      summary: 'Enroll a student',
      description:
        'Seats are counted separately for the trip to school and the trip home. 409 `conflict` if a requested trip ' +
        'has no free seat, also in a bus that is assigned for later, or if the student already has an active ' +
        'enrollment.',
      body: EnrollmentInput,
      response: created(Enrollment),
    },
    'GET /enroll/:id': { operation: 'transport_enroll_get', summary: 'Get an enrollment', response: json(Enrollment) },
    'DELETE /enroll/:id': {
      operation: 'transport_enroll_cancel',
      summary: 'Cancel an enrollment',
      description:
        'The enrollment leaves the default list and stays in the list with `status=cancelled`. 404 if it is already ' +
        'cancelled.',
      query: z.strictObject({ reason: optionalText(500).meta({ examples: ['Moved house'] }) }),
      response: json(Deleted),
    },
  },
);
