import type pg from 'pg';
import { pino } from 'pino';
import type { SendEmail } from '../../../workers/email.ts';
import { push } from '../../../workers/push.ts';
import type { Retention, TaskContext } from '../../../workers/task-context.ts';
import { webhooks } from '../../../workers/webhooks.ts';

/** The defaults of the settings, and no folders. */
export const testRetention: Retention = {
  days: 30,
  exports: '/nowhere',
  exportDays: 730,
  outbox: '/nowhere',
  outboxDays: 30,
  rows: {
    sessions: '30 days',
    audit_entries: '730 days',
    deliveries: '90 days',
    notifications: '365 days',
    idempotency_keys: '24 hours',
    failed_jobs: '90 days',
    usage: '1095 days',
  },
};

/** The context of a worker that runs in the test's own process: no push, no webhooks and no log; `sendEmail` is given by the test. */
export const workerContext = (pool: pg.Pool, sendEmail: SendEmail): Omit<TaskContext, 'stopping'> => ({
  pool,
  sessionPool: pool,
  ownerUrl: '',
  sendEmail,
  push: push(shared.readConfig({}), 10_000),
  analytics: { run: () => Promise.reject(new Error('this task runs no query')) },
  webhooks: webhooks(shared.readConfig({})),
  logger: pino({ level: 'silent' }),
  links: { publicUrl: 'http://test', passwordPageUrl: undefined, appUrl: undefined, baseDomain: undefined },
  retention: testRetention,
});
