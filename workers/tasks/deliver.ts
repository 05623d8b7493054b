import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { readActionUrl } from '../../src/domain/action-url.ts';
import { type Email, EmailRefused, withoutLinks } from '../email.ts';
import { forEachConcurrently } from '../for-each-concurrently.ts';
import type { Outcome, PushMessage } from '../push.ts';
import type { TaskContext } from '../task-context.ts';
import { escapeHtml } from './send_email.ts';

const Payload = z.object({
  tenant_id: z.int(),
  from_id: z.int(),
  to_id: z.int(),
  only: z.array(z.int()).nullish(),
  /** Emails to addresses that nobody has confirmed have not been counted yet. */
  limits_unconfirmed: z.boolean().optional(),
});

/** A pending delivery, as returned by `core.deliveries_pending`. */
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
  /** The seconds that it has to wait, because it is an email to an address that nobody has confirmed. */
  wait_seconds: number | null;
}

interface Pending {
  school: string;
  subdomain: string;
  /** Hosts that the school lists as known to its readers. */
  known_hosts: string[];
  sender_name: string | null;
  is_quiet: boolean;
  unconfigured: number;
  deliveries: Delivery[];
}

/** Concurrent deliveries per job. Mail servers treat more connections as spam. */
const maxConcurrent = { push: 20, email: 5 };
/** A delivery fails after this many attempts: after about two hours, or later if the service asks for longer waits. */
const maxAttempts = 8;
/** After this many attempts in a row without an answer, the job postpones its other deliveries to the same service. */
const maxUnanswered = 5;
/** The longest wait that a service may ask for. */
const maxRequestedWaitSeconds = 6 * 3600;
/** The longest wait between two attempts otherwise. */
const maxWaitSeconds = 3600;

/** Seconds until the next attempt: what the service asks for, otherwise 10, 30, 90, … */
function retryDelaySeconds(attempt: number, retryAfterSeconds: number | undefined): number {
  if (retryAfterSeconds !== undefined) return Math.min(Math.max(retryAfterSeconds, 1), maxRequestedWaitSeconds);
  return Math.min(maxWaitSeconds, 10 * 3 ** (attempt - 1));
}

/** The id of a message at mail servers and push services, the same for each attempt. */
const messageIdOf = (tenantId: number, { id }: Delivery) => `${tenantId.toString(36)}-${id.toString(36)}`;

/** What an email opens: an address as it is, a path below the address of the app, if that is configured. */
function addressOf(actionUrl: string | null, appUrl: string | undefined): string | undefined {
  if (actionUrl === null) return undefined;
  const target = readActionUrl(actionUrl);
  if (target.scheme !== undefined) return target.address;
  return appUrl && `${appUrl.replace(/\/$/, '')}/${target.path.replace(/^\//, '')}`;
}

const hostOf = (url: string | undefined) =>
  url !== undefined && URL.canParse(url) ? new URL(url).hostname : undefined;

/**
 * The address of an email as text and HTML. Only https is a link. A host that the reader may not know stands beside it,
 * because a mail program may show only the beginning of a long address.
 */
function linkTo(
  address: string,
  { subdomain, known_hosts }: Pick<Pending, 'subdomain' | 'known_hosts'>,
  { publicUrl, appUrl, baseDomain }: TaskContext['links'],
): { text: string; html: string } {
  const host = hostOf(address);
  if (!/^https:\/\//i.test(address) || host === undefined) return { text: address, html: escapeHtml(address) };
  const known = [hostOf(publicUrl), hostOf(appUrl), baseDomain && `${subdomain}.${baseDomain}`, ...known_hosts];
  const note = known.includes(host) ? '' : ` (opens ${host})`;
  const shown = escapeHtml(address);
  return { text: address + note, html: `<a href="${shown}">${shown}</a>${escapeHtml(note)}` };
}

/** The email as text and HTML. */
function compose(
  delivery: Delivery,
  sender: Omit<Pending, 'deliveries'>,
  links: TaskContext['links'],
  messageId: string,
): Email {
  const { title, action_url } = delivery;
  const { school, sender_name } = sender;
  const name = withoutLinks(delivery.name);
  const subject = withoutLinks(title);
  // The subject has no links, so the text begins with them.
  const message = subject === title ? delivery.message : `${title}\n\n${delivery.message}`;
  const address = addressOf(action_url, links.appUrl);
  const link = address === undefined ? undefined : linkTo(address, sender, links);
  const greeting = name === '' ? 'Hello,' : `Hello ${name},`;
  const paragraphs = message.split(/\n\s*\n/).filter((paragraph) => paragraph.trim() !== '');
  const html = (text: string) => `<p>${text.split(/\r?\n/).map(escapeHtml).join('<br>')}</p>`;
  return {
    fromName: sender_name ? `${school} via ${sender_name}` : school,
    to: { name, address: delivery.address ?? '' },
    subject: subject || school,
    messageId,
    text: [greeting, message, ...(link ? [link.text] : []), school].join('\n\n') + '\n',
    html: [html(greeting), ...paragraphs.map(html), ...(link ? [`<p>${link.html}</p>`] : []), html(school)].join('\n'),
  };
}

/** The warning is logged once per process; each dropped delivery stores its reason. */
let hasWarned = false;

function messageOf(tenantId: number, delivery: Delivery): PushMessage {
  return {
    id: messageIdOf(tenantId, delivery),
    platform: delivery.platform ?? 'web',
    token: delivery.token ?? '',
    title: delivery.title,
    message: delivery.message,
    data: {
      notification_id: delivery.notification_id === null ? null : String(delivery.notification_id),
      action_url: delivery.action_url,
    },
  };
}

/** Sends one delivery. Every failure becomes an outcome, so that one message cannot stop the others. */
async function attempt(
  delivery: Delivery,
  sender: Omit<Pending, 'deliveries'>,
  tenantId: number,
  { push, sendEmail, links, logger }: TaskContext,
): Promise<Outcome> {
  try {
    if (delivery.channel === 'push') return await push.send(messageOf(tenantId, delivery));
    await sendEmail(compose(delivery, sender, links, messageIdOf(tenantId, delivery)));
    return { status: 'sent' };
  } catch (error) {
    if (error instanceof EmailRefused) {
      return error.isPermanent
        ? { status: 'failed', reason: error.reason }
        : { status: 'retry', reason: error.reason, isServiceDown: error.isServiceDown };
    }
    // A bug in this service. The text of the error is not logged, because it may contain a token.
    logger.error({
      task: 'deliver',
      tenant: tenantId,
      delivery: delivery.id,
      error: error instanceof Error ? error.name : 'unknown',
    });
    return { status: 'retry', reason: 'internal' };
  }
}

/**
 * Stores the result of an attempt. Retries for about six seconds while the database restarts: a message whose result is
 * not stored would be sent again.
 */
async function saveResult(
  pool: TaskContext['pool'],
  tenantId: number,
  { id }: Delivery,
  status: 'sent' | 'failed' | 'pending',
  reason: string | null,
  isGone = false,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await pool.query('select core.delivery_save_result($1, $2, $3, $4, $5)', [tenantId, id, status, reason, isGone]);
      return;
    } catch (error) {
      if (tries === 6) throw error;
      await sleep(100 * 2 ** tries);
    }
  }
}

/**
 * Sends the pending deliveries of a range of ids. Each result is stored at once: after a crash only the deliveries in
 * progress are repeated. Deliveries that cannot be sent now are left to new jobs, which replace this one.
 */
export async function deliver(payload: unknown, context: TaskContext, job: { id: string }): Promise<void> {
  const { tenant_id, from_id, to_id, only, limits_unconfirmed } = Payload.parse(payload);
  const { pool, push, logger, stopping, observeDelivery } = context;
  const { rows } = await pool.query<{ pending: Pending | null }>(
    'select core.deliveries_pending($1, $2, $3, $4, $5, $6) as pending',
    [tenant_id, from_id, to_id, only ?? null, push.platforms, limits_unconfirmed ?? false],
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

  const counts = { sent: 0, failed: 0, postponed: 0 };
  /** Seconds from now to the next attempt of each postponed delivery. */
  const postponed = new Map<Delivery, number>();
  /** Consecutive attempts without an answer, by service. */
  const unanswered = new Map<string, number>();

  const handle = async (delivery: Delivery): Promise<void> => {
    if (delivery.wait_seconds !== null) {
      postponed.set(delivery, delivery.wait_seconds);
      return;
    }
    // Quiet hours may have begun, or been set, after the job was queued.
    if (stopping.aborted || pending.is_quiet) {
      postponed.set(delivery, 0);
      return;
    }
    const service = delivery.channel === 'email' ? 'email' : push.serviceName(messageOf(tenant_id, delivery));
    const failures = unanswered.get(service) ?? 0;
    let outcome: Outcome;
    if (failures >= maxUnanswered) {
      outcome = { status: 'retry', reason: 'service_down' };
    } else {
      outcome = await attempt(delivery, pending, tenant_id, context);
      const isDown = outcome.status === 'retry' && outcome.isServiceDown;
      unanswered.set(service, isDown ? (unanswered.get(service) ?? 0) + 1 : 0);
    }
    if (outcome.status === 'sent') {
      await saveResult(pool, tenant_id, delivery, 'sent', null);
      counts.sent++;
      observeDelivery?.(delivery.channel, 'sent');
    } else if (outcome.status === 'failed' || delivery.attempts + 1 >= maxAttempts) {
      const isGone = outcome.status === 'failed' && outcome.isGone;
      await saveResult(pool, tenant_id, delivery, 'failed', outcome.reason, isGone);
      counts.failed++;
      observeDelivery?.(delivery.channel, 'failed');
    } else {
      await saveResult(pool, tenant_id, delivery, 'pending', outcome.reason);
      postponed.set(delivery, retryDelaySeconds(delivery.attempts + 1, outcome.retryAfterSeconds));
      counts.postponed++;
      observeDelivery?.(delivery.channel, 'retry');
    }
  };

  const deliveriesOf = (channel: Delivery['channel']) =>
    pending.deliveries.filter((delivery) => delivery.channel === channel);
  await Promise.all(
    (['push', 'email'] as const).map((channel) =>
      forEachConcurrently(deliveriesOf(channel), maxConcurrent[channel], handle),
    ),
  );
  if (postponed.size > 0)
    await pool.query('select core.replace_deliver_job($1, $2, $3)', [
      job.id,
      tenant_id,
      JSON.stringify(jobsFor(postponed, (limits_unconfirmed ?? false) && pending.is_quiet)),
    ]);
  logger.info({ task: 'deliver', tenant: tenant_id, ...counts });
}

/**
 * The jobs for postponed deliveries: one for those with about the same delay. A random part of the delay keeps the jobs
 * from running all at once. Emails that have to wait, or all if `limitsAll`, are still to be counted.
 */
function jobsFor(
  postponed: Map<Delivery, number>,
  limitsAll: boolean,
): { from_id: number; to_id: number; only: number[]; limits_unconfirmed?: true; run_at: string }[] {
  const now = Date.now();
  const batches = new Map<string, { ids: number[]; seconds: number; isLimited: boolean }>();
  for (const [{ id, wait_seconds }, seconds] of postponed) {
    const isLimited = limitsAll || wait_seconds !== null;
    const key = `${String(isLimited)} ${String(Math.round(Math.log2(seconds + 1)))}`;
    const batch = batches.get(key) ?? { ids: [], seconds: 0, isLimited };
    batches.set(key, { ids: [...batch.ids, id], seconds: Math.max(batch.seconds, seconds), isLimited });
  }
  return [...batches.values()].map(({ ids, seconds, isLimited }) => ({
    from_id: Math.min(...ids),
    to_id: Math.max(...ids),
    only: ids,
    ...(isLimited ? { limits_unconfirmed: true as const } : {}),
    run_at: new Date(now + (seconds + Math.random() * Math.min(seconds / 5, 30)) * 1000).toISOString(),
  }));
}
