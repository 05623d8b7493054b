import { z } from 'zod';
import { resource } from '../endpoint.ts';
import { Deleted, id, optionalText, page, pathId, timestamps } from '../schemas.ts';
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

/** A time of day. */
const time = z
  .string()
  .regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'must be a time, HH:MM')
  .meta({ description: 'A time of day, `HH:MM`.', examples: ['08:45'] });

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
