import type pg from 'pg';
import { pino } from 'pino';
import type { SendEmail } from '../../../workers/email.ts';
import { push } from '../../../workers/push.ts';
import type { TaskContext } from '../../../workers/task-context.ts';

/** The context of a worker that runs in the test's own process: no push and no log; `sendEmail` is given by the test. */
export const workerContext = (pool: pg.Pool, sendEmail: SendEmail): Omit<TaskContext, 'stopping'> => ({
  pool,
  sendEmail,
  push: push(shared.readConfig({})),
  logger: pino({ level: 'silent' }),
  links: { publicUrl: 'http://test', passwordPageUrl: undefined, appUrl: undefined },
  retention: { exports: '/nowhere', days: 30 },
});
