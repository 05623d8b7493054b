import { z } from 'zod';
import { json, resource } from '../http/endpoint.ts';
import { amount, currencyDecimals, id, pathId } from '../http/schemas.ts';

const totals = {
  billed: amount.meta({ description: 'The gross amount. Equals discounted + collected + outstanding + waived.' }),
  collected: amount.meta({ description: 'Payments less reversals.' }),
  outstanding: amount.meta({ description: 'Amount still to be paid.' }),
  overdue: amount.meta({ description: 'The part of `outstanding` that is past its due date.' }),
  waived: amount.meta({ description: 'The balances that were waived.' }),
  discounted: amount.meta({ description: 'The discounts on student fees.' }),
};
export const Source = z.object({ count: z.int(), ...totals }).meta({ id: 'FinanceSource' });

export const FinanceSummary = z
  .object({
    academic_year_id: id.nullable().meta({ description: 'Null if the school has no current academic year.' }),
    academic_year_name: z.string().nullable(),
    currency: z.string().meta({ description: 'ISO 4217.', examples: ['EUR'] }),
    currency_decimals: currencyDecimals,
    ...totals,
    by_class: z
      .array(z.object({ class_id: id.nullable(), class_name: z.string().nullable(), ...totals }))
      .meta({ description: 'By the class of the student at billing, null for students without a class.' }),
    by_component: z.array(z.object({ name: z.string(), ...totals })).meta({
      description:
        'Student fees only, by the name of the component at billing. Payments of a fee are allocated to its items ' +
        'in order, discounts in the opposite order.',
    }),
    by_source: z.object({ student_fees: Source, invoices: Source }),
  })
  .meta({ id: 'FinanceSummary' });

export const financeSummary = resource(
  '/finance/summary',
  'Finance summary',
  'The totals of billing and payments of an academic year.',
  {
    'GET /': {
      operation: 'finance_summary',
      summary: 'Get the finance summary',
      description:
        'Adds up the student fees from the fee structures of the academic year and the invoices issued in it, ' +
        'without drafts and void invoices. 403 `forbidden` for users who may not see the whole school. 404 ' +
        '`not_found` for an unknown year.',
      query: z.strictObject({
        academic_year_id: pathId.optional().meta({ description: 'Default: the current academic year.' }),
      }),
      response: json(FinanceSummary),
    },
  },
);
