import { globSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Field, fieldOf, referenceTo } from './fields.ts';
import { addToChangelog, Changes } from './files.ts';

const singularOf = (plural: string) =>
  plural.endsWith('ies')
    ? `${plural.slice(0, -3)}y`
    : /(ch|sh|ss|x|z)es$/.test(plural)
      ? plural.slice(0, -2)
      : plural.replace(/s$/, '');

/** Names whose paths or schemas the API has for something else. */
const taken = ['auth', 'docs', 'guide', 'health', 'permissions', 'platform', 'tenants'];

/** The table that a resource is stored in, by its name in the plural or in the singular. */
async function tableOf(root: string, name: string): Promise<string> {
  const word = name.replaceAll('-', '_');
  for (const table of [word, singularOf(word), word.replace(/es$/, '')])
    if (await tableExists(root, table)) return table;
  throw new Error(`There is no table ${singularOf(word)} to refer to.`);
}

const camelCase = (name: string) => name.replace(/[-_](.)/g, (_, letter: string) => letter.toUpperCase());
const pascalCase = (name: string) => camelCase(name).replace(/^./, (letter) => letter.toUpperCase());
const words = (name: string) => name.replace(/[-_]/g, ' ');
const sentence = (name: string) => words(name).replace(/^./, (letter) => letter.toUpperCase());
const article = (word: string) => (/^[aeiou]/.test(word) ? `an ${word}` : `a ${word}`);

/** Names separated by commas, in lines that are short enough for `check:sql`. */
const wrapped = (names: string[], separator: string, indent: string) => {
  const lines = [''];
  for (const [index, name] of names.entries()) {
    const next = index < names.length - 1 ? `${name},` : name;
    const line = lines.at(-1) ?? '';
    if (line.length + next.length > 100) lines.push(next);
    else lines[lines.length - 1] = line === '' ? next : `${line}${separator}${next}`;
  }
  return lines.join(`\n${indent}`);
};

/** The number of the next tenant migration, with four digits. */
const nextMigration = (root: string) =>
  String(
    Math.max(...globSync('migrations/tenant/*.sql', { cwd: root }).map((path) => Number(/\d{4}/.exec(path)))) + 1,
  ).padStart(4, '0');

async function tableExists(root: string, table: string): Promise<boolean> {
  const texts = globSync('migrations/tenant/*.sql', { cwd: root }).map((path) => readFile(join(root, path), 'utf8'));
  return (await Promise.all(texts)).some((text) => text.includes(`create table ${table} (`));
}

/** The page of docs/ that says what limits the growth of each table. */
async function pageOfTables(root: string): Promise<string> {
  for (const path of globSync('docs/**/*.md', { cwd: root }))
    if ((await readFile(join(root, path), 'utf8')).includes('\n| schema of a school |')) return path;
  throw new Error('No page of docs/ has the table "schema of a school".');
}

const policy = (table: string) => `
create policy students_see_themselves on ${table} as restrictive
  using (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );`;

const condition = (alias: string) => `p_condition => $$
    (current_setting('app.scope', true) <> 'taught'
      or exists (select from student reached where reached.id = ${alias}.student_id))
  $$,`;

/** What depends on the fields, by its name in the templates. */
function valuesOf(table: string, resource: string, fields: Field[], isOfStudents: boolean): Record<string, string> {
  const alias = table.slice(0, 1);
  const [unique] = fields.filter(({ isText, isOptional }) => isText && !isOptional);
  const references = fields.filter(({ column }) => column.includes('references'));
  const texts = fields.filter(({ isText }) => isText);
  if (!unique) throw new Error('Give the resource a text field that is not optional, such as name:text.');
  const errors = references.length > 0 ? 'conflict,invalid_reference' : 'conflict';
  const updateErrors = references.some(({ name }) => name !== 'student_id') ? errors : 'conflict';
  const equals = fields.flatMap((field) => field.equals ?? []);
  const changes = fields.filter(({ samples }) => samples[1] !== '');
  const create = `Creates ${article(words(table))}. Raises conflict for a ${words(unique.name)} that is in use.`;
  return {
    alias,
    unique: unique.name,
    columns: fields.map(({ column }) => `  ${column},`).join('\n'),
    indexes: references.map(({ name }) => `create index ${table}_${name}_idx on ${table} (${name});`).join('\n'),
    policy: isOfStudents ? policy(table) : '',
    ownRows: isOfStudents ? ',\n  p_allows_own_rows => true' : '',
    createErrors: `'{${errors}}'`,
    updateErrors: `'{${updateErrors}}'`,
    selected: wrapped(
      ['id', ...fields.map(({ name }) => name), 'created_at', 'updated_at'].map((name) => `${alias}.${name}`),
      ' ',
      '    ',
    ),
    condition: isOfStudents ? condition(alias) : '',
    searched: texts.map(({ name }) => `${alias}.${name}`).join(', '),
    equals: equals.length > 0 ? `p_equals => '{${equals.join()}}',` : '',
    writable: wrapped(
      fields.map(({ name }) => name),
      '',
      '    ',
    ),
    listComment: [
      `${sentence(resource)} by ${words(unique.name)}. Searches ${texts.map(({ name }) => name).join(', ')}.`,
      equals.length > 0 ? ` Filters: ${equals.map((name) => name.replace(/::.*/, '')).join(', ')}.` : '',
    ].join(''),
    createDefinition: isOfStudents ? '' : `p_create => '${create}',`,
    createFunction: isOfStudents
      ? `
create function api.${resource}_create(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_student((p ->> 'student_id')::bigint, 'student_id');
  return api.${table}_record(core.record_insert('${table}', p));
end $$;
comment on function api.${resource}_create is
  '${create} Raises invalid_reference for an unknown student.';`
      : '',
    coercionImport: fields.some(({ constant }) => constant) ? "import { choice } from '../http/coercion.ts';" : '',
    imports: [...new Set(['Deleted', 'id', 'timestamps', ...fields.flatMap(({ imports }) => imports)])]
      .sort()
      .join(', '),
    constants: fields.flatMap(({ constant }) => constant ?? []).join('\n'),
    inputs: fields.map(({ name, input }) => (name === input ? `${name},` : `${name}: ${input},`)).join('\n'),
    changed: isOfStudents ? '.omit({ student_id: true })' : '',
    outputs: fields.map(({ name, output }) => (name === output ? `${name},` : `${name}: ${output},`)).join('\n'),
    filters: fields.flatMap(({ name, filter }) => (filter === undefined ? [] : [`${name}: ${filter}`])).join(', '),
    searchedNames: texts.map(({ name }) => `\`${name}\``).join(', '),
    references: references.map(({ name, samples: [row] }) => `const ${name} = ${row};`).join('\n'),
    samples: fields
      .map(({ name, samples: [value] }) => (references.some((one) => one.name === name) ? name : `${name}: ${value}`))
      .join(', '),
    changes: changes.map(({ name, samples: [, value] }) => `${name}: ${value}`).join(', '),
  };
}

/**
 * Writes a resource with five endpoints.
 * @param name  in the plural, words separated by `-`
 * @param references  the resources that each record belongs to, in the plural
 * @param singular  if it does not follow from the plural by a rule
 * @returns the paths of the files that it has written or changed
 */
export async function writeResource(
  root: string,
  name: string,
  definitions: string[],
  references: string[],
  singular?: string,
): Promise<string[]> {
  const resource = name.replaceAll('-', '_');
  const stem = resource.replace(/es$/, '');
  const table = singular?.replaceAll('-', '_') ?? ((await tableExists(root, stem)) ? stem : singularOf(resource));
  if (!/^[a-z]+(-[a-z]+)*$/.test(name) || table === resource)
    throw new Error(
      `${name} is not a plural in lower case, with words separated by a hyphen: houses, bus-passes. ` +
        'If its singular follows no rule, name it: npm run new -- resource data name:text --singular datum',
    );
  if (!/^[a-z]+(_[a-z]+)*$/.test(table)) throw new Error(`The singular ${table} is not a word in lower case.`);
  if (taken.includes(name)) throw new Error(`The API has ${name} for something else. Choose another name.`);
  if (await tableExists(root, table)) throw new Error(`The table ${table} exists already.`);
  const targets = await Promise.all(references.map((each) => tableOf(root, each)));
  const fields = [
    ...definitions.map((definition) => fieldOf(table, definition)),
    ...targets.map((target) => referenceTo(table, target)),
  ];
  const names = fields.map((field) => field.name);
  const twice = names.find((each, index) => names.indexOf(each) !== index);
  if (twice !== undefined) throw new Error(`The field ${twice} occurs twice.`);
  const values = {
    ...valuesOf(table, resource, fields, targets.includes('student')),
    name,
    resource,
    table,
    variable: camelCase(name),
    Type: pascalCase(table),
    Title: sentence(resource),
    plural: words(resource),
    singular: words(table),
    aSingular: article(words(table)),
  };
  const changes = new Changes(root);
  await changes.add(`migrations/tenant/${nextMigration(root)}-${name}.sql`, 'migration.sql.txt', values);
  await changes.add(`db/api/${name}.sql`, 'api.sql.txt', values);
  await changes.add(`src/endpoints/${name}.ts`, 'endpoint.ts.txt', values);
  await changes.add(`test/api/${name}.test.ts`, 'endpoint.test.ts.txt', values);
  await changes.edit('src/endpoints/index.ts', /\n\n\/\*\*/, `\nimport { ${values.variable} } from './${name}.ts';$&`);
  await changes.edit('src/endpoints/index.ts', /\n {2}\.\.\.masterData,/, `\n  ${values.variable},$&`);
  const permissions = 'db/seed/permissions.sql';
  const ids = [...(await readFile(join(root, permissions), 'utf8')).matchAll(/^ {2}\((\d+), '/gm)];
  const id = Math.max(...ids.map(([, each]) => Number(each))) + 1;
  await changes.edit(
    permissions,
    /'\);\n\ninsert into core\.default_role/,
    `'),\n  (${String(id)}, '${table}.read', 'See ${values.plural}'),\n` +
      `  (${String(id + 1)}, '${table}.manage', 'Change ${values.plural}$&`,
  );
  await changes.edit(permissions, /(\('teacher',[^}]*)\}/, `$1,\n      ${table}.read}`);
  await changes.edit('db/core/impersonation.sql', /\w(?=\n {2}\}'::text\[\]\) table_name;)/, `$&,\n    ${table}`);
  await changes.edit(
    await pageOfTables(root),
    /\n\| schema of a school \|.*\n\|[-|]+(\n\|.*)*/,
    `$&\n| \`${table}\` | records |`,
  );
  await addToChangelog(
    changes,
    `${values.Title}: \`/api/${name}\`, with the permissions \`${table}.read\` and \`${table}.manage\`.`,
  );
  return changes.write();
}
