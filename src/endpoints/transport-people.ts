import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { date, Deleted, flag, id, optionalText, page, text, timestamps } from '../http/schemas.ts';

const name = text(100).meta({ examples: ['Kofi Mensah'] });
const phone = optionalText(50).meta({ examples: ['+44 20 7946 0123'] });
const isActive = z.boolean().optional().meta({ description: 'Whether they work at present.' });

const driverFields = {
  name,
  phone,
  license_number: text(50).meta({ description: 'Unique in the school, in any case.', examples: ['MENSA712116K99'] }),
  license_expires_on: date.nullish().meta({ description: 'The last day on which it is valid.' }),
  address: optionalText(500),
  is_active: isActive,
};
const DriverInput = z.strictObject(driverFields).meta({ id: 'DriverInput' });
const DriverChange = z
  .strictObject(driverFields)
  .partial()
  .meta({ id: 'DriverChange', description: 'Any of the fields of a driver; those that are not named stay.' });

export const Driver = z
  .object({
    id,
    name: z.string(),
    phone: z.string().nullable(),
    license_number: z.string(),
    license_expires_on: date.nullable(),
    address: z.string().nullable().meta({ description: 'Null to a teacher who only reaches the classes they teach.' }),
    is_active: z.boolean(),
    ...timestamps,
  })
  .meta({ id: 'Driver' });

export const transportDrivers = resource('/transport/drivers', 'Drivers', 'Who drives.', {
  'GET /': {
    operation: 'transport_drivers_list',
    summary: 'List drivers',
    description: 'Searches name, licence and phone.',
    query: page(
      {
        is_active: flag.optional(),
        expires_before: date.optional().meta({ description: 'The licence expires before this day.' }),
      },
      ['name', 'license_expires_on', 'created_at'],
    ),
    answer: Driver,
    isPage: true,
  },
  'POST /': {
    operation: 'transport_drivers_create',
    summary: 'Add a driver',
    description: '409 when another one has this licence.',
    body: DriverInput,
    answer: Driver,
    isCreate: true,
  },
  'GET /:id': { operation: 'transport_drivers_get', summary: 'Read a driver', answer: Driver },
  'PUT /:id': { operation: 'transport_drivers_update', summary: 'Change a driver', body: DriverChange, answer: Driver },
  'DELETE /:id': {
    operation: 'transport_drivers_delete',
    summary: 'Remove a driver',
    description:
      'What they did stays, and the licence number is free again. 409 `in_use` while a route has them or an assignment has not ended.',
    answer: Deleted,
  },
});

const role = z.enum(['attendant', 'supervisor', 'mechanic']);

const staffFields = { name, phone, role, is_active: isActive };
const StaffInput = z.strictObject(staffFields).meta({ id: 'TransportStaffInput' });
const StaffChange = z
  .strictObject(staffFields)
  .partial()
  .meta({ id: 'TransportStaffChange', description: 'Any of the fields; those that are not named stay.' });

const Staff = z
  .object({ id, name: z.string(), phone: z.string().nullable(), role, is_active: z.boolean(), ...timestamps })
  .meta({ id: 'TransportStaff' });

const trips = z
  .int()
  .meta({ description: 'Ways to and from school in a week, on its working days, as far as somebody rides.' });
export const Workload = z
  .object({
    staff_id: id,
    name: z.string(),
    role,
    is_active: z.boolean(),
    assigned_routes: z.int().meta({ description: 'Routes today and to come.' }),
    trips_per_week: trips,
    student_count: z.int().meta({ description: 'Students on the route of today.' }),
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

export const transportStaff = resource(
  '/transport/staff',
  'Transport staff',
  'Who works for transport without driving.',
  {
    'GET /': {
      operation: 'transport_staff_list',
      summary: 'List the staff of transport',
      description: 'Searches name and phone.',
      query: page({ role: role.optional(), is_active: flag.optional() }, ['name', 'role', 'created_at']),
      answer: Staff,
      isPage: true,
    },
    'POST /': {
      operation: 'transport_staff_create',
      summary: 'Add somebody to the staff',
      body: StaffInput,
      answer: Staff,
      isCreate: true,
    },
    'GET /:id': { operation: 'transport_staff_get', summary: 'Read one of the staff', answer: Staff },
    'PUT /:id': {
      operation: 'transport_staff_update',
      summary: 'Change one of the staff',
      body: StaffChange,
      answer: Staff,
    },
    'DELETE /:id': {
      operation: 'transport_staff_delete',
      summary: 'Remove one of the staff',
      description: 'What they did stays. 409 `in_use` while an assignment has not ended.',
      answer: Deleted,
    },
    'GET /:id/workload': {
      operation: 'transport_staff_workload',
      summary: 'Read how much somebody has to do',
      description: 'The routes they help on today and later, the trips of a week, the students.',
      answer: Workload,
    },
  },
);
