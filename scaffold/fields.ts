/** A field of a new resource. */
export interface Field {
  name: string;
  /** The column in the migration, without indentation and comma. */
  column: string;
  /** The schema in a request, and in a response. */
  input: string;
  output: string;
  /** The schema of a filter. Undefined: the field has none. */
  filter?: string;
  /** The filter in `p_equals`. */
  equals?: string;
  /** A definition above the schemas. */
  constant?: string;
  /** What the schemas import from src/http/schemas.ts. */
  imports: string[];
  isText: boolean;
  isOptional: boolean;
  /** A value in a test, and another one. */
  samples: [string, string];
}

type Type = Omit<Field, 'name' | 'isOptional' | 'isText' | 'column'> & {
  /** The type of the column, and the condition of its check. */
  type: string;
  check?: string;
  default?: string;
};

const capitalized = (name: string) => name.replaceAll('_', ' ').replace(/^./, (letter) => letter.toUpperCase());

/** Quoted for TypeScript and SQL alike. */
const quoted = (values: string[]) => values.map((value) => `'${value}'`).join(', ');

const types: Record<string, (name: string, isOptional: boolean, values: string[]) => Type> = {
  text: (name, isOptional) => {
    const example = `.meta({ examples: ['${capitalized(name)}'] })`;
    return {
      type: 'text',
      check: `length(${name}) between 1 and 100`,
      input: `${isOptional ? 'optionalText' : 'text'}(100)${example}`,
      output: `z.string()${isOptional ? '.nullable()' : ''}${example}`,
      imports: [isOptional ? 'optionalText' : 'text'],
      samples: [`unique('${capitalized(name)}')`, `unique('${capitalized(name)}')`],
    };
  },
  integer: (name, isOptional) => ({
    type: 'integer',
    check: `${name} between 0 and 1000000`,
    input: `z.int().min(0).max(1_000_000)${isOptional ? '.nullish()' : ''}`,
    output: `z.int()${isOptional ? '.nullable()' : ''}`,
    imports: [],
    samples: ['17', '18'],
  }),
  boolean: (name) => ({
    type: 'boolean',
    default: 'false',
    input: 'z.boolean().optional()',
    output: 'z.boolean()',
    filter: 'flag.optional()',
    equals: name.startsWith('is_') ? name : `${name}::boolean`,
    imports: ['flag'],
    samples: ['true', 'false'],
  }),
  date: (_, isOptional) => ({
    type: 'date',
    input: `date${isOptional ? '.nullish()' : ''}`,
    output: `date${isOptional ? '.nullable()' : ''}`,
    imports: ['date'],
    samples: ["'2026-09-01'", "'2026-09-02'"],
  }),
  money: (name, isOptional) => ({
    type: 'numeric',
    check: `${name} > 0 and ${name} = round(${name}, 4)`,
    input: `money${isOptional ? '.nullish()' : ''}`,
    output: `amount${isOptional ? '.nullable()' : ''}`,
    imports: ['amount', 'money'],
    samples: ['250.5', '99.99'],
  }),
  choice: (name, isOptional, values) => ({
    type: 'text',
    check: `${name} in (${quoted(values)})`,
    constant: `const ${name}Choice = choice([${quoted(values)}]);`,
    input: `${name}Choice${isOptional ? '.nullish()' : ''}`,
    output: `z.enum(${name}Choice.options)${isOptional ? '.nullable()' : ''}`,
    filter: `${name}Choice.optional()`,
    equals: name,
    imports: [],
    samples: [`'${values[0] ?? ''}'`, `'${values[1] ?? ''}'`],
  }),
};

const reserved = ['id', 'created_at', 'updated_at', 'deleted_at', 'search', 'sort', 'order', 'page'];

/** Reads `name:text`, `note?:text` or `size:choice=small,large`. */
export function fieldOf(table: string, definition: string): Field {
  const [, name = '', mark, typeName = '', list = ''] =
    /^([a-z][a-z0-9_]*)(\?)?:(\w+)(?:=(.+))?$/.exec(definition) ?? [];
  // People write both.
  const make = types[typeName === 'number' ? 'integer' : typeName];
  const values = [...new Set(list.split(','))].filter((value) => value !== '');
  const areWords = values.every((value) => /^[a-z][a-z0-9_]*$/.test(value));
  if (!make || reserved.includes(name) || !areWords || (typeName === 'choice') !== values.length > 1)
    throw new Error(
      `${definition} is not a field. Write name:type, with one of the types ${Object.keys(types).join(', ')}. ` +
        'A choice has two or more values: size:choice=small,large. Names and values are lower case letters, digits and _. ' +
        'The names id, created_at and the parameters of lists are taken.',
    );
  const isOptional = mark === '?' && typeName !== 'boolean';
  const { type, check, default: initial, ...field } = make(name, isOptional, values);
  return {
    ...field,
    name,
    isOptional,
    isText: typeName === 'text',
    column: [
      `${name} ${type}`,
      isOptional ? '' : 'not null',
      initial === undefined ? '' : `default ${initial}`,
      check === undefined ? '' : `constraint ${table}_${name}_check check (${check})`,
    ]
      .filter(Boolean)
      .join(' '),
  };
}

/** How a test inserts a record of another resource. Of others, a name is enough. */
const rows: Record<string, string> = {
  student: "school.insert('student', { first_name: 'Amina', last_name: 'Okafor', admission_number: unique('A') })",
  teacher: "school.insert('teacher', { first_name: 'Ada', last_name: 'Byron' })",
  class: '(await school.classroom()).classId',
};

/** The field that refers to a table. */
export function referenceTo(table: string, target: string): Field {
  const name = `${target}_id`;
  const row = rows[target] ?? `school.insert('${target}', { name: unique('${capitalized(target)}') })`;
  return {
    name,
    column: `${name} bigint not null\n    constraint ${table}_${name}_fkey references ${target} (id) on delete restrict`,
    input: 'id',
    output: 'id',
    filter: 'pathId.optional()',
    equals: name,
    imports: ['pathId'],
    isText: false,
    isOptional: false,
    samples: [row.startsWith('(') ? row : `await ${row}`, ''],
  };
}
