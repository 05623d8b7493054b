import type pg from 'pg';
import { pino } from 'pino';
import type { SendEmail } from '../../../workers/email.ts';
import { push } from '../../../workers/push.ts';
import type { TaskContext } from '../../../workers/task-context.ts';

/** What a worker in the process of a test works with: no push, silence, and e-mail as the test wants it. */
export const workerContext = (pool: pg.Pool, sendEmail: SendEmail): Omit<TaskContext, 'stopping'> => ({
  pool,
  sendEmail,
  push: push(shared.readConfig({})),
  logger: pino({ level: 'silent' }),
  links: { publicUrl: 'http://test', passwordPageUrl: undefined, appUrl: undefined },
  retention: { exports: '/nowhere', days: 30 },
});
