import { z } from 'zod';
import { created, type Endpoint, json, page, resource } from '../http/endpoint.ts';
import { Deleted, flag, id, pathId } from '../http/schemas.ts';
import { addMaxDays, createKey, keyAnswer, keyFields, newKey } from './parts/api-key.ts';
import { operatorAccess, schoolNames } from './platform-operators.ts';

const fields = {
  ...keyFields,
  ...operatorAccess,
  is_read_only: z.boolean().optional().meta({
    description: 'By default true: only operations that change and record nothing. Exports are recorded.',
  }),
};

const PlatformApiKeyInput = z.strictObject(fields).meta({ id: 'PlatformApiKeyInput' });
const PlatformApiKeyChange = z
  .strictObject({ ...fields, expires_at: fields.expires_at.unwrap(), is_read_only: fields.is_read_only.unwrap() })
  .partial()
  .meta({ id: 'PlatformApiKeyChange' });

export const PlatformApiKey = z
  .object({
    ...keyAnswer,
    role: z.enum(['admin', 'analyst']),
    tenant_ids: z.array(id).nullable(),
    tenants: schoolNames,
    is_read_only: z.boolean(),
  })
  .meta({ id: 'PlatformApiKey' });

const NewPlatformApiKey = PlatformApiKey.extend({ key: newKey }).meta({ id: 'NewPlatformApiKey' });

const addRequirements: Endpoint['resolve'] = (params, services) => ({
  ...addMaxDays(params, services),
  is_second_factor_required: services.config.OPERATORS_NEED_SECOND_FACTOR,
});

export const platformApiKeys = resource(
  '/platform/api-keys',
  'Platform API keys',
  'Keys for programs of operators, `sk_platform_…`, sent as `Authorization: Bearer`. A request has the lesser of the ' +
    'role of the key and the current role of the operator who made it. Not for operators, keys, webhooks, ' +
    'impersonation and the own account. Admins see all keys, analysts their own.',
  {
    'GET /': {
      operation: 'platform_api_keys_list',
      summary: 'List API keys of the platform',
      description: '`search` matches name, prefix and email of the operator.',
      response: page(PlatformApiKey, {
        user_id: pathId.optional(),
        role: operatorAccess.role.optional(),
        is_expired: flag.optional(),
      }),
    },
    'POST /': {
      operation: 'platform_api_keys_create',
      summary: 'Create an API key of the platform',
      description:
        '403 `forbidden` for a role above your own, or without a second factor if operators need one. 409 `conflict` ' +
        'if you have 20 keys.',
      body: PlatformApiKeyInput,
      resolve: addRequirements,
      response: created(NewPlatformApiKey, { handler: createKey('platform_api_keys_create') }),
    },
    'GET /:id': {
      operation: 'platform_api_keys_get',
      summary: 'Get an API key of the platform',
      response: json(PlatformApiKey),
    },
    'PUT /:id': {
      operation: 'platform_api_keys_update',
      summary: 'Update an API key of the platform',
      description: 'Only your own. The key itself stays the same.',
      body: PlatformApiKeyChange,
      resolve: addMaxDays,
      response: json(PlatformApiKey),
    },
    'DELETE /:id': {
      operation: 'platform_api_keys_delete',
      summary: 'Revoke an API key of the platform',
      description: 'It stops working at once.',
      response: json(Deleted),
    },
  },
);
