import { EventEmitter } from 'node:events';
import { join } from 'node:path';
import type { WorkerEvents } from 'graphile-worker';
import type { Worker } from '../../workers/worker.ts';
import { exportsFolder } from '../database/archive.ts';
import { rolePool } from '../database/pool/pool.ts';
import { requireNamedStatements, requireSessions } from '../database/pool/pooler-checks.ts';
import { endsWhileAnswered, endsWithin } from './end-in-time.ts';
import { type PartOptions, startAnalytics } from './part.ts';

/** How long a worker that has stopped waits for the end of its connections: a server may be silent. */
const closeTimeoutMs = 5_000;

/** @throws if a pooler breaks the statements or the locks of a worker */
async function checkPoolers(config: PartOptions['config']): Promise<void> {
  const { WORKER_DATABASE_URL: workerUrl, SESSION_DATABASE_URL: sessionUrl, PREPARED_STATEMENTS: canPrepare } = config;
  if (workerUrl !== undefined && canPrepare) await requireNamedStatements('WORKER_DATABASE_URL', workerUrl);
  if (sessionUrl !== undefined) await requireSessions('SESSION_DATABASE_URL', sessionUrl);
  else if (workerUrl !== undefined) await requireSessions('WORKER_DATABASE_URL', workerUrl);
}

/**
 * Starts a worker with its own connection pool.
 * @param node  the name of the node whose database it is; undefined for the database of this process
 */
export async function startJobWorker({
  config,
  timing,
  logger,
  metrics,
  tracing,
  ownerUrl,
  node,
  publicUrl,
}: PartOptions & { ownerUrl: string; node: string | undefined; publicUrl: string }): Promise<Worker> {
  // Imported here to save memory in processes that run only the API.
  const [{ emailSender }, { push }, { webhooks }, { startWorker }] = await Promise.all([
    import('../../workers/email.ts'),
    import('../../workers/push.ts'),
    import('../../workers/webhooks.ts'),
    import('../../workers/worker.ts'),
  ]);
  // The URLs of the settings lead to the database of this process.
  if (node === undefined) await checkPoolers(config);
  const openPool = (url: string | undefined) => rolePool('school_worker', ownerUrl, url, config.WORKER_CONCURRENCY + 4);
  const workerUrl = node === undefined ? config.WORKER_DATABASE_URL : undefined;
  const pool = openPool(workerUrl);
  const sessionPool =
    node !== undefined || config.SESSION_DATABASE_URL === undefined ? pool : openPool(config.SESSION_DATABASE_URL);
  const outbox = join(config.DATA_DIR, 'outbox');
  const sendEmail = emailSender({ smtpUrl: config.SMTP_URL, from: config.EMAIL_FROM, outbox });
  const links = {
    publicUrl,
    passwordPageUrl: config.PASSWORD_PAGE_URL,
    appUrl: config.APP_URL,
    baseDomain: config.BASE_DOMAIN,
  };
  const interval = (count: number | undefined, unit: string) =>
    count === undefined ? undefined : `${String(count)} ${unit}`;
  const days = (count: number | undefined) => interval(count, 'days');
  const retention = {
    days: config.TENANT_RETENTION_DAYS,
    exports: exportsFolder(config),
    exportDays: config.EXPORT_RETENTION_DAYS,
    outbox,
    outboxDays: config.OUTBOX_RETENTION_DAYS,
    rows: {
      sessions: days(config.SESSION_RETENTION_DAYS),
      audit_entries: days(config.AUDIT_RETENTION_DAYS),
      deliveries: days(config.DELIVERY_RETENTION_DAYS),
      notifications: days(config.NOTIFICATION_RETENTION_DAYS),
      idempotency_keys: interval(config.IDEMPOTENCY_KEY_RETENTION_HOURS, 'hours'),
      failed_jobs: days(config.FAILED_JOB_RETENTION_DAYS),
      usage: days(config.USAGE_RETENTION_DAYS),
    },
  };
  const pushSender = push(config, timing.pushTimeoutMs);
  const webhookSender = webhooks(config);
  const analytics = startAnalytics(config, ownerUrl, logger);
  const events: WorkerEvents = new EventEmitter();
  metrics?.watchPool(node === undefined ? 'worker' : `worker_${node}`, pool);
  metrics?.watchJobs(events);
  const closeConnections = async () => {
    pushSender.close();
    webhookSender.close();
    await analytics.close();
    await Promise.all([...new Set([pool, sessionPool])].map((each) => each.end()));
  };
  try {
    const worker = await startWorker(
      {
        pool,
        sessionPool,
        ownerUrl,
        sendEmail,
        push: pushSender,
        webhooks: webhookSender,
        analytics,
        logger,
        links,
        retention,
        observeDelivery: metrics?.observeDelivery,
        tracing,
      },
      config.WORKER_CONCURRENCY,
      { events, crashCheckMs: config.WORKER_CRASH_CHECK_MS, canPrepare: config.PREPARED_STATEMENTS },
    );
    return {
      isAlive: () => worker.isAlive(),
      async stop() {
        // Without its database, graphile-worker would not stop before hours of retries, unless the connections are closed.
        // The results of running jobs could not be stored anyway: another worker runs these jobs again.
        await endsWhileAnswered(workerUrl ?? ownerUrl, worker.stop());
        await endsWithin(closeTimeoutMs, closeConnections());
      },
    };
  } catch (error) {
    await closeConnections();
    throw error;
  }
}
