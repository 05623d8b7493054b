import { z } from 'zod';
import { type Handler, json, resource } from '../http/endpoint.ts';
import { id, text, timestamp } from '../http/schemas.ts';

/** How long an impersonation lasts; db/core/lifetimes.sql decides it. */
export const impersonationMinutes = 10;

const ImpersonationInput = z
  .strictObject({
    reason: text(500, 10).meta({
      description: 'The reason. It is shown to the school and recorded in the audit log.',
      examples: ['The school asked why an invoice is missing.'],
    }),
    user_id: id
      .optional()
      .meta({ description: 'An active admin of the school. Default: the one who has been admin longest.' }),
  })
  .meta({ id: 'ImpersonationInput' });

export const Impersonation = z
  .object({
    access_token: z.string(),
    expires_at: timestamp.meta({
      description: `${String(impersonationMinutes)} minutes from now. There is no refresh token.`,
    }),
    impersonated_by: z
      .object({ id, email: z.string() })
      .meta({ description: 'The operator, who is also named in the token.' }),
    user: z.object({ id, email: z.string(), first_name: z.string(), last_name: z.string() }),
    tenant: z.object({ id, name: z.string(), subdomain: z.string() }),
    url: z
      .string()
      .nullable()
      .meta({ description: 'APP_URL with access_token and expires_at in its fragment; null without APP_URL.' }),
  })
  .meta({ id: 'Impersonation' });

type StartedImpersonation = Omit<z.output<typeof Impersonation>, 'access_token' | 'url'> & { session_id: number };

const impersonate: Handler = async ({ params, call, res, services }) => {
  const { session_id, ...started } = JSON.parse(
    await call('platform_tenants_impersonate', params),
  ) as StartedImpersonation;
  const { user, tenant, impersonated_by, expires_at } = started;
  const access_token = services.tokens.sign(
    { session_id, user_id: user.id, tenant_id: tenant.id, impersonated_by },
    expires_at,
  );
  const url = services.config.APP_URL === undefined ? null : new URL(services.config.APP_URL);
  // Browsers do not send the fragment to servers, so the token is in no log.
  if (url) url.hash = new URLSearchParams({ access_token, expires_at }).toString();
  res.set('Cache-Control', 'no-store');
  return JSON.stringify({ access_token, ...started, url: url?.href ?? null });
};

export const impersonation = resource('/platform', 'Impersonation', 'Operators act as admins of schools.', {
  'POST /tenants/:id/impersonate': {
    operation: 'platform_tenants_impersonate',
    summary: 'Log in as an admin of a school',
    description:
      `For ${String(impersonationMinutes)} minutes, if the school allows it (\`is_impersonation_allowed\`, otherwise ` +
      '409 invalid_state). ' +
      'Logins, roles, names of users, devices, calendar feeds, notification texts and the addresses to which ' +
      'messages and payments go cannot be changed. ' +
      'Each request is recorded in the audit log with both names, and the admins of the school are notified.',
    body: ImpersonationInput,
    response: json(Impersonation, { handler: impersonate }),
  },
});
