import { z } from 'zod';
import { choice } from '../http/coercion.ts';
import { json, resource } from '../http/endpoint.ts';
import { type ExportColumn, exported, exportFormat } from './parts/exports.ts';
import { id, includeEnded, pathId, search, text } from '../http/schemas.ts';

/** The filters of the list of schools. */
export const schoolFilters = {
  status: choice(['active', 'suspended', 'deleted']).optional(),
  include_ended: includeEnded,
  plan_id: pathId.optional(),
};

const column = (header: string, width: number, type: ExportColumn['type'] = 'text'): ExportColumn => ({
  header,
  type,
  width,
});

export const platformSchools = resource('/platform/tenants', 'Schools', 'What operators do with several schools.', {
  'GET /export': {
    operation: 'platform_tenants_export',
    summary: 'Export the list of schools',
    description: 'All schools that match the filters of the list, by id. The export is recorded in the audit log.',
    query: z.strictObject({ ...exportFormat, search, ...schoolFilters }),
    response: exported('platform_tenants_export_page', {
      name: 'schools',
      begin: 'platform_tenants_export',
      columns: [
        column('id', 8, 'number'),
        column('name', 30),
        column('subdomain', 20),
        column('status', 12),
        column('plan', 16),
        column('subscription_status', 20),
        column('current_period_end', 22),
        column('trial_ends_at', 22),
        column('contact_email', 30),
        column('total_students', 16, 'number'),
        column('total_teachers', 16, 'number'),
        column('total_classes', 16, 'number'),
        column('time_zone', 20),
        column('is_setup_complete', 20),
        column('created_at', 22),
      ],
    }),
  },
  'POST /:id/message': {
    operation: 'platform_tenants_message',
    summary: 'Send a message to the admins of a school',
    description:
      'In-app and by email. `{{first_name}}`, `{{last_name}}`, `{{name}}` and `{{school_name}}` are filled in. ' +
      '409 invalid_state if the school is not active or has no active admin.',
    body: z
      .strictObject({
        title: text(200).meta({ examples: ['Maintenance on Sunday'] }),
        message: text(5000).meta({ examples: ['The service is not available from 6:00 to 7:00 UTC.'] }),
      })
      .meta({ id: 'SchoolMessage' }),
    response: json(
      z
        .object({ id, sent: z.int().meta({ description: 'The number of admins.' }) })
        .meta({ id: 'SchoolMessageResult' }),
    ),
  },
});
