/**
 * The error registry: every error that the service can return. Installation copies it into `core.error`, so that
 * `core.fail` can raise each error by SQLSTATE. The facade, OpenAPI and docs/api.md use the same list.
 */
export const errors = {
  validation_error: {
    status: 400,
    sqlstate: 'S400A',
    meaning: 'The path, query or body does not match the schema. `details` lists the invalid fields.',
  },
  malformed_json: { status: 400, sqlstate: 'S400B', meaning: 'The body is not valid JSON.' },
  unauthenticated: { status: 401, sqlstate: 'S401A', meaning: 'The request has no access token.' },
  invalid_credentials: { status: 401, sqlstate: 'S401B', meaning: 'The email address or the password is wrong.' },
  invalid_token: { status: 401, sqlstate: 'S401C', meaning: 'The token is invalid, expired, already used or revoked.' },
  second_factor_required: {
    status: 401,
    sqlstate: 'S401D',
    meaning:
      'The password is right, but the login needs a second factor. `challenge` has the token for `POST /api/auth/login/verify`.',
  },
  invalid_code: {
    status: 401,
    sqlstate: 'S401E',
    meaning: 'The code of the second factor is wrong or was already used.',
  },
  subscription_inactive: {
    status: 402,
    sqlstate: 'S402A',
    meaning: 'The subscription of the school is cancelled, or the operation needs an active one.',
  },
  forbidden: {
    status: 403,
    sqlstate: 'S403A',
    meaning: 'The user does not have the permission or role that this needs.',
  },
  tenant_suspended: { status: 403, sqlstate: 'S403B', meaning: 'The school is suspended.' },
  feature_disabled: { status: 403, sqlstate: 'S403C', meaning: 'The feature is not enabled for this school.' },
  plan_limit_reached: { status: 403, sqlstate: 'S403D', meaning: 'The school has reached a limit of its plan.' },
  tenant_mismatch: {
    status: 403,
    sqlstate: 'S403E',
    meaning: 'The header or the host name names a different school than the token.',
  },
  not_found: { status: 404, sqlstate: 'S404A', meaning: 'The route or the record does not exist.' },
  tenant_not_found: { status: 404, sqlstate: 'S404B', meaning: 'The school does not exist.' },
  method_not_allowed: {
    status: 405,
    sqlstate: 'S405A',
    meaning: 'The path does not support this method. `Allow` lists the methods that it supports.',
  },
  not_acceptable: { status: 406, sqlstate: 'S406A', meaning: 'The response is JSON, but `Accept` excludes JSON.' },
  request_timeout: {
    status: 408,
    sqlstate: 'S408A',
    meaning: 'The body arrived too slowly. The connection is closed.',
  },
  conflict: {
    status: 409,
    sqlstate: 'S409A',
    meaning: 'The change conflicts with existing data, for example a duplicate.',
  },
  setup_incomplete: { status: 409, sqlstate: 'S409B', meaning: 'The setup of the school is not complete.' },
  invalid_state: {
    status: 409,
    sqlstate: 'S409C',
    meaning: 'The current state of the record does not allow this action.',
  },
  schedule_conflict: {
    status: 409,
    sqlstate: 'S409D',
    meaning: 'The time is already taken, for example by another lesson of the same teacher.',
  },
  in_use: { status: 409, sqlstate: 'S409E', meaning: 'Other records still refer to this record.' },
  precondition_failed: {
    status: 412,
    sqlstate: 'S412A',
    meaning: 'The record has changed since the version in `If-Match`, or has no version.',
  },
  payload_too_large: { status: 413, sqlstate: 'S413A', meaning: 'The body or the file is too large.' },
  unsupported_media_type: {
    status: 415,
    sqlstate: 'S415A',
    meaning: 'The route does not accept this content type.',
  },
  range_not_satisfiable: {
    status: 416,
    sqlstate: 'S416A',
    meaning: 'The requested range is outside the file. `Content-Range` gives the length of the file.',
  },
  idempotency_key_reused: {
    status: 422,
    sqlstate: 'S422A',
    meaning: 'The `Idempotency-Key` was already used for a different request.',
  },
  invalid_reference: { status: 422, sqlstate: 'S422B', meaning: 'An id in the body does not exist in this school.' },
  rate_limited: { status: 429, sqlstate: 'S429A', meaning: 'Too many requests. `Retry-After` says when to try again.' },
  internal_error: {
    status: 500,
    sqlstate: 'S500A',
    meaning: 'The service failed unexpectedly. The log has the details under the `request_id`.',
  },
  unavailable: {
    status: 503,
    sqlstate: 'S503A',
    meaning: 'The database is unavailable or the school is being migrated. `Retry-After` says when to try again.',
  },
} as const;

/** The name of an error, as `error` in the envelope. */
export type ErrorName = keyof typeof errors;

/** One invalid field. `path` is dotted (`items.0.amount`). */
export interface ErrorDetail {
  path: string;
  message: string;
  /** Only for schedule_conflict: what conflicts, and the existing slot if there is one. */
  kind?: string;
  slot_id?: number;
}

/** What a login still needs after the right password. */
export interface LoginChallenge {
  token: string;
  expires_at: string;
  is_enrollment: boolean;
  methods: string[];
  passkey: object | null;
}

/** An error response. Thrown anywhere; the router turns it into the JSON envelope. */
export class ApiError extends Error {
  readonly error: ErrorName;
  readonly details: ErrorDetail[] | undefined;
  /** Seconds to wait before a retry. */
  readonly retryAfter: number | undefined;
  /** Only for second_factor_required. */
  readonly challenge: LoginChallenge | undefined;

  constructor(
    error: ErrorName,
    message: string,
    extra: { details?: ErrorDetail[]; retryAfter?: number; challenge?: LoginChallenge; cause?: unknown } = {},
  ) {
    super(message, { cause: extra.cause });
    this.error = error;
    this.details = extra.details;
    this.retryAfter = extra.retryAfter;
    this.challenge = extra.challenge;
  }

  get status(): number {
    return errors[this.error].status;
  }
}
