import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { Deleted, id, page, text, timestamps, uniqueBy } from '../http/schemas.ts';
import { channels, channelsAnswer, message, title, type, variableName } from './notifications.ts';

const fields = {
  name: text(100).meta({
    description: 'The name of an event, `attendance.absent` for example, makes these the words of that event.',
    examples: ['Exam results'],
  }),
  title,
  message,
  type: type.optional(),
  channels: channels.optional().meta({
    description:
      'By which ways a message with it goes, unless the sender says otherwise: in_app and push. Of an event its settings say so.',
  }),
  variables: z
    .array(variableName)
    .max(30)
    .superRefine(uniqueBy())
    .optional()
    .meta({ description: 'What the sender fills in, besides what is known of each recipient.', examples: [['exam']] }),
};

const TemplateInput = z.strictObject(fields).meta({ id: 'NotificationTemplateInput' });
const TemplateChange = z.strictObject(fields).partial().meta({
  id: 'NotificationTemplateChange',
  description: 'Any of the fields of a template; those that are not named stay.',
});

export const Template = z
  .object({
    id,
    name: z.string(),
    title: z.string(),
    message: z.string(),
    type: z.string(),
    channels: channelsAnswer,
    variables: z.array(z.string()),
    event: z.string().nullable().meta({ description: 'The event whose words these are.' }),
    ...timestamps,
  })
  .meta({ id: 'NotificationTemplate' });

export const notificationTemplates = resource(
  '/notifications/templates',
  'Notification templates',
  'Words to send, and those of events.',
  {
    'GET /': {
      operation: 'notification_templates_list',
      summary: 'List templates',
      query: page({}, ['name', 'created_at']),
      answer: Template,
      isPage: true,
    },
    'POST /': {
      operation: 'notification_templates_create',
      summary: 'Add a template',
      description:
        'Known placeholders are {{first_name}}, {{last_name}}, {{name}}, {{school_name}}, the `variables`, and of an event its own; another one is a 400.',
      body: TemplateInput,
      answer: Template,
      isCreate: true,
    },
    'GET /:id': { operation: 'notification_templates_get', summary: 'Read a template', answer: Template },
    'PUT /:id': {
      operation: 'notification_templates_update',
      summary: 'Change a template',
      body: TemplateChange,
      answer: Template,
    },
    'DELETE /:id': {
      operation: 'notification_templates_delete',
      summary: 'Remove a template',
      description: 'An event whose words it had has its former ones again.',
      answer: Deleted,
    },
  },
);
