import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { date, Deleted, flag, id, optionalText, page, text, timestamps } from '../http/schemas.ts';

const fields = {
  registration_number: text(50).meta({ description: 'Unique in the school, in any case.', examples: ['LX21 ABC'] }),
  capacity: z
    .int()
    .min(1)
    .max(500)
    .meta({ description: 'Seats for students.', examples: [40] }),
  model: optionalText(100).meta({ examples: ['Iveco Daily'] }),
  insurance_expires_on: date.nullish().meta({ description: 'The last day on which it is insured.' }),
  fitness_expires_on: date.nullish().meta({ description: 'The last day on which its fitness certificate is valid.' }),
  is_active: z.boolean().optional().meta({ description: 'Whether it is in service.' }),
};

const BusInput = z.strictObject(fields).meta({ id: 'BusInput' });
const BusChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'BusChange', description: 'Any of the fields of a bus; those that are not named stay.' });

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

const route = z.object({
  id,
  name: z.string(),
  code: z.string().nullable(),
  is_assigned: z.boolean().meta({ description: 'Whether the route has an assignment today.' }),
  status: z
    .enum(['planned', 'cancelled', 'replaced'])
    .meta({ description: 'cancelled: does not run today; replaced: today with another bus or driver.' }),
  driver_id: id.nullable(),
  driver_name: z.string().nullable(),
  driver_phone: z.string().nullable(),
  staff_id: id.nullable(),
  staff_name: z.string().nullable(),
  student_count: z.int(),
  pickup_count: z.int().meta({ description: 'How many ride to school.' }),
  drop_count: z.int().meta({ description: 'How many ride home.' }),
});

export const BusDetail = z
  .object({
    ...bus,
    route: route.nullable().meta({ description: 'The route that it runs today; the first, where there are several.' }),
    routes: z.array(route).meta({
      description: 'All routes that it runs today, as the schedule says: several share a bus that is their own.',
    }),
    student_count: z.int().meta({ description: 'The students who are enrolled in these routes.' }),
    documents: z
      .array(
        z.object({
          kind: z.enum(['insurance', 'fitness']),
          expires_on: date,
          days_left: z.int(),
          is_expired: z.boolean(),
        }),
      )
      .meta({ description: 'The first to expire first.' }),
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
      .meta({ description: 'Of today and to come.' }),
    ...timestamps,
  })
  .meta({ id: 'BusDetail' });

export const transportBuses = resource(
  '/transport/buses',
  'Buses',
  'The buses, what they run, and whether their papers are valid.',
  {
    'GET /': {
      operation: 'transport_buses_list',
      summary: 'List buses',
      description: 'Searches registration number and model.',
      query: page(
        {
          is_active: flag.optional(),
          expires_before: date.optional().meta({ description: 'Insurance or fitness expires before this day.' }),
        },
        ['registration_number', 'capacity', 'insurance_expires_on', 'fitness_expires_on', 'created_at'],
      ),
      answer: Bus,
      isPage: true,
    },
    'POST /': {
      operation: 'transport_buses_create',
      summary: 'Add a bus',
      description: '409 when another one has its registration number.',
      body: BusInput,
      answer: Bus,
      isCreate: true,
    },
    'GET /:id': { operation: 'transport_buses_get', summary: 'Read a bus', answer: Bus },
    'PUT /:id': {
      operation: 'transport_buses_update',
      summary: 'Change a bus',
      description: '409 for fewer seats than students ride on one of the two ways.',
      body: BusChange,
      answer: Bus,
    },
    'DELETE /:id': {
      operation: 'transport_buses_delete',
      summary: 'Remove a bus',
      description:
        'What it did stays, and its registration number is free again. 409 `in_use` while a route has it or an assignment has not ended.',
      answer: Deleted,
    },
    'GET /:id/details': {
      operation: 'transport_buses_details',
      summary: 'Read a bus with its routes',
      description:
        'The routes that it runs today, who drives, how many students are enrolled, its papers, its assignments.',
      answer: BusDetail,
    },
  },
);
