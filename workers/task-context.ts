import type pg from 'pg';
import type { Logger } from 'pino';
import type { SendEmail } from './email.ts';
import type { Push } from './push.ts';

/** The dependencies of every task. */
export interface TaskContext {
  /** Connections of the role school_worker. */
  pool: pg.Pool;
  sendEmail: SendEmail;
  push: Push;
  logger: Logger;
  /** Base URLs of the links in messages. */
  links: { publicUrl: string; passwordPageUrl: string | undefined; appUrl: string | undefined };
  /** The folder for the exports of deleted schools, and for how many days a deleted school can be restored. */
  retention: { exports: string; days: number };
  /** Aborts when the worker stops. A long task should then end early; another worker continues it. */
  stopping: AbortSignal;
}
