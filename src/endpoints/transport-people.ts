import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { leaving } from './parts/leaving.ts';
import { date, dateOf, Deleted, flag, id, nameText, optionalText, phone, timestamps } from '../http/schemas.ts';

const name = nameText(100).meta({ examples: ['Kofi Mensah'] });
const isActive = z.boolean().optional().meta({ description: 'Whether the person currently works for the school.' });

const driverFields = {
  name,
  phone,
  license_number: nameText(50).meta({
    description: 'Unique within the school, ignoring case.',
    examples: ['MENSA712116K99'],
  }),
  license_expires_on: dateOf('validity', 'Last day on which the license is valid.').nullish(),
  address: optionalText(500),
  ...leaving.input,
};
const DriverInput = z.strictObject(driverFields).meta({ id: 'DriverInput' });
const DriverChange = z
  .strictObject(driverFields)
  .partial()
  .meta({ id: 'DriverChange', description: 'Any subset of the fields of a driver.' });

export const Driver = z
  .object({
    id,
    name: z.string(),
    phone: z.string().nullable(),
    license_number: z.string(),
    license_expires_on: date.nullable(),
    address: z
      .string()
      .nullable()
      .meta({ description: 'Null for a teacher whose row scope is limited to the classes they teach.' }),
    ...leaving.output,
    ...timestamps,
  })
  .meta({ id: 'Driver' });

export const transportDrivers = resource('/transport/drivers', 'Drivers', 'Bus drivers.', {
  'GET /': {
    operation: 'transport_drivers_list',
    summary: 'List drivers',
    description: '`search` matches name, license number and phone.',
    response: page(Driver, {
      is_active: flag.optional(),
      expires_before: date.optional().meta({ description: 'The license expires before this day.' }),
    }),
  },
  'POST /': {
    operation: 'transport_drivers_create',
    summary: 'Create a driver',
    description: '409 `conflict` if another driver has this license number.',
    body: DriverInput,
    response: created(Driver),
  },
  'GET /:id': { operation: 'transport_drivers_get', summary: 'Get a driver', response: json(Driver) },
  'PUT /:id': {
    operation: 'transport_drivers_update',
    summary: 'Update a driver',
    body: DriverChange,
    response: json(Driver),
  },
  'DELETE /:id': {
    operation: 'transport_drivers_delete',
    summary: 'Delete a driver',
    description:
      'The history is kept and the license number can be used again. 409 `in_use` while a route uses the driver or ' +
      'an assignment has not ended.',
    response: json(Deleted),
  },
});

const role = choice(['attendant', 'supervisor', 'mechanic']);

const staffFields = { name, phone, role, is_active: isActive };
const StaffInput = z.strictObject(staffFields).meta({ id: 'TransportStaffInput' });
const StaffChange = z
  .strictObject(staffFields)
  .partial()
  .meta({ id: 'TransportStaffChange', description: 'Any subset of the fields.' });

const Staff = z
  .object({ id, name: z.string(), phone: z.string().nullable(), role, is_active: z.boolean(), ...timestamps })
  .meta({ id: 'TransportStaff' });

const trips = z
  .int()
  .meta({ description: 'Trips to and from school per week, counting only trips that have enrolled students.' });
export const Workload = z
  .object({
    staff_id: id,
    name: z.string(),
    role,
    is_active: z.boolean(),
    assigned_routes: z.int().meta({ description: 'Routes of current and future assignments.' }),
    trips_per_week: trips,
    student_count: z.int().meta({ description: "Students on today's routes." }),
    assignments: z.array(
      z.object({
        assignment_id: id,
        route_id: id,
        route_name: z.string(),
        bus_id: id,
        bus_registration_number: z.string(),
        starts_on: date,
        ends_on: date.nullable(),
        is_current: z.boolean(),
        student_count: z.int(),
        trips_per_week: trips,
      }),
    ),
  })
  .meta({ id: 'TransportWorkload' });

export const transportStaff = resource('/transport/staff', 'Transport staff', 'Transport staff other than drivers.', {
  'GET /': {
    operation: 'transport_staff_list',
    summary: 'List transport staff',
    description: '`search` matches name and phone.',
    response: page(Staff, { role: role.optional(), is_active: flag.optional() }),
  },
  'POST /': {
    operation: 'transport_staff_create',
    summary: 'Create a staff member',
    body: StaffInput,
    response: created(Staff),
  },
  'GET /:id': { operation: 'transport_staff_get', summary: 'Get a staff member', response: json(Staff) },
  'PUT /:id': {
    operation: 'transport_staff_update',
    summary: 'Update a staff member',
    body: StaffChange,
    response: json(Staff),
  },
  'DELETE /:id': {
    operation: 'transport_staff_delete',
    summary: 'Delete a staff member',
    description: 'The history is kept. 409 `in_use` while an assignment has not ended.',
    response: json(Deleted),
  },
  'GET /:id/workload': {
    operation: 'transport_staff_workload',
    summary: 'Get the workload of a staff member',
    description: 'Current and future route assignments, trips per week and student counts.',
    response: json(Workload),
  },
});
