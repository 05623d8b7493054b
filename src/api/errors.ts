/**
 * The error registry: every error that the service answers, once. Installation copies it into `core.error`, from where
 * `core.fail` raises it by SQLSTATE; the facade, OpenAPI and the README read it here.
 */
export const errors = {
  validation_error: { status: 400, sqlstate: 'S400A', meaning: 'The path, query or body does not fit the schema; `details` names each field.' },
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
  conflict: { status: 409, sqlstate: 'S409A', meaning: 'The change contradicts what is there, a duplicate for example.' },
  setup_incomplete: { status: 409, sqlstate: 'S409B', meaning: 'The setup of the school is not complete.' },
  invalid_state: { status: 409, sqlstate: 'S409C', meaning: 'The state of the record does not allow this step.' },
  schedule_conflict: { status: 409, sqlstate: 'S409D', meaning: 'Something else is planned at that time.' },
  in_use: { status: 409, sqlstate: 'S409E', meaning: 'The record is still referred to.' },
  precondition_failed: { status: 412, sqlstate: 'S412A', meaning: '`If-Match` names an older version of the record.' },
  payload_too_large: { status: 413, sqlstate: 'S413A', meaning: 'The body or the file is too large.' },
  unsupported_media_type: { status: 415, sqlstate: 'S415A', meaning: 'The body has a type that this route does not take.' },
  range_not_satisfiable: { status: 416, sqlstate: 'S416A', meaning: 'The file has no such part; `Content-Range` says how long it is.' },
  idempotency_key_reused: { status: 422, sqlstate: 'S422A', meaning: 'The `Idempotency-Key` was used for another request.' },
  invalid_reference: { status: 422, sqlstate: 'S422B', meaning: 'An id in the body does not exist in this school.' },
  rate_limited: { status: 429, sqlstate: 'S429A', meaning: 'Too many requests; `Retry-After` says when to try again.' },
  internal_error: { status: 500, sqlstate: 'S500A', meaning: 'A fault of the service.' },
  unavailable: { status: 503, sqlstate: 'S503A', meaning: 'The database is away or the school is being migrated; `Retry-After` says when to try again.' },
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

  constructor(error: ErrorName, message: string, extra: { details?: ErrorDetail[]; retryAfter?: number; cause?: unknown } = {}) {
    super(message, { cause: extra.cause });
    this.error = error;
    this.details = extra.details;
    this.retryAfter = extra.retryAfter;
  }

  get status(): number {
    return errors[this.error].status;
  }
}

const bySqlstate = new Map<string, ErrorName>(Object.entries(errors).map(([name, { sqlstate }]) => [sqlstate, name as ErrorName]));

/** What pg tells of a refused statement. */
interface DatabaseError extends Error {
  code: string;
  detail?: string;
  table?: string;
  column?: string;
  constraint?: string;
}

const isDatabaseError = (error: unknown): error is DatabaseError => Error.isError(error) && 'code' in error && typeof error.code === 'string';

const words = (name: string) => name.replaceAll('_', ' ');

/** `student_admission_number_key` of table `student` → `admission_number`; constraints are named `<table>_<column>_<kind>`. */
function constrainedColumn(error: DatabaseError): string | undefined {
  const match = error.constraint?.match(/^(.*)_(key|fkey|check|excl)$/);
  const name = match?.[1];
  return name && error.table && name.startsWith(`${error.table}_`) ? name.slice(error.table.length + 1) : undefined;
}

const fault = (error: ErrorName, cause: DatabaseError, column: string | undefined, message: string) =>
  new ApiError(error, message, { cause, ...(column ? { details: [{ path: column, message }] } : {}) });

/** SQLSTATEs of Postgres itself; those of the registry are in `errors`. */
const fromPostgres: Record<string, (error: DatabaseError, column: string | undefined) => ApiError> = {
  '23505': (e, column) => fault('conflict', e, column, column ? `This ${words(column)} is already in use.` : 'This exists already.'),
  '23P01': (e, column) => fault('conflict', e, column, `This overlaps another ${words(e.table ?? 'record')}.`),
  '23001': (e) => fault('in_use', e, undefined, `This is still used by a ${words(e.table ?? 'record')}.`),
  '23503': (e, column) =>
    e.detail?.includes('is still referenced')
      ? fault('in_use', e, undefined, `This is still used by a ${words(e.table ?? 'record')}.`)
      : fault('invalid_reference', e, column, column ? `There is no such ${words(column.replace(/_id$/, ''))}.` : 'An id does not exist.'),
  // Row security or a grant said no where no check did before: refused all the same.
  '42501': (e) => new ApiError('forbidden', 'You may not do this.', { cause: e }),
  '23502': (e) => fault('validation_error', e, e.column, `${e.column ?? 'A field'} must not be null.`),
  '23514': (e, column) =>
    fault('validation_error', e, column, e.message.startsWith('new row') ? `This value of ${column ?? 'a field'} is not allowed.` : e.message),
};

/** Too long, out of range, not a date, not text: what the schema should have caught; never the client's loss. */
const badValue = '22';
/** The server is away, starting, stopping, out of connections, or took too long; or a function was replaced under the request. */
const away = /^(08|53|57|55P03|25006|40|ECONN|ENOENT|EPIPE|ETIMEDOUT|EAI_AGAIN)/;
const awayMessage =
  /timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error|not queryable|cached plan must not change|cache lookup failed/;

/** What express and its body parsers throw. */
function fromExpress(error: unknown): unknown {
  if (!(error instanceof Error) || !('status' in error) || error instanceof ApiError) return error;
  const type = 'type' in error ? error.type : undefined;
  if (type === 'entity.parse.failed') return new ApiError('malformed_json', 'The body is not JSON.');
  if (type === 'entity.too.large') return new ApiError('payload_too_large', 'The body may have 1 MB at most.');
  if (error.status === 415) return new ApiError('unsupported_media_type', 'The body has a charset or encoding that is not supported.');
  if (typeof error.status === 'number' && error.status < 500) return new ApiError('validation_error', 'The request can not be read.', { cause: error });
  return error;
}

/** Turns whatever was thrown into the error that is answered. */
export function toApiError(given: unknown): ApiError {
  const thrown = fromExpress(given);
  if (thrown instanceof ApiError) return thrown;
  if (isDatabaseError(thrown)) {
    const name = bySqlstate.get(thrown.code);
    if (name) {
      const details = thrown.detail ? (JSON.parse(thrown.detail) as ErrorDetail[]) : undefined;
      return new ApiError(name, thrown.message, { cause: thrown, ...(details ? { details } : {}), ...(name === 'unavailable' ? { retryAfter: 1 } : {}) });
    }
    const known = fromPostgres[thrown.code];
    if (known) return known(thrown, constrainedColumn(thrown));
    if (thrown.code.startsWith(badValue)) return new ApiError('validation_error', 'A value is out of range or not of its type.', { cause: thrown });
  }
  if ((isDatabaseError(thrown) && away.test(thrown.code)) || (Error.isError(thrown) && awayMessage.test(thrown.message))) {
    return new ApiError('unavailable', 'The database is not available. Try again in a moment.', { retryAfter: 1, cause: thrown });
  }
  return new ApiError('internal_error', 'Something went wrong on our side.', { cause: thrown });
}
