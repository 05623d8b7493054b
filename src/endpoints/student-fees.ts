import { z } from 'zod';
import { json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { amount, date, dateOf, Deleted, flag, id, pathId, text, timestamp, timestamps } from '../http/schemas.ts';
import { Payment } from './payments.ts';
import { StudentFeeDiscount } from './student-fee-discounts.ts';

const status = choice(['pending', 'partially_paid', 'paid', 'overdue', 'waived']);

const fields = {
  id,
  student_id: id,
  student_name: z.string(),
  admission_number: z.string(),
  class_id: id.nullable().meta({ description: 'The class of the student at billing.' }),
  class_name: z.string().nullable(),
  fee_structure_id: id,
  fee_structure_name: z.string(),
  academic_year_id: id,
  amount: amount.meta({ description: 'The gross amount: the sum of the items, before discounts.' }),
  discount_amount: amount.meta({ description: 'The sum of the discounts.', examples: [25.05] }),
  net_amount: amount.meta({ description: '`amount` less `discount_amount`.', examples: [225.45] }),
  paid_amount: amount,
  balance: amount.meta({
    description: 'The amount still to be paid: `net_amount` less `paid_amount`, 0 if the fee is waived.',
  }),
  due_date: date,
  status: status.meta({
    description:
      '`overdue`: not paid in full and past its due date. `paid`: payments and discounts add up to the amount, so ' +
      'also a fee of which discounts leave nothing.',
  }),
  billed_on: date.meta({
    description: 'The fee is for the month, quarter, half-year, term and academic year that contain this day.',
  }),
  waived_at: timestamp.nullable(),
  waive_reason: z.string().nullable(),
  ...timestamps,
};
const StudentFee = z.object(fields).meta({ id: 'StudentFee' });
export const StudentFeeDetail = z
  .object({
    ...fields,
    items: z.array(
      z.object({
        id,
        fee_component_id: id,
        name: z.string().meta({ description: 'The name of the component at billing.' }),
        amount,
        period_start: date,
        period_end: date,
      }),
    ),
    discounts: z.array(StudentFeeDiscount).meta({ description: 'Oldest first.' }),
    payments: z.array(Payment).meta({ description: 'Oldest first, including reversals.' }),
  })
  .meta({ id: 'StudentFeeDetail' });

const GenerateInput = z
  .strictObject({
    fee_structure_id: id,
    class_ids: z.array(id).min(1).max(1000).optional().meta({
      description: 'Bill only these of the assigned classes. Default: all of them.',
    }),
    student_ids: z
      .array(id)
      .min(1)
      .max(10_000)
      .optional()
      .meta({ description: 'Bill only these students of the classes. Default: all of them.' }),
    due_date: dateOf(
      'due',
      'Default: the due date of the fee structure or, if it has none or it is before `date`, 30 days after `date`.',
    ).optional(),
    date: dateOf(
      'school',
      'A day of the academic year. The month, quarter, half-year, term and year that contain it are billed. ' +
        'Default: today or, outside the academic year, its nearest day.',
    ).optional(),
    prorate: z
      .boolean()
      .optional()
      .meta({
        description:
          'Whether students who joined within a period pay only for its remaining days, including the day on which ' +
          'they joined.',
      }),
    dry_run: z.boolean().optional().meta({ description: 'Returns the result without billing anyone.' }),
  })
  .meta({ id: 'GenerateStudentFees' });

/** The result of a billing run. */
export const Generated = z
  .object({
    fee_structure_id: id,
    created: z.int().meta({ description: 'Number of fees created, one per student.' }),
    skipped: z.int().meta({ description: 'Number of students who were not billed.' }),
    reasons: z
      .array(
        z.object({
          reason: z.enum([
            'already_billed',
            'joined_later',
            'no_term',
            'nothing_due',
            'inactive',
            'removed',
            'not_in_class',
          ]),
          count: z.int(),
        }),
      )
      .meta({
        description:
          'Why students were skipped. `already_billed`: for the same period; `joined_later`: after the period; ' +
          '`no_term`: no term contains the date; `removed`: no longer in the class or the school; `not_in_class`: ' +
          'listed, but in none of the classes; `nothing_due`: the prorated amount is less than a cent.',
      }),
    amount: amount.meta({ description: 'The total of the fees created.' }),
    date,
    due_date: date,
    dry_run: z.boolean(),
  })
  .meta({ id: 'GeneratedStudentFees' });

export const studentFees = resource(
  '/finance/student-fees',
  'Student fees',
  'The fees that students owe, created from fee structures by billing, and their payments.',
  {
    'GET /': {
      operation: 'student_fees_list',
      summary: 'List student fees',
      description:
        'Ordered by due date. `search` matches name and admission number of the student. A student sees only their ' +
        'own.',
      response: page(
        StudentFee,
        {
          student_id: pathId.optional(),
          class_id: pathId.optional().meta({ description: 'The class of the student at billing.' }),
          status: status.optional(),
          only_open: flag.optional().meta({ description: '`true`: only fees that are not paid in full.' }),
          academic_year_id: pathId.optional(),
          fee_structure_id: pathId.optional(),
          due_from: date.optional(),
          due_to: date.optional(),
        },
        { maxDays: Infinity },
      ),
    },
    'POST /generate': {
      operation: 'student_fees_generate',
      summary: 'Bill students',
      description:
        'Creates one fee for each active student of the assigned classes, with an item for each component and the ' +
        'period that contains `date`. A component is billed once per student and period, so a second run bills only ' +
        'new students. 422 `invalid_reference` for a class to which the fee structure is not assigned. 409 ' +
        '`invalid_state` for a fee structure without classes or components.',
      body: GenerateInput,
      response: json(Generated),
    },
    'GET /:id': {
      operation: 'student_fees_get',
      summary: 'Get a student fee',
      description: 'Includes items, discounts and payments. A student can get only their own.',
      response: json(StudentFeeDetail),
    },
    'PUT /:id': {
      operation: 'student_fees_update',
      summary: 'Update a student fee',
      description: 'Only the due date can be changed. The status follows it.',
      body: z
        .strictObject({ due_date: dateOf('due') })
        .partial()
        .meta({ id: 'StudentFeeChange' }),
      response: json(StudentFeeDetail),
    },
    'DELETE /:id': {
      operation: 'student_fees_delete',
      summary: 'Delete a student fee',
      description:
        'For fees created by mistake: their periods can then be billed again. 409 `in_use` if the fee has payments, ' +
        'even reversed ones.',
      response: json(Deleted),
    },
    'POST /:id/waive': {
      operation: 'student_fees_waive',
      summary: 'Waive a student fee',
      description: 'Waives the balance. Payments and discounts remain. 409 `invalid_state` for a paid or waived fee.',
      body: z.strictObject({ reason: text(500).meta({ examples: ['Scholarship'] }) }).meta({ id: 'StudentFeeWaiver' }),
      response: json(StudentFeeDetail),
    },
  },
);
