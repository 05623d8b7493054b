import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { date, Deleted, id, page, pathId, text, timestamps } from '../http/schemas.ts';
import { endsAfterStart } from './academics.ts';

const fields = {
  name: text(100).meta({ examples: ['First term'] }),
  academic_year_id: id,
  start_date: date,
  end_date: date.meta({ examples: ['2026-12-18'] }),
};

const TermInput = z
  .strictObject(fields)
  .refine(...endsAfterStart)
  .meta({ id: 'TermInput' });
const TermChange = z
  .strictObject(fields)
  .partial()
  .refine(...endsAfterStart)
  .meta({ id: 'TermChange', description: 'Any of the fields of a term; those that are not named stay.' });

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
  'The parts of an academic year: inside it, and without overlap.',
  {
    'GET /': {
      operation: 'academic_terms_list',
      summary: 'List terms',
      description: 'The earliest first. Searches the name.',
      query: page({ academic_year_id: pathId.optional() }, ['name', 'start_date']),
      answer: Term,
      isPage: true,
    },
    'POST /': {
      operation: 'academic_terms_create',
      summary: 'Add a term',
      description: '409 conflict when it overlaps another term of its year.',
      body: TermInput,
      answer: Term,
      isCreate: true,
    },
    'GET /:id': { operation: 'academic_terms_get', summary: 'Read a term', answer: Term },
    'PUT /:id': { operation: 'academic_terms_update', summary: 'Change a term', body: TermChange, answer: Term },
    'DELETE /:id': { operation: 'academic_terms_delete', summary: 'Remove a term', answer: Deleted },
  },
);
