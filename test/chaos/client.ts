import { setTimeout as pause } from 'node:timers/promises';

/** The response. `status` is 0 when the outcome is unknown: no response arrived, and the request cannot be repeated. */
export interface Answer<T> {
  status: number;
  data: T;
  message: string;
}

/** A request body: JSON, or a CSV file. */
export type Body = object | { csv: string };

/** Counts and recent lines of a run. */
export interface Log {
  requests: number;
  /** Number of responses by method, path and status. */
  answers: Record<string, number>;
  lines: string[];
}

/**
 * Sends a request until it gets a response, to another API each time. Requests that change something are repeated only
 * with an idempotency key.
 * @throws for a status that is not in `statuses`
 */
export type SendRequest = <T>(
  statuses: readonly number[],
  method: string,
  path: string,
  body?: Body,
  key?: string,
) => Promise<Answer<T>>;

/** Longer than any fault, and than a start of the service on a busy machine. */
const giveUpAfterMs = 120_000;
/** Longer than the service waits for a lock or a connection. */
const responseTimeoutMs = 10_000;
const keptLines = 400;

/**
 * A client of the service behind faults.
 * @param urls  the API processes that should answer now
 * @param token  the access token of the present login
 */
export function chaosClient(name: string, urls: () => string[], token: () => string, log: Log): SendRequest {
  let serial = 0;
  const note = (line: string) => {
    log.lines.push(`${name}: ${line}`);
    if (log.lines.length > 2 * keptLines) log.lines.splice(0, keptLines);
  };

  async function send(method: string, path: string, body: Body | undefined, key: string | undefined, timeout: number) {
    const available = urls();
    const url = available[serial++ % available.length];
    if (url === undefined) return undefined;
    log.requests++;
    const headers: Record<string, string> = {};
    if (token()) headers['Authorization'] = `Bearer ${token()}`;
    if (key) headers['Idempotency-Key'] = key;
    let content: string | FormData | null = null;
    if (body && 'csv' in body) {
      content = new FormData();
      content.append('file', new Blob([body.csv], { type: 'text/csv' }), 'students.csv');
    } else if (body) {
      headers['Content-Type'] = 'application/json';
      content = JSON.stringify(body);
    }
    const init = { method, headers, body: content, signal: AbortSignal.timeout(timeout) };
    try {
      const response = await fetch(`${url}/api${path}`, init);
      const answer = (await response.json()) as { data: unknown; message?: string };
      return { status: response.status, data: answer.data, message: answer.message ?? '' };
    } catch {
      // The connection was refused or broken, or the response did not arrive in time.
      return undefined;
    }
  }

  const request = async (
    statuses: readonly number[],
    method: string,
    path: string,
    body?: Body,
    key?: string,
  ): Promise<Answer<unknown>> => {
    const isRepeatable = method === 'GET' || key !== undefined;
    const start = performance.now();
    for (let attempt = 1; ; attempt++) {
      // Sometimes a client disconnects at once, and retries.
      const isHasty = key !== undefined && attempt === 1 && serial % 16 === 0;
      const answer = await send(method, path, body, key, isHasty ? 1 + (serial % 20) : responseTimeoutMs);
      const details = `${body ? JSON.stringify(body).slice(0, 200) : ''} ${key ?? ''}`;
      note(`${method} ${path} ${details} -> ${answer ? `${String(answer.status)} ${answer.message}` : 'no response'}`);
      if (answer && answer.status !== 503) {
        const counted = `${method} ${path.replace(/\d+/g, ':id').replace(/\?.*/, '')} ${String(answer.status)}`;
        log.answers[counted] = (log.answers[counted] ?? 0) + 1;
        if (statuses.includes(answer.status)) return answer;
        throw new Error(
          `${method} ${path} was answered with ${String(answer.status)}: ${answer.message}\n${JSON.stringify(body)}`,
        );
      }
      if (performance.now() - start > giveUpAfterMs) throw new Error(`${method} ${path} got no response for too long.`);
      if (!isRepeatable) return { status: 0, data: undefined, message: '' };
      await pause(30);
    }
  };
  // The caller knows the type of the data.
  return request as SendRequest;
}
