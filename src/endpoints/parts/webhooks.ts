import { createHash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { ApiError } from '../../domain/errors.ts';
import { webhookUrlFault } from '../../domain/webhooks.ts';
import { choice } from '../../http/coercion.ts';
import { created, type Exchange, json, page, type Resource, resource } from '../../http/endpoint.ts';
import { Deleted, flag, id, optionalText, text, timestamp, timestamps, uniqueBy } from '../../http/schemas.ts';

// What the webhooks of schools and those of the platform have in common.

const isActive = z.boolean().meta({
  description: 'Whether events are sent. The service disables a webhook to which nothing could be delivered for a day.',
});

export const Webhook = z
  .object({
    id,
    url: z.string(),
    description: z.string().nullable(),
    events: z.array(z.string()).meta({ examples: [['student.created']] }),
    is_active: isActive,
    failing_since: timestamp.nullable().meta({
      description: 'The first failed attempt since the last message that was delivered.',
    }),
    disabled_at: timestamp.nullable().meta({ description: 'When the service disabled the webhook.' }),
    created_by: id.nullable(),
    ...timestamps,
  })
  .meta({ id: 'Webhook' });

const secret = z
  .string()
  .nullable()
  .meta({
    description:
      'Signs the messages. It is shown only in this response; null in the response to a repeated Idempotency-Key.',
    examples: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
  });
const NewWebhook = Webhook.extend({ secret }).meta({ id: 'NewWebhook' });
const WebhookSecret = z
  .object({
    id,
    secret,
    previous_secret_expires_at: timestamp.nullable().meta({
      description: 'Until then, messages have a signature of the previous secret too.',
    }),
  })
  .meta({ id: 'WebhookSecret' });

/** The worker reads an address with the same parser, so what is stored, shown and used is one thing. */
const address = text(2000)
  .overwrite((url) => URL.parse(url)?.href ?? url)
  .max(2000);

const deliveryStatus = choice(['pending', 'sent', 'failed']);
export const WebhookDelivery = z
  .object({
    id,
    webhook_id: id,
    message_id: z.string().meta({ description: 'The header webhook-id.', examples: ['msg_3_42'] }),
    event: z.string().meta({ examples: ['student.created'] }),
    status: deliveryStatus,
    attempts: z.int(),
    status_code: z.int().nullable().meta({ description: 'The HTTP status of the last response.' }),
    reason: z
      .string()
      .nullable()
      .meta({ description: 'Why the last attempt failed: a code.', examples: ['http_500', 'ETIMEDOUT', 'EPRIVATE'] }),
    response_body: z.string().nullable().meta({ description: 'The first 1,000 characters of the last response.' }),
    next_attempt_at: timestamp.nullable(),
    last_attempt_at: timestamp.nullable(),
    sent_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'WebhookDelivery' });

/** @throws ApiError if messages may not be sent to the URL */
function checkUrl({ params, services }: Exchange): void {
  const { url } = params;
  const fault = typeof url === 'string' ? webhookUrlFault(url, services.config.WEBHOOK_PRIVATE_ORIGINS) : undefined;
  if (fault !== undefined)
    throw new ApiError('validation_error', `url: ${fault}`, { details: [{ path: 'url', message: fault }] });
}

const sha256 = (content: string) => createHash('sha256').update(content).digest('hex');

/**
 * Runs an operation that stores a new secret, and adds the secret to the response. The stored response of an
 * Idempotency-Key has only its hash.
 */
async function withNewSecret({ params, call }: Exchange, operation: string): Promise<string> {
  const secret = `whsec_${randomBytes(24).toString('base64')}`;
  const answer = await call(operation, { ...params, secret, secret_hash: sha256(secret) });
  const { secret_hash, ...others } = JSON.parse(answer) as { secret_hash: string };
  return JSON.stringify({ ...others, secret: secret_hash === sha256(secret) ? secret : null });
}

const invalidState = '409 `invalid_state` if the webhook is disabled.';

interface Options {
  path: string;
  /** Of the documentation. */
  section: string;
  about: string;
  /** The beginning of the names of the operations. */
  operations: string;
  /** The beginning of the names of the schemas. */
  schemas: string;
  /** The events to choose from, with an example of a choice. */
  events: [string, ...string[]];
  example: string[];
  /** How the events are described, and when an operation is refused because of them. */
  permissions: {
    events: string;
    create: string;
    update: string;
    use: string;
    deliveries: string;
    replay: string;
  };
}

/** The endpoints of webhooks. The operations are the same but for their names. */
export function webhookResource({
  path,
  section,
  about,
  operations,
  schemas,
  events,
  example,
  permissions,
}: Options): Resource {
  const event = choice(events);
  const fields = {
    url: address.meta({
      description:
        'An https address. It is stored in the form in which browsers write it. Messages are not sent to private ' +
        'networks, and redirects are not followed.',
      format: 'uri',
      examples: ['https://hooks.example.org/school'],
    }),
    description: optionalText(500),
    events: z
      .array(event)
      .min(1)
      .max(100)
      .superRefine(uniqueBy())
      .meta({ description: permissions.events, examples: [example] }),
  };
  const input = z
    .strictObject({ ...fields, is_active: isActive.optional() })
    .meta({ id: `${schemas}Input`, description: '`is_active`: by default true.' });
  const change = z
    .strictObject({ ...fields, is_active: isActive })
    .partial()
    .meta({ id: `${schemas}Change`, description: 'Any subset of the fields of a webhook.' });
  return resource(path, section, about, {
    'GET /': {
      operation: `${operations}_list`,
      summary: 'List webhooks',
      description: '`search` matches url and description.',
      response: page(Webhook, { is_active: flag.optional(), event: event.optional() }),
    },
    'POST /': {
      operation: `${operations}_create`,
      summary: 'Create a webhook',
      description: `${permissions.create}409 \`conflict\` if there are 10 webhooks.`,
      body: input,
      response: created(NewWebhook, {
        handler(exchange) {
          checkUrl(exchange);
          return withNewSecret(exchange, `${operations}_create`);
        },
      }),
    },
    'GET /:id': { operation: `${operations}_get`, summary: 'Get a webhook', response: json(Webhook) },
    'PUT /:id': {
      operation: `${operations}_update`,
      summary: 'Update a webhook',
      description: `Disabling it, or another \`url\`, ends its pending deliveries.${permissions.update}`,
      body: change,
      response: json(Webhook, {
        handler(exchange) {
          checkUrl(exchange);
          return exchange.call(`${operations}_update`, exchange.params);
        },
      }),
    },
    'DELETE /:id': {
      operation: `${operations}_delete`,
      summary: 'Delete a webhook',
      description: `Also deletes its delivery log.${permissions.use}`,
      response: json(Deleted),
    },
    'POST /:id/rotate-secret': {
      operation: `${operations}_rotate_secret`,
      summary: 'Replace the secret of a webhook',
      description: `Both secrets sign for 24 hours. A secret that was replaced before stops at once.${permissions.use}`,
      response: json(WebhookSecret, { handler: (exchange) => withNewSecret(exchange, `${operations}_rotate_secret`) }),
    },
    'POST /:id/test': {
      operation: `${operations}_test`,
      summary: 'Send a test event',
      description: `Sends the event webhook.test. ${invalidState}${permissions.use}`,
      response: json(WebhookDelivery),
    },
    'GET /:id/deliveries': {
      operation: `${operations}_deliveries_list`,
      summary: 'List the deliveries of a webhook',
      description:
        'Deliveries that are still kept (90 days by default), by default newest first. `search` matches event and ' +
        `reason.${permissions.deliveries}`,
      response: page(WebhookDelivery, {
        status: deliveryStatus.optional(),
        event: text(100).optional().meta({ description: 'An event, or webhook.test.' }),
      }),
    },
    'POST /:id/deliveries/:delivery_id/replay': {
      operation: `${operations}_deliveries_replay`,
      summary: 'Send a message again',
      description: `Creates a delivery of the same message, with the same id. ${invalidState}${permissions.replay}`,
      response: json(WebhookDelivery),
    },
  });
}
