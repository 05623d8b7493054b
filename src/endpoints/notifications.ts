import { z } from 'zod';
import { type Handler, json, page, resource, stream, type StreamHandler } from '../http/endpoint.ts';
import { choice, withCoercion } from '../http/coercion.ts';
import { ApiError } from '../domain/errors.ts';
import { accessTokenSeconds } from '../http/credentials/tokens.ts';
import { actionUrl, checkActionUrl } from './parts/action-url.ts';
import { beginStream, eventId, lastEventId } from './parts/streams.ts';
import { Deleted, flag, id, text, timestamp, timestamps, uniqueBy } from '../http/schemas.ts';

export const channel = choice(['in_app', 'push', 'email'], {
  synonyms: { in_app: ['app'], push: ['push notification'], email: ['mail'] },
});
export const channels = z
  .array(channel)
  .min(1)
  .max(3)
  .superRefine(uniqueBy())
  .meta({
    description: 'The channels: the app (and its stream), push messages to devices, email.',
    examples: [['in_app', 'push']],
  });

/** Channels in a response. */
export const channelsAnswer = z.array(channel);

export const title = text(200).meta({
  description: 'Plain text, with placeholders like {{first_name}}.',
  examples: ['Hello {{first_name}}'],
});
export const message = text(5000).meta({
  description: 'Plain text, with placeholders like {{first_name}}.',
  examples: ['School ends at noon today.'],
});
export const type = text(50).meta({
  description: 'The kind of notification, which an app may use to display it. For an event, the key of the event.',
  examples: ['info'],
});
export const variableName = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,49}$/, 'must be a name of lowercase letters, digits and _');

export const Notification = z
  .object({
    id,
    title: z.string(),
    message: z.string(),
    type: z.string(),
    action_url: z.string().nullable(),
    is_read: z.boolean(),
    read_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'Notification' });

/** As many as a template may have. */
export const maxVariables = 30;
/** Of the values together. A message has at most 5,000 characters. */
const maxVariablesLength = 10_000;

/** A list without entries is the same as none. */
const emptyIsAbsent = <S extends z.ZodType>(list: S) =>
  withCoercion(list, (value) => (Array.isArray(value) && value.length === 0 ? undefined : value));

const SendInput = z
  .strictObject({
    user_ids: emptyIsAbsent(z.array(id).min(1).max(10_000))
      .optional()
      .meta({ description: 'These users. Users who cannot log in are left out.' }),
    role_ids: emptyIsAbsent(z.array(id).min(1).max(100))
      .optional()
      .meta({ description: 'All users who have one of these roles.' }),
    all: z.boolean().optional().meta({ description: 'Whether to notify all users.' }),
    title: title.optional(),
    message: message.optional(),
    type: type.optional(),
    action_url: actionUrl.nullish(),
    template_id: id.optional().meta({
      description:
        'Used instead of title, message and type. Its `action_url` is used unless the request has one, or null.',
    }),
    variables: z
      .record(variableName, z.union([text(1000, 0), z.number()]))
      .superRefine((variables, context) => {
        const values = Object.values(variables);
        const length = values.reduce<number>((sum, value) => sum + String(value).length, 0);
        const issue = (message: string) => {
          context.addIssue({ code: 'custom', message });
        };
        if (values.length > maxVariables) issue(`must have at most ${String(maxVariables)} variables`);
        if (length > maxVariablesLength)
          issue(`must have at most ${String(maxVariablesLength)} characters together, and has ${String(length)}`);
      })
      .optional()
      .meta({
        description:
          'Values of the placeholders, the same for all recipients. At most ' +
          `${maxVariablesLength.toLocaleString('en')} characters together.`,
        maxProperties: maxVariables,
        examples: [{ exam: 'Mathematics' }],
      }),
    channels: channels
      .optional()
      .meta({ description: 'Default: the channels of the template; without one, in_app and push.' }),
  })
  .superRefine((given, context) => {
    const issue = (field: string, text: string) => {
      context.addIssue({ code: 'custom', path: [field], message: text });
    };
    const targets = (['user_ids', 'role_ids', 'all'] as const).filter((target) => given[target]);
    if (targets.length !== 1) issue(targets[1] ?? 'user_ids', 'exactly one of user_ids, role_ids and all is required');
    for (const field of ['title', 'message', 'type'] as const) {
      if (given.template_id !== undefined && given[field] !== undefined) issue(field, 'comes from the template');
      if (given.template_id === undefined && given[field] === undefined && field !== 'type')
        issue(field, 'is required without template_id');
    }
  })
  .meta({ id: 'NotificationSend' });

const NotificationEvent = z
  .object({
    key: z.string().meta({ examples: ['attendance.absent'] }),
    description: z.string(),
    is_enabled: z.boolean(),
    channels: channelsAnswer,
    default_channels: channelsAnswer,
    variables: z.array(z.string()).meta({ description: 'The variables that its texts may use.' }),
    sample: z.record(z.string(), z.string()).meta({ description: 'A sample value of each variable of the event.' }),
    title: z.string(),
    message: z.string(),
    template_id: id.nullable().meta({ description: 'The template of the school that overrides its texts.' }),
  })
  .meta({ id: 'NotificationEvent' });

/** Opens the stream, which begins after the notification that the client had last. */
const openStream: StreamHandler = async (exchange) => {
  const last = lastEventId(exchange);
  const { after } = JSON.parse(
    await exchange.call('notifications_stream', last === undefined ? {} : { last_event_id: last }),
  ) as { after: number };
  beginStream(exchange, after);
};

const createStreamToken: Handler = async ({ req, call, services }) => {
  const answer = JSON.parse(await call('notifications_stream_token', {})) as { last_event_id: number };
  if (!req.claims) throw new ApiError('unauthenticated', 'Send an access token.');
  return JSON.stringify({ ...services.tokens.signStreamToken(req.claims), ...answer });
};

const eventKey = { key: text(100).meta({ examples: ['attendance.absent'] }) };

export const notifications = resource(
  '/notifications',
  'Notifications',
  'Your notifications, sending notifications, and the settings of events.',
  {
    'GET /': {
      operation: 'notifications_list',
      summary: 'List your notifications',
      description: 'Newest first. `unread_count` counts all your unread notifications and ignores the filters.',
      response: page(
        Notification,
        { is_read: flag.optional(), type: text(50).optional() },
        { extraFields: { unread_count: z.int() } },
      ),
    },
    'GET /stream': {
      operation: 'notifications_stream',
      summary: 'Receive your notifications as a stream',
      description:
        'Server-sent events. Each notification is a message without an `event` name, so that `EventSource.onmessage` ' +
        'gets it: its `id` and, as `data`, the JSON of `{id, title, message, type, action_url, created_at}`. ' +
        'Ignore messages with an `event` name. The stream begins with new notifications. To resume it without ' +
        'gaps or duplicates, send the id of the last event as the header `Last-Event-ID` or the parameter ' +
        '`last_event_id`. A comment is sent every 25 seconds. The stream outlives the access token. It ends with the ' +
        'session, or when the school is deactivated or loses the feature. A user may have 5 streams at a time ' +
        '(otherwise 429). The `EventSource` of a browser needs a stream token (`POST ' +
        '/api/notifications/stream-token`).',
      query: z.strictObject({
        token: text(2000).optional().meta({ description: 'A stream token, instead of the header Authorization.' }),
        last_event_id: eventId
          .optional()
          .meta({ description: 'Like the header, which has priority.', examples: ['42'] }),
      }),
      response: stream(openStream),
    },
    'POST /stream-token': {
      operation: 'notifications_stream_token',
      summary: 'Get a token for the stream',
      description:
        'For the `EventSource` of a browser, which cannot send the header Authorization: ' +
        '`new EventSource("/api/notifications/stream?token=…")`. The token only opens the stream of this session, ' +
        `within ${String(accessTokenSeconds / 60)} minutes. An \`EventSource\` that reconnects later gets a 401 and ` +
        'closes: get another token, and open the next one with `last_event_id`.',
      response: json(
        z
          .object({
            token: z.string(),
            expires_at: timestamp,
            last_event_id: z
              .int()
              .meta({ description: 'The id of your newest notification, for a stream that is to begin here.' }),
          })
          .meta({ id: 'StreamToken' }),
        { handler: createStreamToken },
      ),
    },
    'POST /read-all': {
      operation: 'notifications_read_all',
      summary: 'Mark all your notifications as read',
      response: json(z.object({ marked: z.int() }).meta({ id: 'NotificationsMarked' })),
    },
    'POST /send': {
      operation: 'notifications_send',
      resolve: checkActionUrl,
      summary: 'Send a notification',
      description:
        'Title and message may contain the placeholders {{first_name}}, {{last_name}}, {{name}} and ' +
        '{{school_name}}, and those in `variables`. Any other {{…}} is text. The notifications arrive shortly ' +
        'after the response, which does not wait for them. A user who may send only through the roles teacher ' +
        'and student can notify the students of their classes only.',
      body: SendInput,
      response: json(
        z
          .object({ sent: z.int().meta({ description: 'The number of recipients.' }) })
          .meta({ id: 'NotificationsSent' }),
      ),
    },
    'GET /events': {
      operation: 'notifications_events_list',
      summary: 'List the events that send notifications',
      description: 'A template with the name of an event overrides the texts of the event.',
      response: json(z.array(NotificationEvent)),
    },
    'GET /events/:key': {
      operation: 'notifications_events_get',
      summary: 'Get an event that sends notifications',
      params: eventKey,
      response: json(NotificationEvent),
    },
    'PUT /events/:key': {
      operation: 'notifications_events_update',
      summary: 'Switch an event on or off, or choose its channels',
      params: eventKey,
      body: z
        .strictObject({ is_enabled: z.boolean(), channels })
        .partial()
        .meta({ id: 'NotificationEventChange', description: 'The fields to change. Omitted fields stay as they are.' }),
      response: json(NotificationEvent),
    },
    'DELETE /:id': {
      operation: 'notifications_delete',
      summary: 'Delete one of your notifications',
      response: json(Deleted),
    },
    'POST /:id/read': {
      operation: 'notifications_read',
      summary: 'Mark one of your notifications as read',
      response: json(Notification),
    },
  },
);
