import { z } from 'zod';
import { type Handler, resource } from '../http/endpoint.ts';
import { ApiError } from '../domain/errors.ts';
import { streamHeaders } from '../http/streams.ts';
import { Deleted, flag, id, page, text, timestamp, timestamps, uniqueBy } from '../http/schemas.ts';

export const channel = z.enum(['in_app', 'push', 'email']);
export const channels = z
  .array(channel)
  .min(1)
  .max(3)
  .superRefine(uniqueBy())
  .meta({
    description: 'By which ways it goes: in the app (and its stream), to devices, by e-mail.',
    examples: [['in_app', 'push']],
  });

/** Channels as they go out. */
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
  description: 'What kind it is, for an app to show it by; of an event it is its key.',
  examples: ['info'],
});
export const variableName = z.string().regex(/^[a-z][a-z0-9_]{0,49}$/, 'must be a name of small letters, digits and _');

/** A path below the app, or https: what a browser does with it is nothing but to go there. No white space, which browsers take out before they look. */
const isAddress = (address: string) => {
  if (/[\s\\]/.test(address)) return false;
  if (address.startsWith('/')) return !address.startsWith('//');
  return /^https:\/\/[^/?#@]+([/?#]|$)/.test(address) && URL.canParse(address);
};
const actionUrl = text(500)
  .refine(isAddress, 'must be a path of the app, like /fees, or begin with https://')
  .meta({ description: 'What it opens: a path of the app, or an https address.', examples: ['/fees'] });

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

const SendInput = z
  .strictObject({
    user_ids: z
      .array(id)
      .min(1)
      .max(10_000)
      .optional()
      .meta({ description: 'These users; who can not log in any more is left out.' }),
    role_ids: z.array(id).min(1).max(100).optional().meta({ description: 'Everybody who has one of these roles.' }),
    all: z.literal(true).optional().meta({ description: 'Everybody.' }),
    title: title.optional(),
    message: message.optional(),
    type: type.optional(),
    action_url: actionUrl.nullish(),
    template_id: id.optional().meta({ description: 'In place of title, message and type.' }),
    variables: z
      .record(variableName, z.union([text(1000, 0), z.number()]))
      .optional()
      .meta({ description: 'Values of placeholders, the same for everybody.', examples: [{ exam: 'Mathematics' }] }),
    channels: channels
      .optional()
      .meta({ description: 'Those of the template, else in_app and push, unless this says otherwise.' }),
  })
  .superRefine((given, context) => {
    const issue = (field: string, text: string) => {
      context.addIssue({ code: 'custom', path: [field], message: text });
    };
    const targets = (['user_ids', 'role_ids', 'all'] as const).filter((target) => given[target] !== undefined);
    if (targets.length !== 1)
      issue(targets[1] ?? 'user_ids', 'exactly one of user_ids, role_ids and all says who gets it');
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
    variables: z.array(z.string()).meta({ description: 'What its words may name.' }),
    sample: z.record(z.string(), z.string()).meta({ description: 'A value of each variable of the event.' }),
    title: z.string(),
    message: z.string(),
    template_id: id.nullable().meta({ description: 'The template of the school that has its words.' }),
  })
  .meta({ id: 'NotificationEvent' });

const eventId = z.string().regex(/^\d{1,15}$/, 'must be the id of an event');

/** Keeps the response as a stream. Where both are given, the header is newer than an address that a client goes on using. */
const openStream: Handler = async ({ req, res, params, call, services }) => {
  const header = req.get('last-event-id') ?? '';
  const last = header === '' ? params['last_event_id'] : header;
  if (last !== undefined && !eventId.safeParse(last).success) {
    throw new ApiError('validation_error', 'Last-Event-ID must be the id of an event.', {
      details: [{ path: 'Last-Event-ID', message: 'is malformed' }],
    });
  }
  const { after } = JSON.parse(
    await call('notifications_stream', last === undefined ? {} : { last_event_id: last }),
  ) as { after: number };
  const { claims } = req;
  if (req.method === 'HEAD') res.set(streamHeaders).end();
  else if (claims?.tenant_id !== undefined)
    services.streams.open(res, { tenantId: claims.tenant_id, userId: claims.user_id, sessionId: claims.sid }, after);
  return undefined;
};

export const notifications = resource('/notifications', 'Notifications', 'What you are told, and what tells people.', {
  'GET /': {
    operation: 'notifications_list',
    summary: 'List your notifications',
    description: 'The latest first. `unread_count` counts all that you have not read, whatever the filters.',
    query: page({ is_read: flag.optional(), type: text(50).optional() }, ['created_at']),
    answer: Notification,
    isPage: true,
    extraFields: { unread_count: z.int() },
  },
  'GET /stream': {
    operation: 'notifications_stream',
    summary: 'Hear of your notifications as they come',
    description:
      'Server-sent events. Each has an `id`, the `event` notification and, as `data`, the JSON of `{id, title, message, type, action_url, created_at}`. It begins with what comes from now on; with the id of the last event that you have got, in `Last-Event-ID` or as `last_event_id`, it goes on after that, without a loss or a double. A comment comes every 25 seconds. It lives as long as the session, also when the access token expires meanwhile, and ends when you log out, or the user, the feature or the school is closed: connect again and the answer says which. A user may have 5 at a time (429). A browser needs a client that sends the access token, by fetch; an `EventSource` of its own does not.',
    query: z.strictObject({
      last_event_id: eventId
        .optional()
        .meta({ description: 'As the header Last-Event-ID, which goes before it.', examples: ['42'] }),
    }),
    isStream: true,
    handler: openStream,
  },
  'POST /read-all': {
    operation: 'notifications_read_all',
    summary: 'Mark all your notifications as read',
    answer: z.object({ marked: z.int() }).meta({ id: 'NotificationsMarked' }),
  },
  'POST /send': {
    operation: 'notifications_send',
    summary: 'Send a notification',
    description:
      'In title and message {{first_name}}, {{last_name}}, {{name}} and {{school_name}} are known of every recipient, other placeholders by `variables`; one that nothing fills in is a 400. Who may send only by the roles teacher and student tells the students of their classes.',
    body: SendInput,
    answer: z
      .object({ sent: z.int().meta({ description: 'How many users were told.' }) })
      .meta({ id: 'NotificationsSent' }),
  },
  'GET /events': {
    operation: 'notifications_events_list',
    summary: 'List the events that notify',
    description: 'A template with the name of an event has its words.',
    answer: z.array(NotificationEvent),
  },
  'PUT /events/:key': {
    operation: 'notifications_events_update',
    summary: 'Switch an event on or off, and choose its channels',
    params: { key: text(100).meta({ examples: ['attendance.absent'] }) },
    body: z
      .strictObject({ is_enabled: z.boolean(), channels })
      .partial()
      .meta({ id: 'NotificationEventChange', description: 'Any of them; what is not named stays.' }),
    answer: NotificationEvent,
  },
  'DELETE /:id': { operation: 'notifications_delete', summary: 'Remove a notification of yours', answer: Deleted },
  'POST /:id/read': {
    operation: 'notifications_read',
    summary: 'Mark a notification of yours as read',
    answer: Notification,
  },
});
