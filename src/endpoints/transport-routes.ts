import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { clock, Deleted, flag, id, optionalText, page, pathId, text, timestamps, uniqueBy } from '../http/schemas.ts';

/** A length, as it is written: nothing is rounded. */
export const kilometres = z
  .number()
  .min(0)
  .max(9999.99)
  .refine((km) => /^\d+(\.\d{1,2})?$/.test(String(km)), 'must have at most 2 decimals')
  .meta({ examples: [12.5] });

const routeFields = {
  name: text(100).meta({ examples: ['North'] }),
  code: optionalText(50).meta({ description: 'Unique in the school, in any case.', examples: ['N1'] }),
  start_point: optionalText(200),
  end_point: optionalText(200),
  distance_km: kilometres.nullish(),
  bus_id: id.nullish().meta({ description: 'The bus that runs it on days without an assignment.' }),
  driver_id: id.nullish().meta({ description: 'Who drives on days without an assignment.' }),
  is_active: z.boolean().optional().meta({ description: 'Whether it runs.' }),
};
const RouteInput = z.strictObject(routeFields).meta({ id: 'RouteInput' });
const RouteChange = z
  .strictObject(routeFields)
  .partial()
  .meta({ id: 'RouteChange', description: 'Any of the fields of a route; those that are not named stay.' });

const count = z.int().nullable().meta({ description: 'Null to a student.' });
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
          'What runs it today: the exception of the day, else its assignment, else its own bus and driver. Null when it is not active.',
      }),
    stop_count: z.int(),
    capacity: z.int().nullable().meta({
      description: 'Seats of the smallest bus that runs it from today on; null without a bus, and to a student.',
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
    description: 'Its place on the way to school, from 1; the stops from there on move. Beyond the end is last.',
    examples: [1],
  });
const stopFields = {
  name: text(100).meta({ examples: ['Oak Street'] }),
  sequence: sequence.optional(),
  pickup_time: clock.nullish().meta({ description: 'On the way to school, `HH:MM`; rises from stop to stop.' }),
  drop_time: clock
    .nullish()
    .meta({ description: 'On the way home, `HH:MM`; rises along the route, or falls along it.', examples: ['15:45'] }),
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
  description: 'Any of the fields of a stop; those that are not named stay, and so does the route.',
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
      .meta({ description: 'Each stop of the route once, in the new order.' }),
  })
  .meta({ id: 'StopOrder' });

export const transportRoutes = resource(
  '/transport/routes',
  'Routes',
  'The rounds that buses make. A student sees the route that they ride.',
  {
    'GET /': {
      operation: 'transport_routes_list',
      summary: 'List routes',
      description: 'Searches name, code and both ends.',
      query: page(
        {
          bus_id: pathId.optional().meta({ description: 'Its own bus, or the one of today.' }),
          driver_id: pathId.optional().meta({ description: 'Its own driver, or the one of today.' }),
          is_active: flag.optional(),
        },
        ['name', 'code', 'distance_km', 'created_at'],
      ),
      answer: Route,
      isPage: true,
    },
    'POST /': {
      operation: 'transport_routes_create',
      summary: 'Add a route',
      description: '409 when another one has its code.',
      body: RouteInput,
      answer: Route,
      isCreate: true,
    },
    'GET /:id': { operation: 'transport_routes_get', summary: 'Read a route', answer: Route },
    'PUT /:id': {
      operation: 'transport_routes_update',
      summary: 'Change a route',
      description: '409 for a bus that has fewer seats than students ride on one of the two ways.',
      body: RouteChange,
      answer: Route,
    },
    'DELETE /:id': {
      operation: 'transport_routes_delete',
      summary: 'Remove a route',
      description: 'With its stops. 409 `in_use` while students ride it or an assignment has not ended.',
      answer: Deleted,
    },
    'GET /:id/stops': {
      operation: 'transport_routes_stops',
      summary: 'List the stops of a route',
      description: 'In their order. Searches the name.',
      query: page({}, ['sequence', 'name', 'pickup_time']),
      answer: Stop,
      isPage: true,
    },
    'POST /:id/stops/reorder': {
      operation: 'transport_routes_reorder',
      summary: 'Put the stops of a route in another order',
      description:
        'All of them at once; answers them in their new order. Times stay with the places, so that they still rise: the bus comes to the second stop when it came to the second before. 422 for a stop of another route.',
      body: StopOrder,
      answer: z.array(Stop),
    },
  },
);

export const transportStops = resource(
  '/transport/stops',
  'Stops',
  'Where buses stop, and when. A student sees those of the route that they ride.',
  {
    'GET /': {
      operation: 'transport_stops_list',
      summary: 'List stops',
      description: 'Route by route, in their order. Searches stop and route.',
      query: page({ route_id: pathId.optional() }, ['sequence', 'name', 'pickup_time']),
      answer: Stop,
      isPage: true,
    },
    'POST /': {
      operation: 'transport_stops_create',
      summary: 'Add a stop',
      description:
        'At the end of its route, or at a place of it. 409 for a time that would go backwards along the route.',
      body: StopInput,
      answer: Stop,
      isCreate: true,
    },
    'GET /:id': { operation: 'transport_stops_get', summary: 'Read a stop', answer: Stop },
    'PUT /:id': {
      operation: 'transport_stops_update',
      summary: 'Change a stop',
      description: 'Another sequence moves it there. 409 for a time that would go backwards along the route.',
      body: StopChange,
      answer: Stop,
    },
    'DELETE /:id': {
      operation: 'transport_stops_delete',
      summary: 'Remove a stop',
      description: 'Those after it move up. 409 `in_use` while students board there.',
      answer: Deleted,
    },
  },
);
