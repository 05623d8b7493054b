import { ApiError, type ErrorDetail, type ErrorName, errors } from '../domain/errors.ts';

const bySqlstate = new Map<string, ErrorName>(
  Object.entries(errors).map(([name, { sqlstate }]) => [sqlstate, name as ErrorName]),
);

/** What pg tells of a refused statement. */
interface DatabaseError extends Error {
  code: string;
  detail?: string;
  table?: string;
  column?: string;
  constraint?: string;
}

const isDatabaseError = (error: unknown): error is DatabaseError =>
  Error.isError(error) && 'code' in error && typeof error.code === 'string';

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
  '23505': (e, column) =>
    fault('conflict', e, column, column ? `This ${words(column)} is already in use.` : 'This exists already.'),
  '23P01': (e, column) => fault('conflict', e, column, `This overlaps another ${words(e.table ?? 'record')}.`),
  '23001': (e) => fault('in_use', e, undefined, `This is still used by a ${words(e.table ?? 'record')}.`),
  '23503': (e, column) =>
    e.detail?.includes('is still referenced')
      ? fault('in_use', e, undefined, `This is still used by a ${words(e.table ?? 'record')}.`)
      : fault(
          'invalid_reference',
          e,
          column,
          column ? `There is no such ${words(column.replace(/_id$/, ''))}.` : 'An id does not exist.',
        ),
  // Row security or a grant said no where no check did before: refused all the same.
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

/** Too long, out of range, not a date, not text: what the schema should have caught; never the client's loss. */
const badValue = '22';
/** The server is away, starting, stopping, out of connections, or took too long; or a function was replaced under the request. */
const away = /^(08|53|57|55P03|25006|40|ECONN|ENOENT|EPIPE|ETIMEDOUT|EAI_AGAIN)/;
const awayMessage =
  /timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error|not queryable|cached plan must not change|cache lookup failed/;

/** The error to answer for a failed statement or connection; undefined when the cause is not the database. */
export function fromDatabase(thrown: unknown): ApiError | undefined {
  if (isDatabaseError(thrown)) {
    const name = bySqlstate.get(thrown.code);
    if (name) {
      const details = thrown.detail ? (JSON.parse(thrown.detail) as ErrorDetail[]) : undefined;
      return new ApiError(name, thrown.message, {
        cause: thrown,
        ...(details ? { details } : {}),
        ...(name === 'unavailable' ? { retryAfter: 1 } : {}),
      });
    }
    const known = fromPostgres[thrown.code];
    if (known) return known(thrown, constrainedColumn(thrown));
    if (thrown.code.startsWith(badValue))
      return new ApiError('validation_error', 'A value is out of range or not of its type.', { cause: thrown });
  }
  if (
    (isDatabaseError(thrown) && away.test(thrown.code)) ||
    (Error.isError(thrown) && awayMessage.test(thrown.message))
  ) {
    return new ApiError('unavailable', 'The database is not available. Try again in a moment.', {
      retryAfter: 1,
      cause: thrown,
    });
  }
  return undefined;
}
