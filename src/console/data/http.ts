/** One invalid field of a request. */
interface FieldError {
  path: string;
  message: string;
}

/** What a login still needs after the right password. */
export interface LoginChallenge {
  token: string;
  is_enrollment: boolean;
  methods: string[];
  passkey: object | null;
}

/** A failed request: the error that the service returned, or status 0 if the service did not answer. */
export class Failure extends Error {
  readonly status: number;
  readonly code: string;
  readonly details: FieldError[];
  readonly requestId: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly challenge: LoginChallenge | undefined;

  constructor(
    status: number,
    code: string,
    message: string,
    more: {
      details?: FieldError[];
      requestId?: string | undefined;
      retryAfterSeconds?: number | undefined;
      challenge?: LoginChallenge | undefined;
    } = {},
  ) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = more.details ?? [];
    this.requestId = more.requestId;
    this.retryAfterSeconds = more.retryAfterSeconds;
    this.challenge = more.challenge;
  }
}

/** Converts anything thrown into a Failure that can be displayed. */
export const toFailure = (thrown: unknown): Failure =>
  thrown instanceof Failure
    ? thrown
    : new Failure(0, 'internal_error', thrown instanceof Error ? thrown.message : 'Something went wrong.');

/** Whether the request was aborted because its result is no longer needed. */
export const isAbort = (thrown: unknown): boolean => thrown instanceof DOMException && thrown.name === 'AbortError';

export type Query = Record<string, string | number | undefined>;

/** Appends the query parameters that have a value. */
export function withQuery(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== '') params.set(name, String(value));
  return params.size > 0 ? `${path}?${params}` : path;
}

/** Sends a request. @throws Failure unavailable when the service cannot be reached */
export async function send(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (cause) {
    if (isAbort(cause)) throw cause;
    throw new Failure(0, 'unavailable', 'The service cannot be reached. Check your connection.');
  }
}

/** Reads the error of a failed response. */
export async function readFailure(response: Response): Promise<Failure> {
  const body = (await response.json().catch(() => ({}))) as {
    error?: string;
    message?: string;
    details?: FieldError[];
    request_id?: string;
    challenge?: LoginChallenge;
  };
  const seconds = Number(response.headers.get('Retry-After') ?? NaN);
  return new Failure(
    response.status,
    body.error ?? 'internal_error',
    body.message ?? `The service returned status ${response.status}.`,
    {
      details: body.details ?? [],
      requestId: body.request_id,
      challenge: body.challenge,
      retryAfterSeconds: Number.isNaN(seconds) ? undefined : seconds,
    },
  );
}
