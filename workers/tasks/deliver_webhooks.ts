import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { TaskContext } from '../task-context.ts';
import type { WebhookMessage } from '../webhooks.ts';

/** Without a school, the webhooks of the platform. */
const Payload = z.object({ tenant_id: z.int().nullable() });

/** A delivery that is due, as returned by `core.webhook_deliveries_due`. */
interface Delivery extends WebhookMessage {
  id: number;
  webhook_id: number;
}

/** Deliveries of a webhook that one query returns. */
const maxSupply = 20;
/** Messages in flight of one job. Its webhooks share them; each may have at least one and at most five. */
const maxConcurrent = 10;
const maxConcurrentPerWebhook = 5;
/** How often a job that waits for a receiver looks for messages to other webhooks. */
const pollMs = 500;

/** After this time the job ends, so that slow receivers do not keep the worker from other jobs. Tests shorten it. */
export const jobLimit = { maxMs: 15_000 };

/**
 * Sends the events of a school, or of the platform, to its webhooks. The queue runs one such job of each at a time. A
 * webhook whose receiver is slow fills only its own share of the messages in flight, and the others get new messages
 * meanwhile. The tables say what is due, so a job that runs twice finds nothing to do, and after a crash only the
 * deliveries in progress are repeated.
 */
export async function deliver_webhooks(
  payload: unknown,
  { pool, webhooks, logger, stopping, observeDelivery }: TaskContext,
): Promise<void> {
  const { tenant_id } = Payload.parse(payload);
  const counts = { sent: 0, failed: 0 };
  /** The deliveries to start, by webhook. */
  const supply = new Map<number, Delivery[]>();
  const running = new Map<Delivery, Promise<void>>();
  /** Failed attempts that are not stored yet. Until then their webhooks get no message; after it, not before `retry_at`. */
  const failing = new Set<Delivery>();
  /** Webhooks that have failed since the last query for deliveries. */
  const failedMeanwhile = new Set<number>();
  let isSupplyNeeded = true;
  let suppliedAt = 0;
  const start = performance.now();
  /** What is still in flight when the time is up. The job waits for it, and serves the other webhooks meanwhile. */
  let late: Delivery[] | undefined;
  let fault: { error: unknown } | undefined;

  const runningOf = (webhook: number) => [...running.keys()].filter(({ webhook_id }) => webhook_id === webhook).length;

  async function attempt(delivery: Delivery): Promise<void> {
    const { id, webhook_id } = delivery;
    const result = await webhooks.send(delivery);
    counts[result.isDelivered ? 'sent' : 'failed']++;
    if (!result.isDelivered) {
      failing.add(delivery);
      failedMeanwhile.add(webhook_id);
      supply.delete(webhook_id);
    }
    const { rows } = await pool.query<{ is_retried: boolean }>(
      'select core.webhook_attempt_save($1, $2, $3, $4, $5, $6, $7) as is_retried',
      [
        tenant_id,
        id,
        result.isDelivered,
        result.statusCode ?? null,
        result.reason ?? null,
        result.responseBody ?? null,
        result.retryAfterSeconds ?? 0,
      ],
    );
    failing.delete(delivery);
    observeDelivery?.('webhook', result.isDelivered ? 'sent' : rows[0]?.is_retried ? 'retry' : 'failed');
  }

  /** The webhooks that may get no further message now. */
  function blocked(): Set<number> | 'all' {
    if (stopping.aborted || fault) return 'all';
    const webhooksOf = (deliveries: Iterable<Delivery>) => Array.from(deliveries, ({ webhook_id }) => webhook_id);
    if (performance.now() - start < jobLimit.maxMs) return new Set(webhooksOf(failing));
    late ??= [...running.keys()];
    const stillLate = late.filter((delivery) => running.has(delivery));
    return stillLate.length === 0 ? 'all' : new Set(webhooksOf([...failing, ...late]));
  }

  const isSupplyDue = () => isSupplyNeeded || performance.now() - suppliedAt >= pollMs;

  /** Gets new deliveries for the webhooks that have none left to start. */
  async function refill(without: Set<number>): Promise<void> {
    isSupplyNeeded = false;
    suppliedAt = performance.now();
    failedMeanwhile.clear();
    const { rows } = await pool.query<{ due: Delivery[] }>(
      'select core.webhook_deliveries_due($1, $2, $3, $4) as due',
      [tenant_id, maxSupply, [...without, ...supply.keys()], [...running.keys()].map(({ id }) => id)],
    );
    for (const [webhook, deliveries] of Map.groupBy(rows[0]?.due ?? [], ({ webhook_id }) => webhook_id))
      if (!failedMeanwhile.has(webhook)) supply.set(webhook, deliveries);
  }

  /** Starts deliveries until each webhook has used its share. */
  function startDue(without: Set<number>): void {
    const busy = new Set([...supply.keys(), ...[...running.keys()].map(({ webhook_id }) => webhook_id)]);
    const share = Math.max(1, Math.min(maxConcurrentPerWebhook, Math.floor(maxConcurrent / busy.size)));
    for (const [webhook, deliveries] of supply) {
      if (without.has(webhook)) continue;
      for (const delivery of deliveries.splice(0, share - runningOf(webhook))) {
        const attempted = attempt(delivery)
          .catch((error: unknown) => (fault ??= { error }))
          .then(() => {
            running.delete(delivery);
            isSupplyNeeded ||= !supply.has(webhook);
          });
        running.set(delivery, attempted);
      }
      if (deliveries.length === 0) supply.delete(webhook);
    }
  }

  for (;;) {
    try {
      const without = blocked();
      if (without !== 'all' && isSupplyDue()) await refill(without);
      // The time may have run out, or attempts may have failed, during the query.
      const withoutNow = blocked();
      if (withoutNow !== 'all') startDue(withoutNow);
    } catch (error) {
      fault ??= { error };
    }
    if (running.size === 0) break;
    await Promise.race([...running.values(), sleep(pollMs, undefined, { ref: false })]);
  }
  // The job fails only after all work in progress has ended.
  if (fault) throw fault.error;
  await pool.query('select core.webhook_job_end($1)', [tenant_id]);
  if (counts.sent + counts.failed > 0)
    logger.info({ task: 'deliver_webhooks', tenant: tenant_id ?? undefined, ...counts });
}
