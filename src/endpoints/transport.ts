import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { exporter, exportFormat, exportTypes, studentColumns } from '../http/exports.ts';
import { amount, date, dayHoliday, Deleted, id, money, page, pathId, text, timestamps } from '../http/schemas.ts';
import { frequency } from './fee-structures.ts';
import { Generated } from './student-fees.ts';
import { kilometres } from './transport-routes.ts';

const name = z.string().nullable();
const total = { total: z.int(), active: z.int() };
const counts = { student_count: z.int(), pickup_count: z.int(), drop_count: z.int() };

export const Dashboard = z
  .object({
    date,
    is_school_day: z.boolean(),
    holiday: dayHoliday,
    buses: z.object({ ...total, seats: z.int().meta({ description: 'Of those in service.' }) }),
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
          seats_left: z.int().nullable().meta({ description: 'On the fuller of the two ways; null without a bus.' }),
          percent: z.number().nullable(),
        }),
      )
      .meta({ description: 'Each active route with the bus of today.' }),
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
      .meta({ description: 'Routes that are cancelled today, or run with another bus or driver.' }),
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
          'Papers of buses and drivers in service that expire within 30 days or have expired, the first to expire first.',
      }),
    without_bus: z
      .array(z.object({ route_id: id, route_name: z.string(), student_count: z.int() }))
      .meta({ description: 'Routes that students ride and no bus runs today.' }),
    inactive_students: z
      .array(
        z.object({ enrollment_id: id, student_id: id, student_name: z.string(), route_id: id, route_name: z.string() }),
      )
      .meta({ description: 'Students who have a seat and are not active.' }),
  })
  .meta({ id: 'TransportDashboard' });

const planFields = {
  name: text(100).meta({ description: 'Unique among the fee structures of the year.', examples: ['Bus, up to 5 km'] }),
  route_id: id.nullish().meta({ description: 'For who rides this route.' }),
  min_km: kilometres.nullish().meta({ description: 'For routes of this length or more.', examples: [0] }),
  max_km: kilometres.nullish().meta({ description: 'For routes below this length.', examples: [5] }),
  amount: money,
  frequency,
};
const isByOne = ({
  route_id,
  min_km,
  max_km,
}: {
  route_id?: number | null | undefined;
  min_km?: number | null | undefined;
  max_km?: number | null | undefined;
}) => (route_id ?? null) === null || ((min_km ?? null) === null && (max_km ?? null) === null);
const byOne = { path: ['route_id'], message: 'is not given beside min_km or max_km' };
const isRange = ({ min_km, max_km }: { min_km?: number | null | undefined; max_km?: number | null | undefined }) =>
  (max_km ?? null) === null || Number(max_km) > (min_km ?? 0);
const range = { path: ['max_km'], message: 'must be more than min_km' };

const FeePlanInput = z
  .strictObject({
    ...planFields,
    academic_year_id: id.optional().meta({ description: 'The current one when it is not given.' }),
  })
  .refine(isByOne, byOne)
  .refine(isRange, range)
  .meta({ id: 'TransportFeePlanInput', description: 'By route, by the length of routes, or for all who ride.' });
const FeePlanChange = z.strictObject(planFields).partial().refine(isByOne, byOne).refine(isRange, range).meta({
  id: 'TransportFeePlanChange',
  description: 'Any of the fields; those that are not named stay, and so does the academic year.',
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
      description: 'The fee structure behind it: what was billed is found by it in student fees.',
    }),
    student_count: z.int().meta({ description: 'Who rides today and would be billed.' }),
    ...timestamps,
  })
  .meta({ id: 'TransportFeePlan' });

const GenerateFees = z
  .strictObject({
    date: date.optional().meta({
      description:
        'A day of the academic year: who rides on it is billed, for the month, quarter, term or year that contains it. Today when it is not given, or the nearer end of the year.',
      examples: [`${String(new Date().getUTCFullYear())}-09-01`],
    }),
    due_date: date.optional().meta({ description: '30 days after `date` when it is not given.' }),
    dry_run: z.boolean().optional().meta({ description: 'Only says what it would come to.' }),
  })
  .meta({ id: 'GenerateTransportFees' });

export const transport = resource('/transport', 'Transport', 'Transport in figures, what it costs, and whom to call.', {
  'GET /dashboard': {
    operation: 'transport_dashboard',
    summary: 'Read the dashboard of transport',
    description:
      'What there is, how full each route is, what is not as planned today, papers that expire, routes without a bus, inactive students with a seat.',
    answer: Dashboard,
  },
  'GET /fee-plans': {
    operation: 'transport_fee_plans_list',
    summary: 'List fee plans',
    description: 'Searches the name.',
    query: page({ route_id: pathId.optional(), academic_year_id: pathId.optional() }, ['name', 'amount', 'created_at']),
    answer: FeePlan,
    isPage: true,
  },
  'POST /fee-plans': {
    operation: 'transport_fee_plans_create',
    summary: 'Add a fee plan',
    description: 'It is a fee structure with one component; 409 when the academic year has one of this name.',
    body: FeePlanInput,
    answer: FeePlan,
    isCreate: true,
  },
  'GET /fee-plans/:id': { operation: 'transport_fee_plans_get', summary: 'Read a fee plan', answer: FeePlan },
  'PUT /fee-plans/:id': {
    operation: 'transport_fee_plans_update',
    summary: 'Change a fee plan',
    description:
      'What was billed keeps its name and amount. 409 `in_use` for another frequency once fees were billed by it.',
    body: FeePlanChange,
    answer: FeePlan,
  },
  'DELETE /fee-plans/:id': {
    operation: 'transport_fee_plans_delete',
    summary: 'Remove a fee plan',
    description: '409 `in_use` once fees were billed by it.',
    answer: Deleted,
  },
  'POST /fee-plans/:id/generate': {
    operation: 'transport_fee_plans_generate',
    summary: 'Bill who rides',
    description:
      'Makes student fees as `POST /api/finance/student-fees/generate` does, for who rides on a day by this plan. A period is billed once, so that a second run bills only who is new.',
    body: GenerateFees,
    answer: Generated,
  },
  'GET /export/contact-sheet': {
    operation: 'transport_contact_sheet',
    summary: 'Export whom to call',
    description:
      'A .csv or .xlsx of who rides, route by route, in the order of the stops: student, class, parent and phone, stop and times. Text that a spreadsheet program would take for a formula is neutralised.',
    query: z.strictObject({
      ...exportFormat,
      route_id: pathId.optional().meta({ description: 'Only this route; 404 when there is none.' }),
    }),
    bytes: exportTypes,
    handler: exporter('transport_contact_sheet', {
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
});
