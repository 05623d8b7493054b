import { z } from 'zod';
import { json, resource } from '../http/endpoint.ts';
import { date, id, timestamp } from '../http/schemas.ts';

/** The figures that some users may not see. */
const figures = [
  'total_students',
  'total_teachers',
  'total_classes',
  'attendance_today',
  'fee_summary',
  'pending_leaves',
] as const;

export const Dashboard = z
  .object({
    academic_year: z
      .object({ id, name: z.string(), start_date: date, end_date: date })
      .meta({ id: 'AcademicYearDates' })
      .nullable()
      .meta({ description: 'The current academic year.' }),
    total_students: z.int().meta({ description: 'Active students.' }),
    total_teachers: z.int().meta({ description: 'Active teachers.' }),
    total_classes: z.int().meta({ description: 'Classes of the current academic year.' }),
    attendance_today: z.object({ present: z.int(), absent: z.int(), late: z.int(), excused: z.int() }).meta({
      description:
        '`present` includes students who came late; `late` is their number. `absent` includes excused absences; ' +
        '`excused` is their number.',
    }),
    fee_summary: z.object({ collected_this_month: z.number(), pending: z.number() }).meta({
      description:
        'Payments of this month minus reversals, and the open amounts of student fees and invoices. Visible with ' +
        '`fee.read` for the whole school; a student sees their own. Needs the feature `fees_management`.',
    }),
    pending_leaves: z.int().meta({
      description:
        'Leave requests without a decision. Visible with `leave.manage` or `teacher.read` for the whole school; a ' +
        'teacher sees their own.',
    }),
    not_visible: z.array(z.enum(figures)).meta({
      description: 'The figures that are 0 because the user may see nothing of what they count.',
      examples: [['fee_summary']],
    }),
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
      'Answers every user of the school. Each figure counts what the user may see: with `dashboard.read` the whole ' +
      'school, or the classes that a teacher teaches; without it the own record of a student or teacher. ' +
      '`not_visible` names the figures that are 0 because they are hidden.',
    response: json(Dashboard),
  },
});
