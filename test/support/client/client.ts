import { request } from 'node:http';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { agent } from './connections.ts';
import { observed } from './observed.ts';

/** The answer to a request. The test declares the type of `data`. */
export interface Answer<T> {
  status: number;
  headers: Headers;
  data: T;
  pagination: { page: number; pageSize: number; totalItems: number; totalPages: number };
  error: string;
  message: string;
  details: { path: string; message: string; kind?: string; slot_id?: number }[];
}

interface RequestOptions {
  body?: unknown;
  headers?: Record<string, string>;
}

/** A client of the API that checks every JSON answer against the service's OpenAPI document. */
export interface Client {
  token: string;
  refreshToken: string;
  /** Sends a request; fails the test when `status` is given and another one comes back. */
  send<T>(method: string, path: string, options?: RequestOptions, status?: number): Promise<Answer<T>>;
  get<T>(path: string, status?: number): Promise<Answer<T>>;
  post<T>(path: string, body?: unknown, status?: number): Promise<Answer<T>>;
  put<T>(path: string, body: unknown, status?: number): Promise<Answer<T>>;
  delete<T>(path: string, status?: number): Promise<Answer<T>>;
  /** The same client with more default headers. */
  with(headers: Record<string, string>): Client;
  login(credentials: Record<string, unknown>): Promise<Client>;
}

interface Schema {
  $ref?: string;
}
interface Operation {
  responses: Record<string, { 'x-errors'?: string[]; content?: Record<string, { schema: Schema }> }>;
}
/** The parts of an OpenAPI document that tests read. */
export interface Document {
  paths: Record<
    string,
    Record<
      string,
      Operation & { operationId: string; 'x-operation'?: string; 'x-permission'?: string; security: unknown[] }
    >
  >;
  components: { schemas: Record<string, unknown> };
}

/** Creates a function that throws if a response does not match the OpenAPI document. */
function answerCheck(document: Document) {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema({ $id: 'openapi', components: document.components });
  const routes = Object.entries(document.paths).map(([path, operations]) => ({
    pattern: new RegExp(`^${path.replace(/\{[^}]+\}/g, '[^/]+')}/?$`),
    path,
    operations,
  }));
  // Literal paths first: /students/me before /students/{id}.
  routes.sort((a, b) => a.path.split('{').length - b.path.split('{').length);
  const compiled = new Map<string, ValidateFunction>();
  /** By schema text: nearly all errors share one. */
  const bySchema = new Map<string, ValidateFunction>();
  return (method: string, path: string, status: number, body: unknown) => {
    const pathname = path.split('?')[0] ?? '';
    const route = routes.find(
      ({ pattern, operations }) => pattern.test(pathname) && method.toLowerCase() in operations,
    );
    const operation = route?.operations[method.toLowerCase()];
    if (!route || !operation) return;
    const response = operation.responses[String(status)];
    if (!response) throw new Error(`${method} ${path} answered ${status}, which its OpenAPI operation does not list`);
    const { error } = body as { error?: string };
    if (error !== undefined && response['x-errors'] && !response['x-errors'].includes(error))
      throw new Error(`${method} ${path} answered ${status} ${error}, which its OpenAPI operation does not list`);
    const schema = response.content?.['application/json']?.schema;
    if (!schema) return;
    const key = `${method} ${route.path} ${status}`;
    let validate = compiled.get(key);
    if (!validate) {
      const text = JSON.stringify(schema).replaceAll('"#/components/', '"openapi#/components/');
      validate = bySchema.get(text) ?? ajv.compile(JSON.parse(text) as object);
      bySchema.set(text, validate);
      compiled.set(key, validate);
    }
    if (!validate(body))
      throw new Error(
        `${method} ${path} ${status} does not fit its schema: ${ajv.errorsText(validate.errors)}\n${JSON.stringify(body).slice(0, 2000)}`,
      );
  };
}

interface Received {
  status: number;
  headers: Headers;
  content: Buffer;
}

/** Sends a request on a keep-alive connection. With `fetch`, a request takes a third more processor time. */
function exchange(
  url: string,
  method: string,
  headers: Record<string, string>,
  body: string | Buffer | undefined,
): Promise<Received> {
  return new Promise((done, fail) => {
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const asked = request(url, {
      agent,
      method,
      headers: { 'user-agent': 'node', accept: '*/*', ...length, ...headers },
    });
    asked.on('error', (cause) => fail(new Error(`${method} ${url}: the connection was closed`, { cause })));
    asked.on('response', (response) => {
      const { rawHeaders } = response;
      const received = new Headers();
      for (let n = 0; n < rawHeaders.length; n += 2) received.append(rawHeaders[n] ?? '', rawHeaders[n + 1] ?? '');
      const end = (content: Buffer) => done({ status: response.statusCode ?? 0, headers: received, content });
      if (response.headers['content-type']?.startsWith('text/event-stream')) {
        // A stream does not end by itself.
        response.destroy();
        end(Buffer.alloc(0));
        return;
      }
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('error', fail);
      response.on('end', () => end(Buffer.concat(parts)));
    });
    asked.end(body);
  });
}

/** A body as bytes, with the header that describes it. */
async function encoded(body: unknown): Promise<{ bytes?: string | Buffer; type?: string }> {
  if (body === undefined) return {};
  if (!(body instanceof FormData))
    return { bytes: typeof body === 'string' ? body : JSON.stringify(body), type: 'application/json' };
  const form = new Response(body);
  return { bytes: Buffer.from(await form.arrayBuffer()), type: form.headers.get('content-type') ?? '' };
}

async function checkOf(url: string): Promise<ReturnType<typeof answerCheck>> {
  return answerCheck((await (await fetch(`${url}/api/openapi.json`)).json()) as Document);
}

/** Header names as the client writes its own, so that a test can replace them. */
const lowerCase = (headers: Record<string, string>) =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));

/** All services in the tests have the same document, except for their address. */
let check: ReturnType<typeof answerCheck> | undefined;

/** A client without credentials. */
export async function client(url: string): Promise<Client> {
  const checkAnswer = (check ??= await checkOf(url));

  function make(defaults: Record<string, string>, token: string, refreshToken: string): Client {
    const self: Client = {
      token,
      refreshToken,
      async send<T>(method: string, path: string, { body, headers = {} }: RequestOptions = {}, status?: number) {
        const { bytes, type } = await encoded(body);
        const response = await exchange(
          // An address that the service gave away is absolute.
          path.startsWith('/') ? `${url}${path}` : path,
          method,
          {
            ...(token ? { authorization: `Bearer ${token}` } : {}),
            ...(type === undefined ? {} : { 'content-type': type }),
            ...lowerCase(defaults),
            ...lowerCase(headers),
          },
          bytes,
        );
        const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false;
        const content: unknown = isJson ? JSON.parse(response.content.toString()) : response.content;
        observed.last = { request: `${method} ${path}`, status: response.status, body: content };
        if (isJson) checkAnswer(method, path, response.status, content);
        if (status !== undefined && response.status !== status) {
          throw new Error(
            `${method} ${path} answered ${response.status}, not ${status}: ${JSON.stringify(content).slice(0, 1000)}`,
          );
        }
        const parts = isJson ? (content as Partial<Answer<T>>) : { data: content as T };
        return { ...parts, status: response.status, headers: response.headers } as Answer<T>;
      },
      get: (path, status = 200) => self.send('GET', path, {}, status),
      post: (path, body, status = 200) => self.send('POST', path, { body }, status),
      put: (path, body, status = 200) => self.send('PUT', path, { body }, status),
      delete: (path, status = 200) => self.send('DELETE', path, {}, status),
      with: (headers) => make({ ...defaults, ...headers }, token, refreshToken),
      async login(credentials) {
        const answer = await self.send<{ access_token: string }>('POST', '/api/auth/login', { body: credentials }, 200);
        return make(defaults, answer.data.access_token, answer.headers.get('x-refresh-token') ?? '');
      },
    };
    return self;
  }
  return make({}, '', '');
}
