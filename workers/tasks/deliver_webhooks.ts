import { z } from 'zod';
import { forEachConcurrently } from '../for-each-concurrently.ts';
import type { TaskContext } from '../task-context.ts';
import type { WebhookMessage } from '../webhooks.ts';

/** Without a school, the webhooks of the platform. */
const Payload = z.object({ tenant_id: z.int().nullable() });

/** A delivery that is due, as returned by `core.webhook_deliveries_due`. */
interface Delivery extends WebhookMessage {
  id: number;
  webhook_id: number;
}

/** Events that one job prepares, and deliveries that it sends. The next job does the rest. */
const maxDeliveries = 100;
const maxConcurrent = 5;
/** After this time the job starts no more attempts, so that slow receivers do not keep the worker from other jobs. */
const maxJobMs = 15_000;

/**
 * Sends the events of a school, or of the platform, to its webhooks. The queue runs one such job of each at a time. The tables say what is
 * due, so a job that runs twice finds nothing to do, and after a crash only the deliveries in progress are repeated.
 */
export async function deliver_webhooks(
  payload: unknown,
  { pool, webhooks, logger, stopping, observeDelivery }: TaskContext,
): Promise<void> {
  const { tenant_id } = Payload.parse(payload);
  const { rows } = await pool.query<{ due: Delivery[] }>('select core.webhook_deliveries_due($1, $2) as due', [
    tenant_id,
    maxDeliveries,
  ]);
  const counts = { sent: 0, failed: 0 };
  /** The other deliveries to a webhook that has failed wait until its `retry_at`. */
  const failing = new Set<number>();
  const start = performance.now();
  await forEachConcurrently(rows[0]?.due ?? [], maxConcurrent, async (delivery) => {
    if (stopping.aborted || failing.has(delivery.webhook_id) || performance.now() - start > maxJobMs) return;
    const result = await webhooks.send(delivery);
    counts[result.isDelivered ? 'sent' : 'failed']++;
    if (!result.isDelivered) failing.add(delivery.webhook_id);
    const { rows: saved } = await pool.query<{ is_retried: boolean }>(
      'select core.webhook_attempt_save($1, $2, $3, $4, $5, $6, $7) as is_retried',
      [
        tenant_id,
        delivery.id,
        result.isDelivered,
        result.statusCode ?? null,
        result.reason ?? null,
        result.responseBody ?? null,
        result.retryAfterSeconds ?? 0,
      ],
    );
    observeDelivery?.('webhook', result.isDelivered ? 'sent' : saved[0]?.is_retried ? 'retry' : 'failed');
  });
  await pool.query('select core.webhook_job_end($1)', [tenant_id]);
  if (counts.sent + counts.failed > 0)
    logger.info({ task: 'deliver_webhooks', tenant: tenant_id ?? undefined, ...counts });
}
