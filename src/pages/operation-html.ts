import type { JsonSchema } from '../http/openapi/examples.ts';
import { type Html, html } from './html.ts';
import { details, exampleText, inline, jsonParts, nameIn, prose, type Schemas, typeOf } from './schema-html.ts';

// Renders the operations of the OpenAPI document.

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

/** What operations refer to. */
interface Components {
  schemas: Schemas;
  parameters: Record<string, Parameter>;
  responses: Record<string, Reply>;
}

/** An OpenAPI document, as far as the pages show it. */
export interface ReferenceDocument {
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: Components;
}

/** An operation with its address. */
export interface Entry {
  method: string;
  path: string;
  operation: Operation;
}

const parametersOf = ({ parameters = [] }: Operation, components: Components): Parameter[] =>
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

function success(status: string, { description, content = {} }: Reply, schemas: Schemas): Html {
  const json = content['application/json'];
  return html`<p>
      <span class="status">${status}</span> ${inline(description)} ${!json && Object.keys(content).join(', ')}
    </p>
    ${json && jsonParts(json.schema, schemas, false)}`;
}

function replies({ responses }: Operation, components: Components): Html {
  const all = Object.entries(responses).map(([status, reply]) => ({
    status,
    reply: components.responses[nameIn(reply.$ref ?? '')] ?? reply,
  }));
  const isError = ({ status }: { status: string }) => Number(status) >= 400;
  return html`<h4>Responses</h4>
    ${all.filter((one) => !isError(one)).map(({ status, reply }) => success(status, reply, components.schemas))}
    <details>
      <summary>Errors</summary>
      <dl>
        ${all.filter(isError).map(
          ({ status, reply }) =>
            html`<dt>${status}</dt>
              <dd>${prose(reply.description)}</dd>`,
        )}
      </dl>
    </details>`;
}

/** A field of the form that sends the request. */
const input = (id: string, name: string, place: string, attributes: Html | false): Html =>
  html`<label for="${id}">${name}</label> <input id="${id}" name="${name}" data-in="${place}" ${attributes} />`;

/** The fields for the body: a text area for JSON, or a field for each part of an upload. */
function bodyFields({ operationId: id, requestBody }: Operation, schemas: Schemas): Html | Html[] {
  const json = requestBody?.content['application/json'];
  if (json)
    return html`<label for="${id}-body">Body</label>
      <textarea id="${id}-body" data-in="body" rows="12" spellcheck="false">
${exampleText(json.schema, schemas, true)}</textarea>`;
  const upload = requestBody?.content['multipart/form-data'];
  return Object.entries(upload?.schema.properties ?? {}).map(([name, { format }]) =>
    input(`${id}-${name}`, name, 'form', html`type="${format === 'binary' ? 'file' : 'text'}"`),
  );
}

/** The form that sends the request. */
function form({ method, path, operation }: Entry, components: Components): Html {
  const id = operation.operationId;
  return html`<details>
    <summary>Try it out</summary>
    <form data-method="${method}" data-path="${path}">
      ${parametersOf(operation, components)
        .filter((parameter) => parameter.in !== 'cookie')
        .map(({ name, in: place, required = false }) =>
          input(`${id}-${place}-${name}`, name, place, required && html`required`),
        )}
      ${bodyFields(operation, components.schemas)}
      <button>Send</button>
      <output for="${id}-body"></output>
    </form>
  </details>`;
}

/** An operation: its parameters, body and responses, and a form that sends it. */
export function article(entry: Entry, components: Components): Html {
  const { method, path, operation } = entry;
  const { operationId, summary, description = '', requestBody } = operation;
  const { 'application/json': json, ...others } = requestBody?.content ?? {};
  const types = Object.keys(others);
  return html`<article id="${operationId}">
    <h3><a href="#${operationId}">${summary}</a></h3>
    <p class="address"><span class="method">${method}</span> <code>${path}</code></p>
    ${prose(description)} ${parameterList(parametersOf(operation, components))} ${requestBody && html`<h4>Body</h4>`}
    ${types.length > 0 && html`<p>${types.join(', ')}</p>`} ${json && jsonParts(json.schema, components.schemas, true)}
    ${replies(operation, components)} ${form(entry, components)}
  </article>`;
}
