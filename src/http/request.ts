import type { Upload } from '../domain/files.ts';
import type { ApiKey } from './credentials/api-keys.ts';
import type { Claims } from './credentials/tokens.ts';

declare module 'express-serve-static-core' {
  interface Request {
    /** The id of the request in its response, log line and audit entries. */
    id: string;
    /** The W3C trace of the request: that of the client, or the span of the request if traces are on. */
    traceparent?: string;
    /** The verified access token; undefined for anonymous requests and with an API key. */
    claims?: Claims;
    /** The API key that was sent instead of an access token. */
    apiKey?: ApiKey;
    /** The operation of the route, for the log. */
    operation?: string;
    /** The route pattern, for the metrics; undefined when no route matches. */
    pattern?: string;
    /** The uploaded file; its size and type have been checked. */
    upload?: Upload;
  }
}
