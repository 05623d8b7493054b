import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { clock, Deleted, flag, id, optionalText, page, text, timestamps } from '../http/schemas.ts';
import { channel, channelsAnswer } from './notifications.ts';

const time = clock.meta({ examples: ['21:00'] });
const limit = z.int().min(0).max(10_000).nullable();

const channels = { in_app: z.boolean(), push: z.boolean(), email: z.boolean() };
const limits = {
  push_per_user_per_day: limit.meta({
    description: 'Messages to one device on a day of its school; null for no limit.',
  }),
  emails_per_user_per_day: limit.meta({
    description: 'Messages to one address on a day of its school; null for no limit.',
  }),
};
const quietHours = { start: time, end: time.meta({ examples: ['07:00'] }) };

const SettingsChange = z
  .strictObject({
    channels: z
      .strictObject(channels)
      .partial()
      .optional()
      .meta({ description: 'A channel that is closed carries nothing, for no school.' }),
    sender_name: optionalText(100).meta({
      description: 'Who sends e-mails for schools: they come from «<name of the school> via <sender_name>».',
      examples: ['School Cloud'],
    }),
    quiet_hours: z
      .strictObject(quietHours)
      .refine(({ start, end }) => start !== end, { path: ['end'], message: 'must not be the start' })
      .nullish()
      .meta({ description: 'In the time zone of each school: push and e-mail wait for their end. Null for none.' }),
    limits: z
      .strictObject(limits)
      .partial()
      .optional()
      .meta({ description: 'What is above is not sent; the app shows it all the same.' }),
  })
  .meta({ id: 'NotificationSettingsChange', description: 'Any of the settings; those that are not named stay.' });

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
    variables: z.array(z.string()).meta({ description: 'What its words may name.' }),
    sample: z.record(z.string(), z.string()).meta({ description: 'A value of each variable of the event.' }),
    title: z.string(),
    message: z.string(),
  })
  .meta({ id: 'PlatformNotificationEvent' });

const fields = {
  key: text(100).meta({
    description: 'The event whose words these are, from GET /api/platform/notification-events.',
    examples: ['holiday.added'],
  }),
  channel,
  subject: text(200)
    .optional()
    .meta({
      description: 'The title; plain text with placeholders. Without one that of the event.',
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
  'What holds for the notifications of every school.',
  {
    'GET /notification-settings': {
      operation: 'platform_notification_settings_get',
      summary: 'Read the settings of notifications',
      answer: Settings,
    },
    'PUT /notification-settings': {
      operation: 'platform_notification_settings_update',
      summary: 'Change the settings of notifications',
      description: 'In effect for what is sent from then on.',
      body: SettingsChange,
      answer: Settings,
    },
    'GET /notification-events': {
      operation: 'platform_notification_events_list',
      summary: 'List the events that notify',
      description: 'With the words that they have where neither operators nor the school have others.',
      answer: z.array(Event),
    },
    'GET /notification-templates': {
      operation: 'platform_notification_templates_list',
      summary: 'List the words of operators',
      query: page({ key: text(100).optional(), channel: channel.optional(), is_active: flag.optional() }, [
        'key',
        'created_at',
      ]),
      answer: Template,
      isPage: true,
    },
    'POST /notification-templates': {
      operation: 'platform_notification_templates_create',
      summary: 'Add words for an event on a channel',
      description:
        'For every school that has no template of its own for the event. A placeholder that the event does not know is a 400.',
      body: TemplateInput,
      answer: Template,
      isCreate: true,
    },
    'POST /notification-templates/preview': {
      operation: 'platform_notification_templates_preview',
      summary: 'See words filled in',
      description:
        'As a recipient would read them, with the sample of the event; keeps nothing. Raises what adding them would.',
      body: z
        .strictObject({ key: fields.key, channel, subject: fields.subject, body: fields.body })
        .meta({ id: 'PlatformNotificationPreviewInput' }),
      answer: Preview,
    },
    'GET /notification-templates/:id': {
      operation: 'platform_notification_templates_get',
      summary: 'Read words of operators',
      answer: Template,
    },
    'PUT /notification-templates/:id': {
      operation: 'platform_notification_templates_update',
      summary: 'Change words of operators',
      body: TemplateInput.partial().meta({ id: 'PlatformNotificationTemplateChange' }),
      answer: Template,
    },
    'DELETE /notification-templates/:id': {
      operation: 'platform_notification_templates_delete',
      summary: 'Remove words of operators',
      description: 'The event has its former words again.',
      answer: Deleted,
    },
  },
);
