import { createHash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { print } from '../documents/print.ts';
import type { TimetableData } from '../documents/timetable.ts';
import { calendarText } from '../documents/calendar.ts';
import { type Endpoint, type Handler, resource } from '../http/endpoint.ts';
import { ApiError } from '../domain/errors.ts';
import { toApiError } from '../http/errors.ts';
import { printRequest } from '../http/pdf-downloads.ts';
import {
  clock,
  date,
  dayHoliday,
  dayOfWeek,
  Deleted,
  id,
  page,
  pathId,
  timestamp,
  timestamps,
} from '../http/schemas.ts';

const Whose = z
  .object({ kind: z.enum(['class', 'teacher']), id, name: z.string() })
  .meta({ id: 'ScheduleOwner', description: 'The class or the teacher that a schedule is of.' });

export const Day = z.object({
  date,
  day_of_week: dayOfWeek,
  academic_year_id: id
    .nullable()
    .meta({ description: 'The academic year that the day lies in; null outside all of them.' }),
  academic_year_name: z.string().nullable(),
  is_school_day: z.boolean().meta({ description: 'A working day inside an academic year, and no holiday.' }),
  holiday: dayHoliday,
  on_leave: z
    .boolean()
    .meta({ description: "The teacher whose schedule it is is on approved leave. False in a class's schedule." }),
  slots: z.array(
    z.object({
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
      is_teacher_on_leave: z.boolean().meta({ description: 'The teacher is on approved leave that day.' }),
      room: z.string().nullable().meta({ description: 'Of the slot, else of the class.' }),
    }),
  ),
});

const periods = z
  .array(
    z.object({
      kind: z.enum(['period', 'lunch', 'break']),
      period: z.int().nullable(),
      start_time: clock,
      end_time: clock,
    }),
  )
  .meta({
    description:
      'The rows of the day in their order: slots lie in periods, nothing lies in lunch and breaks. A break has no number.',
  });

const whose = Whose.nullable().meta({
  description: 'null for a user who is neither a teacher nor a student in a class.',
});

/** What is on, on one day. */
export const Schedule = Day.extend({ whose, periods }).meta({
  id: 'Schedule',
  description:
    'A school day in the order of its periods; there are no slots on a holiday, a day without school or a leave.',
});

const Week = z
  .object({
    whose,
    from: date,
    to: date,
    periods,
    days: z.array(Day).meta({ description: 'The working days, in their order.' }),
  })
  .meta({
    id: 'ScheduleWeek',
    description: 'Begins on Monday; on Sunday or Saturday where that is a working day after days without school.',
  });

const kinds = ['own', 'class', 'teacher', 'holidays'] as const;

const FeedInput = z
  .strictObject({
    kind: z.enum(kinds).meta({
      description:
        '`own`: the lessons that you teach, or those of the class that you are in, whichever that is when it is read.',
    }),
    class_id: id.nullish().meta({ description: 'With the kind `class`.' }),
    teacher_id: id.nullish().meta({ description: 'With the kind `teacher`.' }),
  })
  .superRefine((feed, context) => {
    for (const kind of ['class', 'teacher'] as const) {
      const path = `${kind}_id` as const;
      const isGiven = (feed[path] ?? null) !== null;
      if (isGiven !== (feed.kind === kind))
        context.addIssue({
          code: 'custom',
          path: [path],
          message: isGiven ? `goes with the kind ${kind}` : `is required with the kind ${kind}`,
        });
    }
  })
  .meta({ id: 'CalendarFeedInput' });

const Feed = z
  .object({
    id,
    kind: z.enum(kinds),
    class_id: id.nullable(),
    class_name: z
      .string()
      .nullable()
      .meta({ description: 'null also where you no longer reach the class, and the feed answers nothing.' }),
    teacher_id: id.nullable(),
    teacher_name: z.string().nullable(),
    last_used_at: timestamp.nullable().meta({ description: 'When a calendar read it last, to the hour.' }),
    ...timestamps,
  })
  .meta({ id: 'CalendarFeed' });

export const NewFeed = Feed.extend({
  url: z
    .url()
    .nullable()
    .meta({
      description:
        'Whoever knows this address reads the calendar. It is shown now and never again: null when an Idempotency-Key comes a second time.',
      examples: ['https://school.example/api/calendar/42.kH2nWq.ics'],
    }),
}).meta({ id: 'NewCalendarFeed' });

const sha256 = (secret: string) => createHash('sha256').update(secret).digest('hex');

/** Makes the secret of a feed, which the database never sees: neither its tables nor its log, nor what is kept for an Idempotency-Key. */
const createFeed: Handler = async ({ req, params, call, services }) => {
  const secret = randomBytes(32).toString('base64url');
  const token_hash = sha256(secret);
  const isFree = params['kind'] === 'own' || params['kind'] === 'holidays';
  const answer = await call(isFree ? 'schedule_feeds_create_own' : 'schedule_feeds_create', { ...params, token_hash });
  const { token_hash: kept, ...feed } = JSON.parse(answer) as { token_hash: string };
  const base = (services.config.PUBLIC_URL ?? '').replace(/\/$/, '');
  return JSON.stringify({
    ...feed,
    url: kept === token_hash ? `${base}/api/calendar/${String(req.claims?.tenant_id)}.${secret}.ics` : null,
  });
};

/** Answers the calendar of a feed; whatever is wrong with a token, nobody learns more than that there is nothing. */
const readFeed: Handler = async ({ params, call, services }) => {
  const nothing = () => new ApiError('not_found', 'There is no such calendar.');
  const [, tenant_id, secret] = /^([1-9]\d{0,14})\.([\w-]{43})$/.exec(String(params['token'])) ?? [];
  if (!tenant_id || !secret) throw nothing();
  const answer = await call('calendar_get', { tenant_id: Number(tenant_id), token_hash: sha256(secret) }).catch(
    (thrown: unknown) => {
      const { status } = toApiError(thrown);
      throw status >= 400 && status < 500 ? nothing() : thrown;
    },
  );
  const host = new URL(services.config.PUBLIC_URL ?? 'http://localhost').hostname;
  return {
    name: 'calendar.ics',
    contentType: 'text/calendar; charset=utf-8',
    etagSource: `${host} ${answer}`,
    content: async (signal) => Buffer.from(await calendarText(answer, { tenantId: Number(tenant_id), host, signal })),
  };
};

export const schedule = resource(
  '/schedule',
  'Schedule',
  'What is on, by day and by week, on a screen and in a calendar.',
  {
    'GET /today': {
      operation: 'schedule_today',
      summary: 'What you have today',
      description:
        "Today in the school's time zone: the lessons that you teach, else those of the class that you are in. For a user who is neither, `whose` is null and there are no slots.",
      answer: Schedule,
    },
    'GET /week': {
      operation: 'schedule_week',
      summary: 'The days of a week',
      description: 'Of a class, of a teacher, or what is your own. 404 for a class or a teacher out of your reach.',
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
            .meta({ description: 'A day of the week; today without it.' }),
        })
        .refine((query) => query.class_id === undefined || query.teacher_id === undefined, {
          path: ['teacher_id'],
          message: 'does not go with class_id',
        }),
      answer: Week,
    },
    'GET /class/:class_id': {
      operation: 'schedule_class',
      summary: 'What a class has on a day',
      query: z.strictObject({ date: date.optional().meta({ description: 'Today without it.' }) }),
      answer: Schedule,
    },
    'GET /feeds': {
      operation: 'schedule_feeds_list',
      summary: 'List your calendar feeds',
      description: 'Searches kind, class and teacher.',
      query: page({}, ['created_at', 'last_used_at']),
      answer: Feed,
      isPage: true,
    },
    'POST /feeds': {
      operation: 'schedule_feeds_create',
      summary: 'Make a calendar feed',
      description:
        'The kinds `own` and `holidays` need no permission; the one above is for `class` and `teacher`. The feed works for as long as you may read what it is of, and until you remove it; you can have 50. 409 `invalid_state` for `own` where you are neither a teacher nor a student.',
      body: FeedInput,
      answer: NewFeed,
      isCreate: true,
      handler: createFeed,
    },
    'GET /feeds/:id': { operation: 'schedule_feeds_get', summary: 'Read a calendar feed of yours', answer: Feed },
    'DELETE /feeds/:id': {
      operation: 'schedule_feeds_delete',
      summary: 'Revoke a calendar feed of yours',
      description: 'Its address is a 404 at once.',
      answer: Deleted,
    },
  },
);

export const calendar = resource('/calendar', 'Calendars', 'What calendar programs read, by the address of a feed.', {
  'GET /:token.ics': {
    operation: 'calendar_get',
    summary: 'Read a calendar (iCalendar)',
    description:
      'The lessons from four weeks ago to the end of the academic year and the holidays, 400 days ahead and 5,000 events at most; for a feed of holidays those alone. A feed is read 60 times a minute at most. 404 for a token that is wrong or revoked, and where its owner may no longer read what it is of.',
    params: {
      token: z.string().meta({ description: 'What came with the address of the feed.', examples: ['42.kH2nWq'] }),
    },
    bytes: ['text/calendar'],
    isTagged: true,
    handler: readFeed,
  },
});

/** `GET /api/timetable/print`: the same on paper. */
export const timetablePrint: Endpoint = {
  operation: 'timetable_print',
  summary: 'Print the timetable of a class or a teacher (PDF)',
  description:
    'A4 landscape, one page, under the name and logo of the school. Of a class in its academic year, of a teacher in the current one unless academic_year_id says otherwise. 404 for what is out of your reach.',
  query: z
    .strictObject({ class_id: pathId.optional(), teacher_id: pathId.optional(), academic_year_id: pathId.optional() })
    .refine((query) => (query.class_id === undefined) !== (query.teacher_id === undefined), {
      path: ['class_id'],
      message: 'give either class_id or teacher_id',
    }),
  bytes: ['application/pdf'],
  isTagged: true,
  handler: async ({ req, params, call }) => {
    const answer = await call('timetable_print', params);
    const data = JSON.parse(answer) as TimetableData;
    return {
      name: `timetable ${data.whose.name}.pdf`,
      contentType: 'application/pdf',
      etagSource: answer,
      content: (signal) => print({ kind: 'timetable', data }, printRequest(req, signal)),
    };
  },
};
