import { z } from 'zod';
import { json, resource } from '../http/endpoint.ts';
import { id, uniqueBy } from '../http/schemas.ts';

const familyEvents = [
  'attendance.absent',
  'attendance.late',
  'fee.generated',
  'payment.received',
  'invoice.reminder',
  'timetable.published',
  'holiday.added',
] as const;

const PreferencesChange = z
  .strictObject({
    events: z
      .array(z.strictObject({ key: z.enum(familyEvents), is_enabled: z.boolean() }))
      .max(familyEvents.length)
      .superRefine(uniqueBy('key'))
      .optional(),
  })
  .meta({ id: 'GuardianPreferencesChange', description: 'Events that are not named stay as they are.' });

export const Preferences = z
  .object({
    guardian_id: id,
    events: z.array(
      z.object({
        key: z.enum(familyEvents),
        is_enabled: z.boolean(),
      }),
    ),
  })
  .meta({ id: 'GuardianPreferences' });

export const guardianPreferences = resource(
  '/guardians',
  'Guardian preferences',
  'Of which events a guardian is notified.',
  {
    'GET /:guardian_id/notification-preferences': {
      operation: 'guardians_preferences_get',
      summary: 'Get of which events a guardian is notified',
      response: json(Preferences),
    },
    'PUT /:guardian_id/notification-preferences': {
      operation: 'guardians_preferences_update',
      summary: 'Choose of which events a guardian is notified',
      description: 'Guardians choose for themselves. Messages about the login and those of people are always sent.',
      body: PreferencesChange,
      response: json(Preferences),
    },
  },
);
