import { createHash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { calendarText } from '../documents/calendar.ts';
import {
  created,
  download,
  type FileHandler,
  type GetEndpoint,
  type Handler,
  json,
  page,
  resource,
} from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { ApiError } from '../domain/errors.ts';
import { toApiError } from '../http/errors.ts';
import { pdfDownload } from './parts/pdf-download.ts';
import { clock, date, Deleted, id, pathId, timestamp, timestamps } from '../http/schemas.ts';
import { dayHoliday, dayOfWeek } from './parts/school-day.ts';

const Owner = z
  .object({ kind: z.enum(['class', 'teacher']), id, name: z.string() })
  .meta({ id: 'ScheduleOwner', description: 'The class or teacher of a schedule.' });

export const Day = z.object({
  date,
  day_of_week: dayOfWeek,
  academic_year_id: id.nullable().meta({ description: 'The academic year of the day. Null between academic years.' }),
  academic_year_name: z.string().nullable(),
  is_school_day: z.boolean().meta({ description: 'A working day in an academic year without a holiday.' }),
  holiday: dayHoliday,
  on_leave: z
    .boolean()
    .meta({ description: "In a teacher's schedule: the teacher is on approved leave. False in a class's schedule." }),
  slots: z.array(
    z
      .object({
        slot_id: id,
        period: z.int(),
        start_time: clock,
        end_time: clock,
        class_id: id,
        class_name: z.string().nullable(),
        subject_id: id,
        subject_name: z.string(),
        teacher_id: id.nullable(),
        teacher_name: z.string().nullable(),
        is_teacher_on_leave: z.boolean().meta({ description: 'The teacher is on approved leave on this day.' }),
        room: z.string().nullable().meta({ description: 'The room of the slot, or else of the class.' }),
      })
      .meta({ id: 'ScheduleSlot' }),
  ),
});

const periods = z
  .array(
    z
      .object({
        kind: z.enum(['period', 'lunch', 'break']),
        period: z.int().nullable(),
        start_time: clock,
        end_time: clock,
      })
      .meta({ id: 'SchedulePeriod' }),
  )
  .meta({
    description: 'The periods, lunch and breaks of the day, in order. `period` is null for a break.',
  });

const whose = Owner.nullable().meta({
  description: 'Null for a user who is neither a teacher nor a student in a class.',
});

/** The schedule of one day. */
export const Schedule = Day.extend({ whose, periods }).meta({
  id: 'Schedule',
  description: 'The lessons of a day, ordered by period. There are none on a holiday, a day without school or a leave.',
});

const Week = z
  .object({
    whose,
    from: date,
    to: date,
    periods,
    days: z.array(Day).meta({ description: 'The working days, in order.' }),
  })
  .meta({
    id: 'ScheduleWeek',
    description: 'Starts on Monday, or on Saturday or Sunday if that is a working day after a day without school.',
  });

const feedKinds = ['own', 'class', 'teacher', 'holidays'] as const;

const FeedInput = z
  .strictObject({
    kind: choice(feedKinds).meta({
      description:
        '`own`: the lessons that you teach, or else those of your class, as they are when the calendar is read.',
    }),
    class_id: id.nullish().meta({ description: 'Only for the kind `class`.' }),
    teacher_id: id.nullish().meta({ description: 'Only for the kind `teacher`.' }),
  })
  .superRefine((feed, context) => {
    for (const kind of ['class', 'teacher'] as const) {
      const path = `${kind}_id` as const;
      const isGiven = (feed[path] ?? null) !== null;
      if (isGiven !== (feed.kind === kind))
        context.addIssue({
          code: 'custom',
          path: [path],
          message: isGiven ? `is only allowed for the kind ${kind}` : `is required for the kind ${kind}`,
        });
    }
  })
  .meta({ id: 'CalendarFeedInput' });

const Feed = z
  .object({
    id,
    kind: z.enum(feedKinds),
    class_id: id.nullable(),
    class_name: z
      .string()
      .nullable()
      .meta({ description: 'Also null if you may no longer see the class. The feed then answers 404.' }),
    teacher_id: id.nullable(),
    teacher_name: z.string().nullable(),
    last_used_at: timestamp.nullable().meta({ description: 'When a calendar app last read the feed, to the hour.' }),
    ...timestamps,
  })
  .meta({ id: 'CalendarFeed' });

export const NewFeed = Feed.extend({
  url: z
    .url()
    .nullable()
    .meta({
      description:
        'Anyone who knows this address can read the calendar. It is shown only once: it is null when an ' +
        '`Idempotency-Key` repeats the request.',
      examples: ['https://school.example/api/calendar/42.kH2nWq.ics'],
    }),
}).meta({ id: 'NewCalendarFeed' });

const sha256 = (secret: string) => createHash('sha256').update(secret).digest('hex');

/**
 * Generates the secret of a feed. The database receives only its hash, so that neither tables, nor logs, nor the stored
 * response of an Idempotency-Key contain the secret.
 */
const createFeed: Handler = async ({ req, params, call, services }) => {
  const secret = randomBytes(32).toString('base64url');
  const token_hash = sha256(secret);
  const needsNoPermission = params['kind'] === 'own' || params['kind'] === 'holidays';
  const operation = needsNoPermission ? 'schedule_feeds_create_own' : 'schedule_feeds_create';
  const answer = await call(operation, { ...params, token_hash });
  const { token_hash: storedHash, ...feed } = JSON.parse(answer) as { token_hash: string };
  const base = (services.config.PUBLIC_URL ?? '').replace(/\/$/, '');
  return JSON.stringify({
    ...feed,
    url: storedHash === token_hash ? `${base}/api/calendar/${String(req.claims?.tenant_id)}.${secret}.ics` : null,
  });
};

/** Answers the calendar of a feed. Every problem with the token gets the same 404, which reveals nothing about it. */
const readFeed: FileHandler = async ({ params, call, services }) => {
  const notFound = () => new ApiError('not_found', 'There is no such calendar.');
  const [, tenant_id, secret] = /^([1-9]\d{0,14})\.([\w-]{43})$/.exec(String(params['token'])) ?? [];
  if (!tenant_id || !secret) throw notFound();
  const answer = await call('calendar_get', { tenant_id: Number(tenant_id), token_hash: sha256(secret) }).catch(
    (thrown: unknown) => {
      const { status } = toApiError(thrown);
      throw status >= 400 && status < 500 ? notFound() : thrown;
    },
  );
  const { BASE_DOMAIN: baseDomain, PUBLIC_URL } = services.config;
  const host = new URL(PUBLIC_URL ?? 'http://localhost').hostname;
  return {
    name: 'calendar.ics',
    contentType: 'text/calendar; charset=utf-8',
    etagSource: `${host} ${baseDomain ?? ''} ${answer}`,
    content: async (signal) =>
      Buffer.from(await calendarText(answer, { tenantId: Number(tenant_id), host, baseDomain, signal })),
  };
};

export const schedule = resource(
  '/schedule',
  'Schedule',
  'The lessons of a class or a teacher by day and by week, and calendar feeds.',
  {
    'GET /today': {
      operation: 'schedule_today',
      summary: 'Get your schedule today',
      description:
        "Today in the school's time zone: the lessons that you teach, or else those of your class. For other users " +
        '`whose` is null and there are no slots.',
      response: json(Schedule),
    },
    'GET /week': {
      operation: 'schedule_week',
      summary: 'Get the schedule of a week',
      description: 'Of a class, of a teacher, or your own. 404 for a class or teacher that you may not see.',
      query: z
        .strictObject({
          class_id: pathId.optional(),
          teacher_id: pathId.optional(),
          date: date
            .refine(
              (day) => day >= '1000-01-07' && day <= '9999-12-25',
              'must be between 1000-01-07 and 9999-12-25, so that its week is in these years',
            )
            .optional()
            .meta({ description: 'Any day of the week. Default: today.' }),
        })
        .refine((query) => query.class_id === undefined || query.teacher_id === undefined, {
          path: ['teacher_id'],
          message: 'cannot be combined with class_id',
        }),
      response: json(Week),
    },
    'GET /class/:class_id': {
      operation: 'schedule_class',
      summary: 'Get the schedule of a class on a day',
      query: z.strictObject({ date: date.optional().meta({ description: 'Default: today.' }) }),
      response: json(Schedule),
    },
    'GET /feeds': {
      operation: 'schedule_feeds_list',
      summary: 'List your calendar feeds',
      description: '`search` matches kind, class and teacher.',
      response: page(Feed),
    },
    'POST /feeds': {
      operation: 'schedule_feeds_create',
      summary: 'Create a calendar feed',
      description:
        'Only the kinds `class` and `teacher` require the permission. The feed works as long as you may see its ' +
        'class or teacher, until you delete it. 409 `conflict` if you already have 50 feeds, 409 `invalid_state` for ' +
        '`own` if you are neither a teacher nor a student.',
      body: FeedInput,
      response: created(NewFeed, { handler: createFeed }),
    },
    'GET /feeds/:id': {
      operation: 'schedule_feeds_get',
      summary: 'Get one of your calendar feeds',
      response: json(Feed),
    },
    'DELETE /feeds/:id': {
      operation: 'schedule_feeds_delete',
      summary: 'Delete one of your calendar feeds',
      description: 'Revokes its address, which answers 404 from now on.',
      response: json(Deleted),
    },
  },
);

export const calendar = resource('/calendar', 'Calendars', 'The calendar feeds that calendar apps read.', {
  'GET /:token.ics': {
    operation: 'calendar_get',
    summary: 'Get a calendar (iCalendar)',
    description:
      'Lessons and holidays of the current academic year, and of those that ended less than four weeks ago or begin ' +
      'within 60 days. A lesson is one weekly event (`RRULE`) in the time zone of the school, without the days on ' +
      'which it does not take place (`EXDATE`). A feed of holidays has no lessons. A feed can be read 60 times a ' +
      'minute. 404 for a wrong or revoked token, and if its owner may no longer see the class or teacher.',
    params: {
      token: z.string().meta({ description: 'The token in the address of the feed.', examples: ['42.kH2nWq'] }),
    },
    response: download(['text/calendar'], readFeed, { isTagged: true }),
  },
});

/** `GET /api/timetable/print`. */
export const timetablePrint: GetEndpoint = {
  ...pdfDownload('timetable_print', 'timetable', ({ whose }) => `timetable ${whose.name}.pdf`),
  summary: 'Print the timetable of a class or a teacher (PDF)',
  description:
    'One A4 page in landscape with the letterhead of the school. For a class in its academic year, for a teacher in ' +
    'the current one unless `academic_year_id` is given. 404 for a class or teacher that you may not see.',
  query: z
    .strictObject({ class_id: pathId.optional(), teacher_id: pathId.optional(), academic_year_id: pathId.optional() })
    .refine((query) => (query.class_id === undefined) !== (query.teacher_id === undefined), {
      path: ['class_id'],
      message: 'give either class_id or teacher_id',
    }),
};
