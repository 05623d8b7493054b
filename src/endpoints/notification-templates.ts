import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { Deleted, id, nameText, timestamps, uniqueBy } from '../http/schemas.ts';
import { actionUrl, checkActionUrl } from './parts/action-url.ts';
import { channels, channelsAnswer, maxVariables, message, title, type, variableName } from './notifications.ts';

const fields = {
  name: nameText(100).meta({
    description:
      'A template with the name of an event, for example `attendance.absent`, overrides the texts of that event.',
    examples: ['Exam results'],
  }),
  title,
  message,
  type: type.optional(),
  action_url: actionUrl.nullish(),
  channels: channels.optional().meta({
    description:
      'The default channels of a message with this template; in_app and push if omitted. An event uses the ' +
      'channels of its settings.',
  }),
  variables: z
    .array(variableName)
    .max(maxVariables)
    .superRefine(uniqueBy())
    .optional()
    .meta({
      description: 'The variables that the sender provides, in addition to the built-in ones.',
      examples: [['exam']],
    }),
};

const TemplateInput = z.strictObject(fields).meta({ id: 'NotificationTemplateInput' });
const TemplateChange = z.strictObject(fields).partial().meta({
  id: 'NotificationTemplateChange',
  description: 'The fields to change. Omitted fields stay as they are.',
});

export const Template = z
  .object({
    id,
    name: z.string(),
    title: z.string(),
    message: z.string(),
    type: z.string(),
    action_url: z.string().nullable(),
    channels: channelsAnswer,
    variables: z.array(z.string()),
    event: z.string().nullable().meta({ description: 'The event whose texts this template overrides.' }),
    ...timestamps,
  })
  .meta({ id: 'NotificationTemplate' });

export const notificationTemplates = resource(
  '/notifications/templates',
  'Notification templates',
  'Texts of notifications to send, and of events.',
  {
    'GET /': {
      operation: 'notification_templates_list',
      summary: 'List templates',
      response: page(Template),
    },
    'POST /': {
      operation: 'notification_templates_create',
      summary: 'Create a template',
      description:
        'Placeholders: {{first_name}}, {{last_name}}, {{name}}, {{school_name}}, and the `variables`, or those of ' +
        'the event. Any other {{…}} is text.',
      body: TemplateInput,
      resolve: checkActionUrl,
      response: created(Template),
    },
    'GET /:id': { operation: 'notification_templates_get', summary: 'Get a template', response: json(Template) },
    'PUT /:id': {
      operation: 'notification_templates_update',
      summary: 'Update a template',
      body: TemplateChange,
      resolve: checkActionUrl,
      response: json(Template),
    },
    'DELETE /:id': {
      operation: 'notification_templates_delete',
      summary: 'Delete a template',
      description: 'If the template has the name of an event, the event uses its default texts again.',
      response: json(Deleted),
    },
  },
);
