import { z } from 'zod';
import { created, file, json, page, resource } from '../http/endpoint.ts';
import {
  Deleted,
  email,
  flag,
  id,
  lastName,
  nameText,
  password,
  pathId,
  phone,
  pictureUrl,
  timestamp,
  timestamps,
} from '../http/schemas.ts';
import { Session } from './parts/session.ts';

const fields = {
  email,
  first_name: nameText(100).meta({ examples: ['Noor'] }),
  last_name: lastName.meta({ examples: ['Haddad'] }),
  phone,
  password: password.optional().meta({ description: 'Without it, an invitation is sent by email.' }),
  role_ids: z.array(id).max(50).optional(),
  is_active: z.boolean().optional(),
};

const UserInput = z.strictObject(fields).meta({ id: 'UserInput' });
const UserChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'UserChange', description: 'Fields of a user. Omitted fields are not changed.' });

export const User = z
  .object({
    id,
    email: z.string(),
    first_name: z.string(),
    last_name: z.string(),
    phone: z.string().nullable(),
    is_active: z.boolean(),
    email_verified: z.boolean(),
    profile_picture_url: pictureUrl,
    role_ids: z.array(id),
    roles: z.array(z.string()).meta({ description: 'Names of the roles.' }),
    has_second_factor: z.boolean().meta({ description: 'Whether logins of this user need a second factor.' }),
    last_login_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'User' });

export const users = resource('/users', 'Users', 'Who can log in to a school.', {
  'GET /': {
    operation: 'users_list',
    summary: 'List users',
    description: 'Searches name, email and phone.',
    response: page(User, { role_id: pathId.optional(), is_active: flag.optional() }),
  },
  'POST /': {
    operation: 'users_create',
    summary: 'Create a user',
    body: UserInput,
    passwordField: 'password',
    response: created(User),
  },
  'GET /:id': { operation: 'users_get', summary: 'Get a user', response: json(User) },
  'PUT /:id': {
    operation: 'users_update',
    summary: 'Update a user',
    description: 'A new password or is_active=false ends their sessions. A new email must be verified.',
    body: UserChange,
    passwordField: 'password',
    response: json(User),
  },
  'DELETE /:id': { operation: 'users_delete', summary: 'Delete a user', response: json(Deleted) },
  'GET /:id/sessions': {
    operation: 'users_sessions_list',
    summary: 'List the sessions of a user',
    description: 'The one that was used last comes first. At most 20; impersonations are not listed.',
    response: page(Session),
  },
  'DELETE /:id/sessions/:session_id': {
    operation: 'users_sessions_delete',
    summary: 'End a session of a user',
    description:
      'Its access token and refresh token stop working at once, and its device is no longer known. ' +
      'Forbidden for a user with permissions that you do not have.',
    response: json(Deleted),
  },
  'DELETE /:id/two-factor': {
    operation: 'users_second_factor_delete',
    summary: 'Reset the second factor of a user',
    description:
      'For a user who has lost their second factor. Sends the user an email. They log in with the password alone ' +
      'unless the school ' +
      'requires a second factor. Audited. Forbidden for a user with permissions that you do not have.',
    response: json(Deleted),
  },
  'GET /:id/picture': {
    operation: 'users_picture',
    summary: 'Get the picture of a user',
    query: z.strictObject({
      v: z.string().max(50).optional().meta({ description: 'Version of the picture, for caches.' }),
    }),
    response: file(['image/jpeg', 'image/png']),
  },
});
