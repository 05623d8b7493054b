import type pg from 'pg';

/** What the dispatcher must know of a request besides its parameters; all of it optional for a call from within. */
export interface CallContext {
  tenant_id?: number;
  subdomain?: string;
  request_id?: string;
  ip?: string;
  user_agent?: string;
  if_match?: string;
  idempotency_key?: string;
  request_hash?: string;
  /** The part of a file that is asked for, by its first and last byte; without a first the last so many. `of`: only of the file with this digest, else all of it. */
  range?: { start: number | null; end: number | null; of?: string } | undefined;
  /** The ETags of files whose bytes nobody needs; `*` is any. */
  known?: string[];
  /** Only says whether the operation would be admitted; runs nothing. */
  admit_only?: true;
  /** The session is an operator's who acts for a user: each request of it leaves an entry of the audit trail. */
  is_impersonated?: true;
  /** The error by which the facade refused such a request: only leaves the entry. */
  refused?: string;
}

/** What an operation answers: its JSON as text, and the bytes of a file, for an operation that gives one. */
export interface CallAnswer {
  answer: string;
  content: Buffer | null;
  /** The version of the record that the operation is about; null without one. */
  version: string | null;
}

/** The dispatcher, bound to a database: runs one operation. */
export type Call = (
  operation: string,
  sessionId: string | null,
  params: object,
  context: CallContext,
  content?: Buffer,
) => Promise<CallAnswer>;

/** What an operation of an operator who acts for a user answers; `refusal` in the place of an error, since the entry of the request has to stay. */
type ImpersonatedAnswer = CallAnswer & { refusal: { code: string; message: string } | null };

/** A refusal as pg would have thrown it. */
export class AuditedRefusal extends Error {
  readonly code: string;
  constructor({ message, ...rest }: { code: string; message: string }) {
    super(message);
    this.code = rest.code;
    Object.assign(this, rest);
  }
}

/** Whether the same statement may simply run again: a deadlock or a lost race leaves nothing behind. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = 'code' in error ? String(error.code) : '';
  return code === '40P01' || code === '40001' || isReplacement(error, code);
}

/** The functions were replaced under the request: the new ones are there as soon as it runs again. */
const isReplacement = (error: Error, code: string) =>
  /^(42883|42P01|42704|3F000)$/.test(code)
    ? /\b(core|api)\b/.test(error.message)
    : /cache lookup failed|could not open relation with OID|type with OID \d+ does not exist|cached plan must not change|tuple concurrently/.test(
        error.message,
      );

const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));

/**
 * Runs a statement as pool.query does, but keeps the connection after a refusal, which leaves it as good as it was.
 * pool.query closes it after every error: the request after a 404 waited for a new connection, without a single plan,
 * and took the database ten times its work.
 */
async function keeping<R extends pg.QueryResultRow>(pool: pg.Pool, query: pg.QueryConfig): Promise<pg.QueryResult<R>> {
  const client = await pool.connect();
  let fault: Error | undefined;
  try {
    return await client.query<R>(query);
  } catch (error) {
    const isRefusal = error instanceof Error && 'severity' in error && error.severity === 'ERROR' && !isPassing(error);
    if (!isRefusal) fault = error instanceof Error ? error : new Error(String(error));
    throw error;
  } finally {
    client.release(fault);
  }
}

/**
 * Makes the one statement of the service: `core.call`. Prepared once per connection; works behind a transaction pooler.
 * @throws pg.DatabaseError, for `toApiError`; AuditedRefusal for one like it that has its entry in the audit trail
 */
export function dispatcher(pool: pg.Pool): Call {
  return async function call(operation, sessionId, params, context, content) {
    const query = {
      ...(context.is_impersonated
        ? {
            name: 'core.call_impersonated',
            text: 'select answer, content, version, refusal from core.call_impersonated($1, $2, $3, $4, $5)',
          }
        : { name: 'core.call', text: 'select answer, content, version from core.call($1, $2, $3, $4, $5)' }),
      values: [operation, sessionId, JSON.stringify(params), JSON.stringify(context), content ?? null],
    };
    for (let attempt = 1; ; attempt++) {
      try {
        const { rows } = await keeping<CallAnswer & Partial<ImpersonatedAnswer>>(pool, query);
        if (rows[0]?.refusal) throw new AuditedRefusal(rows[0].refusal);
        return rows[0] ?? { answer: 'null', content: null, version: null };
      } catch (error) {
        if (attempt === 4 || !isPassing(error)) throw error;
        await pause(attempt * (20 + Math.random() * 60));
      }
    }
  };
}
