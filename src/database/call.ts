import { setTimeout } from 'node:timers/promises';
import type pg from 'pg';
import { classify } from './errors.ts';
import type { Purpose, SchoolPool } from './school-pool.ts';

/**
 * The facts about a request that the dispatcher needs besides its parameters. Calls from within the service leave it
 * empty.
 */
export interface CallContext {
  tenant_id?: number;
  subdomain?: string;
  request_id?: string;
  ip?: string;
  user_agent?: string;
  if_match?: string;
  idempotency_key?: string;
  request_hash?: string;
  /**
   * The requested byte range of a file, ends included. Without `start`, the last `end` bytes. With `of`, the range
   * applies only to the file with this digest; another file is returned whole.
   */
  range?: { start: number | null; end: number | null; of?: string } | undefined;
  /** ETags of the files that the client already has. Their bytes are not read. `*` stands for every file. */
  known?: string[];
  /** Signs the addresses of pictures in the answer; see PictureAddresses. */
  picture_key?: string;
  /** Return the version of the record in the answer. */
  needs_version?: true;
  /** Only checks whether the caller may run the operation, and If-Match; does not run it. */
  check_only?: true;
  /** The session is an operator acting for a user: every request leaves an audit entry. */
  is_impersonated?: true;
  /** The error with which the facade refused an impersonated request: only writes the audit entry. */
  refused?: string;
  /** The school of a verified token. Only chooses the connection; the database reads it from the session. */
  school?: number | undefined;
}

/** The answer of an operation: its JSON as text, and the bytes of a file if it returns one. */
export interface CallAnswer {
  answer: string;
  content: Buffer | null;
  /** The version of the record in the answer, if the context asks for it; null for an operation without a record. */
  version: string | null;
  /** The id in the answer of a write, for the Location of a created record; null if it has none. */
  id: string | null;
}

/** Runs one operation through the dispatcher of a database. */
export type Call = (
  operation: string,
  sessionId: string | null,
  params: object,
  context: CallContext,
  content?: Buffer,
) => Promise<CallAnswer>;

/**
 * The answer to an impersonated request. `refusal` is returned instead of raised, because the audit entry must be
 * committed.
 */
type ImpersonatedAnswer = CallAnswer & { refusal: { code: string; message: string } | null };

/** A refusal, with the fields of the error that pg would have thrown. */
export class AuditedRefusal extends Error {
  readonly code: string;
  constructor({ message, ...rest }: { code: string; message: string }) {
    super(message);
    this.code = rest.code;
    Object.assign(this, rest);
  }
}

/**
 * Like pool.query, but keeps the connection when only the statement failed. pool.query closes the connection after
 * every error, so after each 404 a request had to wait for a new connection without cached plans, which is ten times
 * the work for the database.
 */
async function queryKeepingConnection<R extends pg.QueryResultRow>(
  pool: Connections,
  purpose: Purpose,
  query: pg.QueryConfig,
): Promise<pg.QueryResult<R>> {
  const client = await ('connectFor' in pool ? pool.connectFor(purpose) : pool.connect());
  let broken: Error | undefined;
  try {
    return await client.query<R>(query);
  } catch (error) {
    if (!classify(error).isConnectionUsable) broken = error instanceof Error ? error : new Error(String(error));
    throw error;
  } finally {
    client.release(broken);
  }
}

const maxAttempts = 4;

/** A pool that gives a school the same connections, or any pool. */
type Connections = Pick<SchoolPool, 'connectFor'> | pg.Pool;

/** The school of a request, also before the dispatcher has verified it: a log-in or a picture names it. */
function purposeOf(operation: string, params: object, { school, tenant_id, subdomain }: CallContext): Purpose {
  const named = 'tenant_id' in params && typeof params.tenant_id === 'number' ? params.tenant_id : undefined;
  return { operation, school: school ?? named ?? tenant_id ?? subdomain };
}

/**
 * Runs the one statement of a request, `core.call`. It is prepared once per connection and works behind a transaction
 * pooler.
 * @throws pg.DatabaseError, which `toApiError` translates; AuditedRefusal for one that already has its audit entry
 */
export function dispatcher(pool: Connections): Call {
  return async function call(operation, sessionId, params, context, content) {
    const sent: CallContext = { ...context, school: undefined };
    const purpose = purposeOf(operation, params, context);
    const query = {
      ...(context.is_impersonated
        ? {
            name: 'core.call_impersonated',
            text: 'select answer, content, version, id, refusal from core.call_impersonated($1, $2, $3, $4, $5)',
          }
        : { name: 'core.call', text: 'select answer, content, version, id from core.call($1, $2, $3, $4, $5)' }),
      values: [operation, sessionId, JSON.stringify(params), JSON.stringify(sent), content ?? null],
    };
    for (let attempt = 1; ; attempt++) {
      try {
        const { rows } = await queryKeepingConnection<CallAnswer & Partial<ImpersonatedAnswer>>(pool, purpose, query);
        if (rows[0]?.refusal) throw new AuditedRefusal(rows[0].refusal);
        return rows[0] ?? { answer: 'null', content: null, version: null, id: null };
      } catch (error) {
        if (attempt === maxAttempts || !classify(error).isRetryable) throw error;
        // A random delay, so that two requests that collided do not collide again.
        await setTimeout(attempt * (20 + Math.random() * 60));
      }
    }
  };
}
