import { z } from 'zod';
import { pictureFault } from '../documents/picture.ts';
import { resource } from '../http/endpoint.ts';
import { date, email, flag, id, optionalText, text, timestamps } from '../http/schemas.ts';
import { AcademicYear, endsAfterStart } from './academics.ts';

const currencies = new Set(Intl.supportedValuesOf('currency'));

const currency = z
  .string()
  .refine((code) => currencies.has(code), 'must be a currency of ISO 4217, in capitals')
  .meta({
    description: 'ISO 4217, what fees, invoices and payments are in. Amounts stay as they are when it changes.',
    examples: ['GBP'],
  });

const step = z.enum(['school_info', 'academic_year', 'grades']);

export const SchoolInfo = z
  .object({
    name: z.string(),
    address: z.string().nullable(),
    phone: z.string().nullable(),
    email: z.string().nullable(),
    website: z.string().nullable(),
    currency: z.string().meta({ description: 'ISO 4217; USD until the school says another.', examples: ['GBP'] }),
    invoice_reminders: z.boolean().meta({
      description: 'Whether overdue invoices are reminded of by themselves; they are until the school says no.',
    }),
    is_impersonation_allowed: z
      .boolean()
      .meta({ description: 'Whether operators of the service may log in for its admins.' }),
    logo_url: z.string().nullable(),
  })
  .meta({ id: 'SchoolInfo' });

// A form sends text.
const yesOrNo = z.union([z.boolean(), flag.transform((value) => value === 'true')]).optional();

const SchoolInfoInput = z
  .strictObject({
    name: text(200)
      .optional()
      .meta({ examples: ['Green Valley School'] }),
    address: optionalText(500),
    phone: optionalText(50),
    // A form sends what is empty as ''.
    email: z.union([email, z.literal('').transform(() => null)]).nullish(),
    website: optionalText(300).meta({ examples: ['https://green-valley.example'] }),
    currency: currency.optional(),
    invoice_reminders: yesOrNo.meta({
      description:
        'Whether an overdue invoice is reminded of by e-mail on the day after its due date, then every 7 days, for 60 days.',
      override: { type: 'boolean' },
    }),
    is_impersonation_allowed: yesOrNo.meta({
      description:
        'Whether operators of the service may log in for its admins, for ten minutes each time, of which the admins are told. Only for admins; false ends such log-ins at once.',
      override: { type: 'boolean' },
    }),
    logo: z
      .null()
      .optional()
      .meta({ description: 'null removes the logo. To set it, send multipart/form-data with a file.' }),
  })
  .meta({ id: 'SchoolInfoInput', description: 'What is not named stays.' });

export const Status = z
  .object({
    is_complete: z.boolean().meta({ description: 'Whether the setup was closed by POST /api/school-setup/complete.' }),
    steps_completed: z.array(step),
    steps_missing: z.array(step),
    steps: z.array(
      z.object({
        name: step,
        is_complete: z.boolean(),
        missing: z.string().nullable().meta({ description: 'What to do; null when it is done.' }),
      }),
    ),
    school: SchoolInfo,
    academic_year: z
      .object({ id, name: z.string(), start_date: date, end_date: date.meta({ examples: ['2027-07-31'] }) })
      .nullable()
      .meta({ description: 'The current one.' }),
    grade_count: z.int(),
  })
  .meta({ id: 'SetupStatus' });

const YearInput = z
  .strictObject({
    name: text(100).meta({ examples: ['2026/2027'] }),
    start_date: date,
    end_date: date.meta({ examples: ['2027-07-31'] }),
  })
  .refine(...endsAfterStart)
  .meta({ id: 'SetupAcademicYear' });

const GradesInput = z
  .strictObject({
    grades: z
      .array(
        z.strictObject({
          name: text(100).meta({ examples: ['Grade 1'] }),
          sequence: z
            .int()
            .min(0)
            .max(1_000_000)
            .nullish()
            .meta({ description: 'Orders the grades.', examples: [1] }),
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
  .meta({ id: 'SetupGradesAnswer', description: 'All grades of the school, in their order.' });

export const schoolSetup = resource(
  '/school-setup',
  'School setup',
  'What a new school says of itself before it begins. Every step may be sent again.',
  {
    'GET /status': { operation: 'school_setup_status', summary: 'How far the setup is', answer: Status },
    'POST /complete': {
      operation: 'school_setup_complete',
      summary: 'Close the setup',
      description: '409 setup_incomplete names each step that is missing.',
      answer: Status,
    },
    'POST /school-info': {
      operation: 'school_setup_school_info',
      summary: 'Say who the school is',
      body: SchoolInfoInput,
      description:
        'The logo stands on what is printed: a PNG or JPEG that is damaged, or has more than 4 million pixels, is a 400. A WebP is not printed.',
      upload: {
        ...{
          fields: ['logo'],
          maxBytes: 5 * 1024 * 1024,
          types: ['image/jpeg', 'image/png', 'image/webp'],
          isOptional: true,
        },
        fault: async (content, type) => (type === 'image/webp' ? undefined : pictureFault(content)),
      },
      answer: SchoolInfo,
    },
    'GET /logo': {
      operation: 'school_setup_logo',
      summary: 'The logo of the school',
      query: z.strictObject({
        v: z.string().max(50).optional().meta({ description: 'Changes with the logo, for caches.' }),
      }),
      bytes: ['image/jpeg', 'image/png', 'image/webp'],
    },
    'POST /academic-year': {
      operation: 'school_setup_academic_year',
      summary: 'Add the current academic year',
      description: 'With the name of a year that is there, changes that one and makes it the current one.',
      body: YearInput,
      answer: AcademicYear,
    },
    'POST /grades': {
      operation: 'school_setup_grades',
      summary: 'Add grades',
      description: 'By name: a grade that is there gets the sequence that is sent, and none is doubled or removed.',
      body: GradesInput,
      answer: Grades,
    },
  },
);
