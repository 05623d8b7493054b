import { z } from 'zod';
import { created, json, resource } from '../http/endpoint.ts';
import { amount, Deleted, hasCurrencyDecimals, id, payableMoney, text, timestamps } from '../http/schemas.ts';

const reason = { examples: ['Second child of the family'] };

const DiscountInput = z
  .strictObject({
    amount: payableMoney.optional().meta({
      description:
        'The amount of the discount, with at most as many decimals as the currency or the balance has. Instead of ' +
        '`percent`.',
      examples: [25.05],
      multipleOf: 0.0001,
    }),
    percent: z
      .number()
      .positive()
      .max(100)
      .refine(hasCurrencyDecimals, 'must have at most 4 decimals')
      .optional()
      .meta({
        description:
          'The discount in percent of `amount` of the fee, with at most 4 decimals. Instead of `amount`. The ' +
          'discount is rounded half up to the decimals of the currency.',
        examples: [10],
        multipleOf: 0.0001,
      }),
    reason: text(500).meta(reason),
  })
  .refine(({ amount: given, percent }) => (given === undefined) !== (percent === undefined), {
    path: ['amount'],
    message: 'give either amount or percent',
  })
  .meta({
    id: 'StudentFeeDiscountInput',
    description: 'Either `amount` or `percent`, and the reason.',
    examples: [{ percent: 10, reason: 'Second child of the family' }],
  });

/** A discount on a student fee. */
export const StudentFeeDiscount = z
  .object({
    id,
    student_fee_id: id,
    amount: amount.meta({ description: 'The amount of the discount.', examples: [25.05] }),
    percent: z
      .number()
      .nullable()
      .meta({ description: 'The percentage that was given; null if an amount was given.', examples: [10] }),
    reason: z
      .string()
      .nullable()
      .meta({ description: 'Null only after the data of the student were erased.', ...reason }),
    created_by: id.nullable(),
    created_by_name: z
      .string()
      .nullable()
      .meta({ examples: ['Ada Admin'] }),
    ...timestamps,
  })
  .meta({ id: 'StudentFeeDiscount' });

export const studentFeeDiscounts = resource(
  '/finance/student-fees',
  'Student fee discounts',
  'Discounts on student fees, each with a reason. A discount never changes: delete it and grant another one. The ' +
    'discounts on a fee are part of the fee.',
  {
    'POST /:id/discounts': {
      operation: 'student_fees_discounts_create',
      summary: 'Grant a discount on a student fee',
      description:
        'Either `amount` or `percent` of the gross amount of the fee. A fee can have several discounts; their sum is ' +
        'its `discount_amount`. The balance and the status follow. 409 `conflict` if the discount exceeds the ' +
        'balance; the message names the balance. 409 `invalid_state` for a paid or waived fee. 400 ' +
        '`validation_error` if the percentage comes to 0 in the currency of the school.',
      body: DiscountInput,
      response: created(StudentFeeDiscount),
    },
    'DELETE /:id/discounts/:discount_id': {
      operation: 'student_fees_discounts_delete',
      summary: 'Delete a discount on a student fee',
      description:
        'The amount of the discount is owed again: a paid fee gets a balance. 409 `invalid_state` for a waived fee. ' +
        '404 `not_found` for a discount on another fee.',
      response: json(Deleted),
    },
  },
);
