import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { exporter, exportFormat, exportTypes, studentColumns } from '../http/exports.ts';
import { flag, pathId } from '../http/schemas.ts';

export const balances = resource('/finance/balances', 'Finance balances', 'What each student owes.', {
  'GET /export': {
    operation: 'balances_export',
    summary: 'Export what each student owes',
    description:
      `A .csv or .xlsx with a row for each student who was billed, former ones too: student fees and issued invoices together,
billed = paid + waived + balance. By the number of the student in the service. For who may see the fees of the whole school; 404 without such a year.`.replaceAll(
        '\n',
        ' ',
      ),
    query: z.strictObject({
      ...exportFormat,
      academic_year_id: pathId.optional().meta({
        description:
          'Only the fees of structures of this year, and the invoices issued within it; all unless it is given.',
      }),
      class_id: pathId.optional().meta({ description: 'Only what was billed for this class.' }),
      only_open: flag.optional().meta({ description: 'true: without those who owe nothing.' }),
    }),
    bytes: exportTypes,
    handler: exporter('balances_export', {
      name: 'balances',
      columns: [
        studentColumns.admissionNumber,
        studentColumns.student,
        studentColumns.class,
        { header: 'Billed', type: 'money' },
        { header: 'Paid', type: 'money' },
        { header: 'Waived', type: 'money' },
        { header: 'Balance', type: 'money' },
        { header: 'Overdue', type: 'money' },
      ],
    }),
  },
});
