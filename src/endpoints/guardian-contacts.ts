import { z } from 'zod';
import { json, resource } from '../http/endpoint.ts';
import { id } from '../http/schemas.ts';

const FromContacts = z
  .strictObject({ dry_run: z.boolean().optional().meta({ description: 'Only counts. Default: false.' }) })
  .meta({ id: 'GuardiansFromContacts' });

const ContactsResult = z
  .object({
    created: z.int().meta({ description: 'New guardians.' }),
    linked: z.int().meta({ description: 'Students who have a guardian now.' }),
    skipped: z
      .array(
        z.object({
          name: z
            .string()
            .nullable()
            .meta({ examples: ['Omar García'] }),
          email: z.string().nullable(),
          phone: z.string().nullable(),
          student_ids: z.array(id),
          reason: z.string().meta({ examples: ['The contacts with this email have different names.'] }),
        }),
      )
      .meta({ description: 'Contacts about which a person has to decide. Their students stay as they are.' }),
  })
  .meta({ id: 'ContactsResult' });

export const guardianContacts = resource(
  '/guardians',
  'Guardians from contacts',
  'For schools that have the contacts of students, but no guardians yet.',
  {
    'POST /from-contacts': {
      operation: 'guardians_from_contacts',
      summary: 'Make guardians of the contacts of students',
      description:
        'For schools that imported students with `parent_name`, `parent_phone` and `parent_email`: each contact of ' +
        'students without guardians becomes a guardian, one for all children with the same email and name. A contact ' +
        'without a name, with several names, or of more than eight children is left to a person. A guardian who has ' +
        'a login does not see a student who is linked in this way until `can_see_records` is set.',
      body: FromContacts,
      response: json(ContactsResult),
    },
  },
);
