import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { clock, date, dateOf, dateRange, Deleted, id, optionalText, pathId, timestamps } from '../http/schemas.ts';

const name = z.string().nullable();

export const ScheduledRoute = z
  .object({
    date,
    day_of_week: z.int().meta({ description: '1 is Monday.' }),
    route_id: id,
    route_name: z.string(),
    route_code: name,
    status: z.enum(['planned', 'cancelled', 'replaced']),
    reason: z.string().nullable().meta({ description: 'Reason for the cancellation or replacement.' }),
    exception_id: id.nullable(),
    assignment_id: id.nullable(),
    bus_id: id
      .nullable()
      .meta({ description: 'Null if the route has no bus, or if its default bus serves another route on that day.' }),
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

const kind = choice(['cancelled', 'replaced'], { synonyms: { cancelled: ['canceled'] } });

const ExceptionInput = z
  .strictObject({
    route_id: id,
    date: dateOf('school'),
    kind: kind.meta({
      description: 'cancelled: the route does not run; replaced: it runs with another bus or driver.',
    }),
    bus_id: id.nullish().meta({ description: 'The replacement bus; only with kind `replaced`.' }),
    driver_id: id.nullish().meta({ description: 'The replacement driver; only with kind `replaced`.' }),
    reason: optionalText(500).meta({ examples: ['Snow'] }),
  })
  .superRefine((input, context) => {
    const isReplaced = input.kind === 'replaced';
    if (isReplaced && !input.bus_id && !input.driver_id)
      context.addIssue({
        code: 'custom',
        path: ['bus_id'],
        message: 'is required when kind is replaced, unless driver_id is given',
      });
    for (const field of ['bus_id', 'driver_id'] as const)
      if (!isReplaced && input[field])
        context.addIssue({ code: 'custom', path: [field], message: 'can only be given when kind is replaced' });
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
              'bus, driver, staff: busy on another route; route: already assigned; inactive: not in service; ' +
              'insurance, fitness, license: expires; capacity: fewer seats than students.',
          }),
        path: z.string().meta({ description: 'The field that causes the conflict.' }),
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

const resourceFilters = { route_id: pathId.optional(), bus_id: pathId.optional(), driver_id: pathId.optional() };

export const transportSchedules = resource(
  '/transport/schedules',
  'Transport schedules',
  'Daily schedules, exceptions and conflict checks of routes.',
  {
    'GET /': {
      operation: 'transport_schedules_list',
      summary: 'List the daily schedule',
      description:
        'One entry per route and school day. Give `date`, or `from_date` and `to_date` (at most 100 days); with ' +
        'only one of the two, the list covers one week, and without any date the week from today. `search` matches ' +
        'the route. A student sees only the route in which they are enrolled.',
      response: page(
        ScheduledRoute,
        { date: date.optional(), from_date: date.optional(), to_date: date.optional(), ...resourceFilters },
        { maxDays: 100 },
      ),
    },
    'GET /exceptions': {
      operation: 'transport_exceptions_list',
      summary: 'List exceptions',
      description: '`search` matches route, bus, driver and reason.',
      response: page(
        Exception,
        { ...resourceFilters, kind: kind.optional(), from_date: date.optional(), to_date: date.optional() },
        { maxDays: 3660 },
      ),
    },
    'POST /exceptions': {
      operation: 'transport_exceptions_create',
      summary: 'Cancel a route on a day, or replace its bus or driver',
      description:
        '409 `conflict` if the route already has an exception on that day. 409 `schedule_conflict` lists every ' +
        'conflict of a replacement, including routes that the bus serves by default.',
      body: ExceptionInput,
      response: created(Exception),
    },
    'GET /exceptions/:id': {
      operation: 'transport_exceptions_get',
      summary: 'Get an exception',
      response: json(Exception),
    },
    'DELETE /exceptions/:id': {
      operation: 'transport_exceptions_delete',
      summary: 'Delete an exception',
      description:
        'Restores the planned schedule of the day. 409 `schedule_conflict` if the bus or driver of a cancelled ' +
        'route is used elsewhere on that day.',
      response: json(Deleted),
    },
    'GET /conflict-check': {
      operation: 'transport_conflict_check',
      summary: 'Check for conflicts',
      description:
        'By default from today for one week; with one of the two dates, the week that begins or ends with it. With ' +
        'a bus or driver: the conflicts that `POST /api/transport/bus-assignments` or, with kind `replacement`, ' +
        '`POST /api/transport/schedules/exceptions` would report for these days, for one route (`route_id`) or any. ' +
        'Without a bus or driver: the conflicts in the existing plan of the route or of all routes.',
      query: dateRange(
        z.strictObject({
          ...resourceFilters,
          from_date: date.optional(),
          to_date: date.optional(),
          kind: choice(['assignment', 'replacement'])
            .optional()
            .meta({
              description:
                'A replacement cannot use a bus or driver that serves another route. An assignment overrides the ' +
                'defaults of other routes. Defaults to `assignment`.',
            }),
        }),
        366,
      ),
      response: json(Conflicts),
    },
  },
);

const assignmentFields = {
  bus_id: id,
  driver_id: id,
  staff_id: id.nullish().meta({ description: 'The attendant on the bus.' }),
  starts_on: dateOf('school', 'First day; defaults to today.').optional(),
  ends_on: dateOf('school', 'Last day; null means open-ended.').nullish(),
};
const AssignmentInput = z.strictObject({ route_id: id, ...assignmentFields }).meta({ id: 'BusAssignmentInput' });
const AssignmentChange = z.strictObject(assignmentFields).partial().meta({
  id: 'BusAssignmentChange',
  description: 'Any subset of the fields. The route cannot be changed.',
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
    is_current: z.boolean().meta({ description: 'Whether the assignment covers today.' }),
    ...timestamps,
  })
  .meta({ id: 'BusAssignment' });

export const transportAssignments = resource(
  '/transport/bus-assignments',
  'Bus assignments',
  'Assignments of a bus, a driver and an attendant to a route for a period.',
  {
    'GET /': {
      operation: 'transport_assignments_list',
      summary: 'List assignments',
      description: '`search` matches bus, route, driver and attendant.',
      response: page(Assignment, {
        ...resourceFilters,
        staff_id: pathId.optional(),
        date: date.optional().meta({ description: 'Assignments that cover this day.' }),
      }),
    },
    'POST /': {
      operation: 'transport_assignments_create',
      summary: 'Assign a bus, a driver and an attendant to a route',
      description:
        'During its period the assignment overrides the default bus and driver of routes. 409 `schedule_conflict` ' +
        'lists every conflict: a bus, driver or attendant that is busy elsewhere, documents that are not valid ' +
        'until `ends_on` (or on the first day of an open-ended assignment), or too few seats for the enrolled ' +
        'students.',
      body: AssignmentInput,
      response: created(Assignment),
    },
    'GET /:id': { operation: 'transport_assignments_get', summary: 'Get an assignment', response: json(Assignment) },
    'PUT /:id': {
      operation: 'transport_assignments_update',
      summary: 'Update an assignment',
      description:
        'Set `ends_on` to end the assignment. 409 `schedule_conflict` as on create, unless the change only shortens ' +
        'the period.',
      body: AssignmentChange,
      response: json(Assignment),
    },
    'DELETE /:id': {
      operation: 'transport_assignments_delete',
      summary: 'Delete a future assignment',
      description: '409 `invalid_state` if the assignment began before today. Set `ends_on` to end it instead.',
      response: json(Deleted),
    },
  },
);
