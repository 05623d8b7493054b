import type { Request, Response } from 'express';
import type { z } from 'zod';
import { ApiError } from '../domain/errors.ts';
import type { Download } from '../domain/files.ts';
import type { Services } from './services.ts';
import { pathId } from './schemas.ts';

/** What a handler works with. */
export interface Exchange {
  req: Request;
  res: Response;
  /** Validated path, query and body parameters. */
  params: Record<string, unknown>;
  /** Runs an operation in the name of this request; answers its JSON as text. */
  call: (operation: string, params: object) => Promise<string>;
  /** Refuses whoever may not run the operation of the endpoint, and runs nothing. */
  admit: () => Promise<void>;
  services: Services;
}

/** Aborts when the client has gone, or has its answer. */
export function disconnectSignal(res: Response): AbortSignal {
  const gone = new AbortController();
  res.once('close', () => gone.abort(new ApiError('conflict', 'The request was given up.')));
  return gone.signal;
}

/** Answers the JSON of `data`, or a file; nothing where it has taken the response over, and answers as things happen. */
export type Handler = (exchange: Exchange) => Promise<string | Download | undefined>;

/** One documented endpoint: all that the router and OpenAPI need to know. */
export interface Endpoint {
  /** The operation in `core.operation`, and the function `api.<operation>` behind it. */
  operation: string;
  /** Its name in OpenAPI, where two endpoints share an operation. */
  operationId?: string;
  summary: string;
  description?: string;
  /** The schemas of path parameters that are no identifiers. */
  params?: Record<string, z.ZodType>;
  query?: z.ZodObject;
  /** A JSON body; an array goes to the operation as `items`. Beside an upload, the fields of the form. */
  body?: z.ZodObject | z.ZodArray;
  /** The shape of `data`; of one element of it, for a page. */
  answer?: z.ZodType;
  /** Answers `{data: [...], pagination}`. */
  isPage?: boolean;
  /** What a page answers beside `data` and `pagination`. */
  extraFields?: Record<string, z.ZodType>;
  /** 201 and a Location for what was made, else 200. One that takes `dry_run` answers 200 to it, and makes nothing. */
  isCreate?: boolean;
  /** Where what was made is read, for the Location, when that is not below the path of the endpoint. */
  locationBase?: string;
  /** A field of the body that holds a password: its argon2id hash goes on as `password_hash`. */
  hashes?: string;
  /**
   * A file in one of these multipart fields; its bytes go to an operation that takes content, or to the handler. `types` are
   * those that the content shows, by itself or by its name for text. Without isOptional there must be one; with it the
   * body may be JSON as well.
   */
  upload?: {
    fields: string[];
    maxBytes: number;
    types: string[];
    isOptional?: boolean;
    /** What is wrong with a file of these types, as the end of a sentence that begins with «The picture»; undefined where nothing is. */
    fault?: (content: Buffer, contentType: string) => Promise<string | undefined>;
  };
  /** The answer is bytes of these types, from an operation that gives content. */
  bytes?: string[];
  /** The answer is a stream of server-sent events, which its handler keeps. */
  isStream?: boolean;
  /** The handler says what the file is made of (`etagSource`), so that it has an ETag. */
  isTagged?: boolean;
  /** Only where the facade has to do something itself, with a password or a token; else the operation is called with the parameters. */
  handler?: Handler;
}

/** Whether the query or the form has a `dry_run`. */
export const takesDryRun = ({ query, body }: Endpoint): boolean =>
  'dry_run' in (query?.shape ?? {}) || (body !== undefined && 'shape' in body && 'dry_run' in body.shape);

/** A verb and a path below the resource, `GET /:id` for example. */
type Route = `${'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'} /${string}`;

/** The endpoints below one path. */
export interface Resource {
  path: string;
  /** The section of the documentation, and what it is about. */
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
      const [method = '', below = ''] = route.split(' ');
      return { method, path: below, endpoint };
    }),
  };
}

/** The parameters of a path and their schema: `/:user_id/roles/:role_id` has two identifiers. */
export function pathParameters(path: string, { params = {} }: Pick<Endpoint, 'params'>): Record<string, z.ZodType> {
  return Object.fromEntries(
    [...path.matchAll(/:(\w+)/g)].map(([, name = '']): [string, z.ZodType] => [name, params[name] ?? pathId]),
  );
}
