import { z } from 'zod';
import { json, resource } from '../http/endpoint.ts';
import { currencyDecimals, id, timestamp } from '../http/schemas.ts';

const features = z
  .array(z.string())
  .meta({ description: 'The features of the plan. Flags of the school can override them.' });
/** The current status. It follows from the dates, so it never lags behind them. */
export const subscriptionStatus = z.enum(['trialing', 'active', 'past_due', 'cancelled']).meta({
  id: 'SubscriptionStatus',
  description:
    '`trialing` or `active` until the end of the period, then `past_due` for the grace period of the school ' +
    '(`grace_days`, 14 by default), then `cancelled`. `past_due` allows everything except operations that need an ' +
    'active subscription. `cancelled` allows ' +
    'reading, exports, logins and the choice of a plan; other writes get 402 subscription_inactive.',
});

/** The currency of a price. */
export const priceCurrency = z
  .string()
  .meta({ description: 'ISO 4217. The currency of all prices of plans.', examples: ['USD'] });

const usage = z.object({ used: z.int(), limit: z.int() });

export const Subscription = z
  .object({
    status: subscriptionStatus,
    plan: z.object({
      id,
      name: z.string(),
      price_monthly: z.number(),
      currency: priceCurrency,
      currency_decimals: currencyDecimals,
      features,
    }),
    started_at: timestamp.meta({ description: 'Start of the period.' }),
    current_period_end: timestamp.meta({ description: 'End of the trial or of the paid period.' }),
    grace_ends_at: timestamp.nullable().meta({
      description: 'While `past_due`: when the subscription will be cancelled. Otherwise null.',
    }),
    is_final: z.boolean().meta({
      description: 'Whether the operator cancelled it for good. Then the school cannot choose a plan.',
    }),
    trial_ends_at: timestamp.nullable(),
    usage: z
      .object({ students: usage, teachers: usage })
      .meta({ description: 'Number of active students and teachers, and the limits of the plan.' }),
  })
  .meta({ id: 'Subscription' });

const Plans = z
  .array(
    z.object({
      id,
      name: z.string(),
      price_monthly: z.number(),
      currency: priceCurrency,
      currency_decimals: currencyDecimals,
      max_students: z.int(),
      max_teachers: z.int(),
      features,
      is_current: z.boolean().meta({ description: 'Whether this is the current plan of the school.' }),
      is_available: z.boolean().meta({
        description:
          'Whether the school can choose it: its limits are not exceeded, and it is not the current plan of an ' +
          'active subscription, nor one that only the operator assigns.',
      }),
    }),
  )
  .meta({ id: 'SubscriptionPlans', description: 'Sorted by price.' });

export const subscription = resource('/subscription', 'Subscription', 'The plan of a school.', {
  'GET /status': {
    operation: 'subscription_status',
    summary: 'Get the subscription and its usage',
    response: json(Subscription),
  },
  'GET /plans': { operation: 'subscription_plans', summary: 'List the available plans', response: json(Plans) },
  'POST /upgrade': {
    operation: 'subscription_upgrade',
    summary: 'Change the plan',
    description:
      'Applies from the next request. An active subscription keeps its period; any other becomes active for a month. ' +
      'The current plan is accepted unless the subscription is active, and a smaller plan if the school fits its ' +
      'limits. 409 conflict for the current plan of an active subscription, for a plan whose limits the school ' +
      'exceeds, and if the operator has cancelled the subscription for good.',
    body: z.strictObject({ plan_id: id }).meta({ id: 'SubscriptionUpgrade' }),
    response: json(Subscription),
  },
});
