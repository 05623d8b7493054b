import { z } from 'zod';
import { choice } from '../http/coercion.ts';
import { exported, exportFormat } from './parts/exports.ts';
import { json, resource } from '../http/endpoint.ts';
import { date, digits, id, pathId } from '../http/schemas.ts';

const count = z.int();
/** Null: nothing was recorded. */
const recorded = count.nullable();
const bytes = recorded.meta({ description: 'Bytes of all files: pictures and documents.' });

const flows = {
  active_users: recorded.meta({
    description: 'Users who logged in, refreshed their login or used an API key on a day. In a month: the average.',
  }),
  requests: recorded.meta({ description: 'Requests with a login or an API key.' }),
  messages: recorded.meta({ description: 'Emails and push messages sent.' }),
};

export const Usage = z
  .object({
    tenant_id: id.nullable(),
    current: z
      .object({
        students: count.meta({ description: 'Active students.' }),
        teachers: count.meta({ description: 'Active teachers.' }),
        storage_bytes: bytes,
        max_students: count,
        max_teachers: count,
      })
      .meta({ description: 'The usage now, and the limits of the plan. For several schools: the sums.' }),
    months: z
      .array(
        z.object({
          month: z.string().meta({ examples: ['2026-09'] }),
          students: recorded,
          teachers: recorded,
          storage_bytes: bytes,
          ...flows,
          most_active_users: recorded.meta({ description: 'The highest number of active users on a day.' }),
        }),
      )
      .meta({
        description:
          'Students, teachers and storage: the highest number of the month. Before usage was recorded, students are ' +
          'those enrolled in a class at the end of the month. Null: not recorded.',
      }),
    days: z.array(z.object({ date, ...flows })).meta({ description: 'The last 31 days. Today is not complete.' }),
    near_limit: z
      .array(
        z.object({
          tenant_id: id,
          name: z.string(),
          plan: z.string().meta({ examples: ['Standard'] }),
          students: count,
          max_students: count,
          teachers: count,
          max_teachers: count,
          used_share: z.number().meta({ description: 'The larger share of the two limits.', examples: [0.94] }),
        }),
      )
      .meta({ description: 'Schools that use 80% or more of a limit of their plan; at most 10.' }),
  })
  .meta({ id: 'Usage' });

const filters = {
  tenant_id: pathId.optional().meta({ description: 'Default: all schools that you may see.' }),
  months: digits
    .pipe(z.int().min(1).max(36))
    .optional()
    .meta({
      description: 'How many months, with this one. Default: 12.',
      examples: [12],
      override: { type: 'integer', minimum: 1, maximum: 36 },
    }),
};

export const platformUsage = resource('/platform/usage', 'Usage', 'What schools use over time, for operators.', {
  'GET /': {
    operation: 'platform_usage_get',
    summary: 'Get the usage of a school or of all schools',
    description: 'Recorded every hour. Analysts see the usage of their schools.',
    query: z.strictObject(filters),
    response: json(Usage),
  },
  'GET /export': {
    operation: 'platform_usage_export',
    summary: 'Export the usage of schools',
    description: 'One row per school and month, or day. The plan and its limits are those of today.',
    query: z.strictObject({
      ...exportFormat,
      ...filters,
      period: choice(['month', 'day'], { description: 'Default: month.' }).optional(),
    }),
    response: exported('platform_usage_export', {
      name: 'usage',
      columns: [
        { header: 'period_start', type: 'date' },
        { header: 'tenant_id', type: 'number' },
        { header: 'subdomain', type: 'text', width: 20 },
        { header: 'name', type: 'text', width: 30 },
        { header: 'students', type: 'number' },
        { header: 'teachers', type: 'number' },
        { header: 'active_users', type: 'number' },
        { header: 'requests', type: 'number' },
        { header: 'messages', type: 'number' },
        { header: 'storage_bytes', type: 'number', width: 16 },
        { header: 'plan', type: 'text', width: 16 },
        { header: 'max_students', type: 'number' },
        { header: 'max_teachers', type: 'number' },
      ],
    }),
  },
});
