import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { Deleted, flag, id, nameText, pathId, timestamps } from '../http/schemas.ts';

const fields = {
  name: nameText(50).meta({ description: 'Unique within the school, ignoring case.', examples: ['Lab 1'] }),
  capacity: z
    .int()
    .min(1)
    .max(10_000)
    .nullish()
    .meta({ description: 'Number of students.', examples: [24] }),
  school_unit_id: id.nullish().meta({ description: 'The unit of the school that the room belongs to.' }),
  is_shared: z
    .boolean()
    .optional()
    .meta({ description: 'Whether several lessons may take place in it at a time, as in a hall. Default: false.' }),
  is_active: z
    .boolean()
    .optional()
    .meta({ description: 'Whether the room can be used for new lessons. Default: true.' }),
};

const RoomInput = z.strictObject(fields).meta({ id: 'RoomInput' });
const RoomChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'RoomChange', description: 'Any subset of the fields of a room.' });

export const Room = z
  .object({
    id,
    name: z.string(),
    capacity: z.int().nullable(),
    school_unit_id: id.nullable(),
    school_unit_name: z.string().nullable(),
    is_shared: z.boolean(),
    is_active: z.boolean(),
    ...timestamps,
  })
  .meta({ id: 'Room' });

export const rooms = resource(
  '/rooms',
  'Rooms',
  'The rooms in which lessons take place. Every user of the school may read them.',
  {
    'GET /': {
      operation: 'rooms_list',
      summary: 'List rooms',
      description: '`search` matches the name.',
      response: page(Room, {
        school_unit_id: pathId.optional(),
        is_shared: flag.optional(),
        is_active: flag.optional(),
      }),
    },
    'POST /': {
      operation: 'rooms_create',
      summary: 'Create a room',
      description: '409 `conflict` if another room has this name.',
      body: RoomInput,
      response: created(Room),
    },
    'GET /:id': { operation: 'rooms_get', summary: 'Get a room', response: json(Room) },
    'PUT /:id': {
      operation: 'rooms_update',
      summary: 'Update a room',
      description:
        'A new name also replaces the earlier one in classes and slots. 409 `conflict` if another room has this ' +
        'name, 409 `schedule_conflict` if `is_shared` becomes false while several lessons take place in the room at ' +
        'a time.',
      body: RoomChange,
      response: json(Room),
    },
    'DELETE /:id': {
      operation: 'rooms_delete',
      summary: 'Delete a room',
      description:
        '409 `in_use` while a class, a subject or a slot refers to it, also one of a past year. Set `is_active` to ' +
        'false instead.',
      response: json(Deleted),
    },
  },
);
