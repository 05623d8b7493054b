import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { id, timestamp } from '../http/schemas.ts';

const features = z
  .array(z.string())
  .meta({ description: 'The features of the plan; flags of the school may override them.' });
const usage = z.object({ used: z.int(), limit: z.int() });

export const Subscription = z
  .object({
    status: z.enum(['trialing', 'active', 'past_due', 'cancelled']),
    plan: z.object({ id, name: z.string(), price_monthly: z.number(), features }),
    started_at: timestamp.meta({ description: 'When the period began.' }),
    current_period_end: timestamp,
    trial_ends_at: timestamp.nullable(),
    usage: z
      .object({ students: usage, teachers: usage })
      .meta({ description: 'Active students and teachers, and how many the plan allows.' }),
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
      is_current: z.boolean().meta({ description: 'The plan that the school has.' }),
      is_available: z
        .boolean()
        .meta({ description: 'Whether the school could take it now: another plan than its own, and not outgrown.' }),
    }),
  )
  .meta({ id: 'SubscriptionPlans', description: 'By price.' });

export const subscription = resource('/subscription', 'Subscription', 'What a school pays for.', {
  'GET /status': {
    operation: 'subscription_status',
    summary: 'The subscription and how much of it is used',
    answer: Subscription,
  },
  'GET /plans': { operation: 'subscription_plans', summary: 'The plans that can be chosen', answer: Plans },
  'POST /upgrade': {
    operation: 'subscription_upgrade',
    summary: 'Take another plan',
    description:
      'Counts from the next request, and begins a period of a month. 409 conflict for the present plan, and for one that the school has outgrown.',
    body: z.strictObject({ plan_id: id }).meta({ id: 'SubscriptionUpgrade' }),
    answer: Subscription,
  },
});
