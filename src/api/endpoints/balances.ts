import { z } from 'zod';
import { resource } from '../endpoint.ts';
import { exporter, exportFormat, exportTypes } from '../exports.ts';
import { flag, pathId } from '../schemas.ts';

export const balances = resource('/finance/balances', 'Finance balances', 'What each student owes.', {
  'GET /export': {
    operation: 'balances_export',
    summary: 'Export what each student owes',
    description: `A .csv or .xlsx with a row for each student who was billed, former ones too: student fees and issued invoices together,
billed = paid + waived + balance. By the number of the student in the service. For who may see the fees of the whole school; 404 without such a year.`.replaceAll(
      '\n',
      ' ',
    ),
    query: z.strictObject({
      ...exportFormat,
      academic_year_id: pathId
        .optional()
        .meta({ description: 'Only the fees of structures of this year, and the invoices issued within it; all unless it is given.' }),
      class_id: pathId.optional().meta({ description: 'Only what was billed for this class.' }),
      only_open: flag.optional().meta({ description: 'true: without those who owe nothing.' }),
    }),
    bytes: exportTypes,
    handler: exporter('balances_export', {
      name: 'balances',
      columns: [
        { header: 'Admission number', type: 'text' },
        { header: 'Student', type: 'text', width: 30 },
        { header: 'Class', type: 'text', width: 20 },
        { header: 'Billed', type: 'money', width: 14 },
        { header: 'Paid', type: 'money', width: 14 },
        { header: 'Waived', type: 'money', width: 14 },
        { header: 'Balance', type: 'money', width: 14 },
        { header: 'Overdue', type: 'money', width: 14 },
      ],
    }),
  },
});
