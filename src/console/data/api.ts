import { type Query, readFailure, send as sendOnce, withQuery } from './http.ts';
import { accessToken, renewAccessToken } from './session.ts';

export interface ApiResponse<T> {
  data: T;
  pagination: { page: number; pageSize: number; totalItems: number; totalPages: number };
  /** For If-Match. */
  etag: string | undefined;
}

interface RequestOptions {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  /** The ETag of the version that the change is based on. */
  ifMatch?: string | undefined;
  /** Makes a create safe to retry. */
  idempotencyKey?: string;
  /** The last event of a stream that was received. */
  lastEventId?: string | undefined;
}

const sleep = (delayMs: number, signal?: AbortSignal) =>
  new Promise<void>((resolve, reject) => {
    const timer = setTimeout(resolve, delayMs);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new DOMException('Aborted.', 'AbortError'));
    });
  });

/** A longer Retry-After is shown to the operator instead of waiting. */
const maxRetryDelaySeconds = 5;

/** Errors with status 401 that say nothing about the access token. */
const wrongProofs = ['invalid_credentials', 'invalid_code'];

/**
 * Sends a request with the access token. Retries once: with a new token after a 401, or after the requested delay if
 * the service is busy and the request is safe to repeat.
 */
export async function send(method: string, path: string, options: RequestOptions): Promise<Response> {
  const { query, body, signal, ifMatch, idempotencyKey, lastEventId } = options;
  const isRepeatable = method === 'GET' || idempotencyKey !== undefined;
  let token = await accessToken();
  for (let attempt = 0; ; attempt++) {
    const response = await sendOnce(withQuery(path, query), {
      method,
      ...(signal ? { signal } : {}),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      headers: {
        Authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...(ifMatch ? { 'If-Match': ifMatch } : {}),
        ...(idempotencyKey ? { 'Idempotency-Key': idempotencyKey } : {}),
        ...(lastEventId === undefined ? {} : { 'Last-Event-ID': lastEventId }),
      },
    });
    if (response.ok) return response;
    const failure = await readFailure(response);
    if (attempt > 0) throw failure;
    const delaySeconds = failure.retryAfterSeconds ?? 1;
    const isBusy = failure.status === 429 || failure.status === 503;
    if (failure.status === 401 && !wrongProofs.includes(failure.code)) token = await renewAccessToken(token);
    else if (isRepeatable && isBusy && delaySeconds <= maxRetryDelaySeconds) await sleep(delaySeconds * 1000, signal);
    else throw failure;
  }
}

/** Calls the API and renews an expired access token on the way. @throws Failure, or an AbortError if it was aborted */
export async function request<T>(
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  path: string,
  options: RequestOptions = {},
): Promise<ApiResponse<T>> {
  const response = await send(method, path, options);
  const { data, pagination } = (await response.json()) as ApiResponse<T>;
  return { data, pagination, etag: response.headers.get('ETag') ?? undefined };
}

/** Fetches a file and saves it as a browser download. */
export async function download(path: string, query: Query): Promise<void> {
  const response = await send('GET', path, { query });
  const name = /filename="?([^";]+)/.exec(response.headers.get('Content-Disposition') ?? '')?.[1] ?? 'download';
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Creates a function that returns the same idempotency key until the body changes. */
export function idempotencyKeys(): (body: unknown) => string {
  let last: { content: string; key: string } | undefined;
  return (body) => {
    const content = JSON.stringify(body);
    if (last?.content !== content)
      last = {
        content,
        key: [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join(''),
      };
    return last.key;
  };
}
