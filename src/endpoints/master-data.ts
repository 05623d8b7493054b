import { z } from 'zod';
import { created, json, page, resource, type Resource } from '../http/endpoint.ts';
import { Deleted, id, nameText, optionalText, timestamps } from '../http/schemas.ts';

/** The endpoints of one reference list. */
function list(path: `/${string}`, description: string, exampleName: string): Resource {
  const plural = path.slice(1).replaceAll('-', ' ');
  const singular = plural.replace(/s$/, '');
  const operations = plural.replaceAll(' ', '_');
  const capitalize = (words: string) => words.replace(/^./, (letter) => letter.toUpperCase());
  const schema = singular.split(' ').map(capitalize).join('');

  const fields = {
    name: nameText(100).meta({ description: 'Unique within the school, ignoring case.', examples: [exampleName] }),
    sequence: z
      .int32()
      .nullish()
      .meta({ description: 'Position in the list. Entries without a sequence come last.', examples: [1] }),
    description: optionalText(500),
  };
  const Input = z.strictObject(fields).meta({ id: `${schema}Input` });
  const Change = z
    .strictObject(fields)
    .partial()
    .meta({ id: `${schema}Change`, description: 'Any subset of the fields.' });
  const Answer = z
    .object({ id, name: z.string(), sequence: z.int().nullable(), description: z.string().nullable(), ...timestamps })
    .meta({ id: schema });

  return resource(path, capitalize(plural), description, {
    'GET /': {
      operation: `${operations}_list`,
      summary: `List ${plural}`,
      description:
        'Ordered by sequence, entries without a sequence last, then by name. `search` matches name and description.',
      response: page(Answer),
    },
    'POST /': {
      operation: `${operations}_create`,
      summary: `Create a ${singular}`,
      description: '409 `conflict` if the name is in use.',
      body: Input,
      response: created(Answer),
    },
    'GET /:id': { operation: `${operations}_get`, summary: `Get a ${singular}`, response: json(Answer) },
    'PUT /:id': {
      operation: `${operations}_update`,
      summary: `Update a ${singular}`,
      body: Change,
      response: json(Answer),
    },
    'DELETE /:id': {
      operation: `${operations}_delete`,
      summary: `Delete a ${singular}`,
      description:
        '409 `in_use` while another record refers to it, also one of a deleted student. The message names the kind ' +
        'of record.',
      response: json(Deleted),
    },
  });
}

/** The reference lists of a school. They all have the same fields and endpoints. */
export const masterData: readonly Resource[] = [
  list('/grades', 'The grades (year levels) of a school, ordered by sequence.', 'Grade 5'),
  list('/school-units', 'The units of a school that have their own classes, such as a primary section.', 'Primary'),
  list('/programmes', 'The programs of study.', 'Science'),
  list('/mediums', 'The languages of instruction.', 'English'),
  list('/religions', 'The religions of students.', 'Buddhism'),
  list('/subject-contexts', 'The kinds of subjects, such as core or elective.', 'Core'),
  list('/document-types', 'The types of student documents.', 'Birth certificate'),
];
