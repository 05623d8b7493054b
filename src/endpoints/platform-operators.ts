import { z } from 'zod';
import { choice } from '../http/coercion.ts';
import { created, json, page, resource } from '../http/endpoint.ts';
import { email, flag, id, lastName, nameText, timestamp, timestamps } from '../http/schemas.ts';

const role = choice(['admin', 'analyst']);

/** The role of an operator or of an API key, and the schools of an analyst. */
export const operatorAccess = {
  role,
  tenant_ids: z
    .array(id)
    .min(1)
    .max(1000)
    .nullish()
    .meta({ description: 'The schools whose figures an analyst may see; null for all. Admins see every school.' }),
};

/** The schools of an analyst, in a response. */
export const schoolNames = z
  .array(z.object({ id, name: z.string() }))
  .nullable()
  .meta({ description: 'The schools of `tenant_ids` with their names.' });

export const Operator = z
  .object({
    id,
    email: z.string(),
    first_name: z.string(),
    last_name: z.string(),
    role: z.enum(['admin', 'analyst']),
    tenant_ids: z.array(id).nullable(),
    tenants: schoolNames,
    is_active: z.boolean(),
    is_invited: z.boolean().meta({ description: 'True until the operator has chosen a password.' }),
    has_second_factor: z.boolean().meta({ description: 'Whether logins of this operator need a second factor.' }),
    last_login_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'Operator' });

export const operators = resource('/platform/operators', 'Operators', 'What operators do for each other.', {
  'GET /': {
    operation: 'platform_operators_list',
    summary: 'List operators',
    description: 'By email. Searches name and email.',
    response: page(Operator, { role: role.optional(), is_active: flag.optional() }),
  },
  'POST /': {
    operation: 'platform_operators_create',
    summary: 'Invite an operator',
    description: 'Sends an email with a link to choose a password. The link works once, for seven days.',
    body: z
      .strictObject({
        email,
        first_name: nameText(100).meta({ examples: ['Noor'] }),
        last_name: lastName.meta({ examples: ['Haddad'] }),
        ...operatorAccess,
      })
      .meta({ id: 'OperatorInput' }),
    response: created(Operator),
  },
  'POST /second-factor-reset': {
    operation: 'platform_operators_second_factor_reset',
    summary: 'Reset the second factor of another operator',
    description: 'For an operator who has lost their second factor. Sends the operator an email. Audited.',
    body: z.strictObject({ email }).meta({ id: 'SecondFactorReset' }),
    response: json(z.object({ id }).meta({ id: 'SecondFactorResetAnswer' })),
  },
  'GET /:id': { operation: 'platform_operators_get', summary: 'Get an operator', response: json(Operator) },
  'PUT /:id': {
    operation: 'platform_operators_update',
    summary: 'Change the role, the schools or the access of an operator',
    description:
      'Ends the sessions of the operator. 409 conflict if you would lose your own access, 409 invalid_state if no ' +
      'active admin would be left.',
    body: z
      .strictObject({ ...operatorAccess, is_active: z.boolean() })
      .partial()
      .meta({ id: 'OperatorChange' }),
    response: json(Operator),
  },
  'POST /:id/invitation': {
    operation: 'platform_operators_invite',
    summary: 'Send the invitation again',
    description: '409 invalid_state if the operator has a password, is disabled, or was invited within two minutes.',
    response: json(Operator),
  },
});
