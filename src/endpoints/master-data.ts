import { z } from 'zod';
import { resource, type Resource } from '../http/endpoint.ts';
import { Deleted, id, optionalText, page, text, timestamps } from '../http/schemas.ts';

/** The endpoints of one list of master data. */
function list(path: `/${string}`, about: string, example: string): Resource {
  const plural = path.slice(1).replaceAll('-', ' ');
  const one = plural.replace(/s$/, '');
  const operations = plural.replaceAll(' ', '_');
  const title = (words: string) => words.replace(/^./, (letter) => letter.toUpperCase());
  const schema = one.split(' ').map(title).join('');

  const fields = {
    name: text(100).meta({ description: 'Unique in the school, in any case.', examples: [example] }),
    sequence: z
      .int32()
      .nullish()
      .meta({ description: 'Where it stands in the list; what has none comes last.', examples: [1] }),
    description: optionalText(500),
  };
  const Input = z.strictObject(fields).meta({ id: `${schema}Input` });
  const Change = z
    .strictObject(fields)
    .partial()
    .meta({ id: `${schema}Change`, description: 'Any of the fields; those that are not named stay.' });
  const Answer = z
    .object({ id, name: z.string(), sequence: z.int().nullable(), description: z.string().nullable(), ...timestamps })
    .meta({ id: schema });

  return resource(path, title(plural), about, {
    'GET /': {
      operation: `${operations}_list`,
      summary: `List ${plural}`,
      description: 'By sequence, those without one last, then by name. Searches name and description.',
      query: page({}, ['name', 'sequence', 'created_at']),
      answer: Answer,
      isPage: true,
    },
    'POST /': {
      operation: `${operations}_create`,
      summary: `Add a ${one}`,
      body: Input,
      answer: Answer,
      isCreate: true,
    },
    'GET /:id': { operation: `${operations}_get`, summary: `Read a ${one}`, answer: Answer },
    'PUT /:id': { operation: `${operations}_update`, summary: `Change a ${one}`, body: Change, answer: Answer },
    'DELETE /:id': {
      operation: `${operations}_delete`,
      summary: `Remove a ${one}`,
      description: '409 in_use while something refers to it; the message says what.',
      answer: Deleted,
    },
  });
}

/** The lists that each school keeps, all alike. */
export const masterData: readonly Resource[] = [
  list('/grades', 'The levels of a school; sequence orders them.', 'Grade 5'),
  list('/school-units', 'The parts of a school that have classes of their own.', 'Primary'),
  list('/programmes', 'The courses of studies.', 'Science'),
  list('/mediums', 'The languages that classes are taught in.', 'English'),
  list('/religions', 'The religions that students have.', 'Buddhism'),
  list('/subject-contexts', 'The kinds of subjects.', 'Core'),
  list('/document-types', 'What a document of a student can be.', 'Birth certificate'),
];
