import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { clock, Deleted, flag, id, optionalNameText, text, timestamps } from '../http/schemas.ts';
import { channel, channelsAnswer } from './notifications.ts';

const time = clock.meta({ examples: ['21:00'] });
const limit = z.int().min(0).max(10_000).nullable();

const channels = { in_app: z.boolean(), push: z.boolean(), email: z.boolean() };
const limits = {
  push_per_user_per_day: limit.meta({
    description: 'Maximum messages to one device per day, in the time zone of its school; null for no limit.',
  }),
  emails_per_user_per_day: limit.meta({
    description:
      'Maximum emails to one address per day, in the time zone of its school; null for no limit. Emails above it are ' +
      'dropped. Texts of a person to a user who has not confirmed the address wait for the next day instead.',
  }),
};
const quietHours = { start: time, end: time.meta({ examples: ['07:00'] }) };

const SettingsChange = z
  .strictObject({
    channels: z
      .strictObject(channels)
      .partial()
      .optional()
      .meta({ description: 'Nothing is sent on a channel that is off, for any school.' }),
    sender_name: optionalNameText(100).meta({
      description: 'The sender of emails is "<name of the school> via <sender_name>".',
      examples: ['School Cloud'],
    }),
    quiet_hours: z
      .strictObject(quietHours)
      .refine(({ start, end }) => start !== end, { path: ['end'], message: 'must differ from start' })
      .nullish()
      .meta({
        description:
          'In the time zone of each school. Push messages and emails are held back until the end. Null for none.',
      }),
    limits: z
      .strictObject(limits)
      .partial()
      .optional()
      .meta({ description: 'Messages above a limit are not sent; the app still shows them.' }),
  })
  .meta({
    id: 'NotificationSettingsChange',
    description: 'The settings to change. Omitted settings stay as they are.',
  });

export const Settings = z
  .object({
    channels: z.object(channels),
    sender_name: z.string().nullable(),
    quiet_hours: z.object(quietHours).nullable(),
    limits: z.object(limits),
    ...timestamps,
  })
  .meta({ id: 'NotificationSettings' });

export const Event = z
  .object({
    key: z.string().meta({ examples: ['attendance.absent'] }),
    description: z.string(),
    channels: channelsAnswer,
    variables: z.array(z.string()).meta({ description: 'The variables that its texts may use.' }),
    sample: z.record(z.string(), z.string()).meta({ description: 'A sample value of each variable of the event.' }),
    title: z.string(),
    message: z.string(),
  })
  .meta({ id: 'PlatformNotificationEvent' });

const fields = {
  key: text(100).meta({
    description: 'The event of the text, from GET /api/platform/notification-events.',
    examples: ['holiday.added'],
  }),
  channel,
  subject: text(200)
    .optional()
    .meta({
      description: 'The title, plain text with placeholders. Default: the title of the event.',
      examples: ['No school on {{date}}'],
    }),
  body: text(5000).meta({ description: 'Plain text with placeholders.', examples: ['{{holiday_name}} is a holiday.'] }),
  is_active: z.boolean().optional(),
};

const TemplateInput = z.strictObject(fields).meta({ id: 'PlatformNotificationTemplateInput' });
export const Template = z
  .object({
    id,
    key: z.string(),
    channel,
    subject: z.string(),
    body: z.string(),
    is_active: z.boolean(),
    ...timestamps,
  })
  .meta({ id: 'PlatformNotificationTemplate' });

export const Preview = z.object({ subject: z.string(), body: z.string() }).meta({ id: 'PlatformNotificationPreview' });

export const platformNotifications = resource(
  '/platform',
  'Platform notifications',
  'Settings of the notifications of all schools, and the default texts of events.',
  {
    'GET /notification-settings': {
      operation: 'platform_notification_settings_get',
      summary: 'Get the notification settings',
      response: json(Settings),
    },
    'PUT /notification-settings': {
      operation: 'platform_notification_settings_update',
      summary: 'Update the notification settings',
      description: 'Applies to messages that are sent afterwards.',
      body: SettingsChange,
      response: json(Settings),
    },
    'GET /notification-events': {
      operation: 'platform_notification_events_list',
      summary: 'List the events that send notifications',
      description: 'With their built-in texts, which operators and schools may override.',
      response: json(z.array(Event)),
    },
    'GET /notification-templates': {
      operation: 'platform_notification_templates_list',
      summary: 'List the texts of operators',
      response: page(Template, { key: text(100).optional(), channel: channel.optional(), is_active: flag.optional() }),
    },
    'POST /notification-templates': {
      operation: 'platform_notification_templates_create',
      summary: 'Create a text for an event on a channel',
      description:
        'Used by every school without a template of its own for the event. A placeholder that the event does not ' +
        'have is a 400.',
      body: TemplateInput,
      response: created(Template),
    },
    'POST /notification-templates/preview': {
      operation: 'platform_notification_templates_preview',
      summary: 'Preview a text',
      description:
        'Rendered with the sample values of the event; nothing is stored. Returns the same errors as adding the text.',
      body: z
        .strictObject({
          key: fields.key,
          channel: channel.meta({ description: 'The preview is the same on every channel.' }),
          subject: fields.subject,
          body: fields.body,
        })
        .meta({ id: 'PlatformNotificationPreviewInput' }),
      response: json(Preview),
    },
    'GET /notification-templates/:id': {
      operation: 'platform_notification_templates_get',
      summary: 'Get a text of operators',
      response: json(Template),
    },
    'PUT /notification-templates/:id': {
      operation: 'platform_notification_templates_update',
      summary: 'Update a text of operators',
      body: TemplateInput.partial().meta({ id: 'PlatformNotificationTemplateChange' }),
      response: json(Template),
    },
    'DELETE /notification-templates/:id': {
      operation: 'platform_notification_templates_delete',
      summary: 'Delete a text of operators',
      description: 'The event uses its built-in text again.',
      response: json(Deleted),
    },
  },
);
