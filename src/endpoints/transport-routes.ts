import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { clock, Deleted, flag, id, nameText, optionalNameText, pathId, timestamps, uniqueBy } from '../http/schemas.ts';

/** Kilometers with at most two decimals. More decimals are refused instead of rounded. */
export const kilometers = z
  .number()
  .min(0)
  .max(9999.99)
  .refine((km) => /^\d+(\.\d{1,2})?$/.test(String(km)), 'must have at most 2 decimals')
  .meta({ examples: [12.5] });

const routeFields = {
  name: nameText(100).meta({ examples: ['North'] }),
  code: optionalNameText(50).meta({ description: 'Unique within the school, ignoring case.', examples: ['N1'] }),
  start_point: optionalNameText(200),
  end_point: optionalNameText(200),
  distance_km: kilometers.nullish(),
  bus_id: id.nullish().meta({ description: 'Default bus, used on days without a bus assignment.' }),
  driver_id: id.nullish().meta({ description: 'Default driver, used on days without a bus assignment.' }),
  is_active: z.boolean().optional().meta({ description: 'Whether the route is in service.' }),
};
const RouteInput = z.strictObject(routeFields).meta({ id: 'RouteInput' });
const RouteChange = z
  .strictObject(routeFields)
  .partial()
  .meta({ id: 'RouteChange', description: 'Any subset of the fields of a route.' });

const count = z.int().nullable().meta({ description: 'Null when a student reads it.' });
export const Route = z
  .object({
    id,
    name: z.string(),
    code: z.string().nullable(),
    start_point: z.string().nullable(),
    end_point: z.string().nullable(),
    distance_km: z.number().nullable(),
    bus_id: id.nullable(),
    bus_registration_number: z.string().nullable(),
    driver_id: id.nullable(),
    driver_name: z.string().nullable(),
    is_active: z.boolean(),
    today: z
      .object({
        status: z.enum(['planned', 'cancelled', 'replaced']),
        reason: z.string().nullable(),
        bus_id: id.nullable(),
        bus_registration_number: z.string().nullable(),
        driver_id: id.nullable(),
        driver_name: z.string().nullable(),
        driver_phone: z.string().nullable(),
        staff_id: id.nullable(),
        staff_name: z.string().nullable(),
      })
      .nullable()
      .meta({
        description:
          "Today's bus and driver: from today's exception, else from the assignment, else the defaults of the " +
          'route. Null if the route is inactive.',
      }),
    stop_count: z.int(),
    capacity: z
      .int()
      .nullable()
      .meta({
        description:
          'Seats of the smallest bus that serves the route from today on. Null without a bus and when a student ' +
          'reads it.',
      }),
    student_count: count,
    pickup_count: count,
    drop_count: count,
    ...timestamps,
  })
  .meta({ id: 'Route' });

const sequence = z
  .int()
  .min(1)
  .max(1000)
  .meta({
    description:
      'Position on the way to school, from 1. Inserting a stop moves the following ones; a number beyond the end ' +
      'appends.',
    examples: [1],
  });
const stopFields = {
  name: nameText(100).meta({ examples: ['Oak Street'] }),
  sequence: sequence.optional(),
  pickup_time: clock.nullish().meta({ description: 'On the way to school, `HH:MM`. Must increase from stop to stop.' }),
  drop_time: clock.nullish().meta({
    description: 'On the way home, `HH:MM`. Must increase or decrease consistently along the route.',
    examples: ['15:45'],
  }),
  latitude: z
    .number()
    .min(-90)
    .max(90)
    .nullish()
    .meta({ examples: [51.5014] }),
  longitude: z
    .number()
    .min(-180)
    .max(180)
    .nullish()
    .meta({ examples: [-0.1419] }),
};
const StopInput = z.strictObject({ route_id: id, ...stopFields }).meta({ id: 'StopInput' });
const StopChange = z.strictObject(stopFields).partial().meta({
  id: 'StopChange',
  description: 'Any subset of the fields of a stop. The route cannot be changed.',
});

export const Stop = z
  .object({
    id,
    route_id: id,
    route_name: z.string(),
    name: z.string(),
    sequence: z.int(),
    pickup_time: clock.nullable(),
    drop_time: clock.nullable(),
    latitude: z.number().nullable(),
    longitude: z.number().nullable(),
    student_count: count,
    ...timestamps,
  })
  .meta({ id: 'Stop' });

const StopOrder = z
  .strictObject({
    stop_ids: z
      .array(id)
      .min(1)
      .max(1000)
      .superRefine(uniqueBy<number>())
      .meta({ description: 'Every stop of the route exactly once, in the new order.' }),
  })
  .meta({ id: 'StopOrder' });

export const transportRoutes = resource(
  '/transport/routes',
  'Routes',
  'Bus routes. A student sees only the route in which they are enrolled.',
  {
    'GET /': {
      operation: 'transport_routes_list',
      summary: 'List routes',
      description: '`search` matches name, code, start and end point.',
      response: page(Route, {
        bus_id: pathId.optional().meta({ description: "The default bus of the route or today's bus." }),
        driver_id: pathId.optional().meta({ description: "The default driver of the route or today's driver." }),
        is_active: flag.optional(),
      }),
    },
    'POST /': {
      operation: 'transport_routes_create',
      summary: 'Create a route',
      description: '409 `conflict` if another route has this code.',
      body: RouteInput,
      response: created(Route),
    },
    'GET /:id': { operation: 'transport_routes_get', summary: 'Get a route', response: json(Route) },
    'PUT /:id': {
      operation: 'transport_routes_update',
      summary: 'Update a route',
      description: '409 `conflict` if the bus has fewer seats than there are students on one of the two trips.',
      body: RouteChange,
      response: json(Route),
    },
    'DELETE /:id': {
      operation: 'transport_routes_delete',
      summary: 'Delete a route',
      description: 'Also deletes its stops. 409 `in_use` while students are enrolled or an assignment has not ended.',
      response: json(Deleted),
    },
    'GET /:id/stops': {
      operation: 'transport_routes_stops',
      summary: 'List the stops of a route',
      description: 'Ordered by sequence. `search` matches the name.',
      response: page(Stop),
    },
    'POST /:id/stops/reorder': {
      operation: 'transport_routes_reorder',
      summary: 'Reorder the stops of a route',
      description:
        'Takes all stops of the route and returns them in their new order. Times stay with the positions: the new ' +
        'second stop gets the times of the old second stop. 422 `invalid_reference` for a stop of another route.',
      body: StopOrder,
      response: json(z.array(Stop)),
    },
  },
);

export const transportStops = resource(
  '/transport/stops',
  'Stops',
  'Bus stops and their times. A student sees only the stops of the route in which they are enrolled.',
  {
    'GET /': {
      operation: 'transport_stops_list',
      summary: 'List stops',
      description: 'Ordered by route and sequence. `search` matches the names of stop and route.',
      response: page(Stop, { route_id: pathId.optional() }),
    },
    'POST /': {
      operation: 'transport_stops_create',
      summary: 'Create a stop',
      description:
        'Appends the stop to its route or inserts it at `sequence`. 409 `conflict` if its times would go backwards ' +
        'along the route.',
      body: StopInput,
      response: created(Stop),
    },
    'GET /:id': { operation: 'transport_stops_get', summary: 'Get a stop', response: json(Stop) },
    'PUT /:id': {
      operation: 'transport_stops_update',
      summary: 'Update a stop',
      description: 'A new `sequence` moves the stop. 409 `conflict` if its times would go backwards along the route.',
      body: StopChange,
      response: json(Stop),
    },
    'DELETE /:id': {
      operation: 'transport_stops_delete',
      summary: 'Delete a stop',
      description: 'The following stops move up. 409 `in_use` while students board at the stop.',
      response: json(Deleted),
    },
  },
);
