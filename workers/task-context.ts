import type pg from 'pg';
import type { Logger } from 'pino';
import type { Analytics } from '../src/analytics/process.ts';
import type { Tracing } from '../src/domain/tracing.ts';
import type { SendEmail } from './email.ts';
import type { Push } from './push.ts';
import type { Webhooks } from './webhooks.ts';

/** How long things are kept. */
export interface Retention {
  /** For how many days a deleted school can be restored. */
  days: number;
  /** The folder for the exports of deleted schools. */
  exports: string;
  exportDays: number;
  /** The folder for emails, if there is no mail server. */
  outbox: string;
  outboxDays: number;
  /** Intervals of Postgres, by the names that `core.clean_up` and its neighbors use; undefined for the default. */
  rows: Record<
    'sessions' | 'audit_entries' | 'deliveries' | 'notifications' | 'idempotency_keys' | 'failed_jobs' | 'usage',
    string | undefined
  >;
}

/** Receives the result of each attempt to send a message. */
export type ObserveDelivery = (channel: 'email' | 'push' | 'webhook', outcome: 'sent' | 'retry' | 'failed') => void;

/** The dependencies of every task. */
export interface TaskContext {
  /** Connections of the role school_worker. */
  pool: pg.Pool;
  /** The same, but never through a pooler, for locks and LISTEN. May be the same pool. */
  sessionPool: pg.Pool;
  /** The address of the database for its owner, who alone may read the addresses of the nodes. */
  ownerUrl: string;
  sendEmail: SendEmail;
  push: Push;
  webhooks: Webhooks;
  /** Runs the scheduled questions of analysts, in a process that starts with the first. */
  analytics: Pick<Analytics, 'run'>;
  logger: Logger;
  /** Base URLs of the links in messages. */
  links: {
    publicUrl: string;
    passwordPageUrl: string | undefined;
    appUrl: string | undefined;
    /** The domain below which each school has a subdomain. */
    baseDomain: string | undefined;
  };
  retention: Retention;
  /** Undefined when metrics are off. */
  observeDelivery?: ObserveDelivery | undefined;
  /** Sends a span for each job; undefined when traces are off. */
  tracing?: Tracing | undefined;
  /** Aborts when the worker stops. A long task should then end early; another worker continues it. */
  stopping: AbortSignal;
}
