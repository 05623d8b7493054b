import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { exported, exportFormat } from './parts/exports.ts';
import { amount, date, dateOf, Deleted, id, money, nameText, pathId, timestamps } from '../http/schemas.ts';
import { frequency } from './fee-structures.ts';
import { Generated } from './student-fees.ts';
import { kilometers } from './transport-routes.ts';
import { dayHoliday } from './parts/school-day.ts';
import { studentColumns } from './parts/student-columns.ts';

const name = z.string().nullable();
const total = { total: z.int(), active: z.int() };
const counts = { student_count: z.int(), pickup_count: z.int(), drop_count: z.int() };

export const Dashboard = z
  .object({
    date,
    is_school_day: z.boolean(),
    holiday: dayHoliday,
    buses: z.object({ ...total, seats: z.int().meta({ description: 'Seats of the active buses.' }) }),
    drivers: z.object(total),
    staff: z.object(total),
    routes: z.object(total),
    enrollments: z.object({ active: z.int(), pickup: z.int(), drop: z.int() }),
    occupancy: z
      .array(
        z.object({
          route_id: id,
          route_name: z.string(),
          bus_id: id.nullable(),
          bus_registration_number: name,
          driver_id: id.nullable(),
          driver_name: name,
          capacity: z.int().nullable(),
          ...counts,
          seats_left: z
            .int()
            .nullable()
            .meta({ description: 'Free seats on the fuller of the two trips (pickup or drop); null without a bus.' }),
          percent: z.number().nullable(),
        }),
      )
      .meta({ description: "Each active route with today's bus." }),
    exceptions: z
      .array(
        z.object({
          id,
          route_id: id,
          route_name: z.string(),
          kind: z.enum(['cancelled', 'replaced']),
          bus_id: id.nullable(),
          bus_registration_number: name,
          driver_id: id.nullable(),
          driver_name: name,
          reason: name,
          student_count: z.int(),
        }),
      )
      .meta({ description: 'Routes that are cancelled today or run with a replacement bus or driver.' }),
    expiring: z
      .array(
        z.object({
          kind: z.enum(['insurance', 'fitness', 'license']),
          bus_id: id.nullable(),
          driver_id: id.nullable(),
          name: z.string().meta({ description: 'The registration number of the bus, or the name of the driver.' }),
          expires_on: date,
          days_left: z.int(),
          is_expired: z.boolean(),
        }),
      )
      .meta({
        description:
          'Documents of active buses and drivers that expire within 30 days or have expired, ordered by expiry date.',
      }),
    without_bus: z
      .array(z.object({ route_id: id, route_name: z.string(), student_count: z.int() }))
      .meta({ description: 'Routes that have enrolled students but no bus today.' }),
    inactive_students: z
      .array(
        z.object({ enrollment_id: id, student_id: id, student_name: z.string(), route_id: id, route_name: z.string() }),
      )
      .meta({
        description: 'Always empty: the seat of a student ends when they leave. Kept for clients that read it.',
      }),
  })
  .meta({ id: 'TransportDashboard' });

const planFields = {
  name: nameText(100).meta({
    description: 'Unique among the fee structures of the year.',
    examples: ['Bus, up to 5 km'],
  }),
  route_id: id.nullish().meta({ description: 'Applies to students who ride this route.' }),
  min_km: kilometers.nullish().meta({ description: 'Applies to routes of at least this length.', examples: [0] }),
  max_km: kilometers.nullish().meta({ description: 'Applies to routes shorter than this length.', examples: [5] }),
  amount: money,
  frequency,
};
const hasOneCriterion = ({
  route_id,
  min_km,
  max_km,
}: {
  route_id?: number | null | undefined;
  min_km?: number | null | undefined;
  max_km?: number | null | undefined;
}) => (route_id ?? null) === null || ((min_km ?? null) === null && (max_km ?? null) === null);
const oneCriterion = { path: ['route_id'], message: 'cannot be combined with min_km or max_km' };
const isValidRange = ({ min_km, max_km }: { min_km?: number | null | undefined; max_km?: number | null | undefined }) =>
  (max_km ?? null) === null || Number(max_km) > (min_km ?? 0);
const rangeError = { path: ['max_km'], message: 'must be more than min_km' };

const FeePlanInput = z
  .strictObject({
    ...planFields,
    academic_year_id: id.optional().meta({ description: 'Defaults to the current academic year.' }),
  })
  .refine(hasOneCriterion, oneCriterion)
  .refine(isValidRange, rangeError)
  .meta({
    id: 'TransportFeePlanInput',
    description: 'Applies to one route, to routes within a range of lengths, or to every enrolled student.',
  });
const FeePlanChange = z
  .strictObject(planFields)
  .partial()
  .refine(hasOneCriterion, oneCriterion)
  .refine(isValidRange, rangeError)
  .meta({
    id: 'TransportFeePlanChange',
    description: 'Any subset of the fields. The academic year cannot be changed.',
  });

export const FeePlan = z
  .object({
    id,
    name: z.string(),
    academic_year_id: id,
    academic_year_name: z.string(),
    route_id: id.nullable(),
    route_name: name,
    min_km: z.number().nullable(),
    max_km: z.number().nullable(),
    amount,
    frequency,
    fee_structure_id: id.meta({
      description: 'The fee structure that bills this plan; filter student fees by it.',
    }),
    student_count: z.int().meta({ description: 'Enrolled students whom the plan would bill today.' }),
    ...timestamps,
  })
  .meta({ id: 'TransportFeePlan' });

const GenerateFees = z
  .strictObject({
    date: dateOf(
      'school',
      'A day of the academic year. Students enrolled on that day are billed for the month, quarter, half-year, ' +
        'term or year that contains it. Defaults to today, or to the first or last day of the year if today is ' +
        'outside it.',
    ).optional(),
    due_date: dateOf('due', 'Defaults to 30 days after `date`.').optional(),
    dry_run: z.boolean().optional().meta({ description: 'If true, returns the result without saving anything.' }),
  })
  .meta({ id: 'GenerateTransportFees' });

export const transport = resource(
  '/transport',
  'Transport',
  'Dashboard, fee plans and contact sheet of school transport.',
  {
    'GET /dashboard': {
      operation: 'transport_dashboard',
      summary: 'Get the transport dashboard',
      description:
        "Totals, occupancy of each route, today's exceptions, expiring documents, routes without a bus, and " +
        'inactive students who are still enrolled.',
      response: json(Dashboard),
    },
    'GET /fee-plans': {
      operation: 'transport_fee_plans_list',
      summary: 'List fee plans',
      description: '`search` matches the name.',
      response: page(FeePlan, { route_id: pathId.optional(), academic_year_id: pathId.optional() }),
    },
    'POST /fee-plans': {
      operation: 'transport_fee_plans_create',
      summary: 'Create a fee plan',
      description:
        'Creates a fee structure with one component. 409 `conflict` if the academic year already has a fee ' +
        'structure of this name.',
      body: FeePlanInput,
      response: created(FeePlan),
    },
    'GET /fee-plans/:id': { operation: 'transport_fee_plans_get', summary: 'Get a fee plan', response: json(FeePlan) },
    'PUT /fee-plans/:id': {
      operation: 'transport_fee_plans_update',
      summary: 'Update a fee plan',
      description:
        'Fees that are already billed keep their name and amount. 409 `in_use` if the frequency changes after fees ' +
        'were billed.',
      body: FeePlanChange,
      response: json(FeePlan),
    },
    'DELETE /fee-plans/:id': {
      operation: 'transport_fee_plans_delete',
      summary: 'Delete a fee plan',
      description: '409 `in_use` if fees were billed with this plan.',
      response: json(Deleted),
    },
    'POST /fee-plans/:id/generate': {
      operation: 'transport_fee_plans_generate',
      summary: 'Bill enrolled students',
      description:
        'Generates student fees, like `POST /api/finance/student-fees/generate`, for the students to whom the plan ' +
        'applies on the given day. Each period is billed once per student, so a second run bills only newly ' +
        'enrolled students.',
      body: GenerateFees,
      response: json(Generated),
    },
    'GET /export/contact-sheet': {
      operation: 'transport_contact_sheet',
      summary: 'Export the contact sheet',
      description:
        'A .csv or .xlsx file of the enrolled students by route and stop: student, class, parent, phone, stop and ' +
        'times. Text that a spreadsheet program would read as a formula is neutralized.',
      query: z.strictObject({
        ...exportFormat,
        route_id: pathId.optional().meta({ description: 'Only this route; 404 if it does not exist.' }),
      }),
      response: exported('transport_contact_sheet', {
        name: 'transport-contacts',
        pageRows: 5000,
        columns: [
          { header: 'Route', type: 'text', width: 20 },
          { header: 'Bus', type: 'text', width: 14 },
          { header: 'Place', type: 'number' },
          { header: 'Stop', type: 'text', width: 24 },
          { header: 'Pickup', type: 'text' },
          { header: 'Drop', type: 'text' },
          studentColumns.student,
          studentColumns.admissionNumber,
          studentColumns.class,
          { header: 'Rides', type: 'text' },
          { header: 'Parent', type: 'text', width: 30 },
          { header: 'Parent phone', type: 'text', width: 20 },
        ],
      }),
    },
  },
);
