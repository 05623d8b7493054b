import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import {
  amount,
  date,
  dateOf,
  Deleted,
  id,
  money,
  nameText,
  optionalText,
  pathId,
  timestamps,
} from '../http/schemas.ts';

/** How often a fee component is billed. */
export const frequency = choice(['one_time', 'monthly', 'quarterly', 'half_yearly', 'term', 'annual'], {
  description:
    'Billed per calendar month, quarter or half-year (three or six months, counted from the start of the academic ' +
    'year), term, or once per academic year (`annual`, `one_time`).',
  synonyms: {
    one_time: ['once', 'one-off', 'single'],
    monthly: ['month', 'per month', 'every month'],
    quarterly: ['quarter', 'per quarter', 'every quarter'],
    half_yearly: ['half-year', 'per half-year', 'semiannual', 'semi-annually', 'biannual', 'biannually'],
    term: ['termly', 'per term', 'every term'],
    annual: ['annually', 'yearly', 'year', 'per year', 'every year'],
  },
});
const name = nameText(100).meta({ examples: ['Tuition'] });
const componentFields = { name, amount: money, frequency };

const ComponentInput = z.strictObject(componentFields).meta({ id: 'FeeComponentInput' });

/** Names are compared ignoring case, as the unique index in the database does. */
const components = z
  .array(
    z
      .strictObject({
        id: id.optional().meta({
          description:
            'An existing component. Without it, the component with the same name is updated, or one is added.',
        }),
        ...componentFields,
      })
      .meta({ id: 'FeeComponentChange' }),
  )
  .max(100)
  .superRefine((list, context) => {
    const seen = { id: new Set<unknown>(), name: new Set<unknown>() };
    for (const [index, component] of list.entries()) {
      for (const [key, value] of [
        ['id', component.id],
        ['name', component.name.toLowerCase()],
      ] as const) {
        if (value !== undefined && seen[key].has(value))
          context.addIssue({ code: 'custom', path: [index, key], message: 'must not occur twice' });
        seen[key].add(value);
      }
    }
  });
const classIds = z.array(id).max(1000).meta({ description: 'Classes of the academic year of the fee structure.' });

const fields = {
  name,
  academic_year_id: id,
  description: optionalText(1000),
  due_date: dateOf('due', 'Due date of its fees, unless it has passed when the students are billed.').nullish(),
  components: components.optional().meta({ description: 'All components. Those not listed are removed.' }),
  class_ids: classIds.optional().meta({
    description: 'All classes whose students pay this fee. They must belong to the academic year of the fee structure.',
  }),
};
const FeeStructureInput = z.strictObject(fields).meta({ id: 'FeeStructureInput' });
const FeeStructureChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'FeeStructureChange', description: 'Any subset of the fields of a fee structure.' });

const componentOutput = { id, name: z.string(), amount, frequency };
const FeeComponent = z.object({ ...componentOutput, fee_structure_id: id, ...timestamps }).meta({ id: 'FeeComponent' });

export const FeeStructure = z
  .object({
    id,
    name: z.string(),
    academic_year_id: id,
    academic_year_name: z.string(),
    description: z.string().nullable(),
    due_date: date.nullable(),
    components: z.array(z.object(componentOutput)),
    classes: z
      .array(z.object({ id, name: z.string() }))
      .meta({ description: 'The classes whose students pay this fee.' }),
    total: amount.meta({ description: 'The sum of the components.' }),
    ...timestamps,
  })
  .meta({ id: 'FeeStructure' });

export const feeStructures = resource(
  '/finance/fee-structures',
  'Fee structures',
  'The components of a fee for an academic year, and the classes whose students pay it.',
  {
    'GET /': {
      operation: 'fee_structures_list',
      summary: 'List fee structures',
      description: '`search` matches name and description.',
      response: page(FeeStructure, { academic_year_id: pathId.optional(), class_id: pathId.optional() }),
    },
    'POST /': {
      operation: 'fee_structures_create',
      summary: 'Create a fee structure',
      description:
        'Components and classes are optional. 409 `conflict` if the academic year has a fee structure with this name.',
      body: FeeStructureInput,
      response: created(FeeStructure),
    },
    'GET /:id': { operation: 'fee_structures_get', summary: 'Get a fee structure', response: json(FeeStructure) },
    'PUT /:id': {
      operation: 'fee_structures_update',
      summary: 'Update a fee structure',
      description:
        'Existing student fees keep their names and amounts. 409 `in_use` for removing a billed component or ' +
        'changing its frequency, and for another academic year after students have been billed.',
      body: FeeStructureChange,
      response: json(FeeStructure),
    },
    'DELETE /:id': {
      operation: 'fee_structures_delete',
      summary: 'Delete a fee structure',
      description: '409 `in_use` if students have been billed with it.',
      response: json(Deleted),
    },
    'POST /:id/components': {
      operation: 'fee_structures_components_create',
      summary: 'Add a component to a fee structure',
      description: '409 `conflict` if the fee structure has a component with this name.',
      body: ComponentInput,
      response: created(FeeComponent),
    },
    'DELETE /:id/components/:component_id': {
      operation: 'fee_structures_components_delete',
      summary: 'Delete a component of a fee structure',
      description: '409 `in_use` if the component has been billed.',
      response: json(Deleted),
    },
    'POST /:id/assign-classes': {
      operation: 'fee_structures_assign_classes',
      summary: 'Replace the classes of a fee structure',
      description: 'Classes not listed are removed. Existing student fees do not change.',
      body: z.strictObject({ class_ids: classIds }).meta({ id: 'FeeStructureClasses' }),
      response: json(FeeStructure),
    },
  },
);
