import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { clock, date, days, Deleted, id, optionalText, page, pathId, timestamps } from '../http/schemas.ts';

const name = z.string().nullable();

export const ScheduledRoute = z
  .object({
    date,
    day_of_week: z.int().meta({ description: '1 is Monday.' }),
    route_id: id,
    route_name: z.string(),
    route_code: name,
    status: z.enum(['planned', 'cancelled', 'replaced']),
    reason: z.string().nullable().meta({ description: 'Why it is cancelled or replaced.' }),
    exception_id: id.nullable(),
    assignment_id: id.nullable(),
    bus_id: id.nullable().meta({ description: 'Null when the route has none, or its own is on another route.' }),
    bus_registration_number: name,
    driver_id: id.nullable(),
    driver_name: name,
    driver_phone: name,
    staff_id: id.nullable(),
    staff_name: name,
    stops: z.array(
      z.object({ id, name: z.string(), sequence: z.int(), pickup_time: clock.nullable(), drop_time: clock.nullable() }),
    ),
  })
  .meta({ id: 'ScheduledRoute' });

const kind = z.enum(['cancelled', 'replaced']);

const ExceptionInput = z
  .strictObject({
    route_id: id,
    date,
    kind: kind.meta({ description: 'cancelled: the route does not run; replaced: with another bus or driver.' }),
    bus_id: id.nullish().meta({ description: 'For replaced: the bus that comes instead.' }),
    driver_id: id.nullish().meta({ description: 'For replaced: who drives instead.' }),
    reason: optionalText(500).meta({ examples: ['Snow'] }),
  })
  .superRefine((given, context) => {
    const isReplaced = given.kind === 'replaced';
    if (isReplaced && !given.bus_id && !given.driver_id)
      context.addIssue({
        code: 'custom',
        path: ['bus_id'],
        message: 'is required, or driver_id, when kind is replaced',
      });
    for (const field of ['bus_id', 'driver_id'] as const)
      if (!isReplaced && given[field])
        context.addIssue({ code: 'custom', path: [field], message: 'goes with kind replaced' });
  })
  .meta({ id: 'RouteExceptionInput' });

const Exception = z
  .object({
    id,
    route_id: id,
    route_name: z.string(),
    date,
    kind,
    bus_id: id.nullable(),
    bus_registration_number: name,
    driver_id: id.nullable(),
    driver_name: name,
    reason: name,
    ...timestamps,
  })
  .meta({ id: 'RouteException' });

export const Conflicts = z
  .object({
    has_conflict: z.boolean(),
    conflicts: z.array(
      z.object({
        kind: z
          .enum(['bus', 'driver', 'staff', 'route', 'inactive', 'insurance', 'fitness', 'license', 'capacity'])
          .meta({
            description:
              'bus, driver, staff: is on another route; route: has an assignment; inactive: not in service; insurance, fitness, license: expires; capacity: fewer seats than students.',
          }),
        path: z.string().meta({ description: 'The field that is at fault.' }),
        message: z.string(),
        from_date: date.nullable(),
        to_date: date.nullable(),
        route_id: id.nullable(),
        bus_id: id.nullable(),
        driver_id: id.nullable(),
        staff_id: id.nullable(),
      }),
    ),
  })
  .meta({ id: 'TransportConflicts' });

const some = { route_id: pathId.optional(), bus_id: pathId.optional(), driver_id: pathId.optional() };

export const transportSchedules = resource(
  '/transport/schedules',
  'Transport schedules',
  'What runs which route on which day.',
  {
    'GET /': {
      operation: 'transport_schedules_list',
      summary: 'List what runs day by day',
      description:
        'Days with school only, a route for each line: a date, or from_date to to_date (100 days at most), of one of them alone a week; without any the week from today on. Searches the route. A student sees the route that they ride.',
      query: days(
        page({ date: date.optional(), from_date: date.optional(), to_date: date.optional(), ...some }, [
          'date',
          'route_name',
        ]),
        100,
      ),
      answer: ScheduledRoute,
      isPage: true,
    },
    'GET /exceptions': {
      operation: 'transport_exceptions_list',
      summary: 'List exceptions',
      description: 'Searches route, bus, driver and reason.',
      query: days(
        page({ ...some, kind: kind.optional(), from_date: date.optional(), to_date: date.optional() }, [
          'date',
          'created_at',
        ]),
        3660,
      ),
      answer: Exception,
      isPage: true,
    },
    'POST /exceptions': {
      operation: 'transport_exceptions_create',
      summary: 'Cancel a route on a day, or replace its bus or driver',
      description:
        '409 `conflict` when the route has an exception on that day; 409 `schedule_conflict` with all that is in the way of a replacement, routes that the bus runs of its own included.',
      body: ExceptionInput,
      answer: Exception,
      isCreate: true,
    },
    'GET /exceptions/:id': { operation: 'transport_exceptions_get', summary: 'Read an exception', answer: Exception },
    'DELETE /exceptions/:id': {
      operation: 'transport_exceptions_delete',
      summary: 'Remove an exception',
      description:
        'The day is as planned again. 409 `schedule_conflict` when the bus or the driver of a cancelled route is needed elsewhere on that day.',
      answer: Deleted,
    },
    'GET /conflict-check': {
      operation: 'transport_conflict_check',
      summary: 'Say what is in the way',
      description:
        'With a bus or a driver: what keeps them from running a route (route_id) or any in these days, as `POST /api/transport/bus-assignments` and, with kind replacement, `POST /api/transport/schedules/exceptions` would say. Without: what is wrong with what is planned for the route, or for all routes.',
      query: days(
        z.strictObject({
          ...some,
          from_date: date,
          to_date: date,
          kind: z.enum(['assignment', 'replacement']).optional().meta({
            description:
              'A replacement takes nothing from a route that runs; an assignment goes before what a route has of its own. assignment when it is not given.',
          }),
        }),
        366,
      ),
      answer: Conflicts,
    },
  },
);

const assignmentFields = {
  bus_id: id,
  driver_id: id,
  staff_id: id.nullish().meta({ description: 'Who helps on the bus.' }),
  starts_on: date.optional().meta({ description: 'The first day; today when it is not given.' }),
  ends_on: date.nullish().meta({ description: 'The last day; null until further notice.' }),
};
const AssignmentInput = z.strictObject({ route_id: id, ...assignmentFields }).meta({ id: 'BusAssignmentInput' });
const AssignmentChange = z.strictObject(assignmentFields).partial().meta({
  id: 'BusAssignmentChange',
  description: 'Any of the fields; those that are not named stay, and so does the route.',
});

export const Assignment = z
  .object({
    id,
    bus_id: id,
    bus_registration_number: z.string(),
    route_id: id,
    route_name: z.string(),
    driver_id: id,
    driver_name: z.string(),
    staff_id: id.nullable(),
    staff_name: name,
    starts_on: date,
    ends_on: date.nullable(),
    is_current: z.boolean().meta({ description: 'Whether it holds today.' }),
    ...timestamps,
  })
  .meta({ id: 'BusAssignment' });

export const transportAssignments = resource(
  '/transport/bus-assignments',
  'Bus assignments',
  'Which bus, driver and helper run a route, from when to when.',
  {
    'GET /': {
      operation: 'transport_assignments_list',
      summary: 'List assignments',
      description: 'Searches bus, route, driver and helper.',
      query: page(
        {
          ...some,
          staff_id: pathId.optional(),
          date: date.optional().meta({ description: 'Those that hold on this day.' }),
        },
        ['starts_on', 'ends_on', 'route_name'],
      ),
      answer: Assignment,
      isPage: true,
    },
    'POST /': {
      operation: 'transport_assignments_create',
      summary: 'Assign a bus, a driver and a helper to a route',
      description:
        'On these days it goes before the bus and driver that routes have of their own. 409 `schedule_conflict` names all that is in the way: none of them is in two places at a time, papers are valid (up to ends_on; on the first day where there is none), the bus has seats for all who ride.',
      body: AssignmentInput,
      answer: Assignment,
      isCreate: true,
    },
    'GET /:id': { operation: 'transport_assignments_get', summary: 'Read an assignment', answer: Assignment },
    'PUT /:id': {
      operation: 'transport_assignments_update',
      summary: 'Change an assignment',
      description:
        'To end it, give its last day. 409 `schedule_conflict` as for a new one, unless it only becomes shorter.',
      body: AssignmentChange,
      answer: Assignment,
    },
    'DELETE /:id': {
      operation: 'transport_assignments_delete',
      summary: 'Remove an assignment that has not begun',
      description: '409 `invalid_state` for one that began before today: it is ended by ends_on, and stays.',
      answer: Deleted,
    },
  },
);
