import { webhookResource } from './parts/webhooks.ts';

export const webhooks = webhookResource({
  path: '/webhooks',
  section: 'Webhooks',
  about:
    'Addresses that receive the events of the school. Messages are signed as in Standard Webhooks and sent within ' +
    'seconds, again for a day unless the receiver answers 2xx. `data` is the record as the API returns it, or only ' +
    'its id if it was deleted. Requires access to the whole school.',
  operations: 'webhooks',
  schemas: 'Webhook',
  // In the order of `db/seed/webhook-events.sql`, which has the permission of each.
  events: [
    'student.created',
    'student.updated',
    'student.deleted',
    'guardian.created',
    'guardian.updated',
    'guardian.deleted',
    'guardian.children_changed',
    'teacher.created',
    'teacher.updated',
    'teacher.deleted',
    'class.created',
    'class.updated',
    'class.deleted',
    'attendance.marked',
    'timetable.changed',
    'invoice.created',
    'invoice.updated',
    'invoice.issued',
    'invoice.paid',
    'invoice.voided',
    'invoice.deleted',
    'payment.created',
    'payment.reversed',
    'transport_enrollment.created',
    'transport_enrollment.updated',
    'transport_enrollment.cancelled',
  ],
  example: ['student.created', 'payment.created'],
  permissions: {
    events:
      'The events to send. Each needs the permission to read its records for the whole school: student.read, ' +
      'teacher.read, class.read, attendance.read, timetable.read, fee.read (invoices and payments), transport.read.',
    create: '403 `forbidden` if you may not read the records of an event. ',
    update:
      ' 403 `forbidden` if you may not read the records of one of its events, before or after the change. 409 ' +
      '`invalid_state` to enable a webhook without a secret, as after an import of the school: rotate the secret ' +
      'first.',
    use: ' 403 `forbidden` if you may not read the records of one of its events.',
    deliveries: ' Without those whose records you may not read.',
    replay:
      ' 403 `forbidden` if you may not read the records of one of the events of the webhook, or those of the message.',
  },
});
