import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { date, dateOf, Deleted, flag, id, nameText, optionalNameText, timestamps } from '../http/schemas.ts';

const fields = {
  registration_number: nameText(50).meta({
    description: 'Unique within the school, ignoring case.',
    examples: ['LX21 ABC'],
  }),
  capacity: z
    .int()
    .min(1)
    .max(500)
    .meta({ description: 'Seats for students.', examples: [40] }),
  model: optionalNameText(100).meta({ examples: ['Iveco Daily'] }),
  insurance_expires_on: dateOf('validity', 'Last day of insurance cover.').nullish(),
  fitness_expires_on: dateOf('validity', 'Last day on which the fitness certificate is valid.').nullish(),
  is_active: z.boolean().optional().meta({ description: 'Whether the bus is in service.' }),
};

const BusInput = z.strictObject(fields).meta({ id: 'BusInput' });
const BusChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'BusChange', description: 'Any subset of the fields of a bus.' });

const bus = {
  id,
  registration_number: z.string(),
  capacity: z.int(),
  model: z.string().nullable(),
  insurance_expires_on: date.nullable(),
  fitness_expires_on: date.nullable(),
  is_active: z.boolean(),
};
export const Bus = z.object({ ...bus, ...timestamps }).meta({ id: 'Bus' });

const route = z
  .object({
    id,
    name: z.string(),
    code: z.string().nullable(),
    is_assigned: z.boolean().meta({ description: 'Whether the route has a bus assignment today.' }),
    status: z
      .enum(['planned', 'cancelled', 'replaced'])
      .meta({ description: 'cancelled: the route does not run today; replaced: it runs with another bus or driver.' }),
    driver_id: id.nullable(),
    driver_name: z.string().nullable(),
    driver_phone: z.string().nullable(),
    staff_id: id.nullable(),
    staff_name: z.string().nullable(),
    student_count: z.int(),
    pickup_count: z.int().meta({ description: 'Students who ride to school.' }),
    drop_count: z.int().meta({ description: 'Students who ride home.' }),
  })
  .meta({ id: 'BusRoute' });

export const BusDetail = z
  .object({
    ...bus,
    route: route.nullable().meta({ description: "Today's route; the first one if the bus runs several." }),
    routes: z.array(route).meta({
      description: 'All routes that the bus runs today according to the schedule.',
    }),
    student_count: z.int().meta({ description: 'Students enrolled in these routes.' }),
    documents: z
      .array(
        z.object({
          kind: z.enum(['insurance', 'fitness']),
          expires_on: date,
          days_left: z.int(),
          is_expired: z.boolean(),
        }),
      )
      .meta({ description: 'Ordered by expiry date.' }),
    assignments: z
      .array(
        z.object({
          id,
          route_id: id,
          route_name: z.string(),
          driver_id: id,
          driver_name: z.string(),
          starts_on: date,
          ends_on: date.nullable(),
        }),
      )
      .meta({ description: 'Current and future assignments.' }),
    ...timestamps,
  })
  .meta({ id: 'BusDetail' });

export const transportBuses = resource(
  '/transport/buses',
  'Buses',
  'Buses, their routes and the validity of their documents.',
  {
    'GET /': {
      operation: 'transport_buses_list',
      summary: 'List buses',
      description: '`search` matches the registration number and the model.',
      response: page(Bus, {
        is_active: flag.optional(),
        expires_before: date
          .optional()
          .meta({ description: 'Insurance or fitness certificate expires before this day.' }),
      }),
    },
    'POST /': {
      operation: 'transport_buses_create',
      summary: 'Create a bus',
      description: '409 `conflict` if another bus has this registration number.',
      body: BusInput,
      response: created(Bus),
    },
    'GET /:id': { operation: 'transport_buses_get', summary: 'Get a bus', response: json(Bus) },
    'PUT /:id': {
      operation: 'transport_buses_update',
      summary: 'Update a bus',
      description: '409 `conflict` if the new capacity is below the number of students on one of the two trips.',
      body: BusChange,
      response: json(Bus),
    },
    'DELETE /:id': {
      operation: 'transport_buses_delete',
      summary: 'Delete a bus',
      description:
        'The history is kept and the registration number can be used again. 409 `in_use` while a route uses the bus ' +
        'or an assignment has not ended.',
      response: json(Deleted),
    },
    'GET /:id/details': {
      operation: 'transport_buses_details',
      summary: 'Get a bus with its routes',
      description:
        "Today's routes with their drivers and student counts, the documents and the assignments of the bus.",
      response: json(BusDetail),
    },
  },
);
