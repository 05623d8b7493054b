import { z } from 'zod';
import { json, resource } from '../http/endpoint.ts';
import { date, id, timestamp } from '../http/schemas.ts';

const nullWithout = 'Null without `dashboard.read`.';

export const Dashboard = z
  .object({
    academic_year: z
      .object({ id, name: z.string(), start_date: date, end_date: date })
      .meta({ id: 'AcademicYearDates' })
      .nullable()
      .meta({ description: 'The current academic year.' }),
    total_students: z
      .int()
      .nullable()
      .meta({ description: `Active students. ${nullWithout}` }),
    total_teachers: z
      .int()
      .nullable()
      .meta({ description: `Active teachers. ${nullWithout}` }),
    total_classes: z
      .int()
      .nullable()
      .meta({ description: `Classes of the current academic year. ${nullWithout}` }),
    attendance_today: z
      .object({ present: z.int().nullable(), absent: z.int().nullable(), late: z.int().nullable() })
      .meta({ description: `\`present\` includes students who came late; \`late\` is their number. ${nullWithout}` }),
    fee_summary: z.object({ collected_this_month: z.number().nullable(), pending: z.number().nullable() }).meta({
      description:
        'Payments of this month minus reversals, and the open amounts of student fees and invoices. Both null ' +
        'without `fee.read` for the whole school, and without the feature `fees_management`.',
    }),
    pending_leaves: z
      .int()
      .nullable()
      .meta({ description: 'Leave requests without a decision. Null without `leave.manage` for the whole school.' }),
    upcoming_holidays: z
      .array(z.object({ id, name: z.string(), date }))
      .meta({ description: 'The next three holidays within a year, including today.' }),
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
      .meta({ description: 'The five latest notifications of the user.' }),
  })
  .meta({ id: 'Dashboard' });

export const dashboard = resource('/dashboard', 'Dashboard', 'The key figures of a school.', {
  'GET /': {
    operation: 'dashboard_get',
    summary: 'Get the dashboard',
    description:
      'Answers every user of the school. Figures that the user may not see are null. A teacher gets the figures of ' +
      'the classes that they teach.',
    response: json(Dashboard),
  },
});
