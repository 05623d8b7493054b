import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import {
  Deleted,
  email,
  flag,
  id,
  lastName,
  nameText,
  optionalText,
  pathId,
  phone,
  timestamps,
  uniqueBy,
} from '../http/schemas.ts';
import { endsAfterStart, link, linkOutput } from './parts/guardian-link.ts';
import { newLogin } from './parts/new-login.ts';

const fields = {
  // With a last name, at most the 200 characters of the contact of a student.
  first_name: nameText(99).meta({ examples: ['Lucía'] }),
  last_name: lastName.meta({ examples: ['García'] }),
  email: email.nullish().meta({
    description:
      'Where the school writes to a guardian without a login. A login has an address of its own, which gets the ' +
      'messages then.',
  }),
  phone,
  address: optionalText(500),
  user_id: id.nullish().meta({
    description:
      'The login of the guardian. In a request: a user who becomes the guardian and gets the role guardian. Null ' +
      'ends the login; a user with other roles only loses this one.',
  }),
  ...newLogin.fields('guardian'),
};

/** The login is a new one or that of a user, not both. */
const oneLogin: [
  (guardian: { user_id?: unknown; create_user_account?: boolean | null | undefined }) => boolean,
  { path: string[]; message: string },
] = [
  ({ user_id, create_user_account }) => !user_id || create_user_account !== true,
  { path: ['user_id'], message: 'is not allowed with create_user_account' },
];

const GuardianInput = z
  .strictObject({
    ...fields,
    children: z
      .array(z.strictObject({ student_id: id, ...link }).refine(...endsAfterStart))
      .max(50)
      .superRefine(uniqueBy('student_id'))
      .optional()
      .meta({ description: 'The students whom the guardian cares for.' }),
  })
  .refine(...newLogin.emailRule)
  .refine(...newLogin.passwordRule)
  .refine(...oneLogin)
  .meta({ id: 'GuardianInput' });

const GuardianChange = z
  .strictObject(fields)
  .partial()
  .refine(...newLogin.passwordRule)
  .meta({ id: 'GuardianChange', description: 'Any subset of the fields of a guardian.' });

export const Guardian = z
  .object({
    id,
    first_name: z.string().meta({ examples: ['Lucía'] }),
    last_name: z.string(),
    email: z.string().nullable(),
    phone: z.string().nullable(),
    address: z.string().nullable(),
    user_id: id.nullable().meta({ description: 'The login of the guardian.' }),
    children: z.array(
      z.object({
        student_id: id,
        student_name: z.string(),
        class_id: id.nullable(),
        class_name: z.string().nullable(),
        ...linkOutput,
      }),
    ),
    ...timestamps,
  })
  .meta({ id: 'Guardian' });

export const guardians = resource(
  '/guardians',
  'Guardians',
  'The people who care for students, such as parents. A guardian with a login sees their children, and nothing else.',
  {
    'GET /': {
      operation: 'guardians_list',
      summary: 'List guardians',
      description:
        'By last name. `search` matches name, email and phone. Teachers see the guardians of their students.',
      response: page(Guardian, { student_id: pathId.optional(), has_login: flag.optional() }),
    },
    'POST /': {
      operation: 'guardians_create',
      summary: 'Create a guardian',
      description:
        'With `children`, also links them to students. `create_user_account` creates a login for the email; 409 ' +
        '`conflict` if a user has this address: send the `user_id` instead, unless it is the login of a student.',
      body: GuardianInput,
      passwordField: 'password',
      response: created(Guardian),
    },
    'GET /:id': { operation: 'guardians_get', summary: 'Get a guardian', response: json(Guardian) },
    'PUT /:id': {
      operation: 'guardians_update',
      summary: 'Update a guardian',
      description:
        'A new name, phone or email is also that of the contact of the students whose primary guardian it is. The ' +
        'address of the login never changes in this way. Guardians change their own email, phone and address.',
      body: GuardianChange,
      passwordField: 'password',
      response: json(Guardian),
    },
    'DELETE /:id': {
      operation: 'guardians_delete',
      summary: 'Delete a guardian',
      description: 'Removes the guardian from all students and ends the login.',
      response: json(Deleted),
    },
  },
);
