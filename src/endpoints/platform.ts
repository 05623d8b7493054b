import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { priceCurrency, subscriptionStatus } from './subscription.ts';
import { withCheck } from '../http/checks.ts';
import { choice } from '../http/coercion.ts';
import {
  currencyCode,
  currencyDecimals,
  currencyWarnings,
  date,
  Deleted,
  email,
  hasCurrencyDecimals,
  id,
  maxAmount,
  moment,
  lastName,
  nameText,
  password,
  pathId,
  text,
  timestamp,
  timestamps,
} from '../http/schemas.ts';
import { schoolFilters } from './platform-schools.ts';

export const features = ['attendance', 'fees_management', 'timetable', 'transport', 'notifications'] as const;
const featureName = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,49}$/, 'must be a feature name: lower case letters, digits and _')
  .meta({
    description: `The features ${features.join(', ')} enable their endpoints. Any other name is stored and returned.`,
    examples: ['transport'],
  });
const price = withCheck(
  z
    .number()
    .min(0)
    .max(maxAmount)
    .refine(hasCurrencyDecimals, 'must have at most 4 decimals')
    .meta({
      description: 'An amount, with at most as many decimals as the currency of prices has.',
      examples: [149.0],
    }),
  { check: 'amount' },
);
const subdomain = z
  .string()
  .trim()
  .toLowerCase()
  .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'must be a DNS label: letters, digits and hyphens')
  .meta({ examples: ['green-valley'], override: { type: 'string', pattern: '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$' } });

const tenantFields = {
  name: nameText(200).meta({ examples: ['Green Valley School'] }),
  subdomain,
  contact_email: email,
  plan_id: id.optional(),
  plan: z
    .strictObject({ id, name: z.string().max(100).optional() })
    .meta({ id: 'PlanChoice', description: 'The plan as it is returned; `name` is ignored.', examples: [{ id: 2 }] })
    .optional(),
  trial_ends_at: moment.nullish().meta({
    description:
      'End of the trial. A new school is `trialing` until then, `past_due` if it has passed, `active` for a month ' +
      'without it. A change applies to the subscription unless that is active.',
  }),
  feature_flags: z
    .record(featureName, z.boolean())
    .refine((flags) => Object.keys(flags).length <= 50, 'must have at most 50 entries')
    .meta({
      id: 'FeatureFlags',
      description:
        'Overrides the features of the plan, by name. Names other than these five are stored and returned, but ' +
        'enable no endpoints.',
      examples: [{ transport: true }],
      override: {
        type: 'object',
        properties: Object.fromEntries(features.map((name) => [name, { type: 'boolean' }])),
        additionalProperties: { type: 'boolean' },
        maxProperties: 50,
      },
    })
    .optional(),
  time_zone: text(100)
    .optional()
    .meta({ description: 'An IANA time zone.', examples: ['Africa/Lagos'] }),
};

export const TenantInput = z
  .strictObject({
    ...tenantFields,
    admin_email: email.optional().meta({ description: 'Email of the first admin. Default: contact_email.' }),
    admin_password: password.optional().meta({ description: 'Without it, an invitation is sent.' }),
    admin_first_name: nameText(100).optional(),
    admin_last_name: lastName.optional(),
  })
  .refine(({ plan_id, plan }) => plan_id !== undefined || plan !== undefined, {
    path: ['plan_id'],
    message: 'is required',
    // Together with the errors of other fields.
    when: ({ value }) => typeof value === 'object' && value !== null,
  })
  .meta({ id: 'TenantInput', description: 'The plan is required, as `plan_id` or as `plan`.' });

const TenantSubscription = z
  .object({
    status: subscriptionStatus.nullable(),
    started_at: timestamp.nullable(),
    current_period_end: timestamp.nullable(),
    grace_days: z.int().nullable().meta({ description: 'Days between the end of the period and the cancellation.' }),
    grace_ends_at: timestamp.nullable().meta({
      description: 'While `past_due`: when the subscription will be cancelled. Otherwise null.',
    }),
    is_final: z.boolean().nullable().meta({
      description: 'Whether it was cancelled for good: the school cannot choose a plan again.',
    }),
  })
  .meta({ id: 'TenantSubscription' });

export const Tenant = z
  .object({
    id,
    name: z.string(),
    subdomain: z.string(),
    status: z.enum(['active', 'suspended', 'deleted']),
    plan: z.object({ id, name: z.string() }),
    is_setup_complete: z.boolean(),
    trial_ends_at: timestamp.nullable(),
    contact_email: z.string(),
    feature_flags: z.record(z.string(), z.boolean()),
    enabled_features: z.array(z.string()),
    subscription: TenantSubscription,
    stats: z.object({ total_students: z.int(), total_teachers: z.int(), total_classes: z.int() }),
    time_zone: z.string(),
    is_impersonation_allowed: z
      .boolean()
      .meta({ description: 'Whether operators may log in as admins of the school.' }),
    deleted_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'Tenant' });

export const AuditLog = z
  .object({
    id,
    actor: z
      .object({ id: id.nullable(), email: z.string().nullable() })
      .meta({ description: 'An operator. Users of a school have only an email here.' }),
    impersonated: z.object({ id, email: z.string() }).nullable().meta({
      description: 'The user whom the operator impersonated; otherwise null.',
    }),
    action: z.string().meta({ examples: ['tenant.suspend'] }),
    tenant_id: id.nullable(),
    tenant_name: z.string().nullable(),
    target_type: z.string(),
    target_id: id.nullable(),
    changes: z
      .record(z.string(), z.object({ before: z.unknown(), after: z.unknown() }))
      .meta({ description: 'The changed fields, with the values before and after.' }),
    ip: z.string().nullable(),
    user_agent: z.string().nullable(),
    request_id: z.string().nullable(),
    created_at: timestamp,
  })
  .meta({ id: 'AuditLog' });

export const TenantDetail = Tenant.extend({
  unreachable_since: timestamp.nullable(),
  recent_audit_logs: z.array(AuditLog),
}).meta({ id: 'TenantDetail' });

const isPublic = z.boolean().meta({
  description: 'Whether schools can choose the plan. Operators can assign every plan. By default true.',
});

const PlanInput = z
  .strictObject({
    name: nameText(100).meta({ examples: ['Standard'] }),
    price_monthly: price,
    max_students: z.int().min(0).max(10_000_000),
    max_teachers: z.int().min(0).max(1_000_000),
    features_json: z.strictObject({ features: z.array(featureName).max(50) }).optional(),
    is_public: isPublic.optional(),
  })
  .meta({ id: 'PlanInput' });

export const Plan = z
  .object({
    id,
    name: z.string(),
    price_monthly: z.number(),
    currency: priceCurrency,
    currency_decimals: currencyDecimals,
    max_students: z.int(),
    max_teachers: z.int(),
    features_json: z.object({ features: z.array(z.string()) }),
    is_public: isPublic,
    tenant_count: z.int().meta({ description: 'Number of schools on this plan.' }),
    ...timestamps,
  })
  .meta({ id: 'Plan' });

export const PlatformSettings = z
  .object({ currency: priceCurrency, currency_decimals: currencyDecimals, ...timestamps })
  .meta({ id: 'PlatformSettings' });

export const PlatformSettingsSaved = PlatformSettings.extend({ warnings: currencyWarnings }).meta({
  id: 'PlatformSettingsSaved',
});

export const Overview = z
  .object({
    total_tenants: z.int(),
    active_tenants: z.int(),
    suspended_tenants: z.int(),
    signups_this_month: z.int(),
    signups_by_month: z.array(z.object({ month: z.string().meta({ examples: ['2026-09'] }), signups: z.int() })),
    recent_audit_logs: z.array(AuditLog),
  })
  .meta({ id: 'Overview' });

/** The filters of the audit log. */
export const auditFilters = {
  tenant_id: pathId.optional(),
  action: text(100).optional(),
  actor_id: pathId.optional(),
  from_date: date.optional(),
  to_date: date.optional(),
  about: choice(['subscription'], {
    description: 'Only changes of subscriptions, of the plans of schools and of their trials.',
  }).optional(),
};

export const platform = resource('/platform', 'Platform', 'For operators: schools, plans, the audit log.', {
  'GET /overview': {
    operation: 'platform_overview',
    summary: 'Get totals, sign-ups and the latest audit entries',
    response: json(Overview),
  },
  'GET /tenants': {
    operation: 'platform_tenants_list',
    summary: 'List schools',
    description:
      '`search` is one text that the name, the subdomain or the contact email contains. Case and accents are ' +
      'ignored. Deleted schools are listed only with status=deleted.',
    response: page(Tenant, schoolFilters, { sorts: ['plan', 'total_students'] }),
  },
  'POST /tenants': {
    operation: 'platform_tenants_create',
    summary: 'Create a school',
    description: 'Creates its schema, roles, first admin and subscription in one transaction.',
    body: TenantInput,
    passwordField: 'admin_password',
    response: created(TenantDetail),
  },
  'GET /tenants/:id': { operation: 'platform_tenants_get', summary: 'Get a school', response: json(TenantDetail) },
  'PUT /tenants/:id': {
    operation: 'platform_tenants_update',
    summary: 'Update a school',
    description: 'Can also assign a plan: 409 if the school exceeds its limits.',
    body: z
      .strictObject({
        ...tenantFields,
        is_impersonation_allowed: z.boolean().meta({
          description:
            'false ends impersonations of its admins at once. Changing it to true is a 403: only the school can do ' +
            'that.',
        }),
      })
      .partial()
      .meta({ id: 'TenantChange' }),
    response: json(TenantDetail),
  },
  'DELETE /tenants/:id': {
    operation: 'platform_tenants_delete',
    summary: 'Delete a school',
    description: 'Takes effect at once. No data is lost: the school can be restored until the retention period ends.',
    response: json(Deleted),
  },
  'POST /tenants/:id/suspend': {
    operation: 'platform_tenants_suspend',
    summary: 'Suspend a school',
    response: json(TenantDetail),
  },
  'POST /tenants/:id/activate': {
    operation: 'platform_tenants_activate',
    summary: 'Activate a suspended school',
    response: json(TenantDetail),
  },
  'POST /tenants/:id/restore': {
    operation: 'platform_tenants_restore',
    summary: 'Restore a deleted school',
    description: '409 invalid_state after it was purged; then import its export file.',
    response: json(TenantDetail),
  },
  'PUT /tenants/:id/subscription': {
    operation: 'platform_subscriptions_update',
    summary: 'Renew, extend, cancel or reactivate the subscription of a school',
    description:
      '`current_period_end` alone extends a trial, and renews or reactivates any other subscription until then. ' +
      '`active` without an end starts a month now, unless the subscription is active already. `cancelled` takes ' +
      'effect ' +
      'now. `trialing` needs an end; 409 invalid_state for an active subscription.',
    body: z
      .strictObject({
        status: choice(['trialing', 'active', 'past_due', 'cancelled'], {
          description: '`past_due` is accepted only while the subscription is past due, and changes nothing.',
          synonyms: { cancelled: ['canceled'] },
        }),
        current_period_end: moment.meta({ description: 'In the future.' }),
        grace_days: z
          .int()
          .min(0)
          .max(365)
          .meta({ description: 'Days between the end of the period and the cancellation. 14 for a new school.' }),
        is_final: z.boolean().meta({
          description:
            'With the status cancelled: true keeps the school from choosing a plan again. Any other status ends that.',
        }),
      })
      .partial()
      .meta({ id: 'TenantSubscriptionChange' }),
    asRead: TenantSubscription,
    response: json(TenantDetail),
  },
  'GET /plans': {
    operation: 'platform_plans_list',
    summary: 'List plans',
    response: page(Plan),
  },
  'POST /plans': {
    operation: 'platform_plans_create',
    summary: 'Create a plan',
    body: PlanInput,
    response: created(Plan),
  },
  'GET /plans/:id': { operation: 'platform_plans_get', summary: 'Get a plan', response: json(Plan) },
  'PUT /plans/:id': {
    operation: 'platform_plans_update',
    summary: 'Update a plan',
    body: PlanInput.partial().meta({ id: 'PlanChange' }),
    response: json(Plan),
  },
  'DELETE /plans/:id': {
    operation: 'platform_plans_delete',
    summary: 'Delete a plan',
    description: '409 in_use while a school uses it.',
    response: json(Deleted),
  },
  'GET /settings': {
    operation: 'platform_settings_get',
    summary: 'Get the settings',
    response: json(PlatformSettings),
  },
  'PUT /settings': {
    operation: 'platform_settings_update',
    summary: 'Update the settings',
    body: z
      .strictObject({
        currency: currencyCode.meta({
          description: 'ISO 4217 code of the currency of all prices of plans. Changing it does not convert prices.',
          examples: ['EUR'],
        }),
      })
      .partial()
      .meta({ id: 'PlatformSettingsChange' }),
    response: json(PlatformSettingsSaved),
  },
  'GET /audit-logs': {
    operation: 'platform_audit_logs_list',
    summary: 'Get the audit log',
    description: 'Newest first. Dates are in UTC and inclusive.',
    response: page(AuditLog, auditFilters, { maxDays: Infinity }),
  },
});
