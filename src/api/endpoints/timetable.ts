import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { generateInThread } from '../../timetable/in-a-thread.ts';
import { type Begun, overCapacityOf, slotsOf, unplacedOf } from '../../timetable/school.ts';
import { type Handler, resource } from '../endpoint.ts';
import { ApiError } from '../errors.ts';
import { Deleted, id, optionalText, page, pathId, time, timestamps } from '../schemas.ts';
import { timetablePrint } from './schedule.ts';

const mostPeriods = 24;
const dayOfWeek = z
  .int()
  .min(1)
  .max(7)
  .meta({ description: '1 is Monday.', examples: [1] });
const period = z
  .int()
  .min(1)
  .max(mostPeriods)
  .meta({ description: 'Counted from 1; lunch counts.', examples: [1] });

/** Numbers of which each stands there once; kept in their order. */
const numbers = (number: z.ZodInt, most: number) =>
  z
    .array(number)
    .max(most)
    .refine((list) => new Set(list).size === list.length, 'must name each once')
    .transform((list) => [...list].sort((a, b) => a - b));

const config = {
  total_periods: z.int().min(1).max(mostPeriods).meta({ description: 'Periods of a day, lunch included.' }),
  lunch_start_period: z.int().min(1).max(mostPeriods).nullable().meta({ description: 'The first period of lunch; null for no lunch.' }),
  lunch_periods: z.int().min(1).max(4).meta({ description: 'How many periods lunch takes.' }),
  period_duration: z.int().min(5).max(240).meta({ description: 'Minutes.' }),
  start_time: time.meta({ description: 'When period 1 begins, `HH:MM`.' }),
  break_after: numbers(z.int().min(1).max(mostPeriods), mostPeriods).meta({
    description: 'Periods after which there is a short break: each makes all that comes later in the day begin `break_duration` minutes later.',
    examples: [[2]],
  }),
  break_duration: z.int().min(1).max(120).meta({ description: 'Minutes of each short break.' }),
  working_days: numbers(dayOfWeek, 7)
    .refine((days) => days.length > 0, 'must not be empty')
    .meta({ description: 'Days with school; 1 is Monday.', examples: [[1, 2, 3, 4, 5]] }),
};

const ConfigChange = z
  .strictObject(config)
  .partial()
  .meta({ id: 'TimetableConfigChange', description: 'Any of the fields; those that are not named stay. The day must end before midnight.' });

const Config = z
  .object({
    ...config,
    break_after: z.array(z.int()).meta({ description: 'Periods after which there is a short break.' }),
    working_days: z.array(dayOfWeek),
    periods: z
      .array(z.object({ period, start_time: time, end_time: time, is_lunch: z.boolean() }))
      .meta({ description: 'The periods of a day and their times.' }),
    ...timestamps,
  })
  .meta({ id: 'TimetableConfig' });

const slot = {
  class_id: id,
  subject_id: id.meta({ description: 'Need not be a subject of the class.' }),
  day_of_week: dayOfWeek,
  period,
  teacher_id: id.nullish().meta({ description: 'An active teacher; nobody in a study period.' }),
  room: optionalText(50).meta({ description: 'Where it is not the room of the class.', examples: ['Lab 2'] }),
};
const SlotInput = z.strictObject(slot).meta({ id: 'TimetableSlotInput' });
const SlotChange = z.strictObject(slot).partial().meta({ id: 'TimetableSlotChange', description: 'Any of the fields; those that are not named stay.' });
const SlotMove = z
  .strictObject({
    day_of_week: dayOfWeek,
    period,
    swap: z.boolean().optional().meta({ description: 'What the class has there changes places with it. Without it an occupied place is a 409.' }),
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
    start_time: time,
    end_time: time,
    room: z.string().nullable(),
    ...timestamps,
  })
  .meta({ id: 'TimetableSlot' });

const ConflictCheck = z
  .strictObject({
    class_id: id,
    teacher_id: id.nullish(),
    day_of_week: dayOfWeek,
    period,
    exclude_slot_id: id.nullish().meta({ description: 'The slot that would move there, which is in nobody’s way.' }),
  })
  .meta({ id: 'TimetableConflictCheck' });

const Conflicts = z
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
          .meta({ description: 'The slot in the way, for class and teacher; null where it is of a class that you do not reach.' }),
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
    time_limit_seconds: z
      .int()
      .min(1)
      .max(60)
      .optional()
      .meta({ description: 'How long the search may take; 10 without it. More time gives a better timetable.' }),
    seed: z
      .int()
      .min(0)
      .max(2_147_483_647)
      .optional()
      .meta({ description: 'Another seed gives another timetable, as good; the same one the same, where the school has not changed. 1 without it.' }),
    dry_run: z.boolean().optional().meta({ description: 'Answers the timetable and saves nothing.' }),
  })
  .meta({ id: 'TimetableGenerateInput' });

const Generated = z
  .object({
    status: z.enum(['complete', 'partial']).meta({ description: 'partial: something is unplaced.' }),
    placed: z.int().meta({ description: 'Periods that have a place.' }),
    unplaced: z.array(
      z.object({
        class_id: id,
        class_name: z.string(),
        subject_id: id,
        subject_name: z.string(),
        teacher_id: id.nullable(),
        teacher_name: z.string().nullable(),
        missing: z.int().meta({ description: 'Periods a week that have no place.' }),
        reason: z
          .enum(['no_teacher', 'teacher_inactive', 'class_full', 'teacher_clash', 'teacher_unavailable', 'teacher_busy', 'teacher_day_limit'])
          .meta({ description: 'What stands in the way most often.' }),
        message: z.string(),
      }),
    ),
    seconds: z.number().meta({ description: 'How long the search took.' }),
    figures: z.object({
      spread_excess: z.int().meta({ description: 'Periods of a subject beyond an even share on a day of its class, all of them together.' }),
      class_gaps: z.int().meta({ description: 'Free periods of classes before the last lesson of a day.' }),
      teacher_gaps: z.int().meta({ description: 'Free periods of teachers between two lessons of a day.' }),
    }),
    seed: z.int(),
    is_cut_short: z.boolean().meta({ description: 'The clock ended the search before its work was done: the same seed may then give another timetable.' }),
    slots: z.array(z.object({ class_id: id, subject_id: id, teacher_id: id, day_of_week: dayOfWeek, period })),
  })
  .meta({ id: 'GeneratedTimetable' });

/** How long whoever comes while another generate runs waits for it beyond their own time limit, in seconds. */
const patience = 5;

/**
 * Waits for the school's turn, searches in a thread, and saves: no transaction is open while it searches, and other requests are
 * served. The turn is given back however it ends, also when the client goes away.
 */
const generate: Handler = async ({ res, params, call, services }) => {
  const { time_limit_seconds = 10, seed = 1, dry_run = false, ...wanted } = params as z.output<typeof GenerateInput>;
  const gone = new AbortController();
  res.once('close', () => gone.abort(new ApiError('conflict', 'The request was given up.')));
  const begun = await turn(() => call('timetable_generate', { ...wanted, time_limit_seconds }), time_limit_seconds + patience, gone.signal);
  let isSaved = false;
  try {
    gone.signal.throwIfAborted();
    const found = await generateInThread(begun.problem, { seed, time_limit_ms: time_limit_seconds * 1000 }, gone.signal);
    if (found.status === 'infeasible') {
      const details = overCapacityOf(begun, found.over_capacity);
      throw new ApiError('schedule_conflict', `No timetable can hold all of this. ${details[0]?.message ?? ''}`.trim(), { details: details.slice(0, 20) });
    }
    const slots = slotsOf(begun, found.placed);
    const unplaced = unplacedOf(begun, found.unplaced);
    gone.signal.throwIfAborted();
    if (!dry_run) {
      const { run, digest, academic_year_id, class_ids } = begun;
      await call('timetable_generate_save', { run, digest, academic_year_id, class_ids, slots });
      isSaved = true;
    }
    const { spread_excess, class_gaps, teacher_gaps } = found.figures;
    return JSON.stringify({
      ...{ status: unplaced.length === 0 ? 'complete' : 'partial', placed: slots.length, unplaced, seconds: found.seconds },
      ...{ figures: { spread_excess, class_gaps, teacher_gaps }, seed, is_cut_short: found.is_cut_short, slots },
    });
  } finally {
    // Else the next one waits until the turn expires.
    if (!isSaved)
      await call('timetable_generate_end', { run: begun.run }).catch((error: unknown) => services.logger.warn({ operation: 'timetable_generate_end', error }));
  }
};

/** Asks again and again, at odd moments, while another generate of the school has its turn. @throws ApiError conflict when that takes too long */
async function turn(begin: () => Promise<string>, seconds: number, signal: AbortSignal): Promise<Begun> {
  const end = performance.now() + seconds * 1000;
  for (;;) {
    signal.throwIfAborted();
    const answer = JSON.parse(await begin()) as Begun | { busy_since: string };
    if (!('busy_since' in answer)) return answer;
    if (performance.now() > end) {
      throw new ApiError('conflict', `Another timetable of this school is being generated, since ${answer.busy_since}. Try again when it is done.`);
    }
    await pause(150 + Math.random() * 300);
  }
}

const inTheWay =
  '409 schedule_conflict, with a detail for each conflict, when the class or the teacher has something else then, the teacher is not available or would have more periods than their workload rule allows, at lunch, or outside the day and the week of the school.';

export const timetable = resource('/timetable', 'Timetable', 'The shape of the school day, and who teaches what when.', {
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
      'Places the class subjects that have an active teacher, and puts what it found in the place of all slots of these classes; partial names what found no place, and why.',
      "It keeps to the config, the teachers' availability and workload rules, and their lessons in other classes. Generates of a school take turns: one waits for another as long as its own time limit, then it is a 409 conflict.",
      '409 schedule_conflict, with who is asked for too much in the details, when no timetable can hold all of it; 409 conflict when there is nothing to place, or when the school was changed meanwhile. After any refusal the timetable is as it was. For whoever manages the timetable of the whole school.',
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
          .meta({ description: '1 is Monday.', examples: [1], override: { type: 'integer', minimum: 1, maximum: 7 } }),
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
  'DELETE /slots/:id': { operation: 'timetable_slots_delete', summary: 'Take a slot out of the timetable', answer: Deleted },
  'PATCH /slots/:id/move': {
    operation: 'timetable_slots_move',
    summary: 'Move a slot',
    description: `${inTheWay} An occupied place is one, unless \`swap\` says that both change places.`,
    body: SlotMove,
    answer: Slot,
  },
  'POST /check-conflicts': {
    operation: 'timetable_check_conflicts',
    summary: 'What would be in the way of a slot',
    description: 'Says what writing the slot would say. 422 for a class, a teacher or a slot that does not exist.',
    body: ConflictCheck,
    answer: Conflicts,
  },
  'GET /print': timetablePrint,
});
