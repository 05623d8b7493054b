import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { RequestOwner } from '../concurrency/fair-queue.ts';
import type { Download, PictureType } from '../domain/files.ts';
import type { Services } from './services.ts';
import { pathId } from './schemas.ts';

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

/** Returns the JSON of `data`, or a file. A handler that writes the response itself (a stream) returns undefined. */
export type Handler = (exchange: Exchange) => Promise<string | Download | undefined>;

/** The declaration of an endpoint. The router and the OpenAPI document are made from it. */
export interface Endpoint {
  /** The operation in `core.operation`, and the function `api.<operation>` behind it. */
  operation: string;
  /** The name in OpenAPI. By default the operation; needed when two endpoints share an operation. */
  operationId?: string;
  summary: string;
  description?: string;
  /** The schemas of path parameters that are not numeric ids. */
  params?: Record<string, z.ZodType>;
  query?: z.ZodObject;
  /** The JSON body. The operation gets an array as `items`. With an upload, also the fields of the form. */
  body?: z.ZodObject | z.ZodArray;
  /** The schema of `data`, or of one element of it if `isPage`. */
  answer?: z.ZodType;
  /** The response is `{data: [...], pagination}`. */
  isPage?: boolean;
  /** With `isPage`: `data` is an object of the schema `answer`, and this field of it is the page. */
  pagedField?: string;
  /** Fields of a page besides `data` and `pagination`. */
  extraFields?: Record<string, z.ZodType>;
  /** Answers 201 with a Location. A dry run (`dry_run`) creates nothing and answers 200. */
  isCreate?: boolean;
  /** Validate the body as a partial update, as for PUT. */
  isUpdate?: boolean;
  /** The path of the created records, for the Location, if it is not the path of the endpoint. */
  locationBase?: string;
  /** A body field with a password. The operation gets its argon2id hash as `password_hash` instead. */
  hashes?: string;
  /**
   * A file in one of these multipart fields. An operation that takes content, or the handler, gets its bytes. `types`
   * are detected from the content, and for text from the file name. With `isOptional`, the body may also be JSON.
   */
  upload?: {
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
  };
  /** The content types of the response, if it is a file. */
  bytes?: string[];
  /** Pages of any origin may show the file, and browsers may cache it. For signed addresses. */
  isEmbeddable?: boolean;
  /** Turns the validated parameters into those of the operation. @throws ApiError to refuse the request */
  resolve?: (params: Record<string, unknown>, services: Services) => Record<string, unknown>;
  /** The response is a stream of server-sent events, which the handler writes. */
  isStream?: boolean;
  /** The handler issues a refresh token, in a header or a cookie. */
  issuesRefreshToken?: boolean;
  /** The handler reads and issues the token of a known device, in a header or a cookie. */
  knowsDevices?: boolean;
  /**
   * For an operation without a login: successful requests count for its rate limit too, because success does not show
   * that the client may do this.
   */
  isAlwaysCounted?: boolean;
  /** The handler returns an `etagSource`, so that the file has an ETag. */
  isTagged?: boolean;
  /** Only for what the facade has to do itself, for example with a file or a token. By default, calls the operation. */
  handler?: Handler;
}

/** Whether the query or the body has a `dry_run`. */
export const takesDryRun = ({ query, body }: Endpoint): boolean =>
  'dry_run' in (query?.shape ?? {}) || (body !== undefined && 'shape' in body && 'dry_run' in body.shape);

/** A method and a path below the resource, for example `GET /:id`. */
type Route = `${'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'} /${string}`;

/** The endpoints below one path. */
export interface Resource {
  path: string;
  /** The section of the documentation, and its description. */
  section: string;
  about: string;
  endpoints: { method: string; path: string; endpoint: Endpoint }[];
}

/** Declares the endpoints below one path, in the order of the specification. */
export function resource(path: string, section: string, about: string, endpoints: Record<Route, Endpoint>): Resource {
  return {
    path,
    section,
    about,
    endpoints: Object.entries(endpoints).map(([route, endpoint]) => {
      const [method = '', pathBelow = ''] = route.split(' ');
      return { method, path: pathBelow, endpoint };
    }),
  };
}

/** The parameters of a path and their schemas. By default a parameter is an id. */
export function pathParameters(path: string, { params = {} }: Pick<Endpoint, 'params'>): Record<string, z.ZodType> {
  return Object.fromEntries(
    [...path.matchAll(/:(\w+)/g)].map(([, name = '']): [string, z.ZodType] => [name, params[name] ?? pathId]),
  );
}
