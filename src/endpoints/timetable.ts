import { z } from 'zod';
import { generateTimetable } from '../timetable/generation.ts';
import { disconnectSignal } from '../http/disconnect.ts';
import { created, type Handler, json, page, resource } from '../http/endpoint.ts';
import { clock, Deleted, id, optionalNameText, pathId, timestamps, uniqueBy } from '../http/schemas.ts';
import { requestOwner } from '../http/request-owner.ts';
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
    is_pinned: pinnedByDefault('a slot whose class, subject, teacher or time changes'),
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

const GenerateInput = z
  .strictObject({
    class_ids: z
      .array(id)
      .min(1)
      .max(1000)
      .optional()
      .meta({ description: 'Classes of one academic year. By default all classes of the year that have subjects.' }),
    academic_year_id: id.optional().meta({ description: 'By default that of the classes, or the current one.' }),
    effort: z
      .int()
      .min(1)
      .max(60)
      .optional()
      .meta({
        description:
          'Amount of search work, independent of the speed of the machine. More effort gives a better timetable. ' +
          'Each unit takes at most a second on an idle machine. Default: 10, or `time_limit_seconds` if that is less.',
      }),
    time_limit_seconds: z
      .int()
      .min(1)
      .max(60)
      .optional()
      .meta({
        description:
          'Stops the search after this time (`is_cut_short`), which normally happens only on a very busy machine. ' +
          'Default: 60.',
      }),
    seed: z
      .int()
      .min(0)
      .max(2_147_483_647)
      .optional()
      .meta({
        description:
          'A different seed gives a different timetable of the same quality. The same seed and effort give the same ' +
          'timetable for an unchanged school, unless `is_cut_short`. Default: 1.',
      }),
    allow_partial: z
      .boolean()
      .optional()
      .meta({
        description:
          'If the lessons exceed the capacity, place as many as possible instead of answering a 409. ' +
          '`unplaced` lists the others.',
      }),
    replace_pinned: z
      .boolean()
      .optional()
      .meta({ description: 'Replace all slots of the classes, also those that are pinned. Default: false.' }),
    dry_run: z.boolean().optional().meta({ description: 'Return the timetable without saving it.' }),
  })
  .meta({ id: 'TimetableGenerateInput' });

const lesson = { class_id: id, class_name: z.string(), subject_id: id, subject_name: z.string() };
const teacherOfLesson = { teacher_id: id.nullable(), teacher_name: z.string().nullable() };

export const Generated = z
  .object({
    status: z.enum(['complete', 'partial']).meta({ description: '`partial` if any lesson is unplaced.' }),
    placed: z.int().meta({ description: 'Number of slots of the new timetable.' }),
    removed: z.int().meta({
      description: 'Number of slots that were deleted. With `dry_run`: that would be deleted.',
    }),
    pinned_conflicts: z
      .array(
        z.object({
          slot_id: id,
          ...lesson,
          ...teacherOfLesson,
          day_of_week: dayOfWeek,
          period,
          kind: z.enum(['availability', 'lunch', 'outside_day', 'subject', 'teacher_inactive']),
          message: z.string(),
        }),
      )
      .meta({
        description:
          'Pinned slots that stay although they no longer fit the configuration, the teacher or the subjects of the ' +
          'class, one entry for each reason. Move or delete them by hand, or use `replace_pinned`.',
      }),
    unplaced: z.array(
      z.object({
        ...lesson,
        ...teacherOfLesson,
        missing: z.int().meta({ description: 'Periods per week without a slot.' }),
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
            'room_taken',
          ])
          .meta({ description: 'The most frequent reason.' }),
        message: z.string(),
      }),
    ),
    over_capacity: z
      .array(z.object({ path: z.string().meta({ examples: ['teacher.1'] }), message: z.string() }))
      .meta({ description: 'With `allow_partial`: the details of the 409 that would be answered without it.' }),
    seconds: z.number().meta({ description: 'Duration of the search.' }),
    figures: z.object({
      spread_excess: z.int().meta({
        description: 'Sum of the periods that exceed an even distribution of a subject over the days of its class.',
      }),
      class_gaps: z.int().meta({ description: 'Free periods of classes before their last lesson of a day.' }),
      teacher_gaps: z.int().meta({ description: 'Free periods of teachers between two lessons on a day.' }),
    }),
    seed: z.int(),
    effort: z.int(),
    is_cut_short: z.boolean().meta({
      description:
        'The time limit ended the search before its effort was spent. The same seed may then give another timetable.',
    }),
    slots: z.array(
      z.object({
        id: id.nullable().meta({ description: 'Null with `dry_run`.' }),
        ...lesson,
        teacher_id: id,
        teacher_name: z.string(),
        day_of_week: dayOfWeek,
        period,
        room: z.string().nullable().meta({ description: 'Null if it is the room of the class.' }),
        room_id: id.nullable().meta({ description: 'A room of the subject. Null if it is the room of the class.' }),
      }),
    ),
  })
  .meta({ id: 'GeneratedTimetable' });

/** Runs with the rights and the school of the caller. */
const generate: Handler = async ({ req, res, params, call, callAfterDisconnect, admit, services }) => {
  await admit();
  return generateTimetable(params, {
    // An admitted key that is new to this process counts for its address, but for its own school here.
    schoolId: req.apiKey?.tenantId ?? req.claims?.tenant_id ?? 0,
    owner: requestOwner(req),
    disconnect: disconnectSignal(res),
    call,
    callAfterDisconnect,
    logger: services.logger,
    ...services.timing,
  });
};

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
    'POST /generate': {
      operation: 'timetable_generate',
      summary: 'Generate a timetable',
      description: [
        'Places the lessons of all class subjects that have an active teacher. The new slots replace all slots of ' +
          'the classes, except pinned ones: those that a person made or moved, unless `is_pinned` is false. ' +
          'With `replace_pinned` they replace these too. The status `partial` means that some lessons are unplaced; ' +
          '`unplaced` gives the reasons. Without a body it generates the timetable of all classes of the current year.',
        'It respects the configuration, the rules of teachers, and their lessons in other classes. The lessons of a ' +
          'subject with rooms take place in one of them, others in the home room of the class; only shared rooms ' +
          'have several lessons at a time. A school generates one timetable at a time; two more requests wait, so ' +
          'a response can take twice its time limit. Further ones get a 409 `conflict`.',
        '409 `schedule_conflict` if no timetable has room for all lessons. The details list what is over capacity: ' +
          'the path is `class.26`, `teacher.1`, `room.3`, `day.2` (Tuesday), `period.2.5` or `week`. 409 `conflict` ' +
          'if there is nothing to place, or if the school was changed in the meantime. After an error the timetable ' +
          'is unchanged. Requires `timetable.manage` for the whole school.',
      ].join('\n\n'),
      body: GenerateInput,
      response: json(Generated, { handler: generate }),
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
