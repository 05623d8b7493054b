import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { amount, id, pathId } from '../http/schemas.ts';

const figures = {
  billed: amount.meta({ description: 'collected + outstanding + waived.' }),
  collected: amount.meta({ description: 'What was paid of it, without what was reversed.' }),
  outstanding: amount.meta({ description: 'What is still to be paid.' }),
  overdue: amount.meta({ description: 'The part of outstanding whose due date has passed.' }),
  waived: amount,
};
export const Source = z.object({ count: z.int(), ...figures });

export const FinanceSummary = z
  .object({
    academic_year_id: id,
    academic_year_name: z.string(),
    currency: z.string().meta({ description: 'ISO 4217.', examples: ['EUR'] }),
    ...figures,
    by_class: z
      .array(z.object({ class_id: id.nullable(), class_name: z.string().nullable(), ...figures }))
      .meta({ description: 'By the class of the student when it was billed; null without one.' }),
    by_component: z.array(z.object({ name: z.string(), ...figures })).meta({
      description:
        'Of student fees, by the name of the component when it was billed. What was paid of a fee fills its items in their order.',
    }),
    by_source: z.object({ student_fees: Source, invoices: Source }),
  })
  .meta({ id: 'FinanceSummary' });

export const financeSummary = resource(
  '/finance/summary',
  'Finance summary',
  'What was billed and paid in an academic year.',
  {
    'GET /': {
      operation: 'finance_summary',
      summary: 'Add up an academic year',
      description:
        'The student fees of the structures of that year, and the invoices issued within it, without drafts and void ones. For who may see the fees of the whole school; 404 without such a year.',
      query: z.strictObject({
        academic_year_id: pathId.optional().meta({ description: 'The current year unless it is given.' }),
      }),
      answer: FinanceSummary,
    },
  },
);
