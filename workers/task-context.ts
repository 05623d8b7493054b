import type pg from 'pg';
import type { Logger } from 'pino';
import type { SendEmail } from './email.ts';
import type { Push } from './push.ts';

/** What every task gets besides its payload. */
export interface TaskContext {
  /** Connections with the role school_worker. */
  pool: pg.Pool;
  sendEmail: SendEmail;
  push: Push;
  logger: Logger;
  /** Addresses for the links in messages. */
  links: { publicUrl: string; passwordPageUrl: string | undefined; appUrl: string | undefined };
  /** The folder for the exports of deleted schools, and how many days they stay restorable. */
  retention: { exports: string; days: number };
  /** Aborts when the worker stops. A long task then ends early; another worker continues it. */
  stopping: AbortSignal;
}
