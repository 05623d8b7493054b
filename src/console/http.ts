import { token, renewed } from './session.ts';

/** What is wrong with one field. */
interface Detail {
  path: string;
  message: string;
}

/** A request that failed: what the service said of it or, with status 0, that it did not answer. */
export class Failure extends Error {
  readonly status: number;
  readonly code: string;
  readonly details: Detail[];
  readonly requestId: string | undefined;
  /** Seconds. */
  readonly retryAfter: number | undefined;

  constructor(
    status: number,
    code: string,
    message: string,
    more: { details?: Detail[]; requestId?: string | undefined; retryAfter?: number | undefined } = {},
  ) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = more.details ?? [];
    this.requestId = more.requestId;
    this.retryAfter = more.retryAfter;
  }
}

/** Anything thrown, as a failure to show. */
export const asFailure = (thrown: unknown): Failure =>
  thrown instanceof Failure
    ? thrown
    : new Failure(0, 'internal_error', thrown instanceof Error ? thrown.message : 'Something went wrong.');

/** A request that nobody waits for any more. */
export const isGivenUp = (thrown: unknown): boolean => thrown instanceof DOMException && thrown.name === 'AbortError';

/** What came back. */
export interface Answer<T> {
  data: T;
  pagination: { page: number; pageSize: number; totalItems: number; totalPages: number };
  /** For If-Match. */
  etag: string | undefined;
}

interface Options {
  query?: Record<string, string | number | undefined>;
  body?: unknown;
  signal?: AbortSignal;
  /** The version that a change is made on. */
  ifMatch?: string | undefined;
  /** Makes a create safe to repeat. */
  idempotencyKey?: string;
}

/** The path with what is not empty of a query. */
export function withQuery(path: string, query: Options['query'] = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== '') params.set(name, String(value));
  return params.size > 0 ? `${path}?${params}` : path;
}

/** Sends a request. @throws Failure unavailable when the service can not be reached */
export async function send(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (cause) {
    if (isGivenUp(cause)) throw cause;
    throw new Failure(0, 'unavailable', 'The service cannot be reached. Check your connection.');
  }
}

/** Reads why a request was refused. */
export async function failureOf(response: Response): Promise<Failure> {
  const said = (await response.json().catch(() => ({}))) as {
    error?: string;
    message?: string;
    details?: Detail[];
    request_id?: string;
  };
  const seconds = Number(response.headers.get('Retry-After') ?? NaN);
  return new Failure(
    response.status,
    said.error ?? 'internal_error',
    said.message ?? `The service answered ${response.status}.`,
    {
      details: said.details ?? [],
      requestId: said.request_id,
      retryAfter: Number.isNaN(seconds) ? undefined : seconds,
    },
  );
}

const wait = (milliseconds: number, signal?: AbortSignal) =>
  new Promise<void>((done, gone) => {
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      gone(new DOMException('Given up.', 'AbortError'));
    });
  });

/** As long as somebody waits gladly for a service that is busy; after a longer Retry-After they are told instead. */
const patience = 5;

async function answered(method: string, path: string, options: Options): Promise<Response> {
  const { query, body, signal, ifMatch, idempotencyKey } = options;
  const isSafe = method === 'GET' || idempotencyKey !== undefined;
  let access = await token();
  for (let attempt = 0; ; attempt++) {
    const response = await send(withQuery(path, query), {
      method,
      ...(signal ? { signal } : {}),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      headers: {
        Authorization: `Bearer ${access}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...(ifMatch ? { 'If-Match': ifMatch } : {}),
        ...(idempotencyKey ? { 'Idempotency-Key': idempotencyKey } : {}),
      },
    });
    if (response.ok) return response;
    const failure = await failureOf(response);
    if (attempt > 0) throw failure;
    if (failure.status === 401 && failure.code !== 'invalid_credentials') access = await renewed(access);
    else if (isSafe && (failure.status === 429 || failure.status === 503) && (failure.retryAfter ?? 1) <= patience) {
      await wait((failure.retryAfter ?? 1) * 1000, signal);
    } else throw failure;
  }
}

/** Asks the API; an access token that has ended is renewed on the way. @throws Failure, or AbortError when it is given up */
export async function ask<T>(
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  path: string,
  options: Options = {},
): Promise<Answer<T>> {
  const response = await answered(method, path, options);
  const { data, pagination } = (await response.json()) as Answer<T>;
  return { data, pagination, etag: response.headers.get('ETag') ?? undefined };
}

/** Fetches a file and hands it to the reader as a download. */
export async function download(path: string, query: Options['query']): Promise<void> {
  const response = await answered('GET', path, { query: query ?? {} });
  const name = /filename="([^"]+)"/.exec(response.headers.get('Content-Disposition') ?? '')?.[1] ?? 'download';
  const address = URL.createObjectURL(await response.blob());
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** A key for each content of a form: sent again it is the same request, changed it is another one. */
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
