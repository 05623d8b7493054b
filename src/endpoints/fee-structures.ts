import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { amount, date, Deleted, id, money, optionalText, page, pathId, text, timestamps } from '../http/schemas.ts';

/** How often something is billed. */
export const frequency = z.enum(['one_time', 'monthly', 'quarterly', 'term', 'annual']).meta({
  description:
    'How often it is billed: for a calendar month, a quarter of the academic year (three months from its start on), a term, or once for the academic year (annual, one_time).',
});
const name = text(100).meta({ examples: ['Tuition'] });
const componentFields = { name, amount: money, frequency };

const ComponentInput = z.strictObject(componentFields).meta({ id: 'FeeComponentInput' });

/** Names are compared as the database does. */
const components = z
  .array(
    z.strictObject({
      id: id.optional().meta({ description: 'Of a component that is there; else its name says which one is meant.' }),
      ...componentFields,
    }),
  )
  .max(100)
  .superRefine((list, context) => {
    const seen = { id: new Set<unknown>(), name: new Set<unknown>() };
    for (const [n, one] of list.entries()) {
      for (const [key, value] of [
        ['id', one.id],
        ['name', one.name.toLowerCase()],
      ] as const) {
        if (value !== undefined && seen[key].has(value))
          context.addIssue({ code: 'custom', path: [n, key], message: 'is there twice' });
        seen[key].add(value);
      }
    }
  });
const classIds = z.array(id).max(1000).meta({ description: 'Classes of the academic year of the structure.' });

const fields = {
  name,
  academic_year_id: id,
  description: optionalText(1000),
  due_date: date
    .nullish()
    .meta({ description: 'When its fees are due, unless the day has passed when they are made.' }),
  components: components.optional().meta({ description: 'All of them: what is not named goes.' }),
  class_ids: classIds
    .optional()
    .meta({ description: 'All classes whose students pay it, of the academic year of the structure.' }),
};
const FeeStructureInput = z.strictObject(fields).meta({ id: 'FeeStructureInput' });
const FeeStructureChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'FeeStructureChange', description: 'Any of the fields.' });

const component = { id, name: z.string(), amount, frequency };
const FeeComponent = z.object({ ...component, fee_structure_id: id, ...timestamps }).meta({ id: 'FeeComponent' });

export const FeeStructure = z
  .object({
    id,
    name: z.string(),
    academic_year_id: id,
    academic_year_name: z.string(),
    description: z.string().nullable(),
    due_date: date.nullable(),
    components: z.array(z.object(component)),
    classes: z.array(z.object({ id, name: z.string() })).meta({ description: 'The classes whose students pay it.' }),
    total: amount.meta({ description: 'The sum of the components.' }),
    ...timestamps,
  })
  .meta({ id: 'FeeStructure' });

export const feeStructures = resource(
  '/finance/fee-structures',
  'Fee structures',
  'What a year costs, component by component, and who pays it.',
  {
    'GET /': {
      operation: 'fee_structures_list',
      summary: 'List fee structures',
      description: 'Searches name and description.',
      query: page({ academic_year_id: pathId.optional(), class_id: pathId.optional() }, [
        'name',
        'due_date',
        'created_at',
      ]),
      answer: FeeStructure,
      isPage: true,
    },
    'POST /': {
      operation: 'fee_structures_create',
      summary: 'Add a fee structure',
      description: 'With its components and classes, if you like. 409 when the academic year has one of this name.',
      body: FeeStructureInput,
      answer: FeeStructure,
      isCreate: true,
    },
    'GET /:id': { operation: 'fee_structures_get', summary: 'Read a fee structure', answer: FeeStructure },
    'PUT /:id': {
      operation: 'fee_structures_update',
      summary: 'Change a fee structure',
      description:
        'What was billed keeps its names and amounts. 409 `in_use` for another frequency of a component that was billed, for its removal, and for another academic year once fees were made.',
      body: FeeStructureChange,
      answer: FeeStructure,
    },
    'DELETE /:id': {
      operation: 'fee_structures_delete',
      summary: 'Remove a fee structure',
      description: '409 `in_use` once fees were made from it.',
      answer: Deleted,
    },
    'POST /:id/components': {
      operation: 'fee_structures_components_create',
      summary: 'Add a component',
      description: '409 when the structure has one of this name.',
      body: ComponentInput,
      answer: FeeComponent,
      isCreate: true,
    },
    'DELETE /:id/components/:component_id': {
      operation: 'fee_structures_components_delete',
      summary: 'Remove a component',
      description: '409 `in_use` once it was billed.',
      answer: Deleted,
    },
    'POST /:id/assign-classes': {
      operation: 'fee_structures_assign_classes',
      summary: 'Say which classes pay it',
      description: 'All of them: what is not named goes. Fees that were made stay.',
      body: z.strictObject({ class_ids: classIds }).meta({ id: 'FeeStructureClasses' }),
      answer: FeeStructure,
    },
  },
);
