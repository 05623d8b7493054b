import { page, resource } from '../http/endpoint.ts';
import { date, pathId, text } from '../http/schemas.ts';
import { AuditLog } from './platform.ts';

const SchoolAuditLog = AuditLog.omit({ impersonated: true, tenant_id: true, tenant_name: true })
  .extend({
    actor: AuditLog.shape.actor.meta({
      description: 'Users of the school have only an email here. An operator of the service also has an id.',
    }),
    impersonated_email: AuditLog.shape.actor.shape.email.meta({
      description: 'The admin for whom an operator acted; otherwise null.',
      examples: ['amina@example.org'],
    }),
    action: AuditLog.shape.action.meta({ examples: ['user.roles'] }),
  })
  .meta({ id: 'SchoolAuditLog' });

export const schoolAuditLogs = resource(
  '/audit-logs',
  'Audit log of the school',
  'Who changed users and their roles and passwords, roles, API keys, webhooks, the information and settings of the ' +
    'school, the settings and texts of notifications, and discounts on fees, with the values before and after, and ' +
    'what operators of the service did in the school. Without secrets. Requires access to the whole school.',
  {
    'GET /': {
      operation: 'audit_logs_list',
      summary: 'List the audit log',
      description: 'Newest first. `search` matches the action and the emails. Days are those of the school.',
      response: page(
        SchoolAuditLog,
        {
          action: text(100).optional(),
          target_type: text(100).optional(),
          target_id: pathId.optional(),
          from_date: date.optional(),
          to_date: date.optional(),
        },
        { maxDays: Infinity },
      ),
    },
  },
);
