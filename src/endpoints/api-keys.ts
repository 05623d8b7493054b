import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { Deleted, flag, pathId, text, uniqueBy } from '../http/schemas.ts';
import { addMaxDays, createKey, keyAnswer, keyFields, newKey } from './parts/api-key.ts';

const permission = text(100).meta({ examples: ['student.read'] });

const fields = {
  ...keyFields,
  permissions: z
    .array(permission)
    .min(1)
    .max(200)
    .superRefine(uniqueBy())
    .meta({
      description:
        'Names of permissions, from `GET /api/rbac/permissions`. You must have each of them. A request may use those ' +
        'that you still have at that time.',
      examples: [['student.read', 'class.read']],
    }),
};

const ApiKeyInput = z.strictObject(fields).meta({ id: 'ApiKeyInput' });
const ApiKeyChange = z
  .strictObject({ ...fields, expires_at: fields.expires_at.unwrap() })
  .partial()
  .meta({ id: 'ApiKeyChange', description: 'Any subset of the fields of an API key.' });

export const ApiKey = z.object({ ...keyAnswer, permissions: z.array(z.string()) }).meta({ id: 'ApiKey' });

const NewApiKey = ApiKey.extend({ key: newKey }).meta({ id: 'NewApiKey' });

export const apiKeys = resource(
  '/api-keys',
  'API keys',
  'Keys for programs, sent as `Authorization: Bearer sk_…` instead of an access token. A key acts for the user who ' +
    'made ' +
    'it, with those permissions in its list that the user still has, while the user can log in. It cannot be used ' +
    'for operations that need no permission, except for some that only read; ' +
    'nor to manage logins, sessions, calendar feeds and API keys. Requires access to the whole school.',
  {
    'GET /': {
      operation: 'api_keys_list',
      summary: 'List API keys',
      description: 'The keys of all users of the school. `search` matches name, prefix and email of the user.',
      response: page(ApiKey, {
        user_id: pathId.optional(),
        permission: permission.optional(),
        is_expired: flag.optional(),
      }),
    },
    'POST /': {
      operation: 'api_keys_create',
      summary: 'Create an API key',
      description:
        '403 `forbidden` for a permission that you do not have. 409 `conflict` if you have 20 keys. An expiry may be ' +
        'required and limited by the service.',
      body: ApiKeyInput,
      resolve: addMaxDays,
      response: created(NewApiKey, { handler: createKey('api_keys_create') }),
    },
    'GET /:id': { operation: 'api_keys_get', summary: 'Get an API key', response: json(ApiKey) },
    'PUT /:id': {
      operation: 'api_keys_update',
      summary: 'Update an API key',
      description:
        'Only your own. The key itself stays the same. 403 `forbidden` for a new permission that you do not have.',
      body: ApiKeyChange,
      resolve: addMaxDays,
      response: json(ApiKey),
    },
    'DELETE /:id': {
      operation: 'api_keys_delete',
      summary: 'Revoke an API key',
      description:
        'It stops working at once. To revoke the key of another user, you need all permissions in its list (403 ' +
        '`forbidden`).',
      response: json(Deleted),
    },
  },
);
