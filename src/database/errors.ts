import { ApiError, type ErrorDetail, type ErrorName, errors } from '../domain/errors.ts';

const bySqlstate = new Map<string, ErrorName>(
  Object.entries(errors).map(([name, { sqlstate }]) => [sqlstate, name as ErrorName]),
);

/** The fields that pg sets on the error of a statement. */
interface DatabaseError extends Error {
  code: string;
  detail?: string;
  /**
   * For `unavailable`: the seconds until a retry, if core.fail states them; `repeat` for a school that is paused for a
   * moment.
   */
  hint?: string;
  table?: string;
  column?: string;
  constraint?: string;
}

const isDatabaseError = (error: Error): error is DatabaseError => 'code' in error && typeof error.code === 'string';

const words = (name: string) => name.replaceAll('_', ' ');

const withArticle = (noun: string) => `${/^[aeio]/.test(noun) ? 'an' : 'a'} ${noun}`;

/**
 * `student_admission_number_key` of table `student` → `admission_number`; constraints are named
 * `<table>_<column>_<kind>`.
 */
function constrainedColumn(error: DatabaseError): string | undefined {
  const match = error.constraint?.match(/^(.*)_(key|fkey|check|excl)$/);
  const name = match?.[1];
  return name && error.table && name.startsWith(`${error.table}_`) ? name.slice(error.table.length + 1) : undefined;
}

const fault = (error: ErrorName, cause: DatabaseError, column: string | undefined, message: string) =>
  new ApiError(error, message, { cause, ...(column ? { details: [{ path: column, message }] } : {}) });

/** SQLSTATEs of Postgres itself; those of the registry are in `errors`. */
const fromPostgres: Record<string, (error: DatabaseError, column: string | undefined) => ApiError> = {
  '23505': (e, column) =>
    fault('conflict', e, column, column ? `This ${words(column)} is already in use.` : 'This already exists.'),
  '23P01': (e, column) => fault('conflict', e, column, `This overlaps another ${words(e.table ?? 'record')}.`),
  '23001': (e) => fault('in_use', e, undefined, `This is still used by ${withArticle(words(e.table ?? 'record'))}.`),
  '23503': (e, column) =>
    e.detail?.includes('is still referenced')
      ? fault('in_use', e, undefined, `This is still used by ${withArticle(words(e.table ?? 'record'))}.`)
      : fault(
          'invalid_reference',
          e,
          column,
          column ? `There is no such ${words(column.replace(/_id$/, ''))}.` : 'An id does not exist.',
        ),
  // Refused by row security or a missing grant, where no earlier check refused it.
  '42501': (e) => new ApiError('forbidden', 'You may not do this.', { cause: e }),
  '23502': (e) => fault('validation_error', e, e.column, `${e.column ?? 'A field'} must not be null.`),
  '23514': (e, column) =>
    fault(
      'validation_error',
      e,
      column,
      e.message.startsWith('new row') ? `This value of ${column ?? 'a field'} is not allowed.` : e.message,
    ),
};

/** A deadlock (40P01) or a serialization failure (40001): the statement was rolled back and may simply run again. */
const lostRace = /^(40P01|40001)$/;

/** The function, table, type or schema that the statement names does not exist. */
const missingObject = /^(42883|42P01|42704|3F000)$/;

/**
 * A prepared statement is missing, or exists unexpectedly. Another program has changed those of the connection, so a
 * retry needs a new one.
 */
const wrongStatements = /^(26000|42P05)$/;

/** The errors that Postgres reports when objects disappear, or are replaced, while a statement uses them. */
const replacedObject =
  /cache lookup failed|could not open relation with OID|type with OID \d+ does not exist|cached plan must not change|tuple concurrently/;

/** The server is down, starting, stopping, out of connections, too slow or refuses the login; or a statement lost a race. */
const unavailable = /^(08|28|53|57|55P03|25006|40|ECONN|EHOST|ENETUNREACH|ENOENT|ENOTFOUND|EPIPE|ETIMEDOUT|EAI_AGAIN)/;

/** The same, where pg reports no code, or PL/Proxy an internal error because it cannot reach a server. */
const unavailableMessage =
  /^PL\/Proxy function|timeout exceeded when trying to connect|^timeout expired|^Query read timeout|Connection terminated|Client has encountered a connection error|not queryable/;

const codeOf = (thrown: Error): string => ('code' in thrown ? String(thrown.code) : '');

/** internal_error and feature_not_supported: the codes of most errors of `replacedObject`. */
const unspecificCode = /^(XX000|0A000)$/;

/** Whether the statement used a replaced object. Errors with other codes may quote such a message from a client. */
const usesReplacedObject = (thrown: Error) =>
  (unspecificCode.test(codeOf(thrown)) || missingObject.test(codeOf(thrown))) && replacedObject.test(thrown.message);

/** An installation replaces the schemas core and api in one transaction: a retry finds the new functions. */
const isReplacement = (thrown: Error) =>
  usesReplacedObject(thrown) || (missingObject.test(codeOf(thrown)) && /\b(core|api)\b/.test(thrown.message));

/** The consequences of a failed statement for the request and for its connection. */
export interface Failure {
  /** The same statement may run again: the failed attempt left nothing behind. */
  isRetryable: boolean;
  /** Only the statement failed, so the connection can be reused. */
  isConnectionUsable: boolean;
  /** The answer; undefined when the database is not the cause. */
  apiError: ApiError | undefined;
}

/** Whether the school is paused for a migration or a move. The request was refused before anything was done. */
export const isSchoolPaused = (thrown: unknown): boolean =>
  Error.isError(thrown) &&
  isDatabaseError(thrown) &&
  thrown.hint === 'repeat' &&
  bySqlstate.get(thrown.code) === 'unavailable';

/** Classifies the error of a statement or a connection. */
export function classify(thrown: unknown): Failure {
  if (!Error.isError(thrown)) return { isRetryable: false, isConnectionUsable: false, apiError: undefined };
  const isRetryable = lostRace.test(codeOf(thrown)) || wrongStatements.test(codeOf(thrown)) || isReplacement(thrown);
  return {
    isRetryable,
    // FATAL and PANIC end the connection. After a replacement, its prepared statement is stale.
    isConnectionUsable: !isRetryable && 'severity' in thrown && thrown.severity === 'ERROR',
    apiError: fromDatabase(thrown),
  };
}

function fromDatabase(thrown: Error): ApiError | undefined {
  if (isDatabaseError(thrown)) {
    const name = bySqlstate.get(thrown.code);
    if (name) {
      const details = thrown.detail ? (JSON.parse(thrown.detail) as ErrorDetail[]) : undefined;
      return new ApiError(name, thrown.message, {
        cause: thrown,
        ...(details ? { details } : {}),
        ...(name === 'unavailable'
          ? { retryAfter: thrown.hint && thrown.hint !== 'repeat' ? Number(thrown.hint) : 1 }
          : {}),
      });
    }
    const known = fromPostgres[thrown.code];
    if (known) return known(thrown, constrainedColumn(thrown));
    // Class 22: a value is too long, out of range or not of its type. The schema should have refused it.
    if (thrown.code.startsWith('22'))
      return new ApiError('validation_error', 'A value is out of range or not of its type.', { cause: thrown });
  }
  if (unavailable.test(codeOf(thrown)) || unavailableMessage.test(thrown.message) || usesReplacedObject(thrown)) {
    return new ApiError('unavailable', 'The database is not available. Try again in a moment.', {
      retryAfter: 1,
      cause: thrown,
    });
  }
  return undefined;
}
