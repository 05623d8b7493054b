import type { Request, Response } from 'express';
import type { z } from 'zod';
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
  services: Services;
}

/** Answers the JSON of `data`. */
export type Handler = (exchange: Exchange) => Promise<string>;

/** One documented endpoint: all that the router and OpenAPI need to know. */
export interface Endpoint {
  /** The operation in `core.operation`, and the function `api.<operation>` behind it. */
  operation: string;
  /** Its name in OpenAPI, where two endpoints share an operation. */
  operationId?: string;
  summary: string;
  description?: string;
  query?: z.ZodObject;
  body?: z.ZodObject;
  /** The shape of `data`; of one element of it, for a page. */
  answer?: z.ZodType;
  /** Answers `{data: [...], pagination}`. */
  isPage?: boolean;
  /** 201 and a Location for what was made, else 200. */
  isCreate?: boolean;
  /** A field of the body that holds a password: its argon2id hash goes on as `password_hash`. */
  hashes?: string;
  /** A file in one of these multipart fields; its bytes go to an operation that takes content. */
  upload?: { fields: string[]; maxBytes: number; types: string[] };
  /** The answer is bytes of these types, from an operation that gives content. */
  bytes?: string[];
  /** Only where the facade has to do something itself, with a password or a token; else the operation is called with the parameters. */
  handler?: Handler;
}

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
export function pathParameters(path: string): Record<string, z.ZodType> {
  return Object.fromEntries([...path.matchAll(/:(\w+)/g)].map(([, name = '']): [string, z.ZodType] => [name, pathId]));
}
