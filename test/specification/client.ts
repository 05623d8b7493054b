import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import { until } from '../support/client/until.ts';

// A client that knows the API only from endpoints.json and objects.json, which are transcribed from the specification.

/** A JSON schema, as far as this client reads it. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  /** Values that the specification names where it leaves others open. */
  examples?: unknown[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean;
}

/** The specification does not show some bodies. The scenario then chooses the fields. */
type Shown = Schema | 'not shown';

/** An endpoint of the specification. */
export interface Endpoint {
  section: string;
  method: string;
  path: string;
  /** The column Access of the specification, where its table has one. */
  access?: string;
  /** The token that the request carries: of a user of a school, of an operator, or the refresh token. */
  token: 'none' | 'tenant' | 'platform' | 'refresh';
  permission?: string;
  role?: string;
  request_headers: string[];
  path_parameters?: Record<string, Schema>;
  query?: Schema;
  body?: Shown;
  /** The fields of a multipart form. */
  form?: Shown;
  /** The content types of files that it accepts. */
  accepts?: string[];
  max_bytes?: number;
  answer: {
    kind: 'record' | 'list' | 'file' | 'stream';
    status: number[];
    headers?: string[];
    content_types?: string[];
    data?: Schema;
    message?: Schema;
  };
}

const read = (name: string): unknown => JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8'));

/** The headers that the specification lists for requests with a token, unless the endpoint states others. */
const requestHeaders: Record<Endpoint['token'], string[]> = {
  none: [],
  tenant: ['Authorization', 'X-Tenant-ID', 'Content-Type'],
  platform: ['Authorization', 'Content-Type'],
  refresh: ['X-Refresh-Token'],
};

/** The query parameters of lists with pages. */
const listParameters: Record<string, Schema> = {
  page: { type: 'integer' },
  pageSize: { type: 'integer' },
  search: { type: 'string' },
  sort: { type: 'string' },
  order: { type: 'string', enum: ['asc', 'desc'] },
};

/** An endpoint as endpoints.json states it. */
interface StatedEndpoint extends Omit<Endpoint, 'section' | 'token' | 'request_headers' | 'answer'> {
  /** Of a user of a school, if not stated. */
  token?: Endpoint['token'];
  request_headers?: string[];
  /** What a list with pages has besides the parameters that all of them have. It stands for `query`. */
  list_query?: Record<string, Schema>;
  /** `items` is the schema of one record of a list. It stands for `data`. */
  answer: Endpoint['answer'] & { items?: Schema };
}

/** The parameters of a path are integers, unless the endpoint states others. */
function pathParameters(path: string): Pick<Endpoint, 'path_parameters'> {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
  return names.length > 0
    ? { path_parameters: Object.fromEntries(names.map((name) => [name, { type: 'integer' }])) }
    : {};
}

function completed(section: string, { list_query, answer, ...stated }: StatedEndpoint): Endpoint {
  const { items, ...rest } = answer;
  const token = stated.token ?? 'tenant';
  const properties = { ...listParameters, ...list_query };
  return {
    section,
    token,
    request_headers: requestHeaders[token],
    ...pathParameters(stated.path),
    ...(list_query ? { query: { type: 'object', properties, additionalProperties: false } } : {}),
    ...stated,
    answer: { ...rest, ...(items ? { data: { type: 'array', items } } : {}) },
  };
}

const sections = read('endpoints.json') as Record<string, StatedEndpoint[]>;
export const endpoints = Object.entries(sections).flatMap(([section, stated]) =>
  stated.map((endpoint) => completed(section, endpoint)),
);
export const objects = read('objects.json') as Record<string, Schema>;

export const nameOf = ({ method, path }: Pick<Endpoint, 'method' | 'path'>) => `${method} ${path}`;
const byName = new Map(endpoints.map((endpoint) => [nameOf(endpoint), endpoint]));

const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
ajv.addSchema(objects, 'objects.json');
const compiled = new Map<Schema, ValidateFunction>();

/** Describes how a value differs from a schema; undefined when it does not. */
function schemaError(schema: Schema, value: unknown, name: string): string | undefined {
  const validate = compiled.get(schema) ?? ajv.compile(schema);
  compiled.set(schema, validate);
  return validate(value) ? undefined : ajv.errorsText(validate.errors, { dataVar: name });
}

/** Resolves a reference to objects.json. */
export const resolved = (schema: Schema): Schema =>
  schema.$ref === undefined ? schema : (objects[schema.$ref.replace('objects.json#/', '')] ?? {});

/** The values that the specification names for a field: of an enumeration, or both of a boolean. */
const valuesOf = ({ type, enum: values, const: value, examples }: Schema): unknown[] =>
  values ?? examples ?? (value !== undefined ? [value] : type === 'boolean' ? [true, false] : []);

/** Lists every documented field of a request, and every value that the specification names for it. */
export function documentedUses(given: Schema, at: string): string[] {
  const schema = resolved(given);
  if (schema.items) return documentedUses(schema.items, `${at}[]`);
  if (schema.properties)
    return Object.entries(schema.properties).flatMap(([name, field]) => documentedUses(field, `${at}.${name}`));
  return [at, ...valuesOf(schema).map((value) => `${at} = ${String(value)}`)];
}

/** Lists the documented fields and values that a value of a request uses, in the words of `documentedUses`. */
function usesOf(given: Schema, value: unknown, at: string): string[] {
  const schema = resolved(given);
  if (Array.isArray(value)) {
    const { items } = schema;
    return items ? value.flatMap((each) => usesOf(items, each, `${at}[]`)) : [];
  }
  if (schema.properties && value !== null && typeof value === 'object')
    return Object.entries(value).flatMap(([name, field]) => {
      const below = schema.properties?.[name];
      return below ? usesOf(below, field, `${at}.${name}`) : [];
    });
  return [at, ...(valuesOf(schema).includes(value) ? [`${at} = ${String(value)}`] : [])];
}

/** Strings of open sets, which the service answers in its own spelling. */
const openStrings = ['gender', 'frequency', 'enrollment_type', 'platform', 'payment_method', 'method'];

/** Whether an answer shows the value that was sent: objects may have more fields, lists another order. */
function isShown(sent: unknown, shown: unknown): boolean {
  if (Array.isArray(sent))
    return (
      Array.isArray(shown) &&
      sent.length === shown.length &&
      sent.every((each) => shown.some((other) => isShown(each, other)))
    );
  if (sent !== null && typeof sent === 'object')
    return (
      shown !== null &&
      typeof shown === 'object' &&
      Object.entries(sent).every(([name, value]) => isShown(value, (shown as Record<string, unknown>)[name]))
    );
  if (typeof sent === 'string' && typeof shown === 'string' && /^\d{4}-\d\d-\d\dT/.test(sent))
    return Date.parse(sent) === Date.parse(shown);
  // An empty text counts as no value, and the service may choose one.
  return isDeepStrictEqual(sent, shown) || (sent === '' && shown !== undefined);
}

type Fields = Record<string, unknown>;
const isObject = (value: unknown): value is Fields =>
  value !== null && typeof value === 'object' && !Array.isArray(value);

/** The login of a user of a school, or of an operator. */
export interface Login {
  accessToken: string;
  refreshToken: string;
  /** Undefined for an operator. */
  tenantId: number | undefined;
  userId: number;
  permissions: string[];
  enabledFeatures: string[];
}

/** The answer to a request. Fields that it does not have read as empty, so that the scenario can go on. */
export class Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly data: unknown;
  readonly bytes: Buffer;
  readonly pagination: Fields;

  constructor(status: number, headers: Headers, envelope: Fields, bytes: Buffer) {
    this.status = status;
    this.headers = headers;
    this.data = envelope['data'];
    this.bytes = bytes;
    this.pagination = isObject(envelope['pagination']) ? envelope['pagination'] : {};
  }

  get record(): Fields {
    return isObject(this.data) ? this.data : {};
  }

  get records(): Fields[] {
    return Array.isArray(this.data) ? this.data.filter(isObject) : [];
  }

  get id(): number {
    return Number(this.record['id'] ?? 0);
  }

  text(name: string): string {
    const value = this.record[name];
    return typeof value === 'string' ? value : '';
  }
}

/** The parts of a request that the endpoint does not determine. */
export interface Call {
  /** The user whose token is sent. */
  as?: Login;
  path?: Record<string, number | string>;
  query?: Record<string, number | string | boolean>;
  body?: unknown;
  /** A body that the specification does not show. */
  bodyNotShown?: unknown;
  /** Files are given as a blob with the name of the file. */
  form?: Record<string, string | number | [Blob, string]>;
}

/** How `list` calls a list. */
interface ListCall extends Pick<Call, 'as' | 'path'> {
  /** A text that finds at least one record. */
  search: string;
  /** Whether the list may have no records at all. */
  mayBeEmpty?: boolean;
  /** Filters that leave at least one record. */
  filters?: NonNullable<Call['query']>[];
  /** Filters that may leave none. */
  emptyFilters?: NonNullable<Call['query']>[];
}

/**
 * Sends requests of exactly the documented fields, and compares the answers with the specification. A difference is
 * recorded under the endpoint, so that one failure does not hide others.
 */
export class SpecificationClient {
  readonly #url: string;
  /** Endpoints that were called with success. */
  readonly called = new Set<string>();
  /** Differences from the specification by endpoint. */
  readonly problems = new Map<string, string[]>();
  /** The documented fields and values that accepted requests used, as `documentedUses` lists them. */
  readonly used = new Set<string>();
  /** The updates to which records were sent back as they had been read. */
  readonly writtenBack = new Set<string>();

  constructor(url: string) {
    this.#url = url;
  }

  /** Records a difference between the service and the specification. */
  report(name: string, problem: string): void {
    this.problems.set(name, [...(this.problems.get(name) ?? []), problem]);
  }

  /** Records a problem unless a condition about an endpoint holds. */
  check(name: string, condition: boolean, problem: string): void {
    if (!condition) this.report(name, problem);
  }

  /** Logs in. `tenantId` is what later requests send as X-Tenant-ID. */
  async login(credentials: Fields, tenantId?: number): Promise<Login> {
    const answer = await this.call('POST /api/auth/login', { body: credentials });
    const user = isObject(answer.record['user']) ? answer.record['user'] : {};
    const strings = (name: string) => (Array.isArray(answer.record[name]) ? (answer.record[name] as string[]) : []);
    return {
      accessToken: answer.text('access_token'),
      refreshToken: answer.headers.get('X-Refresh-Token') ?? '',
      tenantId,
      userId: Number(user['id'] ?? 0),
      permissions: strings('permissions'),
      enabledFeatures: strings('enabled_features'),
    };
  }

  /** Calls an endpoint and checks the answer. */
  async call(name: string, call: Call = {}): Promise<Answer> {
    const endpoint = this.#endpoint(name);
    const misuse = requestError(endpoint, call);
    if (misuse !== undefined)
      this.report(name, `the test sends something that the specification does not show: ${misuse}`);
    const { response, bytes } = await this.#fetch(endpoint, call);
    const answer = this.#checked(endpoint, call, response, bytes);
    if (endpoint.answer.status.includes(answer.status)) {
      this.called.add(name);
      const { query, body, form } = endpoint;
      const uses = [
        ...(query ? usesOf(query, call.query ?? {}, `${name} query`) : []),
        ...(body && body !== 'not shown' && call.body !== undefined ? usesOf(body, call.body, `${name} body`) : []),
        ...(form && form !== 'not shown' ? Object.keys(call.form ?? {}).map((field) => `${name} form.${field}`) : []),
      ];
      for (const use of uses) this.used.add(use);
      await this.#writeBack(endpoint, call, answer);
    }
    return answer;
  }

  /** Sends a record back as it was read, which must be accepted from a user who may change it, and changes nothing. */
  async #writeBack(endpoint: Endpoint, call: Call, read: Answer): Promise<void> {
    const update = endpoint.method === 'GET' ? byName.get(`PUT ${endpoint.path}`) : undefined;
    if (!update || endpoint.answer.kind !== 'record') return;
    const { response, bytes } = await this.#fetch(update, { ...call, query: {}, body: read.data });
    if (response.status === 403) return;
    this.writtenBack.add(nameOf(update));
    const { data } = parsed(bytes);
    this.check(
      nameOf(update),
      response.status === 200 && isDeepStrictEqual(data, read.data),
      `answered ${response.status} to the record as it was read: ${bytes.toString().slice(0, 500)}`,
    );
  }

  /** Calls an endpoint that must refuse the request with the documented error envelope. */
  async refused(name: string, call: Call = {}): Promise<void> {
    const { response, bytes } = await this.#fetch(this.#endpoint(name), call);
    if (response.status < 400) this.report(name, `accepted ${summary(call)}`);
    const error = schemaError(objects['Error'] ?? {}, parsed(bytes), 'error');
    if (error !== undefined) this.report(name, `refused ${summary(call)} with another envelope: ${error}`);
  }

  /** Calls a list with each documented parameter, and checks that each has its effect. */
  async list(
    name: string,
    { search, mayBeEmpty = false, filters = [], emptyFilters = [], ...call }: ListCall,
  ): Promise<Answer> {
    const all = await this.call(name, call);
    this.check(name, mayBeEmpty || all.records.length > 0, 'lists nothing');
    const sort = all.records[0] && 'id' in all.records[0] ? 'id' : (sortable(all.records[0]) ?? 'id');
    for (const order of ['asc', 'desc']) {
      const sorted = await this.call(name, { ...call, query: { page: 1, pageSize: 100, sort, order } });
      const values = sorted.records.map((record) => record[sort]).filter((value) => typeof value === 'number');
      const expected = values.toSorted((one, other) => (order === 'asc' ? one - other : other - one));
      this.check(name, isDeepStrictEqual(values, expected), `is not sorted by ${sort} ${order}: ${values.join()}`);
    }
    const first = await this.call(name, { ...call, query: { page: 1, pageSize: 1 } });
    this.check(
      name,
      first.records.length <= 1 && first.pagination['page'] === 1 && first.pagination['pageSize'] === 1,
      `a page of size 1 has ${first.records.length} records and the pagination ${JSON.stringify(first.pagination)}`,
    );
    const last = await this.call(name, { ...call, query: { page: 1000, pageSize: 1000 } });
    this.check(name, last.records.length === 0, 'answers records on a page beyond the last one');
    const found = await this.call(name, { ...call, query: { search } });
    this.check(name, mayBeEmpty || found.records.length > 0, `search=${search} finds nothing`);
    // As a screen that has a field for each parameter.
    const together = Object.assign({}, ...filters) as NonNullable<Call['query']>;
    await this.call(name, { ...call, query: { page: 1, pageSize: 20, search, sort, order: 'desc', ...together } });
    for (const query of [...filters, ...emptyFilters]) {
      const { records } = await this.call(name, { ...call, query });
      if (filters.includes(query)) this.check(name, records.length > 0, `${JSON.stringify(query)} finds nothing`);
      for (const [field, value] of Object.entries(query))
        this.check(
          name,
          records.every((record) => !(field in record) || record[field] === value),
          `${field}=${String(value)} finds others: ${JSON.stringify(records.map((record) => record[field]))}`,
        );
    }
    return all;
  }

  /** Opens the event stream, runs `cause`, and returns the first message, as `onmessage` of an EventSource gets it. */
  async firstMessage(name: string, as: Login, cause: () => Promise<unknown>): Promise<Fields> {
    const endpoint = this.#endpoint(name);
    const stop = new AbortController();
    const response = await fetch(`${this.#url}${endpoint.path}`, {
      headers: headersOf(endpoint, { as }),
      signal: stop.signal,
    });
    this.#checkType(endpoint, response);
    if (!endpoint.answer.status.includes(response.status) || !response.body) {
      this.report(name, `answered ${response.status}`);
      stop.abort();
      return {};
    }
    const messages: EventSourceMessage[] = [];
    const parser = createParser({ onEvent: (message) => messages.push(message) });
    const reading = (async (stream: ReadableStream<Uint8Array>) => {
      const decoder = new TextDecoder();
      for await (const part of stream) parser.feed(decoder.decode(part, { stream: true }));
    })(response.body).catch(() => undefined);
    await cause();
    const message = await until(() => messages[0]).catch(() => undefined);
    stop.abort();
    await reading;
    if (!message) {
      this.report(name, 'sends no message');
      return {};
    }
    this.called.add(name);
    if (message.event !== undefined)
      this.report(name, `sends the event ${message.event}, which onmessage does not get, instead of a plain message`);
    const data = parsed(Buffer.from(message.data));
    const error = schemaError(endpoint.answer.message ?? {}, data, 'message');
    if (error !== undefined) this.report(name, error);
    return data;
  }

  #endpoint(name: string): Endpoint {
    const endpoint = byName.get(name);
    if (!endpoint) throw new Error(`${name} is not an endpoint of the specification`);
    return endpoint;
  }

  async #fetch(endpoint: Endpoint, call: Call): Promise<{ response: Response; bytes: Buffer }> {
    const path = endpoint.path.replace(/\{(\w+)\}/g, (_, name: string) =>
      encodeURIComponent(String(call.path?.[name] ?? 0)),
    );
    const query = new URLSearchParams(
      Object.entries(call.query ?? {}).map(([name, value]): [string, string] => [name, String(value)]),
    ).toString();
    const body = call.form ? formOf(call.form) : (call.body ?? call.bodyNotShown);
    const response = await fetch(`${this.#url}${path}${query && `?${query}`}`, {
      method: endpoint.method,
      headers: {
        ...headersOf(endpoint, call),
        // A request with a body names its type, also where the specification lists no headers.
        ...(body === undefined || body instanceof FormData ? {} : { 'Content-Type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: body instanceof FormData ? body : JSON.stringify(body) }),
    });
    return { response, bytes: Buffer.from(await response.arrayBuffer()) };
  }

  /** Compares an answer with the specification. */
  #checked(endpoint: Endpoint, call: Call, response: Response, bytes: Buffer): Answer {
    const name = nameOf(endpoint);
    const { answer: documented } = endpoint;
    if (!documented.status.includes(response.status)) {
      this.report(name, `answered ${response.status} ${bytes.toString().slice(0, 500)} to ${summary(call)}`);
      return new Answer(response.status, response.headers, {}, bytes);
    }
    for (const header of documented.headers ?? [])
      if (!response.headers.get(header)) this.report(name, `has no header ${header}`);
    this.#checkType(endpoint, response);
    if (documented.kind === 'file') {
      if (bytes.length === 0) this.report(name, 'the file is empty');
      return new Answer(response.status, response.headers, {}, bytes);
    }
    const envelope = parsed(bytes);
    const answer = new Answer(response.status, response.headers, envelope, bytes);
    const envelopeError = schemaError(
      objects[documented.kind === 'list' ? 'List' : 'Success'] ?? {},
      envelope,
      'answer',
    );
    if (envelopeError !== undefined) this.report(name, envelopeError);
    if (documented.data) {
      const error = schemaError(documented.data, answer.data, 'data');
      if (error !== undefined) this.report(name, error);
      this.#checkEcho(name, call, resolved(documented.data), answer);
    }
    return answer;
  }

  /** The fields of a body that the answer documents too must come back as they were sent. */
  #checkEcho(name: string, { body }: Call, { properties = {} }: Schema, { record }: Answer): void {
    for (const [field, sent] of Object.entries(isObject(body) ? body : {}))
      if (field in properties && Object.keys(properties[field] ?? {}).length > 0 && !openStrings.includes(field))
        this.check(
          name,
          isShown(sent, record[field]),
          `${field} was sent as ${JSON.stringify(sent)} and answered as ${JSON.stringify(record[field])}`,
        );
  }

  #checkType(endpoint: Endpoint, response: Response): void {
    const type = response.headers.get('Content-Type')?.split(';')[0] ?? 'none';
    const { content_types, kind } = endpoint.answer;
    if (content_types ? !content_types.includes(type) : kind !== 'file' && type !== 'application/json')
      this.report(nameOf(endpoint), `answered the content type ${type}`);
  }
}

const summary = ({ path, query, body, bodyNotShown, form }: Call) =>
  JSON.stringify({ path, query, body: body ?? bodyNotShown, form: form && Object.keys(form) }).slice(0, 1000);

function parsed(bytes: Buffer): Fields {
  try {
    const value: unknown = JSON.parse(bytes.toString());
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

/** A field of a record by which a list can be sorted. */
const sortable = (record: Fields | undefined) =>
  record && Object.keys(record).find((field) => ['string', 'number'].includes(typeof record[field]));

/** Exactly the headers that the specification lists. An operator has no school to name. */
function headersOf({ request_headers }: Endpoint, { as }: Pick<Call, 'as'>): Record<string, string> {
  const values: Record<string, string | undefined> = {
    Authorization: `Bearer ${as?.accessToken ?? ''}`,
    'X-Tenant-ID': as?.tenantId === undefined ? undefined : String(as.tenantId),
    'Content-Type': 'application/json',
    'X-Refresh-Token': as?.refreshToken,
  };
  return Object.fromEntries(
    request_headers.flatMap((name) => (values[name] === undefined ? [] : [[name, values[name]]])),
  );
}

function formOf(fields: NonNullable<Call['form']>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields))
    if (Array.isArray(value)) form.append(name, ...value);
    else form.append(name, String(value));
  return form;
}

/** Describes how a request differs from the specification; undefined when it does not. */
function requestError(
  endpoint: Endpoint,
  { as, path = {}, query, body, bodyNotShown, form }: Call,
): string | undefined {
  const errors = [
    Object.keys(path).sort().join() ===
    Object.keys(endpoint.path_parameters ?? {})
      .sort()
      .join()
      ? undefined
      : `the path parameters ${Object.keys(path).join()}`,
    query && schemaError({ additionalProperties: false, ...endpoint.query }, query, 'query'),
    endpoint.body === 'not shown' && body !== undefined ? 'a body' : undefined,
    endpoint.body !== 'not shown' && bodyNotShown !== undefined ? 'a body other than the one shown' : undefined,
    body !== undefined && endpoint.body !== 'not shown'
      ? schemaError(endpoint.body ?? { enum: [] }, body, 'body')
      : undefined,
    form && endpoint.form === undefined ? 'a form' : undefined,
    form && endpoint.form && endpoint.form !== 'not shown'
      ? Object.keys(form).find((field) => !(field in ((endpoint.form as Schema).properties ?? {})))
      : undefined,
    endpoint.permission !== undefined && as && !as.permissions.includes(endpoint.permission)
      ? `a user whose login lists no ${endpoint.permission}`
      : undefined,
  ];
  return errors.find((error) => error !== undefined);
}
