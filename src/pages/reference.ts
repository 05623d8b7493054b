import { exampleOf, type JsonSchema } from '../http/openapi/examples.ts';
import { type Html, html } from './html.ts';

// Renders the OpenAPI document as pages of HTML, one per section.

interface Content {
  schema: JsonSchema;
}
interface Parameter {
  in: 'path' | 'query' | 'header' | 'cookie';
  name: string;
  required?: boolean;
  description?: string;
  schema: JsonSchema;
}
interface Reply {
  $ref?: string;
  description: string;
  content?: Record<string, Content>;
}
interface Operation {
  operationId: string;
  tags: string[];
  summary: string;
  description?: string;
  security?: object[];
  parameters?: (Parameter | { $ref: string })[];
  requestBody?: { required?: boolean; content: Record<string, Content> };
  responses: Record<string, Reply>;
}

/** An OpenAPI document, as far as the pages show it. */
export interface ReferenceDocument {
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: {
    schemas: Record<string, JsonSchema>;
    parameters: Record<string, Parameter>;
    responses: Record<string, Reply>;
  };
}

/** An operation with its address. */
interface Entry {
  method: string;
  path: string;
  operation: Operation;
}

/** The file name of the page of a section. */
const fileOf = (section: string) => section.toLowerCase().replace(/[^a-z0-9]+/g, '-');

/** The name at the end of a reference. */
const nameIn = (reference: string) => reference.split('/').at(-1) ?? '';

/** The texts of the document have code in backticks, paragraphs and lists. */
const inline = (text: string): Html[] =>
  text.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : html`${part}`));
const prose = (text: string): Html[] =>
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
function typeOf(schema: JsonSchema): string {
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
function details(schema: JsonSchema, description = schema.description): Html {
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

/** Functions that render the pages of a document, by the name in their address. */
export function referencePages({ info, tags, paths, components }: ReferenceDocument): Map<string, () => string> {
  const { schemas } = components;
  const entries: Entry[] = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );
  const sections = tags.map(({ name, description }) => ({
    name,
    description,
    file: fileOf(name),
    entries: entries.filter(({ operation }) => operation.tags.includes(name)),
  }));

  /** The object whose fields are shown for a schema: itself, an entry of the list, or the alternative that is not null. */
  const objectIn = (schema: JsonSchema): { name: string | undefined; schema: JsonSchema } | undefined => {
    const name = schema.$ref && nameIn(schema.$ref);
    const target = name ? schemas[name] : schema;
    if (target?.properties) return { name, schema: target };
    const inner = [...(target?.items ? [target.items] : []), ...(target?.anyOf ?? []), ...(target?.oneOf ?? [])];
    return inner.map(objectIn).find((found) => found !== undefined);
  };

  /** The fields of an object. `outer` are the named schemas around it, so that a schema does not contain itself. */
  const fields = (schema: JsonSchema, isRequest: boolean, outer: string[] = []): Html | false => {
    const found = objectIn(schema);
    if (!found || (found.name && outer.includes(found.name))) return false;
    const { properties = {}, required = [] } = found.schema;
    const names = found.name ? [...outer, found.name] : outer;
    return html`<dl>
      ${Object.entries(properties)
        .filter(([, property]) => !(isRequest && property.readOnly))
        .map(([name, property]) => {
          const inner = fields(property, isRequest, names);
          return html`<dt>
              <code>${name}</code> <span class="type">${typeOf(property)}</span>
              ${isRequest && required.includes(name) && html`<strong>required</strong>`}
            </dt>
            <dd>
              ${details(property)}${
                inner &&
                html`<details>
                  <summary>Fields of ${name}</summary>
                  ${inner}
                </details>`
              }
            </dd>`;
        })}
    </dl>`;
  };

  /** An example of a JSON body or response, and its fields. */
  const jsonParts = (schema: JsonSchema, isRequest: boolean): Html => {
    const inner = fields(schema, isRequest);
    return html`<pre tabindex="0">${JSON.stringify(exampleOf(schema, schemas, isRequest), null, 2)}</pre>
      ${
        inner &&
        html`<details>
          <summary>Fields</summary>
          ${inner}
        </details>`
      }`;
  };

  const parametersOf = ({ parameters = [] }: Operation): Parameter[] =>
    parameters.flatMap((one) => ('$ref' in one ? (components.parameters[nameIn(one.$ref)] ?? []) : one));

  const parameterList = (parameters: Parameter[]): Html | false =>
    parameters.length > 0 &&
    html`<h4>Parameters</h4>
      <dl>
        ${parameters.map(
          ({ name, in: place, required, schema, description }) =>
            html`<dt>
                <code>${name}</code> <span class="type">${place}, ${typeOf(schema)}</span>
                ${required && html`<strong>required</strong>`}
              </dt>
              <dd>${details(schema, description ?? schema.description)}</dd>`,
        )}
      </dl>`;

  const replies = (operation: Operation): Html => {
    const all = Object.entries(operation.responses).map(([status, reply]) => ({
      status,
      reply: components.responses[nameIn(reply.$ref ?? '')] ?? reply,
    }));
    const errors = all.filter(({ status }) => Number(status) >= 400);
    return html`<h4>Responses</h4>
      ${all
        .filter(({ status }) => Number(status) < 400)
        .map(({ status, reply }) => {
          const types = Object.keys(reply.content ?? {});
          const json = reply.content?.['application/json'];
          return html`<p>
              <span class="status">${status}</span> ${inline(reply.description)} ${!json && types.join(', ')}
            </p>
            ${json && jsonParts(json.schema, false)}`;
        })}
      <details>
        <summary>Errors</summary>
        <dl>
          ${errors.map(
            ({ status, reply }) =>
              html`<dt>${status}</dt>
                <dd>${prose(reply.description)}</dd>`,
          )}
        </dl>
      </details>`;
  };

  /** A field of the form that sends the request. */
  const input = (id: string, { name, in: place, required }: Parameter, value = ''): Html =>
    html`<label for="${id}-${place}-${name}">${name}</label>
      <input
        id="${id}-${place}-${name}"
        name="${name}"
        data-in="${place}"
        value="${value}"
        ${required && 'required'}
      />`;

  /** The form that sends the request. */
  const form = ({ method, path, operation }: Entry): Html => {
    const { operationId: id, requestBody } = operation;
    const json = requestBody?.content['application/json'];
    const upload = requestBody?.content['multipart/form-data'];
    return html`<details>
      <summary>Try it out</summary>
      <form data-method="${method}" data-path="${path}">
        ${parametersOf(operation)
          .filter((parameter) => parameter.in !== 'cookie')
          .map((parameter) => input(id, parameter))}
        ${
          !json &&
          Object.entries(upload?.schema.properties ?? {}).map(
            ([name, { format }]) =>
              html`<label for="${id}-${name}">${name}</label>
                <input
                  id="${id}-${name}"
                  name="${name}"
                  data-in="form"
                  type="${format === 'binary' ? 'file' : 'text'}"
                />`,
          )
        }
        ${
          json &&
          html`<label for="${id}-body">Body</label>
            <textarea id="${id}-body" data-in="body" rows="12" spellcheck="false">
${JSON.stringify(exampleOf(json.schema, schemas, true), null, 2)}</textarea>`
        }
        <button>Send</button>
        <output for="${id}-body"></output>
      </form>
    </details>`;
  };

  const article = (entry: Entry): Html => {
    const { method, path, operation } = entry;
    const json = operation.requestBody?.content['application/json'];
    const types = Object.keys(operation.requestBody?.content ?? {}).filter((type) => type !== 'application/json');
    return html`<article id="${operation.operationId}">
      <h3><a href="#${operation.operationId}">${operation.summary}</a></h3>
      <p class="address"><span class="method">${method}</span> <code>${path}</code></p>
      ${prose(operation.description ?? '')} ${parameterList(parametersOf(operation))}
      ${operation.requestBody && html`<h4>Body</h4>`} ${types.length > 0 && html`<p>${types.join(', ')}</p>`}
      ${json && jsonParts(json.schema, true)} ${replies(operation)} ${form(entry)}
    </article>`;
  };

  const menu = (current: string): Html =>
    html`<nav id="menu" aria-label="Operations">
      <label for="filter">Find an operation</label>
      <input id="filter" type="search" placeholder="student, POST, /fees …" autocomplete="off" />
      ${sections.map(
        ({ name, file, entries: own }) =>
          html`<details ${file === current && 'open'}>
            <summary>${name}</summary>
            <ul>
              ${own.map(
                ({ method, path, operation }) =>
                  html`<li data-words="${`${method} ${path} ${operation.summary}`.toLowerCase()}">
                    <a href="${file}#${operation.operationId}">${operation.summary}</a>
                  </li>`,
              )}
            </ul>
          </details>`,
      )}
    </nav>`;

  const page = (section: (typeof sections)[number], introduction: Html | false): string =>
    `<!doctype html>\n${
      html`<html lang="en">
        <head>
          <meta charset="utf-8" />
          <meta name="viewport" content="width=device-width, initial-scale=1" />
          <title>${section.name}: ${info.title}, API</title>
          <link rel="stylesheet" href="docs.css" />
          <script src="docs.js" type="module"></script>
        </head>
        <body>
          <header>
            <strong><a href="./">${info.title}</a></strong> <span class="type">${info.version}</span>
            <a class="to-menu" href="#menu">All operations</a>
            <a href="../guide/">Guide</a>
            <a href="../openapi.json">openapi.json</a>
            <label for="token">Access token</label>
            <input id="token" type="password" autocomplete="off" placeholder="filled in by a login below" />
          </header>
          <main>
            ${introduction}
            <h2>${section.name}</h2>
            ${prose(section.description)} ${section.entries.map(article)}
          </main>
          ${menu(section.file)}
        </body>
      </html>`.markup
    }`;

  const pages = new Map(sections.map((section) => [section.file, () => page(section, false)]));
  const [first] = sections;
  if (first)
    pages.set('', () =>
      page(
        first,
        html`<h1>${info.title}</h1>
          ${prose(info.description)}`,
      ),
    );
  return pages;
}
