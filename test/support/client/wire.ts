import { type IncomingHttpHeaders, request } from 'node:http';
import { type ErrorName, errors } from '../../../src/domain/errors.ts';
import { agent } from './connections.ts';

// Requests that a normal client would not send, and checks of the envelope of the answer: for the attack tests.

/** The answer to a request. */
export interface Answered {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  /** The envelope. Undefined when the answer is not JSON. */
  json: Envelope | undefined;
}

/** The shape of every JSON answer. */
export interface Envelope {
  success?: boolean;
  data?: unknown;
  pagination?: { page: number; pageSize: number; totalItems: number; totalPages: number };
  error?: ErrorName;
  message?: string;
  details?: { path: string; message: string }[];
  request_id?: string;
}

/** A request. */
export interface Sent {
  method?: string;
  path: string;
  headers?: Record<string, string>;
  token?: string;
  /** Text and bytes are sent as they are, anything else as JSON. */
  body?: unknown;
}

/**
 * Sends a request on a keep-alive connection. Path and headers are sent unchanged.
 * @throws when the connection is closed early
 */
export function send(url: string, { method = 'GET', path, headers = {}, token, body }: Sent): Promise<Answered> {
  const { hostname, port } = new URL(url);
  const bytes =
    body === undefined ? undefined : typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const isChunked = 'transfer-encoding' in headers;
  return new Promise((done, fail) => {
    const asked = request(
      {
        agent,
        hostname,
        port,
        method,
        path,
        headers: {
          ...(token ? { authorization: `Bearer ${token}` } : {}),
          ...(bytes === undefined ? {} : { 'content-type': 'application/json' }),
          ...(bytes === undefined || isChunked ? {} : { 'content-length': String(Buffer.byteLength(bytes)) }),
          ...headers,
        },
      },
      (response) => {
        if (response.headers['content-type']?.startsWith('text/event-stream')) {
          // An event stream does not end by itself.
          response.destroy();
          done({ status: response.statusCode ?? 0, headers: response.headers, text: '', json: undefined });
          return;
        }
        const parts: Buffer[] = [];
        response.on('data', (part: Buffer) => parts.push(part));
        response.on('error', fail);
        response.on('end', () => {
          const text = Buffer.concat(parts).toString();
          const isJson = response.headers['content-type']?.startsWith('application/json') === true && text !== '';
          done({
            status: response.statusCode ?? 0,
            headers: response.headers,
            text,
            json: isJson ? (JSON.parse(text) as Envelope) : undefined,
          });
        });
      },
    );
    asked.on('error', (error) =>
      fail(new Error(`${method} ${path.slice(0, 200)}: the connection was closed: ${error.message}`)),
    );
    asked.end(bytes);
  });
}

/** Internals that an error message must never reveal. */
const inside =
  /SQLSTATE|syntax error at|relation "|violates|jsonb_|pg_|plpgsql|tenant_\d+\.|\bselect\b.*\bfrom\b|\bat .*\.[jt]s\b|node_modules|node:internal|password_hash/i;

/** Describes the error in the envelope of an answer; undefined if there is none. */
export function envelopeError({ status, headers, text, json }: Answered): string | undefined {
  const summary = `${status} ${text.slice(0, 300)}`;
  if (status >= 500) return `is an internal error: ${summary}`;
  if (typeof headers['x-request-id'] !== 'string') return `has no X-Request-Id: ${summary}`;
  if (status === 204 || status === 304) return text === '' ? undefined : `has a body: ${summary}`;
  if (status < 400) {
    if (json === undefined)
      return headers['content-disposition'] !== undefined || headers['content-type']?.startsWith('text/event-stream')
        ? undefined
        : `is not an envelope: ${summary}`;
    return json.success === true && 'data' in json && !('error' in json) ? undefined : `is not a success: ${summary}`;
  }
  if (json?.success !== false || json.error === undefined || !(json.error in errors))
    return `is not an error of the registry: ${summary}`;
  if (errors[json.error].status !== status) return `does not have the status of its error: ${summary}`;
  if (!json.message || json.message.length > 1000) return `has no readable message: ${summary}`;
  if (json.request_id !== headers['x-request-id']) return `has a different request id: ${summary}`;
  if ('data' in json) return `has data: ${summary}`;
  if (json.details?.some((detail) => typeof detail.path !== 'string' || !detail.message))
    return `has details without path or message: ${summary}`;
  const leak = inside.exec(json.message);
  return leak ? `reveals internals (${leak[0]}): ${summary}` : undefined;
}

/** Describes how an answer differs from an expected error; undefined when it does not. */
export function errorMismatch(answer: Answered, status: number, error: ErrorName): string | undefined {
  if (answer.status !== status || answer.json?.error !== error)
    return `answered ${answer.status} ${answer.text.slice(0, 300)}`;
  return status >= 500 ? undefined : envelopeError(answer);
}
