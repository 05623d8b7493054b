import { z } from 'zod';
import { type ExportColumn, exported, exportFormat } from './parts/exports.ts';
import { json, resource } from '../http/endpoint.ts';
import { dateRange, search } from '../http/schemas.ts';
import { auditFilters } from './platform.ts';

const column = (header: string, type: ExportColumn['type'] = 'text', width?: number): ExportColumn => ({
  header,
  type,
  ...(width ? { width } : {}),
});

export const auditLogs = resource('/platform/audit-logs', 'Audit log', 'Actions of operators, as a file.', {
  'GET /actions': {
    operation: 'platform_audit_logs_actions',
    summary: 'List the actions in the audit log',
    response: json(z.array(z.string().meta({ examples: ['tenant.suspend'] }))),
  },
  'GET /export': {
    operation: 'platform_audit_logs_export',
    summary: 'Export the audit log',
    description: 'Oldest first, with the filters of the list. The export itself is recorded.',
    query: dateRange(z.strictObject({ ...exportFormat, search, ...auditFilters })),
    response: exported('platform_audit_logs_export_page', {
      name: 'audit-log',
      begin: 'platform_audit_logs_export',
      columns: [
        column('id', 'number'),
        column('created_at', 'text', 24),
        column('actor_id', 'number'),
        column('actor_email', 'text', 30),
        column('impersonated_user_id', 'number'),
        column('impersonated_email', 'text', 30),
        column('action', 'text', 30),
        column('tenant_id', 'number'),
        column('tenant_name', 'text', 30),
        column('target_type'),
        column('target_id', 'number'),
        column('changes', 'text', 60),
        column('ip', 'text', 16),
        column('user_agent', 'text', 30),
        column('request_id', 'text', 36),
      ],
    }),
  },
});
