import { setTimeout } from 'node:timers/promises';
import { classify, isSchoolPaused } from './errors.ts';
import type { ConnectionRequest, SchoolPool } from './pool/school-pool.ts';

/**
 * The facts about a request that the dispatcher needs besides its parameters. Calls from within the service leave it
 * empty.
 */
export interface CallContext {
  tenant_id?: number;
  subdomain?: string;
  request_id?: string;
  /** The W3C trace of the request, which is passed on to its jobs. */
  traceparent?: string;
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
  /** What the database checks of the parameters; see `core.check_values`. */
  checks?: object[];
  /** Return the version of the record in the answer. */
  needs_version?: true;
  /** Only checks whether the caller may run the operation, and If-Match; does not run it. */
  check_only?: true;
  /** The session is an operator acting for a user: every request leaves an audit entry. */
  is_impersonated?: true;
  /** The error with which the facade refused an impersonated request: only writes the audit entry. */
  refused?: string;
  /**
   * The API key that is sent instead of a session: the school that it names, unless it is a key of the platform, its
   * SHA-256 in hex, and whether the database has admitted it before.
   */
  api_key?: { tenant_id?: number; hash: string; is_admitted: boolean };
  /**
   * The school of a verified token, or of an API key that was admitted before. Chooses the connection and, with several
   * servers, the server; the database reads it from the session.
   */
  school?: number | undefined;
  /** The user of a verified token. A session of another user or school has ended: its id was given again. */
  user?: number;
  /** The user, API key or address of the request. The callers of a school share its connections. */
  caller?: string | undefined;
  /** Aborts when the client has disconnected: a call leaves the queue, and one that only reads ends in the database. */
  signal?: AbortSignal | undefined;
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

const maxAttempts = 4;

/** How a request to a paused school tries again, and how many such requests wait at most. They hold no connection. */
const pausedSchool = { pauseMs: 100, maxWaiting: 200 };

interface DispatcherOptions {
  /** The names of the operations that change nothing. */
  readOperations?: ReadonlySet<string>;
  /** How long a request waits for a school that is paused for a migration or the last step of a move. */
  pausedSchoolWaitMs?: number;
}

const nameOfSubdomain = (subdomain: unknown) =>
  typeof subdomain === 'string' ? `subdomain ${subdomain.toLowerCase()}` : undefined;

/**
 * The school as far as the parameters name it, as core.school_of finds it. Refresh tokens and tokens that work once begin
 * with it. A school can have a subdomain such as `service`, so subdomains are marked.
 */
function namedSchool(params: Record<string, unknown>): number | string | undefined {
  const {
    is_platform: isPlatform,
    tenant_id: id,
    subdomain,
    refresh_token: refreshToken,
    token = refreshToken,
  } = params;
  if (isPlatform === true) return 'platform';
  const [, ofToken] = typeof token === 'string' ? (/^(\d*)\./.exec(token) ?? []) : [];
  if (ofToken !== undefined) return ofToken ? Number(ofToken) : 'platform';
  return typeof id === 'number' ? id : nameOfSubdomain(subdomain);
}

/**
 * What the pool needs to choose the connection. The key of the plan is an estimate: a list with other filters or sorts has
 * another plan, and core.record_page also distinguishes some values of filters, the first page, and searches.
 */
function connectionRequest(
  operation: string,
  sessionId: string | null,
  params: Record<string, unknown>,
  { school, caller, api_key: apiKey, tenant_id, subdomain, signal }: CallContext,
  isRead: boolean,
): ConnectionRequest {
  const planKey = `${operation} ${Object.keys(params).join()} ${String(params['sort'])} ${String(params['order'])}`;
  const verified = school ?? (sessionId !== null || apiKey?.is_admitted ? 'platform' : undefined);
  const ofKey = apiKey === undefined ? undefined : (apiKey.tenant_id ?? 'platform');
  const counted =
    verified === undefined
      ? { school: ofKey ?? namedSchool(params) ?? tenant_id ?? nameOfSubdomain(subdomain), isVerified: false }
      : { school: verified, isVerified: true };
  // Operators read at home only.
  const server = isRead && verified === 'platform' ? 'home' : undefined;
  return { planKey, ...counted, caller, server, signal, isRead };
}

/**
 * Runs the one statement of a request, `core.call`. It is prepared once per connection and works behind a transaction
 * pooler.
 * @throws pg.DatabaseError, which `toApiError` translates; AuditedRefusal for one that already has its audit entry
 */
export function dispatcher(
  pool: Pick<SchoolPool, 'query'>,
  { readOperations = new Set(), pausedSchoolWaitMs = 0 }: DispatcherOptions = {},
): Call {
  let waiting = 0;
  return async function call(operation, sessionId, params, context, content) {
    const sent: CallContext = { ...context, caller: undefined, signal: undefined };
    const isRead = readOperations.has(operation) || context.check_only === true;
    const request = connectionRequest(operation, sessionId, { ...params }, context, isRead);
    const query = {
      ...(context.is_impersonated
        ? {
            name: 'core.call_impersonated',
            text: 'select answer, content, version, id, refusal from core.call_impersonated($1, $2, $3, $4, $5)',
          }
        : { name: 'core.call', text: 'select answer, content, version, id from core.call($1, $2, $3, $4, $5)' }),
      values: [operation, sessionId, JSON.stringify(params), JSON.stringify(sent), content ?? null],
    };
    const end = Date.now() + pausedSchoolWaitMs;
    for (let attempt = 1; ; attempt++) {
      try {
        const { rows } = await pool.query<CallAnswer & Partial<ImpersonatedAnswer>>(query, request);
        if (rows[0]?.refusal) throw new AuditedRefusal(rows[0].refusal);
        return rows[0] ?? { answer: 'null', content: null, version: null, id: null };
      } catch (error) {
        if (isSchoolPaused(error) && waiting < pausedSchool.maxWaiting && Date.now() < end) {
          waiting++;
          await setTimeout(pausedSchool.pauseMs, undefined, { signal: context.signal })
            .catch(() => context.signal?.throwIfAborted())
            .finally(() => waiting--);
          attempt = 0;
          continue;
        }
        if (attempt === maxAttempts || !classify(error).isRetryable) throw error;
        // A random delay, so that two requests that collided do not collide again.
        await setTimeout(attempt * (20 + Math.random() * 60));
      }
    }
  };
}
