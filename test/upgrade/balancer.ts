import { Agent, type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

/** Which release a process is of. */
export type Side = 'old' | 'new';

/** An API process. */
export interface Target {
  side: Side;
  url: string;
  agent: Agent;
  /** Whether it gets requests. A process that is stopping still gets them until it refuses a connection. */
  isOpen: boolean;
  isStopping: boolean;
}

/** A response. */
export interface Answer<T = unknown> {
  status: number;
  data: T;
  /** The parsed body. */
  body: { data?: unknown; error?: string; message?: string; errors?: { extensions: { code: string } }[] };
  headers: IncomingHttpHeaders;
}

export interface Message {
  method?: string;
  path: string;
  token?: string;
  body?: object;
  /** The status of success, 200 by default. */
  status?: number;
  /** Another status that is no failure. */
  accepts?: number;
  headers?: Record<string, string>;
  /** The school of the request. It may answer 503 while it is being migrated. */
  school?: number;
}

/** The message of the 503 of a school that is being migrated. */
const migrating = 'This school is being migrated. Try again in a moment.';

/** The requests of all clients to all processes, as a proxy would send them, and what they were answered. */
export interface Balancer {
  targets: Target[];
  add(side: Side, url: string): Target;
  /** Sends a request to the next process. @throws unless the answer has the expected status */
  send<T>(message: Message): Promise<Answer<T>>;
  /** The names of the phases, and the schools that are being migrated. */
  phase: string;
  /** The schools that a running migration has passed. The others may answer 503. Undefined while none runs. */
  migrated: Set<number> | undefined;
  /** The number of answers by phase, side and status. */
  counts: Map<string, number>;
  count(side: Side, status: string): void;
  failures: string[];
  /** The longest that a request took in each phase, in milliseconds. */
  slowest: Map<string, { ms: number; request: string }>;
  close(): void;
}

/** Longer than the first GraphQL query of a process takes on a busy machine, which starts the analytics process. */
const responseTimeoutMs = 120_000;

/** Sends one request, and reads the response. */
function exchange(target: Target, { method = 'GET', path, token, body, headers = {} }: Message): Promise<Answer> {
  return new Promise((done, fail) => {
    const text = body && JSON.stringify(body);
    const sent: ClientRequest = request(`${target.url}${path}`, {
      method,
      agent: target.agent,
      headers: {
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
        ...(text === undefined
          ? {}
          : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }),
        ...headers,
      },
    });
    sent.setTimeout(responseTimeoutMs, () => sent.destroy(new Error('no response in time')));
    sent.on('error', (error) => fail(Object.assign(error, { isReused: sent.reusedSocket })));
    sent.on('response', (response: IncomingMessage) => {
      let answer = '';
      response.setEncoding('utf8').on('data', (part: string) => (answer += part));
      response.on('error', fail);
      response.on('end', () => {
        const parsed = (answer === '' ? {} : JSON.parse(answer)) as Answer['body'];
        done({ status: response.statusCode ?? 0, data: parsed.data, body: parsed, headers: response.headers });
      });
    });
    sent.end(text);
  });
}

/** Describes an error of a connection, also one that has several causes. */
const describe = (error: unknown) =>
  error instanceof Error ? `${'code' in error ? String(error.code) : error.name} ${error.message}` : String(error);

export function balancer(): Balancer {
  let serial = 0;
  const count = (side: Side, status: string) => {
    const key = `${self.phase}\t${side}\t${status}`;
    self.counts.set(key, (self.counts.get(key) ?? 0) + 1);
  };
  const fail = (message: Message, side: string, reason: string): never => {
    const line = `${self.phase}: ${message.method ?? 'GET'} ${message.path} at the ${side} release: ${reason}`;
    self.failures.push(line);
    throw new Error(line);
  };

  const isMigrating = ({ school }: Message) =>
    school !== undefined && self.migrated !== undefined && !self.migrated.has(school);

  async function send<T>(message: Message): Promise<Answer<T>> {
    for (;;) {
      const open = self.targets.filter(({ isOpen }) => isOpen);
      const target = open[serial++ % open.length];
      if (!target) return fail(message, 'any', 'no process is open');
      // A school counts as being migrated if it was at the start or at the end of the request.
      const wasMigrating = isMigrating(message);
      const start = performance.now();
      let answer: Answer;
      try {
        answer = await exchange(target, message);
      } catch (error) {
        // The process does not listen any more, so it has not accepted the request. A proxy takes the next one.
        if ((error as NodeJS.ErrnoException).code === 'ECONNREFUSED' && target.isStopping) {
          target.isOpen = false;
          count(target.side, 'refused connection');
          continue;
        }
        // A busy process of 1.0.0-rc.1 closes idle connections before it reads the requests that have arrived on them.
        const { code, isReused } = error as NodeJS.ErrnoException & { isReused?: boolean };
        if (target.side === 'old' && target.isStopping && isReused && code === 'ECONNRESET') {
          count(target.side, 'reset');
          continue;
        }
        count(target.side, 'no response');
        return fail(message, target.side, `${describe(error)}${target.isStopping ? ' (stopping)' : ''}`);
      }
      const ms = performance.now() - start;
      if (ms > (self.slowest.get(self.phase)?.ms ?? 0))
        self.slowest.set(self.phase, { ms, request: `${message.method ?? 'GET'} ${message.path.replace(/\?.*/, '')}` });
      const { status, body, headers } = answer;
      const isExpected = body.message === migrating && headers['retry-after'] === '1';
      if (status === 503 && isExpected && (wasMigrating || isMigrating(message))) {
        count(target.side, '503 (its school is being migrated)');
        await pause(1000);
        continue;
      }
      count(target.side, String(status));
      if (status !== (message.status ?? 200) && status !== message.accepts)
        return fail(message, target.side, `${String(status)} ${JSON.stringify(body)}`);
      return answer as Answer<T>;
    }
  }

  const self: Balancer = {
    targets: [],
    add(side, url) {
      const target = { side, url, agent: new Agent({ keepAlive: true }), isOpen: true, isStopping: false };
      self.targets.push(target);
      return target;
    },
    send,
    phase: '',
    migrated: undefined,
    counts: new Map(),
    count,
    failures: [],
    slowest: new Map(),
    close() {
      for (const { agent } of self.targets) agent.destroy();
    },
  };
  return self;
}
