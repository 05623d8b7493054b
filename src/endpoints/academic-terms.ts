import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { date, dateOf, Deleted, id, nameText, pathId, timestamps } from '../http/schemas.ts';
import { endsAfterStart } from './academics.ts';

const fields = {
  name: nameText(100).meta({ examples: ['First term'] }),
  academic_year_id: id,
  start_date: dateOf('school'),
  end_date: dateOf('school').meta({ examples: ['2026-12-18'] }),
};

const TermInput = endsAfterStart(z.strictObject(fields)).meta({ id: 'TermInput' });
const TermChange = endsAfterStart(z.strictObject(fields).partial()).meta({
  id: 'TermChange',
  description: 'Any subset of the fields of a term.',
});

export const Term = z
  .object({
    id,
    name: z.string(),
    academic_year_id: id,
    academic_year_name: z.string(),
    start_date: date,
    end_date: date.meta({ examples: ['2026-12-18'] }),
    ...timestamps,
  })
  .meta({ id: 'Term' });

export const academicTerms = resource(
  '/academic-terms',
  'Academic terms',
  'The terms of each academic year. They lie inside their year and do not overlap.',
  {
    'GET /': {
      operation: 'academic_terms_list',
      summary: 'List terms',
      description: 'Earliest first. `search` matches the name.',
      response: page(Term, { academic_year_id: pathId.optional() }),
    },
    'POST /': {
      operation: 'academic_terms_create',
      summary: 'Create a term',
      description:
        '409 `conflict` if it overlaps another term of its year or has the same name. 400 if it lies outside the year.',
      body: TermInput,
      response: created(Term),
    },
    'GET /:id': { operation: 'academic_terms_get', summary: 'Get a term', response: json(Term) },
    'PUT /:id': {
      operation: 'academic_terms_update',
      summary: 'Update a term',
      body: TermChange,
      response: json(Term),
    },
    'DELETE /:id': { operation: 'academic_terms_delete', summary: 'Delete a term', response: json(Deleted) },
  },
);
