import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { id, timestamp } from '../http/schemas.ts';

const features = z
  .array(z.string())
  .meta({ description: 'The features of the plan. Flags of the school can override them.' });
const usage = z.object({ used: z.int(), limit: z.int() });

export const Subscription = z
  .object({
    status: z.enum(['trialing', 'active', 'past_due', 'cancelled']),
    plan: z.object({ id, name: z.string(), price_monthly: z.number(), features }),
    started_at: timestamp.meta({ description: 'Start of the period.' }),
    current_period_end: timestamp,
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
      max_students: z.int(),
      max_teachers: z.int(),
      features,
      is_current: z.boolean().meta({ description: 'Whether this is the current plan of the school.' }),
      is_available: z.boolean().meta({
        description: 'Whether the school can switch to it: not the current plan, and its limits are not exceeded.',
      }),
    }),
  )
  .meta({ id: 'SubscriptionPlans', description: 'Sorted by price.' });

export const subscription = resource('/subscription', 'Subscription', 'The plan of a school.', {
  'GET /status': {
    operation: 'subscription_status',
    summary: 'Get the subscription and its usage',
    answer: Subscription,
  },
  'GET /plans': { operation: 'subscription_plans', summary: 'List the available plans', answer: Plans },
  'POST /upgrade': {
    operation: 'subscription_upgrade',
    summary: 'Change the plan',
    description:
      'Applies from the next request, and starts a period of a month. ' +
      '409 conflict for the current plan, and for one whose limits the school exceeds.',
    body: z.strictObject({ plan_id: id }).meta({ id: 'SubscriptionUpgrade' }),
    answer: Subscription,
  },
});
