import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { amount, date, days, Deleted, flag, id, page, pathId, text, timestamp, timestamps } from '../http/schemas.ts';
import { Payment } from './payments.ts';

const status = z.enum(['pending', 'partially_paid', 'paid', 'overdue', 'waived']);

const fields = {
  id,
  student_id: id,
  student_name: z.string(),
  admission_number: z.string(),
  class_id: id.nullable().meta({ description: 'The class of the student when it was billed.' }),
  class_name: z.string().nullable(),
  fee_structure_id: id,
  fee_structure_name: z.string(),
  academic_year_id: id,
  amount,
  paid_amount: amount,
  balance: amount.meta({ description: 'What is still to be paid; 0 when it is waived.' }),
  due_date: date,
  status: status.meta({ description: 'Overdue is what is not paid when its due date has passed.' }),
  billed_on: date.meta({ description: 'The day whose month, quarter, term and year it is for.' }),
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
        name: z.string().meta({ description: 'The name of the component when it was billed.' }),
        amount,
        period_start: date,
        period_end: date,
      }),
    ),
    payments: z.array(Payment).meta({ description: 'The earliest first, reversals among them.' }),
  })
  .meta({ id: 'StudentFeeDetail' });

const Generate = z
  .strictObject({
    fee_structure_id: id,
    class_ids: z.array(id).min(1).max(1000).optional().meta({
      description: 'Some of the classes that the structure is assigned to; all of them when it is not given.',
    }),
    student_ids: z
      .array(id)
      .min(1)
      .max(10_000)
      .optional()
      .meta({ description: 'Some of the students of these classes; all of them when it is not given.' }),
    due_date: date.optional().meta({
      description: "The structure's own when it is not given, or when that is before `date` 30 days after `date`.",
    }),
    date: date.optional().meta({
      description:
        'A day of the academic year: the month, quarter, term and year that contain it are billed. Today when it is not given, or the nearer end of the year.',
      examples: [`${String(new Date().getUTCFullYear())}-09-01`],
    }),
    prorate: z.boolean().optional().meta({
      description: 'Whether who joined within a period pays for its remaining days only, the first one included.',
    }),
    dry_run: z.boolean().optional().meta({ description: 'Only says what it would come to.' }),
  })
  .meta({ id: 'GenerateStudentFees' });

/** What billing came to. */
export const Generated = z
  .object({
    fee_structure_id: id,
    created: z.int().meta({ description: 'Fees that were made, one for each student.' }),
    skipped: z.int().meta({ description: 'Students for whom none was made.' }),
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
          'Why students were skipped. `joined_later`: after the period; `no_term`: no term contains the date; `removed`: from the class or the school; `not_in_class`: named, and in none of the classes; `nothing_due`: a share of less than a cent.',
      }),
    amount: amount.meta({ description: 'The sum of what was made.' }),
    date,
    due_date: date,
    dry_run: z.boolean(),
  })
  .meta({ id: 'GeneratedStudentFees' });

export const studentFees = resource(
  '/finance/student-fees',
  'Student fees',
  'What students owe of fee structures, for which periods, and what of it is paid.',
  {
    'GET /': {
      operation: 'student_fees_list',
      summary: 'List student fees',
      description: 'Searches the student by name and admission number. A student sees their own.',
      query: days(
        page(
          {
            student_id: pathId.optional(),
            class_id: pathId.optional().meta({ description: 'The class of the student when it was billed.' }),
            status: status.optional(),
            only_open: flag.optional().meta({ description: 'true: only what is still to be paid.' }),
            academic_year_id: pathId.optional(),
            fee_structure_id: pathId.optional(),
            due_from: date.optional(),
            due_to: date.optional(),
          },
          ['due_date', 'amount', 'balance', 'student_name'],
        ),
      ),
      answer: StudentFee,
      isPage: true,
    },
    'POST /generate': {
      operation: 'student_fees_generate',
      summary: 'Bill the students of a fee structure',
      description:
        'The active students of its classes, for the periods that contain a day: one fee for each student, with an item for each component. A component is billed once for a period, so that a second run bills only who is new. 422 for a class that the structure is not assigned to.',
      body: Generate,
      answer: Generated,
    },
    'GET /:id': {
      operation: 'student_fees_get',
      summary: 'Read a student fee',
      description: 'With its items and payments. A student reads their own.',
      answer: StudentFeeDetail,
    },
    'PUT /:id': {
      operation: 'student_fees_update',
      summary: 'Change the due date of a student fee',
      body: z.strictObject({ due_date: date }).partial().meta({ id: 'StudentFeeChange' }),
      answer: StudentFeeDetail,
    },
    'DELETE /:id': {
      operation: 'student_fees_delete',
      summary: 'Remove a student fee that was made by mistake',
      description: 'Its periods may then be billed again. 409 `in_use` when there are payments, reversed ones too.',
      answer: Deleted,
    },
    'POST /:id/waive': {
      operation: 'student_fees_waive',
      summary: 'Waive what is open of a student fee',
      description: 'What was paid stays paid. 409 `invalid_state` when it is paid or waived.',
      body: z.strictObject({ reason: text(500).meta({ examples: ['Scholarship'] }) }).meta({ id: 'StudentFeeWaiver' }),
      answer: StudentFeeDetail,
    },
  },
);
