import type { components } from './schema.ts';

type Failure = components['schemas']['Failure'];

/** The name of an error of the service, for example `not_found`. */
export type ErrorName = Failure['error'];
/** A field that the service refused, and why. */
export type ErrorDetail = NonNullable<Failure['details']>[number];

/** An error that the service returned. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly error: ErrorName;
  readonly status: number;
  readonly details: ErrorDetail[];
  /** The id under which the log of the service has the request. */
  readonly requestId: string;
  /** How long to wait before the next attempt, if the service says so. */
  readonly retryAfterSeconds: number | undefined;
  /** Of `second_factor_required`: what the login still needs. */
  readonly challenge: Failure['challenge'];

  constructor(status: number, failure: Failure, retryAfterSeconds?: number) {
    super(failure.message);
    this.error = failure.error;
    this.status = status;
    this.details = failure.details ?? [];
    this.requestId = failure.request_id;
    this.retryAfterSeconds = retryAfterSeconds;
    this.challenge = failure.challenge;
  }
}

/** Whether a caught value is an error of the service; with a name, whether it is that error. */
export const isApiError = (error: unknown, name?: ErrorName): error is ApiError =>
  error instanceof ApiError && (name === undefined || error.error === name);

/** The error of a response that is not a success. Proxies may answer without the envelope of the service. */
export async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  const retryAfter = Number(response.headers.get('Retry-After') ?? NaN);
  let failure: Partial<Failure> | undefined;
  try {
    failure = JSON.parse(text) as Partial<Failure>;
  } catch {
    failure = undefined;
  }
  return new ApiError(
    response.status,
    {
      success: false,
      error: failure?.error ?? (response.status >= 502 ? 'unavailable' : 'internal_error'),
      message: failure?.message ?? `The response has the status ${String(response.status)} and no JSON.`,
      request_id: failure?.request_id ?? response.headers.get('X-Request-Id') ?? '',
      ...(failure?.details ? { details: failure.details } : {}),
      ...(failure?.challenge ? { challenge: failure.challenge } : {}),
    },
    Number.isFinite(retryAfter) ? retryAfter : undefined,
  );
}
