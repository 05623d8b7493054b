import { z } from 'zod';
import { choice } from '../../http/coercion.ts';
import { flag, optionalNameText } from '../../http/schemas.ts';
import { isDateFormat } from './import-dates.ts';

const dryRun = flag
  .optional()
  .meta({ description: 'Only validates the file: returns 200 with the report and changes nothing.' });

const allowDuplicates = flag.optional().meta({
  description: 'Also imports rows that repeat an earlier row or a person of the school. Otherwise they are a 409.',
});

const allowSingleNames = flag.optional().meta({
  description: 'A new person without a last name has a single name. Otherwise the missing last name is an error.',
});

const maxColumnsLength = 10_000;

/** A JSON object in a query or a form: {"Their header": "our_field"}. */
const chosenColumns = z
  .string()
  .max(maxColumnsLength)
  .transform((text, context): Record<string, string | null> => {
    const parsed = z.record(z.string(), z.string().nullable()).safeParse(parseJson(text));
    if (parsed.success) return parsed.data;
    context.addIssue({ code: 'custom', message: 'must be a JSON object, such as {"Their header": "first_name"}' });
    return z.NEVER;
  })
  .optional()
  .meta({
    description:
      'The fields of columns whose header is not known, as JSON; null for a column to leave out. They count more ' +
      'than what the headers mean.',
    override: {
      type: 'string',
      maxLength: maxColumnsLength,
      examples: ['{"Pupil forename": "first_name", "Locker": null}'],
    },
  });

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

const ignoreUnknown = flag.optional().meta({
  description: 'Leaves out columns that are not known. Otherwise they are errors. The report lists them.',
});

const dateFormat = z
  .string()
  .refine(isDateFormat, 'must be a format such as DD/MM/YYYY, MM/DD/YYYY or DD MMM YYYY')
  .optional()
  .meta({
    description:
      'The format of all dates: `DD`, `MM` (`MMM` for a name) and `YYYY` in their order, with what is between them. ' +
      '`YYYY-MM-DD` and the dates of an .xlsx are always read. Without it, dates are read as the locale of the ' +
      'school writes them; a date that can be two days is an error.',
    examples: ['DD/MM/YYYY'],
  });

const mode = choice(['create', 'update', 'upsert'], {
  description:
    '`create` (default): each row is a new person. `update`: each row changes a person, who must exist. `upsert`: it ' +
    'changes a person or, if there is none, creates one. People are found by `external_id`, by the admission or ' +
    'employee number or, only teachers, by the email if exactly one teacher of that name has it. An empty cell keeps ' +
    'what is there. Updates need `student.update` and `student.read`, or those of teachers, for the whole school.',
}).optional();

export const source = optionalNameText(50).meta({
  description: 'The system that the file comes from. External ids are kept for each source. Default: `import`.',
  examples: ['clever'],
});

/** The options of an import, in its query or its form. */
export const form = z.strictObject({
  dry_run: dryRun,
  mode,
  source,
  allow_duplicates: allowDuplicates,
  allow_single_names: allowSingleNames,
  columns: chosenColumns,
  ignore_unknown: ignoreUnknown,
  date_format: dateFormat,
});
