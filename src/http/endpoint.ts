import type { Request, Response } from 'express';
import { z } from 'zod';
import type { RequestOwner } from '../concurrency/fair-queue.ts';
import type { Download, PictureType } from '../domain/files.ts';
import type { Services } from './services.ts';
import { dateRange, type ListOptions, pageQuery, pathId } from './schemas.ts';

/** The arguments of a handler. */
export interface Exchange {
  req: Request;
  res: Response;
  /** Validated path, query and body parameters. */
  params: Record<string, unknown>;
  /** Runs an operation with the session of this request. Returns its JSON as text. */
  call: (operation: string, params: object) => Promise<string>;
  /** As `call`, but also after the client has disconnected. For cleaning up. */
  callAfterDisconnect: (operation: string, params: object) => Promise<string>;
  /**
   * Checks the caller's rights to the operation of the endpoint, without running it.
   * @throws the error of the dispatcher if the caller may not run it
   */
  admit: () => Promise<void>;
  services: Services;
}

/** Returns the JSON of `data`. */
export type Handler = (exchange: Exchange) => Promise<string>;

/** Makes the file of a response. */
export type FileHandler = (exchange: Exchange) => Promise<Download>;

/** Writes the response itself. */
export type StreamHandler = (exchange: Exchange) => Promise<void>;

/** `{data}`. Without a handler, the JSON of the operation. */
interface JsonResponse {
  kind: 'json';
  data: z.ZodType;
  /** Only for what the facade has to do itself, for example with a token. */
  handler?: Handler;
  /** The handler issues a refresh token, in a header or a cookie. */
  issuesRefreshToken?: boolean;
  /** The handler reads and issues the token of a known device, in a header or a cookie. */
  knowsDevices?: boolean;
}

/**
 * `{data}` with status 201 and, if a GET answers there, a Location. A dry run (`dry_run`) creates nothing and answers
 * 200.
 */
interface CreatedResponse {
  kind: 'created';
  data: z.ZodType;
  handler?: Handler;
  /** The path of the created records, if it is not the path of the endpoint. Null: no GET answers with one of them. */
  location?: string | null;
}

/** `{data, pagination}`: one page of a list. */
interface PageResponse {
  kind: 'page';
  data: z.ZodType;
  query: z.ZodObject;
  /** The field of `data` that is the page. By default, `data` itself is. */
  field?: string;
  /** Fields besides `data` and `pagination`. */
  extraFields?: Record<string, z.ZodType>;
}

/** A file of the database, for an operation whose content is `gives`. */
export interface FileResponse {
  kind: 'file';
  types: string[];
  /** Pages of any origin may show the file, and browsers may cache it. For signed addresses. */
  isEmbeddable?: boolean;
}

/** A file that the handler makes. */
export interface DownloadResponse {
  kind: 'download';
  types: string[];
  handler: FileHandler;
  /** The handler returns an `etagSource`, so that the file has an ETag. */
  isTagged?: boolean;
}

/** A stream of server-sent events. */
interface StreamResponse {
  kind: 'stream';
  handler: StreamHandler;
}

/** Answers `{data}` of this schema. */
export const json = (data: z.ZodType, options: Omit<JsonResponse, 'kind' | 'data'> = {}): JsonResponse => ({
  kind: 'json',
  data,
  ...options,
});

/** Answers 201 with the created record. */
export const created = (data: z.ZodType, options: Omit<CreatedResponse, 'kind' | 'data'> = {}): CreatedResponse => ({
  kind: 'created',
  data,
  ...options,
});

/** How a list differs from others. */
interface PageOptions extends Pick<PageResponse, 'extraFields'>, ListOptions {
  /** The filters have a range of dates, of at most this many days; `Infinity` for a range of any length. */
  maxDays?: number;
  /** `data` is an object, and this field of it is the page. */
  within?: { data: z.ZodObject; field: string };
}

/** Answers a page of a list. The query has the filters, page, pageSize, sort, order and search. */
export function page(
  record: z.ZodObject,
  filters: z.ZodRawShape = {},
  { extraFields, maxDays, within, ...options }: PageOptions = {},
): PageResponse {
  const query = pageQuery(record, filters, options);
  return {
    kind: 'page',
    data: within?.data ?? z.array(record),
    query: maxDays === undefined ? query : dateRange(query, maxDays),
    ...(within ? { field: within.field } : {}),
    ...(extraFields ? { extraFields } : {}),
  };
}

/** Answers a file that the database stores. */
export const file = (types: string[], options: Pick<FileResponse, 'isEmbeddable'> = {}): FileResponse => ({
  kind: 'file',
  types,
  ...options,
});

/** Answers a file that the handler makes. */
export const download = (
  types: string[],
  handler: FileHandler,
  options: Pick<DownloadResponse, 'isTagged'> = {},
): DownloadResponse => ({ kind: 'download', types, handler, ...options });

/** Answers a stream of server-sent events. */
export const stream = (handler: StreamHandler): StreamResponse => ({ kind: 'stream', handler });

/** What every endpoint can declare. */
interface Declaration {
  /** The operation in `core.operation`, and the function `api.<operation>` behind it. */
  operation: string;
  /** The name in OpenAPI. By default the operation; needed when two endpoints share an operation. */
  operationId?: string;
  summary: string;
  description?: string;
  /** The schemas of path parameters that are not numeric ids. */
  params?: Record<string, z.ZodType>;
  /** Turns the validated parameters into those of the operation. @throws ApiError to refuse the request */
  resolve?: (params: Record<string, unknown>, services: Services) => Record<string, unknown>;
  /**
   * For an operation without a login: successful requests count for its rate limit too, because success does not show
   * that the client may do this.
   */
  countsSuccesses?: boolean;
}

/** A GET. */
interface WithoutBody extends Declaration {
  body?: undefined;
  isUpdate?: undefined;
  asRead?: undefined;
  passwordField?: undefined;
  upload?: undefined;
}

/** An endpoint that answers a page. Its query belongs to the response. */
interface List extends WithoutBody {
  response: PageResponse;
  query?: undefined;
}

/** A GET that answers no page. */
interface Read extends WithoutBody {
  response: JsonResponse | FileResponse | DownloadResponse | StreamResponse;
  query?: z.ZodObject;
}

/** An endpoint with a body. */
interface Write<Response extends JsonResponse | CreatedResponse> extends Declaration {
  response: Response;
  query?: z.ZodObject;
  /** The JSON body. The operation gets an array as `items`. With an upload, also the fields of the form. */
  body?: z.ZodObject | z.ZodArray;
  /** Treat the body as that of an update, as for PUT: a client may send back what it read. */
  isUpdate?: boolean;
  /** What a client may send back, besides what the endpoint answers. */
  asRead?: z.ZodObject;
  /** A body field with a password. The operation gets its argon2id hash as `password_hash` instead. */
  passwordField?: string;
  upload?: UploadFields;
}

/** The declaration of an endpoint. The router and the OpenAPI document are made from it. */
export type Endpoint = List | Read | Write<JsonResponse | CreatedResponse>;

/** The declaration of a GET. */
export type GetEndpoint = List | Read;

/**
 * A file in one of these multipart fields. An operation that takes content, or the handler, gets its bytes. `types` are
 * detected from the content, and for text from the file name. With `isOptional`, the body may also be JSON.
 */
export interface UploadFields {
  fields: string[];
  maxBytes: number;
  types: string[];
  isOptional?: boolean;
  /** A field of a JSON body that may have the file as a data URL of base64. The bytes decide its type. */
  dataUrl?: { field: string; maxBytes: number; types: string[] };
  /** The word for the file in messages; `file` by default. */
  label?: string;
  /** Makes the picture to store from an uploaded one. @throws PictureError if it is unusable */
  picture?: (content: Buffer, contentType: PictureType, owner: RequestOwner) => Promise<Buffer>;
}

/** The schema of the query. */
export const queryOf = ({ response, query }: Endpoint): z.ZodObject | undefined =>
  response.kind === 'page' ? response.query : query;

/** The kinds of responses that are JSON. */
export type JsonKind = JsonResponse | CreatedResponse | PageResponse;

/** A response that a handler makes. */
export type HandledResponse =
  DownloadResponse | StreamResponse | ((JsonResponse | CreatedResponse) & { handler: Handler });

export const isHandled = (response: Endpoint['response']): response is HandledResponse => 'handler' in response;

/** Whether the response is JSON: no file and no stream. */
export const answersJson = ({ response: { kind } }: Endpoint): boolean => ['json', 'created', 'page'].includes(kind);

/** Whether the query or the body has a `dry_run`. */
export const takesDryRun = (endpoint: Endpoint): boolean =>
  [queryOf(endpoint), endpoint.body].some((part) => part !== undefined && 'shape' in part && 'dry_run' in part.shape);

/** The endpoints of a resource by method and path below it, for example `GET /:id`. */
type Routes = Record<`GET /${string}`, GetEndpoint> &
  Record<`POST /${string}`, Write<JsonResponse | CreatedResponse>> &
  Record<`${'PUT' | 'PATCH' | 'DELETE'} /${string}`, Write<JsonResponse>>;

/** The endpoints below one path. */
export interface Resource {
  path: string;
  /** The section of the documentation, and its description. */
  section: string;
  about: string;
  endpoints: { method: string; path: string; endpoint: Endpoint }[];
}

/** The endpoint, without a Location if no GET of the resource answers there. */
function withLocation(endpoint: Endpoint, path: string, routes: string[]): Endpoint {
  if (endpoint.response.kind !== 'created' || endpoint.response.location !== undefined) return endpoint;
  const reads = `GET ${path.replace(/\/$/, '')}/:`;
  if (routes.some((route) => route.startsWith(reads) && !route.slice(reads.length).includes('/'))) return endpoint;
  return { ...endpoint, response: { ...endpoint.response, location: null } } as Endpoint;
}

/** Declares the endpoints below one path, in the order of the specification. */
export function resource(path: string, section: string, about: string, endpoints: Routes): Resource {
  return {
    path,
    section,
    about,
    endpoints: Object.entries(endpoints).map(([route, endpoint]) => {
      const [method = '', pathBelow = ''] = route.split(' ');
      return { method, path: pathBelow, endpoint: withLocation(endpoint, pathBelow, Object.keys(endpoints)) };
    }),
  };
}

/** The parameters of a path and their schemas. By default a parameter is an id. */
export function pathParameters(path: string, { params = {} }: Pick<Endpoint, 'params'>): Record<string, z.ZodType> {
  return Object.fromEntries(
    [...path.matchAll(/:(\w+)/g)].map(([, name = '']): [string, z.ZodType] => [name, params[name] ?? pathId]),
  );
}
