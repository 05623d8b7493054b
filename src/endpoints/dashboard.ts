import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { date, id, timestamp } from '../http/schemas.ts';

export const Dashboard = z
  .object({
    academic_year: z
      .object({ id, name: z.string(), start_date: date, end_date: date })
      .nullable()
      .meta({ description: 'The current one.' }),
    total_students: z.int().meta({ description: 'Active students.' }),
    total_teachers: z.int().meta({ description: 'Active teachers.' }),
    total_classes: z.int().meta({ description: 'Classes of the current academic year.' }),
    attendance_today: z
      .object({ present: z.int(), absent: z.int(), late: z.int() })
      .meta({ description: 'present counts who came late as well; late says how many of them.' }),
    fee_summary: z.object({ collected_this_month: z.number(), pending: z.number() }).nullable().meta({
      description:
        'Payments of this month without what was reversed, and what is still to be paid of student fees and invoices. Null without `fee.read` for the whole school.',
    }),
    pending_leaves: z
      .int()
      .nullable()
      .meta({ description: 'Leaves that wait for a decision. Null without `leave.manage` for the whole school.' }),
    upcoming_holidays: z
      .array(z.object({ id, name: z.string(), date }))
      .meta({ description: 'The next three within a year, one of today included.' }),
    recent_notifications: z
      .array(
        z.object({
          id,
          title: z.string(),
          message: z.string(),
          type: z.string(),
          action_url: z.string().nullable(),
          is_read: z.boolean(),
          created_at: timestamp,
        }),
      )
      .meta({ description: 'Your own five latest.' }),
  })
  .meta({ id: 'Dashboard' });

export const dashboard = resource('/dashboard', 'Dashboard', 'A school in figures.', {
  'GET /': {
    operation: 'dashboard_get',
    summary: 'The school today',
    description: 'For a teacher the figures are those of the classes that they teach.',
    answer: Dashboard,
  },
});
