import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { exported, exportFormat } from './parts/exports.ts';
import { flag, pathId } from '../http/schemas.ts';
import { studentColumns } from './parts/student-columns.ts';

export const balances = resource('/finance/balances', 'Finance balances', 'What each student owes.', {
  'GET /export': {
    operation: 'balances_export',
    summary: 'Export balances',
    description:
      'A .csv or .xlsx file with one row for each student who was billed, including former students, sorted by ' +
      'student id. Student fees and issued invoices are added up: billed = discounted + paid + waived + balance. ' +
      '403 unless you may see the fees of the whole school, 404 for an unknown academic year.',
    query: z.strictObject({
      ...exportFormat,
      academic_year_id: pathId.optional().meta({
        description: 'Only fees of fee structures of this year and invoices issued in it.',
      }),
      class_id: pathId.optional().meta({ description: 'Only fees and invoices that were billed for this class.' }),
      only_open: flag.optional().meta({ description: 'If true, students who owe nothing are left out.' }),
    }),
    response: exported('balances_export', {
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
        { header: 'Discounted', type: 'money' },
      ],
    }),
  },
});
