import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { type Email, EmailRefused } from '../email.ts';
import type { Outcome, PushMessage } from '../push.ts';
import type { TaskContext } from '../task-context.ts';
import { escape } from './send_email.ts';

const Payload = z.object({ tenant_id: z.int(), from_id: z.int(), to_id: z.int(), only: z.array(z.int()).nullish() });

/** A delivery that waits, as `core.deliveries_pending` has it. */
interface Delivery {
  id: number;
  notification_id: number | null;
  channel: 'push' | 'email';
  platform: PushMessage['platform'] | null;
  token: string | null;
  address: string | null;
  name: string;
  title: string;
  message: string;
  action_url: string | null;
  attempts: number;
}

interface Pending {
  school: string;
  sender_name: string | null;
  is_quiet: boolean;
  unconfigured: number;
  deliveries: Delivery[];
}

/** So many go out at a time, of one job; a mail server that is asked for more at once takes us for a spammer. */
const atOnce = { push: 20, email: 5 };
/** Then it has failed: after some two hours, and longer where the other side asks for it. */
const maxAttempts = 8;
/** After so many in a row without an answer the others of this job are put off as well. */
const maxUnanswered = 5;
const longestWait = 6 * 3600;

/** Seconds to the next attempt: what the other side asks for, else 10, 30, 90, … */
function waitFor(attempt: number, after: number | undefined): number {
  if (after !== undefined) return Math.min(Math.max(after, 1), longestWait);
  return Math.min(3600, 10 * 3 ** (attempt - 1));
}

/** What a notification is called wherever it goes, at each attempt. */
const stableId = (tenantId: number, { id }: Delivery) => `${tenantId.toString(36)}-${id.toString(36)}`;

/** The message in text and HTML. */
function compose(
  delivery: Delivery,
  { school, sender_name }: Pick<Pending, 'school' | 'sender_name'>,
  appUrl: string | undefined,
  messageId: string,
): Email {
  const { name, title, message, action_url } = delivery;
  const link = action_url?.startsWith('/') ? appUrl && `${appUrl.replace(/\/$/, '')}${action_url}` : action_url;
  const greeting = name === '' ? 'Hello,' : `Hello ${name},`;
  const paragraphs = message.split(/\n\s*\n/).filter((each) => each.trim() !== '');
  const html = (text: string) => `<p>${text.split(/\r?\n/).map(escape).join('<br>')}</p>`;
  return {
    fromName: sender_name ? `${school} via ${sender_name}` : school,
    to: { name, address: delivery.address ?? '' },
    subject: title,
    messageId,
    text: [greeting, message, ...(link ? [link] : []), school].join('\n\n') + '\n',
    html: [
      html(greeting),
      ...paragraphs.map(html),
      ...(link ? [`<p><a href="${escape(link)}">${escape(link)}</a></p>`] : []),
      html(school),
    ].join('\n'),
  };
}

/** Runs `work` on all, so many at a time. */
async function each<T>(items: T[], most: number, work: (item: T) => Promise<void>): Promise<void> {
  const waiting = items[Symbol.iterator]();
  const results = await Promise.allSettled(
    Array.from({ length: Math.min(most, items.length) }, async () => {
      for (const item of waiting) await work(item);
    }),
  );
  // All that was begun has come to its end before the job fails.
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

/** Said once for as long as the process lives; each delivery has its reason. */
let hasWarned = false;

/**
 * Carries out the deliveries of a range that are pending. Each result is written down at once: whoever goes on after a crash repeats only what
 * was under way. What can't be sent now is left to jobs that take the place of this one.
 */
export async function deliver(payload: unknown, context: TaskContext, job: { id: string }): Promise<void> {
  const { tenant_id, from_id, to_id, only } = Payload.parse(payload);
  const { pool, push, logger, sendEmail, links, stopping } = context;
  const { rows } = await pool.query<{ pending: Pending | null }>(
    'select core.deliveries_pending($1, $2, $3, $4, $5) as pending',
    [...[tenant_id, from_id, to_id, only ?? null, push.platforms]],
  );
  const pending = rows[0]?.pending;
  if (!pending) return;
  if (pending.unconfigured > 0 && !hasWarned) {
    hasWarned = true;
    logger.warn({
      task: 'deliver',
      message: 'Push messages are dropped: FCM_CREDENTIALS or the VAPID keys are not set.',
      platforms: push.platforms,
    });
  }

  const counts = { sent: 0, failed: 0, later: 0 };
  /** Seconds from now to the next attempt of what is left. */
  const later = new Map<Delivery, number>();
  /** How often in a row a carrier gave no answer. */
  const unanswered = new Map<string, number>();

  async function note(
    delivery: Delivery,
    status: 'sent' | 'failed' | 'pending',
    reason: string | null,
    isGone = false,
  ): Promise<void> {
    // What was sent and is not written down goes out again: a database that restarts is waited for.
    for (let attempt = 1; ; attempt++) {
      try {
        await pool.query('select core.delivery_done($1, $2, $3, $4, $5)', [
          tenant_id,
          delivery.id,
          status,
          reason,
          isGone,
        ]);
        return;
      } catch (error) {
        if (attempt === 6) throw error;
        await pause(100 * 2 ** attempt);
      }
    }
  }

  async function attempt(delivery: Delivery, sender: Pick<Pending, 'school' | 'sender_name'>): Promise<Outcome> {
    try {
      if (delivery.channel === 'push') return await push.send(messageOf(delivery));
      await sendEmail(compose(delivery, sender, links.appUrl, stableId(tenant_id, delivery)));
      return { status: 'sent' };
    } catch (error) {
      if (error instanceof EmailRefused) {
        return error.isFinal
          ? { status: 'failed', reason: error.reason }
          : { status: 'retry', reason: error.reason, isDown: error.isDown };
      }
      // A fault of ours with one message does not keep the others. Its words may hold a token.
      logger.error({
        task: 'deliver',
        tenant: tenant_id,
        delivery: delivery.id,
        error: error instanceof Error ? error.name : 'unknown',
      });
      return { status: 'retry', reason: 'internal' };
    }
  }

  const messageOf = (delivery: Delivery): PushMessage => ({
    id: stableId(tenant_id, delivery),
    platform: delivery.platform ?? 'web',
    token: delivery.token ?? '',
    title: delivery.title,
    message: delivery.message,
    data: {
      notification_id: delivery.notification_id === null ? null : String(delivery.notification_id),
      action_url: delivery.action_url,
    },
  });

  async function work(delivery: Delivery, of: Pending): Promise<void> {
    // Quiet hours that began, or were set, since this was queued, or that a retry has come into.
    if (stopping.aborted || of.is_quiet) {
      later.set(delivery, 0);
      return;
    }
    const carrier = delivery.channel === 'email' ? 'email' : push.carrier(messageOf(delivery));
    const isDown = (unanswered.get(carrier) ?? 0) >= maxUnanswered;
    const outcome: Outcome = isDown ? { status: 'retry', reason: 'carrier_down' } : await attempt(delivery, of);
    if (!isDown)
      unanswered.set(carrier, outcome.status === 'retry' && outcome.isDown ? (unanswered.get(carrier) ?? 0) + 1 : 0);
    if (outcome.status === 'sent') {
      await note(delivery, 'sent', null);
      counts.sent++;
    } else if (outcome.status === 'failed' || delivery.attempts + 1 >= maxAttempts) {
      await note(delivery, 'failed', outcome.reason, outcome.status === 'failed' && outcome.isGone);
      counts.failed++;
    } else {
      await note(delivery, 'pending', outcome.reason);
      later.set(delivery, waitFor(delivery.attempts + 1, outcome.after));
      counts.later++;
    }
  }

  const by = (channel: Delivery['channel']) => pending.deliveries.filter((delivery) => delivery.channel === channel);
  await Promise.all(
    (['push', 'email'] as const).map((channel) =>
      each(by(channel), atOnce[channel], (delivery) => work(delivery, pending)),
    ),
  );
  if (later.size > 0)
    await pool.query('select core.deliver_again($1, $2, $3)', [job.id, tenant_id, JSON.stringify(remainder(later))]);
  logger.info({ task: 'deliver', tenant: tenant_id, ...counts });
}

/** Jobs for what is left: one for what is due at about the same time, and a bit later, so that not all jobs come back at once. */
function remainder(later: Map<Delivery, number>): { from_id: number; to_id: number; only: number[]; run_at: string }[] {
  const now = Date.now();
  const jobs = new Map<number, { ids: number[]; seconds: number }>();
  for (const [{ id }, seconds] of later) {
    const kind = Math.round(Math.log2(seconds + 1));
    const found = jobs.get(kind) ?? { ids: [], seconds: 0 };
    jobs.set(kind, { ids: [...found.ids, id], seconds: Math.max(found.seconds, seconds) });
  }
  return [...jobs.values()].map(({ ids, seconds }) => ({
    from_id: Math.min(...ids),
    to_id: Math.max(...ids),
    only: ids,
    run_at: new Date(now + (seconds + Math.random() * Math.min(seconds / 5, 30)) * 1000).toISOString(),
  }));
}
