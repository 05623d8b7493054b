import { z } from 'zod';
import { generateTimetable } from '../timetable/generation.ts';
import { disconnectSignal } from '../http/disconnect.ts';
import { type Handler, json, resource } from '../http/endpoint.ts';
import { id } from '../http/schemas.ts';
import { requestOwner } from '../http/request-owner.ts';
import { dayOfWeek, period } from './parts/school-day.ts';

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

export const timetableGenerate = resource(
  '/timetable',
  'Timetable generator',
  'Finds days, periods and rooms for the lessons of all class subjects.',
  {
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
  },
);
