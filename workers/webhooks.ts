import { createHmac } from 'node:crypto';
import { isPrivateOrigin, webhookUrlFault } from '../src/domain/webhooks.ts';
import { http, NoReply } from './http.ts';

/** A message to one webhook. */
export interface WebhookMessage {
  /** The same for each attempt. */
  message_id: string;
  url: string;
  body: string;
  /** `whsec_` and a key in base64. Each adds a signature. */
  secrets: string[];
}

/** The result of one attempt. */
export interface WebhookResult {
  isDelivered: boolean;
  /** Undefined without a response. */
  statusCode?: number;
  /** A code without personal data. */
  reason?: string;
  /** The beginning of the response. */
  responseBody?: string;
  /** As the receiver asked for, at most six hours. */
  retryAfterSeconds?: number | undefined;
}

/** Sends the messages of webhooks. */
export interface Webhooks {
  send(message: WebhookMessage): Promise<WebhookResult>;
  close(): void;
}

/** The settings of webhooks, documented in `.env.example`. */
export interface WebhookSettings {
  WEBHOOK_PRIVATE_ORIGINS: readonly string[];
  WEBHOOK_TIMEOUT_MS: number;
}

const maxStoredCharacters = 1000;
const maxRequestedWaitSeconds = 6 * 3600;

/**
 * The header `webhook-signature` of Standard Webhooks (https://www.standardwebhooks.com): a signature for each secret,
 * so that a receiver accepts either while the secret is rotated.
 * @param timestamp  in seconds
 */
export const webhookSignature = (
  { message_id, body, secrets }: Omit<WebhookMessage, 'url'>,
  timestamp: number,
): string =>
  secrets
    .map((secret) => Buffer.from(secret.replace(/^whsec_/, ''), 'base64'))
    .map((key) =>
      createHmac('sha256', key)
        .update(`${message_id}.${String(timestamp)}.${body}`)
        .digest('base64'),
    )
    .map((signature) => `v1,${signature}`)
    .join(' ');

/** The part of a response that is stored, without the characters that Postgres cannot store. */
const shorten = (body: string) =>
  Array.from(body.replace(/\0/g, '').toWellFormed()).slice(0, maxStoredCharacters).join('');

/** Creates the sender of webhooks. */
export function webhooks({ WEBHOOK_PRIVATE_ORIGINS, WEBHOOK_TIMEOUT_MS }: WebhookSettings): Webhooks {
  const connection = http(WEBHOOK_TIMEOUT_MS);
  return {
    async send(message) {
      const { url, body } = message;
      // The webhook may be older than the current settings.
      if (webhookUrlFault(url, WEBHOOK_PRIVATE_ORIGINS) !== undefined)
        return { isDelivered: false, reason: 'url_not_allowed' };
      const timestamp = Math.floor(Date.now() / 1000);
      try {
        const reply = await connection.post({
          url,
          headers: {
            'Content-Type': 'application/json',
            'User-Agent': 'school-management-webhooks',
            'webhook-id': message.message_id,
            'webhook-timestamp': timestamp,
            'webhook-signature': webhookSignature(message, timestamp),
          },
          body,
          isForeign: !isPrivateOrigin(url, WEBHOOK_PRIVATE_ORIGINS),
        });
        const isDelivered = reply.status >= 200 && reply.status < 300;
        return {
          isDelivered,
          statusCode: reply.status,
          responseBody: shorten(reply.body),
          ...(isDelivered ? {} : { reason: `http_${String(reply.status)}` }),
          ...(reply.retryAfter === undefined
            ? {}
            : { retryAfterSeconds: Math.min(reply.retryAfter, maxRequestedWaitSeconds) }),
        };
      } catch (error) {
        if (!(error instanceof NoReply)) throw error;
        return { isDelivered: false, reason: error.message };
      }
    },
    close: () => connection.close(),
  };
}
