import { z } from 'zod';
import { GeneratorLimitError, generateInThread } from '../timetable/generate-in-thread.ts';
import { type GenerationRun, overCapacityOf, slotsOf, unplacedOf } from '../timetable/school.ts';
import { disconnectSignal, type Handler, resource } from '../http/endpoint.ts';
import { ApiError } from '../domain/errors.ts';
import {
  clock,
  dayOfWeek,
  Deleted,
  id,
  maxPeriods,
  optionalText,
  page,
  pathId,
  period,
  timestamps,
  uniqueBy,
} from '../http/schemas.ts';
import { type Lease, withLease } from '../concurrency/lease.ts';
import { queuePerSchool } from '../concurrency/queue-per-school.ts';
import { timetablePrint } from './schedule.ts';

/** Numbers of which each stands there once; kept in their order. */
const numbers = (number: z.ZodInt, most: number) =>
  z
    .array(number)
    .max(most)
    .superRefine(uniqueBy())
    .transform((list) => [...list].sort((a, b) => a - b));

const config = {
  total_periods: z.int().min(1).max(maxPeriods).meta({ description: 'Periods of a day, lunch included.' }),
  lunch_start_period: z
    .int()
    .min(1)
    .max(maxPeriods)
    .nullable()
    .meta({ description: 'The first period of lunch; null for no lunch.' }),
  lunch_periods: z.int().min(1).max(4).meta({ description: 'How many periods lunch takes.' }),
  period_duration: z.int().min(5).max(240).meta({ description: 'Minutes.' }),
  start_time: clock.meta({ description: 'When period 1 begins, `HH:MM`.' }),
  break_after: numbers(z.int().min(1).max(maxPeriods), maxPeriods).meta({
    description:
      'Periods after which there is a short break: each makes all that comes later in the day begin `break_duration` minutes later.',
    examples: [[2]],
  }),
  break_duration: z.int().min(1).max(120).meta({ description: 'Minutes of each short break.' }),
  working_days: numbers(dayOfWeek, 7)
    .refine((days) => days.length > 0, 'must not be empty')
    .meta({ description: 'Days with school; 1 is Monday.', examples: [[1, 2, 3, 4, 5]] }),
};

const ConfigChange = z.strictObject(config).partial().meta({
  id: 'TimetableConfigChange',
  description: 'Any of the fields; those that are not named stay. The day must end before midnight.',
});

export const Config = z
  .object({
    ...config,
    break_after: z.array(z.int()).meta({ description: 'Periods after which there is a short break.' }),
    working_days: z.array(dayOfWeek),
    periods: z
      .array(z.object({ period, start_time: clock, end_time: clock, is_lunch: z.boolean() }))
      .meta({ description: 'The periods of a day and their times.' }),
    ...timestamps,
  })
  .meta({ id: 'TimetableConfig' });

const isPinned = z
  .boolean()
  .meta({ description: 'Generating a timetable leaves it where it is, and plans around it.' });

const slot = {
  class_id: id,
  subject_id: id.meta({ description: 'Need not be a subject of the class.' }),
  day_of_week: dayOfWeek,
  period,
  teacher_id: id.nullish().meta({ description: 'An active teacher; nobody in a study period.' }),
  room: optionalText(50).meta({ description: 'Where it is not the room of the class.', examples: ['Lab 2'] }),
  is_pinned: isPinned.optional(),
};
const SlotInput = z.strictObject(slot).meta({ id: 'TimetableSlotInput' });
const SlotChange = z
  .strictObject(slot)
  .partial()
  .meta({ id: 'TimetableSlotChange', description: 'Any of the fields; those that are not named stay.' });
const SlotMove = z
  .strictObject({
    day_of_week: dayOfWeek,
    period,
    swap: z
      .boolean()
      .optional()
      .meta({ description: 'What the class has there changes places with it. Without it an occupied place is a 409.' }),
  })
  .meta({ id: 'TimetableSlotMove' });

const Slot = z
  .object({
    id,
    class_id: id,
    class_name: z.string().meta({ description: 'Name and section.' }),
    academic_year_id: id.meta({ description: 'The academic year of the class.' }),
    subject_id: id,
    subject_name: z.string(),
    subject_code: z.string(),
    teacher_id: id.nullable(),
    teacher_name: z.string().nullable(),
    day_of_week: dayOfWeek,
    period,
    start_time: clock,
    end_time: clock,
    room: z.string().nullable().meta({ description: 'Where it is not the room of the class.' }),
    class_room: z.string().nullable().meta({ description: 'The room of the class.' }),
    is_pinned: isPinned,
    ...timestamps,
  })
  .meta({ id: 'TimetableSlot' });
export const MovedSlot = z
  .object({
    ...Slot.shape,
    swapped_with: Slot.nullable().meta({ description: 'The slot that changed places with it, as it is now.' }),
  })
  .meta({ id: 'MovedTimetableSlot' });

const ConflictCheck = z
  .strictObject({
    class_id: id,
    teacher_id: id.nullish(),
    day_of_week: dayOfWeek,
    period,
    exclude_slot_id: id.nullish().meta({ description: 'The slot that would move there, which is in nobody’s way.' }),
    swap: z.boolean().optional().meta({
      description: 'What the class has there would come to where exclude_slot_id is, as a move with `swap` lets it.',
    }),
  })
  .refine(({ swap, exclude_slot_id }) => !swap || typeof exclude_slot_id === 'number', {
    path: ['exclude_slot_id'],
    message: 'is required with swap',
  })
  .meta({ id: 'TimetableConflictCheck' });

export const Conflicts = z
  .object({
    has_conflict: z.boolean(),
    conflicts: z.array(
      z.object({
        kind: z.enum(['class', 'teacher', 'availability', 'workload_day', 'workload_week', 'lunch', 'outside_day']),
        message: z.string(),
        slot: z
          .object({
            slot_id: id,
            class_id: id,
            class_name: z.string(),
            subject_id: id,
            subject_name: z.string(),
            teacher_id: id.nullable(),
            teacher_name: z.string().nullable(),
            day_of_week: dayOfWeek,
            period,
          })
          .nullable()
          .meta({
            description:
              'The slot in the way, for class and teacher; null where it is of a class that you do not reach.',
          }),
      }),
    ),
  })
  .meta({ id: 'TimetableConflicts' });

const GenerateInput = z
  .strictObject({
    class_ids: z
      .array(id)
      .min(1)
      .max(1000)
      .optional()
      .meta({ description: 'Classes of one academic year. Without it all classes of the year that have subjects.' }),
    academic_year_id: id.optional().meta({ description: 'That of the classes; without either the current one.' }),
    effort: z.int().min(1).max(60).optional().meta({
      description:
        'How much is searched: work, not time, so that a busy machine finds the same. More gives a better timetable; an idle machine takes at most a second for each, mostly a third. 10 without it, or time_limit_seconds where that is less.',
    }),
    time_limit_seconds: z.int().min(1).max(60).optional().meta({
      description:
        'When the clock ends the search, which only a very busy machine needs (is_cut_short). 60 without it.',
    }),
    seed: z.int().min(0).max(2_147_483_647).optional().meta({
      description:
        'Another seed gives another timetable, as good. The same seed and effort give the same one, where the school has not changed, unless is_cut_short. 1 without it.',
    }),
    allow_partial: z.boolean().optional().meta({
      description:
        'Where more is asked for than there is room for: places as much as there is room for, instead of a 409. The rest is in `unplaced`.',
    }),
    dry_run: z.boolean().optional().meta({ description: 'Answers the timetable and saves nothing.' }),
  })
  .meta({ id: 'TimetableGenerateInput' });

const whose = { class_id: id, class_name: z.string(), subject_id: id, subject_name: z.string() };

export const Generated = z
  .object({
    status: z.enum(['complete', 'partial']).meta({ description: 'partial: something is unplaced.' }),
    placed: z.int().meta({ description: 'Periods that have a place.' }),
    removed: z.int().meta({ description: 'Slots that made way for them; with dry_run, that would.' }),
    unplaced: z.array(
      z.object({
        ...whose,
        teacher_id: id.nullable(),
        teacher_name: z.string().nullable(),
        missing: z.int().meta({ description: 'Periods a week that have no place.' }),
        reason: z
          .enum([
            'no_teacher',
            'teacher_inactive',
            'class_full',
            'teacher_clash',
            'teacher_unavailable',
            'teacher_busy',
            'teacher_day_limit',
            'teacher_week_limit',
          ])
          .meta({ description: 'What stands in the way most often.' }),
        message: z.string(),
      }),
    ),
    over_capacity: z
      .array(z.object({ path: z.string().meta({ examples: ['teacher.1'] }), message: z.string() }))
      .meta({ description: 'With allow_partial, what would be the details of the 409 without it; else empty.' }),
    seconds: z.number().meta({ description: 'How long the search took.' }),
    figures: z.object({
      spread_excess: z.int().meta({
        description: 'Periods of a subject beyond an even share on a day of its class, all of them together.',
      }),
      class_gaps: z.int().meta({ description: 'Free periods of classes before the last lesson of a day.' }),
      teacher_gaps: z.int().meta({ description: 'Free periods of teachers between two lessons of a day.' }),
    }),
    seed: z.int(),
    effort: z.int(),
    is_cut_short: z.boolean().meta({
      description:
        'The clock ended the search before its work was done: the same seed may then give another timetable.',
    }),
    slots: z.array(
      z.object({
        id: id.nullable().meta({ description: 'null with dry_run.' }),
        ...whose,
        teacher_id: id,
        teacher_name: z.string(),
        day_of_week: dayOfWeek,
        period,
      }),
    ),
  })
  .meta({ id: 'GeneratedTimetable' });

/** A request waits for its search to start no longer than its own time limit and this many seconds. */
const extraWaitSeconds = 5;

const runInSchoolQueue = queuePerSchool({
  maxWaiting: 2,
  busyMessage:
    'Other timetables of this school are being generated, and more are waiting. Try again when they are done.',
});

/** The lease on generating a timetable of a school. */
function generationLease(
  { call, services }: Pick<Parameters<Handler>[0], 'call' | 'services'>,
  tenant_id: number,
  input: object,
): Lease<GenerationRun> {
  return {
    acquire: async () => {
      const answer = JSON.parse(await call('timetable_generate', input)) as GenerationRun | { busy_since: string };
      return 'run' in answer ? { granted: answer } : answer;
    },
    renew: async ({ run }) =>
      (JSON.parse(await call('timetable_generate_renew', { tenant_id, run })) as { is_held: boolean }).is_held,
    // A lease that can not be released expires by itself.
    release: async ({ run }) => {
      await call('timetable_generate_end', { tenant_id, run }).catch((error: unknown) =>
        services.logger.warn({ operation: 'timetable_generate_end', error }),
      );
    },
  };
}

/**
 * Waits in the queue of the school, for its lease and for a thread. Then searches without an open transaction, and saves.
 * The lease is released in any case, also when the client disconnects or logs out.
 */
const generate: Handler = async (context) => {
  const { req, res, params, call, admit } = context;
  const {
    time_limit_seconds = 60,
    effort = Math.min(10, time_limit_seconds),
    seed = 1,
    dry_run = false,
    allow_partial = false,
    ...input
  } = params as z.output<typeof GenerateInput>;
  const disconnect = disconnectSignal(res);
  await admit();
  const tenantId = req.claims?.tenant_id ?? 0;
  const waitSignal = AbortSignal.any([disconnect, AbortSignal.timeout((time_limit_seconds + extraWaitSeconds) * 1000)]);
  const leaseOptions = {
    renewIntervalMs: context.services.config.LEASE_RENEW_MS,
    signal: disconnect,
    waitSignal,
    busyMessage: (since: string) =>
      `Another timetable of this school has been generating since ${since}. Try again when it is done.`,
    lostMessage: 'Another timetable of this school was started in the meantime. Generate again.',
  };
  const search = async (run: GenerationRun, signal: AbortSignal) => {
    const options = { seed, effort, time_limit_ms: time_limit_seconds * 1000, allow_partial };
    const found = await generateInThread(run.problem, options, { signal, waitSignal }).catch(refuse);
    if (found.status === 'infeasible') {
      const details = overCapacityOf(run, found.over_capacity);
      throw new ApiError(
        'schedule_conflict',
        `No timetable can hold all of this. ${details[0]?.message ?? ''}`.trim(),
        {
          details: details.slice(0, 20),
        },
      );
    }
    const slots = slotsOf(run, found.placed);
    const unplaced = unplacedOf(run, found.unplaced);
    signal.throwIfAborted();
    let ids: number[] = [];
    if (!dry_run) {
      const { digest, academic_year_id, class_ids } = run;
      const saved = await call('timetable_generate_save', { run: run.run, digest, academic_year_id, class_ids, slots });
      ({ ids } = JSON.parse(saved) as { ids: number[] });
    }
    const { spread_excess, class_gaps, teacher_gaps } = found.figures;
    return JSON.stringify({
      status: unplaced.length === 0 ? 'complete' : 'partial',
      placed: slots.length,
      removed: run.standing,
      unplaced,
      over_capacity: overCapacityOf(run, found.over_capacity),
      seconds: found.seconds,
      figures: { spread_excess, class_gaps, teacher_gaps },
      seed,
      effort,
      is_cut_short: found.is_cut_short,
      slots: slots.map((slot, index) => ({ id: ids[index] ?? null, ...slot })),
    });
  };
  return runInSchoolQueue(tenantId, waitSignal, () =>
    withLease(generationLease(context, tenantId, input), leaseOptions, search),
  );
};

/** @throws ApiError unavailable when the thread exceeded its limits, or none was free in time */
function refuse(error: unknown): never {
  if (error instanceof GeneratorLimitError)
    throw new ApiError('unavailable', error.message, { retryAfter: 60, cause: error });
  if (error instanceof DOMException && error.name === 'TimeoutError') {
    throw new ApiError('unavailable', 'Too many timetables are being generated. Try again in a moment.', {
      retryAfter: 30,
      cause: error,
    });
  }
  throw error;
}

const inTheWay =
  '409 schedule_conflict, with a detail for each conflict (its kind as in check-conflicts, and slot_id, the slot in the way), when the class or the teacher has something else then, the teacher is not available or would have more periods than their workload rule allows, at lunch, or outside the day and the week of the school.';

export const timetable = resource(
  '/timetable',
  'Timetable',
  'The shape of the school day, and who teaches what when.',
  {
    'GET /config': { operation: 'timetable_config_get', summary: 'Read the shape of the school day', answer: Config },
    'PUT /config': {
      operation: 'timetable_config_update',
      summary: 'Change the shape of the school day',
      description:
        'For whoever manages the timetable of the whole school. 409 schedule_conflict when slots of the current or a later academic year would lie outside the day, at lunch or on a day without school.',
      body: ConfigChange,
      answer: Config,
    },
    'POST /generate': {
      operation: 'timetable_generate',
      summary: 'Generate the timetable',
      description: [
        'Places the class subjects that have an active teacher, and puts what it found in the place of all slots of these classes but those that are pinned; partial names what found no place, and why. Without a body it is about all classes of the current year.',
        "It keeps to the config, the teachers' availability and workload rules, and their lessons in other classes. Generates of a school take turns, two more wait: each as long as its own time limit and 5 seconds more, then it is a 409 conflict. So an answer may take twice the time limit.",
        '409 schedule_conflict when no timetable can hold all of it, with who is asked for too much in the details, each once: the path is `class.26`, `teacher.1`, `day.2` (Tuesday), `period.2.5` or `week`. 409 conflict when there is nothing to place, or when the school was changed meanwhile. After any refusal the timetable is as it was. For whoever manages the timetable of the whole school.',
      ].join('\n\n'),
      body: GenerateInput,
      answer: Generated,
      handler: generate,
    },
    'GET /slots': {
      operation: 'timetable_slots_list',
      summary: 'List the slots of the timetable',
      description:
        'Of the current academic year, unless class_id or academic_year_id says otherwise. Searches class, subject, teacher and room. A teacher sees the classes that they teach, a student their own. The week of a class fits on one page of 100.',
      query: page(
        {
          class_id: pathId.optional(),
          teacher_id: pathId.optional(),
          academic_year_id: pathId.optional(),
          day_of_week: z
            .string()
            .regex(/^[1-7]$/, 'must be a day of the week, 1 to 7')
            .transform(Number)
            .optional()
            .meta({
              description: '1 is Monday.',
              examples: [1],
              override: { type: 'integer', minimum: 1, maximum: 7 },
            }),
        },
        ['day_of_week', 'class_name', 'subject_name', 'teacher_name'],
      ),
      answer: Slot,
      isPage: true,
    },
    'POST /slots': {
      operation: 'timetable_slots_create',
      summary: 'Add a slot to the timetable',
      description: inTheWay,
      body: SlotInput,
      answer: Slot,
      isCreate: true,
    },
    'GET /slots/:id': { operation: 'timetable_slots_get', summary: 'Read a slot', answer: Slot },
    'PUT /slots/:id': {
      operation: 'timetable_slots_update',
      summary: 'Change a slot',
      description: `${inTheWay} What was so before is not judged again.`,
      body: SlotChange,
      answer: Slot,
    },
    'DELETE /slots/:id': {
      operation: 'timetable_slots_delete',
      summary: 'Take a slot out of the timetable',
      answer: Deleted,
    },
    'PATCH /slots/:id/move': {
      operation: 'timetable_slots_move',
      summary: 'Move a slot',
      description: `${inTheWay} An occupied place is one, unless \`swap\` says that both change places.`,
      body: SlotMove,
      answer: MovedSlot,
    },
    'POST /check-conflicts': {
      operation: 'timetable_check_conflicts',
      summary: 'What would be in the way of a slot',
      description: 'Says what writing the slot would say. 422 for a class, a teacher or a slot that does not exist.',
      body: ConflictCheck,
      answer: Conflicts,
    },
    'GET /print': timetablePrint,
  },
);
