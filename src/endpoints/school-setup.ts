import { z } from 'zod';
import { cleanPicture } from '../documents/picture.ts';
import { file, json, resource } from '../http/endpoint.ts';
import { withCoercion } from '../http/coercion.ts';
import {
  currencyCode,
  currencyDecimals,
  currencyWarnings,
  date,
  dateOf,
  email,
  flag,
  id,
  ignored,
  nameText,
  optionalText,
  phone,
  pictureUrl,
  schoolDay,
  timestamps,
  uniqueBy,
} from '../http/schemas.ts';
import { AcademicYear, endsAfterStart } from './academics.ts';
import { impersonationMinutes } from './impersonation.ts';

const currency = currencyCode.meta({
  description:
    'ISO 4217 code of the currency of fees, invoices and payments. Changing it does not convert existing amounts; ' +
    '`warnings` says how many of them have more decimals than the new currency.',
  examples: ['GBP'],
});

const isSupportedLocale = (tag: string) => {
  try {
    return Intl.DateTimeFormat.supportedLocalesOf(tag).length > 0;
  } catch {
    return false;
  }
};

const locale = z
  .string()
  .trim()
  .max(35)
  .refine(isSupportedLocale, 'must be a language and region, such as en-GB')
  .transform((tag) => new Intl.Locale(tag).toString())
  .meta({
    description: 'The language and region (BCP 47) of dates and numbers in PDFs.',
    override: { type: 'string', maxLength: 35 },
  });

const step = z.enum(['school_info', 'academic_year', 'grades']);

const hostsDescription =
  'Hosts that readers know, besides those of the school, the app and the service. In an email, the host of an ' +
  '`action_url` stands as text beside the link unless it is one of these. A host does not include its subdomains.';

export const SchoolInfo = z
  .object({
    name: z.string(),
    address: z.string().nullable(),
    phone: z.string().nullable(),
    email: z.string().nullable(),
    website: z.string().nullable(),
    currency: z.string().meta({ description: 'ISO 4217 code. Default: USD.', examples: ['GBP'] }),
    currency_decimals: currencyDecimals,
    locale: z.string().meta({ description: 'Default: en-GB.' }),
    invoice_reminders: z.boolean().meta({
      description: 'Whether reminders for overdue invoices are sent automatically. Default: true.',
    }),
    payment_details: z.string().nullable().meta({ description: 'How to pay. Printed on invoices that are not paid.' }),
    is_impersonation_allowed: z
      .boolean()
      .meta({ description: 'Whether operators may log in on behalf of admins of the school.' }),
    is_second_factor_required: z
      .boolean()
      .meta({ description: 'Whether users with any role besides student need a second factor to log in.' }),
    action_url_hosts: z.array(z.string()).meta({ description: hostsDescription }),
    logo: pictureUrl.meta({ description: 'The same as `logo_url`.' }),
    logo_url: pictureUrl.meta({
      description: 'The https address that was set, or one like `profile_picture_url`; null without a logo.',
    }),
  })
  .meta({ id: 'SchoolInfo' });

const SchoolInfoSaved = SchoolInfo.extend({ warnings: currencyWarnings }).meta({ id: 'SchoolInfoSaved' });

const isHttpsAddress = (value: string) => /^https:\/\/[^\s"'<>\\]+$/.test(value) && URL.canParse(value);

/** A data URL does not get here: the upload takes it out of the body. */
const logo = z
  .string()
  .max(2000)
  .refine(
    (value) =>
      value === '' || isHttpsAddress(value) || /^(https?:\/\/[^\s"'<>\\]+)?\/api\/pictures\/[\w-]+$/.test(value),
    'must be a data URL of a JPEG or PNG, an https address, or null',
  )
  .transform((value) => (value === '' ? null : value))
  .nullish();

// A form sends booleans as text.
const formBoolean = z.union([z.boolean(), flag.transform((value) => value === 'true')]).optional();

/** A host name in lower case; an international one in ASCII, as in parsed addresses. */
const host = z
  .string()
  .trim()
  .max(253)
  .refine(
    (name) => /^[\p{L}\p{N}-]+(\.[\p{L}\p{N}-]+)+$/u.test(name) && URL.canParse(`https://${name}`),
    'must be a host name, such as news.school.example',
  )
  .transform((name) => new URL(`https://${name}`).hostname)
  .meta({ override: { type: 'string', maxLength: 253 }, examples: ['news.green-valley.example'] });

// A form sends a list as text with commas.
const hosts = withCoercion(z.array(host).max(50).superRefine(uniqueBy()), (value) =>
  typeof value === 'string' ? value.split(',').filter((part) => part.trim() !== '') : value,
);

const SchoolInfoInput = z
  .strictObject({
    name: nameText(200)
      .optional()
      .meta({ examples: ['Green Valley School'] }),
    address: optionalText(500),
    phone,
    email: email.nullish(),
    website: optionalText(300).meta({ examples: ['https://green-valley.example'] }),
    currency: currency.optional(),
    currency_decimals: ignored,
    warnings: ignored,
    locale: locale.optional(),
    invoice_reminders: formBoolean.meta({
      description:
        'Whether reminders for overdue invoices are sent automatically: a day after the due date, then every 7 days ' +
        'for 60 days.',
      override: { type: 'boolean' },
    }),
    payment_details: optionalText(1000).meta({
      description: 'How to pay, for example a bank account. Printed on invoices that are not paid.',
    }),
    is_impersonation_allowed: formBoolean.meta({
      description:
        `Whether operators may log in on behalf of admins of the school, for ${String(impersonationMinutes)} ` +
        'minutes at a time. ' +
        'The admins are notified. Only admins may change this. False ends such sessions at once.',
      override: { type: 'boolean' },
    }),
    is_second_factor_required: formBoolean.meta({
      description:
        'Whether users with any role besides student need a second factor to log in. Only admins who have one may ' +
        'change this. Sessions of users without one end within 15 minutes.',
      override: { type: 'boolean' },
    }),
    action_url_hosts: hosts.optional().meta({
      description: hostsDescription,
      examples: [['news.green-valley.example']],
    }),
    logo: logo.meta({
      description:
        'A data URL of a JPEG or PNG of at most 1 MB; or an https address, which is stored as it is and not ' +
        'printed; or the address of the current logo, to keep it. Null or empty deletes the logo. A form sends a ' +
        'file instead.',
      examples: ['https://green-valley.example/logo.png'],
      override: { type: ['string', 'null'] },
    }),
  })
  .meta({ id: 'SchoolInfoInput', description: 'Any subset of the fields.' });

export const Status = z
  .object({
    is_complete: z.boolean().meta({ description: 'Whether `POST /api/school-setup/complete` has succeeded.' }),
    steps_completed: z.array(step),
    steps_missing: z.array(step),
    steps: z.array(
      z.object({
        name: step,
        is_complete: z.boolean(),
        missing: z.string().nullable().meta({ description: 'What to do. Null if the step is complete.' }),
      }),
    ),
    school: SchoolInfo,
    academic_year: z
      .object({ id, name: z.string(), start_date: date, end_date: date.meta({ examples: ['2027-07-31'] }) })
      .nullable()
      .meta({ description: 'The current academic year.' }),
    grade_count: z.int(),
    ...schoolDay,
  })
  .meta({ id: 'SetupStatus' });

const YearInput = endsAfterStart(
  z.strictObject({
    name: nameText(100).meta({ examples: ['2026/2027'] }),
    start_date: dateOf('school'),
    end_date: dateOf('school').meta({ examples: ['2027-07-31'] }),
  }),
).meta({ id: 'SetupAcademicYear' });

/** Fields of a grade that only the list of grades can change. */
const asListed = Object.fromEntries(
  ['id', 'description', 'created_at', 'updated_at'].map((name) => [
    name,
    z.unknown().optional().meta({ readOnly: true, description: 'Accepted as it was read.' }),
  ]),
);

const GradesInput = z
  .strictObject({
    grades: z
      .array(
        z.strictObject({
          name: nameText(100).meta({ examples: ['Grade 1'] }),
          sequence: z
            .int()
            .min(0)
            .max(1_000_000)
            .nullish()
            .meta({ description: 'Position in the list of grades.', examples: [1] }),
          ...asListed,
        }),
      )
      .min(1)
      .max(100),
  })
  .meta({ id: 'SetupGrades' });

const Grades = z
  .array(
    z.object({ id, name: z.string(), sequence: z.int().nullable(), description: z.string().nullable(), ...timestamps }),
  )
  .meta({ id: 'SetupGradesAnswer', description: 'All grades of the school, ordered by sequence and name.' });

export const schoolSetup = resource(
  '/school-setup',
  'School setup',
  'The steps with which a new school enters its basic data. Every step may be repeated.',
  {
    'GET /status': { operation: 'school_setup_status', summary: 'Get the setup status', response: json(Status) },
    'POST /complete': {
      operation: 'school_setup_complete',
      summary: 'Complete the setup',
      description: '409 `setup_incomplete` names each missing step.',
      response: json(Status),
    },
    'POST /school-info': {
      operation: 'school_setup_school_info',
      summary: 'Update the school information',
      body: SchoolInfoInput,
      isUpdate: true,
      description:
        'The logo is printed on documents, unless it is a WebP. It is stored upright, without metadata, and reduced ' +
        'to 2,000 pixels on each side. 400 if it is damaged or has more than 50 million pixels.',
      upload: {
        fields: ['logo'],
        maxBytes: 5 * 1024 * 1024,
        types: ['image/jpeg', 'image/png', 'image/webp'],
        isOptional: true,
        dataUrl: { field: 'logo', maxBytes: 1024 * 1024, types: ['image/jpeg', 'image/png'] },
        label: 'picture',
        picture: cleanPicture,
      },
      response: json(SchoolInfoSaved),
    },
    'GET /logo': {
      operation: 'school_setup_logo',
      summary: 'Get the logo of the school',
      query: z.strictObject({
        v: z.string().max(50).optional().meta({ description: 'Version of the logo, so that caches can store it.' }),
      }),
      response: file(['image/jpeg', 'image/png', 'image/webp']),
    },
    'POST /academic-year': {
      operation: 'school_setup_academic_year',
      summary: 'Set the current academic year',
      description:
        'Creates the year, or updates the year with this name, and makes it the current one. A school that has ' +
        'completed its setup stays in its current year, unless the new one includes today.',
      body: YearInput,
      isUpdate: true,
      response: json(AcademicYear),
    },
    'POST /grades': {
      operation: 'school_setup_grades',
      summary: 'Create or update grades',
      description:
        'Matches grades by name: creates new ones and updates the sequence of existing ones. Never deletes a grade.',
      body: GradesInput,
      response: json(Grades),
    },
  },
);
