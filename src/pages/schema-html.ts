import { exampleOf, type JsonSchema } from '../http/openapi/examples.ts';
import { type Html, html } from './html.ts';

// Renders texts and JSON schemas of the OpenAPI document.

/** The named schemas of the document. */
export type Schemas = Record<string, JsonSchema>;

/** The name at the end of a reference. */
export const nameIn = (reference: string) => reference.split('/').at(-1) ?? '';

/** The texts of the document have code in backticks, paragraphs and lists. */
export const inline = (text: string): Html[] =>
  text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : html`${part}`));
export const prose = (text: string): Html[] =>
  text.split('\n\n').map((part) => {
    const [first = '', ...rest] = part.split(/(?:^|\n)\* /);
    return html`${first && html`<p>${inline(first)}</p>`}${
      rest.length > 0 &&
      html`<ul>
        ${rest.map((item) => html`<li>${inline(item)}</li>`)}
      </ul>`
    }`;
  });

/** The type of a value, in words. */
export function typeOf(schema: JsonSchema): string {
  if (schema.$ref) return nameIn(schema.$ref);
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives) return [...new Set(alternatives.map(typeOf))].join(' or ');
  if ('const' in schema) return JSON.stringify(schema.const);
  if (schema.items) return `list of ${typeOf(schema.items)}`;
  return [schema.type ?? 'any'].flat().join(' or ') + (schema.format ? ` (${schema.format})` : '');
}

/** The limits of a value, in words. */
function limitsOf(schema: JsonSchema): string[] {
  const { minimum, exclusiveMinimum, maximum, minLength, maxLength, minItems, maxItems, pattern } = schema;
  const limits: [string, string | number | undefined][] = [
    ['at least', minimum],
    ['more than', exclusiveMinimum],
    ['at most', maximum],
    ['minimum length', minLength],
    ['maximum length', maxLength],
    ['minimum entries', minItems],
    ['maximum entries', maxItems],
    ['default', schema.default === undefined ? undefined : JSON.stringify(schema.default)],
    // An integer has digits only.
    ['pattern', schema.type === 'integer' ? undefined : pattern],
  ];
  return [
    ...limits.flatMap(([words, value]) => (value === undefined ? [] : [`${words} ${value}`])),
    ...(schema.anyOf ?? []).flatMap(limitsOf),
  ];
}

/** The fixed values of a schema. */
const valuesOf = (schema: JsonSchema): unknown[] =>
  schema.enum ?? (schema.items ? valuesOf(schema.items) : (schema.anyOf ?? []).flatMap(valuesOf));

/** Longer lists of fixed values are closed. */
const maxValuesShown = 12;

/** The description, fixed values and limits of a value. */
export function details(schema: JsonSchema, description = schema.description): Html {
  const values = valuesOf(schema).map(
    (value) => html`<code>${typeof value === 'string' ? value : JSON.stringify(value)}</code> `,
  );
  return html`${description !== undefined && prose(description)}
  ${
    values.length > maxValuesShown
      ? html`<details>
          <summary>${values.length} values</summary>
          ${values}
        </details>`
      : values.length > 0 && html`<p>One of ${values}</p>`
  }
  ${limitsOf(schema).map((limit) => html`<span class="limit">${limit}</span> `)}`;
}

/** The object whose fields are shown for a schema: itself, an entry of the list, or the alternative that is not null. */
function objectIn(schema: JsonSchema, schemas: Schemas): { name: string | undefined; schema: JsonSchema } | undefined {
  const name = schema.$ref && nameIn(schema.$ref);
  const target = name ? schemas[name] : schema;
  if (target?.properties) return { name, schema: target };
  const inner = [...(target?.items ? [target.items] : []), ...(target?.anyOf ?? []), ...(target?.oneOf ?? [])];
  return inner.map((one) => objectIn(one, schemas)).find((found) => found !== undefined);
}

/** Details that are closed. False if there are none. */
const folded = (summary: string, content: Html | false): Html | false =>
  content &&
  html`<details>
    <summary>${summary}</summary>
    ${content}
  </details>`;

/** What the fields of a schema are rendered with. */
interface Context {
  schemas: Schemas;
  isRequest: boolean;
  /** The named schemas around it, so that a schema does not contain itself. */
  outer: string[];
}

function field(name: string, property: JsonSchema, isRequired: boolean, context: Context): Html {
  return html`<dt>
      <code>${name}</code> <span class="type">${typeOf(property)}</span>
      ${context.isRequest && isRequired && html`<strong>required</strong>`}
    </dt>
    <dd>${details(property)}${folded(`Fields of ${name}`, fields(property, context))}</dd>`;
}

function fields(schema: JsonSchema, context: Context): Html | false {
  const { schemas, isRequest, outer } = context;
  const found = objectIn(schema, schemas);
  if (!found || (found.name && outer.includes(found.name))) return false;
  const { properties = {}, required = [] } = found.schema;
  const inner = found.name ? { ...context, outer: [...outer, found.name] } : context;
  return html`<dl>
    ${Object.entries(properties)
      .filter(([, property]) => !(isRequest && property.readOnly))
      .map(([name, property]) => field(name, property, required.includes(name), inner))}
  </dl>`;
}

/** An example of a JSON body or response, as text. */
export const exampleText = (schema: JsonSchema, schemas: Schemas, isRequest: boolean): string =>
  JSON.stringify(exampleOf(schema, schemas, isRequest), null, 2);

/** An example of a JSON body or response, and its fields. */
export const jsonParts = (schema: JsonSchema, schemas: Schemas, isRequest: boolean): Html =>
  html`<pre tabindex="0">${exampleText(schema, schemas, isRequest)}</pre>
    ${folded('Fields', fields(schema, { schemas, isRequest, outer: [] }))}`;
