import type { Upload } from '../domain/files.ts';
import type { Claims } from './tokens.ts';

declare module 'express-serve-static-core' {
  interface Request {
    /** Identifies the request in its response, its log line and its audit entries. */
    id: string;
    /** The verified access token; undefined for anonymous requests. */
    claims?: Claims;
    /** The operation that the route names, for the log. */
    operation?: string;
    /** The pattern of the route, for the metrics; undefined when no route matches. */
    pattern?: string;
    /** The uploaded file, after its size and type were checked. */
    upload?: Upload;
  }
}
