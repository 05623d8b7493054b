/**
 * The error registry: every error that the service answers, once. Installation copies it into `core.error`, from where
 * `core.fail` raises it by SQLSTATE; the facade, OpenAPI and the README read it here.
 */
export const errors = {
  validation_error: {
    status: 400,
    sqlstate: 'S400A',
    meaning: 'The path, query or body does not fit the schema; `details` names each field.',
  },
  malformed_json: { status: 400, sqlstate: 'S400B', meaning: 'The body is not JSON.' },
  unauthenticated: { status: 401, sqlstate: 'S401A', meaning: 'No access token was sent.' },
  invalid_credentials: { status: 401, sqlstate: 'S401B', meaning: 'The e-mail or the password is wrong.' },
  invalid_token: { status: 401, sqlstate: 'S401C', meaning: 'The token is wrong, expired, used or revoked.' },
  subscription_inactive: { status: 402, sqlstate: 'S402A', meaning: 'The school has no active subscription.' },
  forbidden: { status: 403, sqlstate: 'S403A', meaning: 'The user may not do this.' },
  tenant_suspended: { status: 403, sqlstate: 'S403B', meaning: 'The school is suspended.' },
  feature_disabled: { status: 403, sqlstate: 'S403C', meaning: 'The feature is not enabled for this school.' },
  plan_limit_reached: { status: 403, sqlstate: 'S403D', meaning: 'The plan of the school allows no more.' },
  tenant_mismatch: { status: 403, sqlstate: 'S403E', meaning: 'Header or host name another school than the token.' },
  not_found: { status: 404, sqlstate: 'S404A', meaning: 'There is no such route or record.' },
  tenant_not_found: { status: 404, sqlstate: 'S404B', meaning: 'There is no such school.' },
  method_not_allowed: { status: 405, sqlstate: 'S405A', meaning: 'The path has other methods; `Allow` lists them.' },
  not_acceptable: { status: 406, sqlstate: 'S406A', meaning: 'The answer is JSON, which `Accept` refuses.' },
  conflict: {
    status: 409,
    sqlstate: 'S409A',
    meaning: 'The change contradicts what is there, a duplicate for example.',
  },
  setup_incomplete: { status: 409, sqlstate: 'S409B', meaning: 'The setup of the school is not complete.' },
  invalid_state: { status: 409, sqlstate: 'S409C', meaning: 'The state of the record does not allow this step.' },
  schedule_conflict: { status: 409, sqlstate: 'S409D', meaning: 'Something else is planned at that time.' },
  in_use: { status: 409, sqlstate: 'S409E', meaning: 'The record is still referred to.' },
  precondition_failed: { status: 412, sqlstate: 'S412A', meaning: '`If-Match` names an older version of the record.' },
  payload_too_large: { status: 413, sqlstate: 'S413A', meaning: 'The body or the file is too large.' },
  unsupported_media_type: {
    status: 415,
    sqlstate: 'S415A',
    meaning: 'The body has a type that this route does not take.',
  },
  range_not_satisfiable: {
    status: 416,
    sqlstate: 'S416A',
    meaning: 'The file has no such part; `Content-Range` says how long it is.',
  },
  idempotency_key_reused: {
    status: 422,
    sqlstate: 'S422A',
    meaning: 'The `Idempotency-Key` was used for another request.',
  },
  invalid_reference: { status: 422, sqlstate: 'S422B', meaning: 'An id in the body does not exist in this school.' },
  rate_limited: { status: 429, sqlstate: 'S429A', meaning: 'Too many requests; `Retry-After` says when to try again.' },
  internal_error: { status: 500, sqlstate: 'S500A', meaning: 'A fault of the service.' },
  unavailable: {
    status: 503,
    sqlstate: 'S503A',
    meaning: 'The database is away or the school is being migrated; `Retry-After` says when to try again.',
  },
} as const;

/** The name of an error, as `error` in the envelope. */
export type ErrorName = keyof typeof errors;

/** One field at fault: `path` is dotted (`items.0.amount`). */
export interface ErrorDetail {
  path: string;
  message: string;
  /** Of a schedule_conflict: what conflicts, and the slot that is in the way where there is one. */
  kind?: string;
  slot_id?: number;
}

/** An answer that is not a success; thrown anywhere, turned into the envelope in one place. */
export class ApiError extends Error {
  readonly error: ErrorName;
  readonly details: ErrorDetail[] | undefined;
  /** Seconds until it makes sense to try again. */
  readonly retryAfter: number | undefined;

  constructor(
    error: ErrorName,
    message: string,
    extra: { details?: ErrorDetail[]; retryAfter?: number; cause?: unknown } = {},
  ) {
    super(message, { cause: extra.cause });
    this.error = error;
    this.details = extra.details;
    this.retryAfter = extra.retryAfter;
  }

  get status(): number {
    return errors[this.error].status;
  }
}
