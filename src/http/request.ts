import type { Upload } from '../domain/files.ts';
import type { Claims } from './tokens.ts';

declare module 'express-serve-static-core' {
  interface Request {
    /** The id of the request in its response, log line and audit entries. */
    id: string;
    /** The verified access token; undefined for anonymous requests. */
    claims?: Claims;
    /** The operation of the route, for the log. */
    operation?: string;
    /** The route pattern, for the metrics; undefined when no route matches. */
    pattern?: string;
    /** The uploaded file; its size and type have been checked. */
    upload?: Upload;
  }
}
