import { webhookResource } from './parts/webhooks.ts';

export const platformWebhooks = webhookResource({
  path: '/platform/webhooks',
  section: 'Platform webhooks',
  about: 'Addresses that receive the events of the platform. They work like the webhooks of schools.',
  operations: 'platform_webhooks',
  schemas: 'PlatformWebhook',
  // In the order of `db/seed/webhook-events.sql`.
  events: [
    'tenant.created',
    'tenant.updated',
    'tenant.plan_changed',
    'tenant.suspended',
    'tenant.activated',
    'tenant.deleted',
    'tenant.restored',
    'tenant.moved',
    'tenant.migration_failed',
    'subscription.updated',
    'subscription.trial_started',
    'subscription.activated',
    'subscription.past_due',
    'subscription.cancelled',
    'plan.created',
    'plan.updated',
    'plan.deleted',
    'job.failed',
  ],
  example: ['tenant.created', 'subscription.cancelled'],
  permissions: { events: 'The events to send.', create: '', update: '', use: '', deliveries: '', replay: '' },
});
