import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { clock, Deleted, id, optionalNameText, pathId, timestamps, uniqueBy } from '../http/schemas.ts';
import { timetablePrint } from './schedule.ts';
import { dayOfWeek, dayOfWeekParameter, maxPeriods, period } from './parts/school-day.ts';

/** A list of distinct numbers, sorted. */
const distinctNumbers = (number: z.ZodInt, maxLength: number) =>
  z
    .array(number)
    .max(maxLength)
    .superRefine(uniqueBy())
    .transform((list) => [...list].sort((a, b) => a - b));

const config = {
  total_periods: z.int().min(1).max(maxPeriods).meta({ description: 'Number of periods in a day, including lunch.' }),
  lunch_start_period: z
    .int()
    .min(1)
    .max(maxPeriods)
    .nullable()
    .meta({ description: 'First period of lunch. Null if there is no lunch.' }),
  lunch_periods: z.int().min(1).max(4).meta({ description: 'Number of periods of lunch.' }),
  period_duration: z.int().min(5).max(240).meta({ description: 'Length of a period in minutes.' }),
  start_time: clock.meta({ description: 'Start of period 1, `HH:MM`.' }),
  break_after: distinctNumbers(z.int().min(1).max(maxPeriods), maxPeriods).meta({
    description:
      'Periods that are followed by a short break. Each break delays the rest of the day by `break_duration` minutes.',
    examples: [[2]],
  }),
  break_duration: z.int().min(1).max(120).meta({ description: 'Length of a short break in minutes.' }),
  working_days: distinctNumbers(dayOfWeek, 7)
    .refine((days) => days.length > 0, 'must not be empty')
    .meta({ description: 'Days of the week with school; 1 is Monday.', examples: [[1, 2, 3, 4, 5]] }),
};

const ConfigChange = z.strictObject(config).partial().meta({
  id: 'TimetableConfigChange',
  description: 'Any subset of the fields. The day must end before midnight.',
});

export const Config = z
  .object({
    ...config,
    break_after: z.array(z.int()).meta({ description: 'Periods that are followed by a short break.' }),
    working_days: z.array(dayOfWeek),
    periods: z
      .array(z.object({ period, start_time: clock, end_time: clock, is_lunch: z.boolean() }))
      .meta({ description: 'The periods of a day with their times.' }),
    ...timestamps,
  })
  .meta({ id: 'TimetableConfig' });

const isPinned = z.boolean().meta({ description: 'Whether the slot stays in place when a timetable is generated.' });
/** A slot that a person places stays where it is. */
const pinnedByDefault = (what: string) =>
  isPinned.optional().meta({
    description: `Whether the slot stays in place when a timetable is generated. By default true for ${what}.`,
  });

const slotFields = {
  class_id: id,
  subject_id: id.meta({ description: 'Does not have to be one of the subjects of the class.' }),
  day_of_week: dayOfWeek,
  period,
  teacher_id: id.nullish().meta({ description: 'An active teacher. Null for a study period.' }),
  room: optionalNameText(50).meta({
    description:
      'Only if it differs from the room of the class. A text that is the name of a room is that room; other texts ' +
      'have no conflicts.',
    examples: ['Lab 2'],
  }),
  room_id: id.nullish().meta({
    description: 'An active room, only if it differs from the home room of the class. Sets `room`.',
  }),
};
const SlotInput = z
  .strictObject({ ...slotFields, is_pinned: pinnedByDefault('a new slot') })
  .meta({ id: 'TimetableSlotInput' });
const SlotChange = z
  .strictObject({
    ...slotFields,
    is_pinned: pinnedByDefault('a slot whose class, subject, teacher, time or room changes'),
  })
  .partial()
  .meta({ id: 'TimetableSlotChange', description: 'Any subset of the fields of a slot.' });
const SlotMove = z
  .strictObject({
    day_of_week: dayOfWeek,
    period,
    swap: z.boolean().optional().meta({
      description: 'Swap with the slot that the class has at that time. By default an occupied time is a 409.',
    }),
    is_pinned: pinnedByDefault('a slot that moves, on both sides of a swap'),
  })
  .meta({ id: 'TimetableSlotMove' });

const Slot = z
  .object({
    id,
    class_id: id,
    class_name: z.string().meta({ description: 'Name and section of the class.' }),
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
    room: z.string().nullable().meta({ description: 'Null if it is the room of the class.' }),
    room_id: id.nullable().meta({ description: 'Null if it is the room of the class, or a text that is no room.' }),
    class_room: z.string().nullable().meta({ description: 'The room of the class.' }),
    home_room_id: id.nullable().meta({ description: 'The home room of the class.' }),
    is_pinned: isPinned,
    ...timestamps,
  })
  .meta({ id: 'TimetableSlot' });
export const MovedSlot = z
  .object({
    ...Slot.shape,
    swapped_with: Slot.nullable().meta({ description: 'The other slot of a swap, at its new time.' }),
  })
  .meta({ id: 'MovedTimetableSlot' });

const ConflictCheck = z
  .strictObject({
    class_id: id,
    teacher_id: id.nullish(),
    room: slotFields.room,
    room_id: id.nullish().meta({
      description: 'By default the room of `exclude_slot_id`, or else the home room of the class.',
    }),
    day_of_week: dayOfWeek,
    period,
    exclude_slot_id: id.nullish().meta({ description: 'The slot to move. It conflicts with nothing.' }),
    swap: z.boolean().optional().meta({
      description: 'Check a swap of `exclude_slot_id` with the slot that the class has at that time.',
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
        kind: z.enum([
          'class',
          'teacher',
          'room',
          'availability',
          'workload_day',
          'workload_week',
          'lunch',
          'outside_day',
        ]),
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
              'For the kinds `class`, `teacher` and `room`: the conflicting slot. Null if you may not see its class.',
          }),
      }),
    ),
  })
  .meta({ id: 'TimetableConflicts' });

const conflictNote =
  '409 `schedule_conflict` if the class, the teacher or the room (unless it is shared) already has a slot at that ' +
  'time, the teacher is not available ' +
  'or would exceed their workload rule, or the time is at lunch or outside the school day or week. ' +
  'Each detail has the `kind` of the conflict, as in `check-conflicts`, and the `slot_id` of the conflicting slot.';

export const timetable = resource(
  '/timetable',
  'Timetable',
  'The school day, and which class has which subject and teacher when.',
  {
    'GET /config': {
      operation: 'timetable_config_get',
      summary: 'Get the configuration of the school day',
      response: json(Config),
    },
    'PUT /config': {
      operation: 'timetable_config_update',
      summary: 'Update the configuration of the school day',
      description:
        'Requires `timetable.manage` for the whole school. 409 `schedule_conflict` if slots of the current or a ' +
        'later academic year would be outside the day, at lunch or on a day without school.',
      body: ConfigChange,
      response: json(Config),
    },
    'GET /slots': {
      operation: 'timetable_slots_list',
      summary: 'List slots',
      description:
        'Slots of the current academic year, unless `class_id` or `academic_year_id` is given. `search` matches ' +
        'class, subject, teacher and room. A teacher sees the classes that they teach, a student their own class. ' +
        'The week of a class fits on one page of 100.',
      response: page(Slot, {
        class_id: pathId.optional(),
        teacher_id: pathId.optional(),
        room_id: pathId.optional().meta({ description: 'Lessons in this room, also as the home room of a class.' }),
        academic_year_id: pathId.optional(),
        day_of_week: dayOfWeekParameter.optional(),
      }),
    },
    'POST /slots': {
      operation: 'timetable_slots_create',
      summary: 'Create a slot',
      description: conflictNote,
      body: SlotInput,
      response: created(Slot),
    },
    'GET /slots/:id': { operation: 'timetable_slots_get', summary: 'Get a slot', response: json(Slot) },
    'PUT /slots/:id': {
      operation: 'timetable_slots_update',
      summary: 'Update a slot',
      description: `${conflictNote} Only what the update changes is checked.`,
      body: SlotChange,
      response: json(Slot),
    },
    'DELETE /slots/:id': {
      operation: 'timetable_slots_delete',
      summary: 'Delete a slot',
      response: json(Deleted),
    },
    'PATCH /slots/:id/move': {
      operation: 'timetable_slots_move',
      summary: 'Move a slot',
      description: `${conflictNote} With \`swap\`, a slot that the class has at that time moves to the old time.`,
      body: SlotMove,
      response: json(MovedSlot),
    },
    'POST /check-conflicts': {
      operation: 'timetable_check_conflicts',
      summary: 'Check a slot for conflicts',
      description:
        'Lists the conflicts that writing the slot would raise. 422 for an unknown class, teacher, room or slot.',
      body: ConflictCheck,
      response: json(Conflicts),
    },
    'GET /print': timetablePrint,
  },
);
