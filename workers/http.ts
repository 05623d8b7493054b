import { lookup } from 'node:dns';
import { Agent as HttpAgent, type IncomingMessage, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';

export interface Post {
  url: string;
  headers: Record<string, string | number>;
  body: string | Buffer;
  /** The URL comes from a user, for example the browser of a device. It must not lead into a private network. */
  isForeign: boolean;
}

export interface Reply {
  status: number;
  /** Seconds until the server wants another attempt. */
  retryAfter: number | undefined;
  /** At most the first 64 kB. */
  body: string;
}

/** The server did not answer. The message is an error code, without an address. */
export class NoReply extends Error {}

/** No push service answers with more. */
const maxBodyBytes = 64 * 1024;

/** 2000::/3. ipaddr.js also calls addresses unicast that are not assigned to anyone. */
const globalUnicast = ipaddr.IPv6.parseCIDR('2000::/3');

/** Whether an address is on the internet, not in a private or reserved network. */
export function isPublic(address: string): boolean {
  // ipaddr.js also parses 10 and 0x7f.1.
  if (isIP(address) === 0) return false;
  const parsed = ipaddr.parse(address);
  if (parsed.range() !== 'unicast') return false;
  return parsed instanceof ipaddr.IPv4 || parsed.match(globalUnicast);
}

/** Checks the address that the connection uses, so that a name cannot resolve to another address after the check. */
const lookupPublic: LookupFunction = (name, options, callback) => {
  lookup(name, { ...options, all: true }, (error, addresses) => {
    const allowed = error ? [] : addresses.filter(({ address }) => isPublic(address));
    const [first] = allowed;
    if (!first) callback(error ?? Object.assign(new Error('no public address'), { code: 'EPRIVATE' }), '', 4);
    else if (options.all) callback(null, allowed);
    else callback(null, first.address, first.family);
  });
};

/** The seconds of a Retry-After header, which holds a number of seconds or a date. */
function parseRetryAfter(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header);
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, Math.ceil((date - Date.now()) / 1000));
}

/** Reads a response. A body that is too long, late or cut off does not matter: the status is what counts. */
function readReply(res: IncomingMessage): Promise<Reply> {
  const { promise, resolve } = Promise.withResolvers<Reply>();
  const chunks: Buffer[] = [];
  let size = 0;
  res.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    if (size > maxBodyBytes) res.destroy();
  });
  res.on('error', () => undefined);
  res.on('close', () =>
    resolve({
      status: res.statusCode ?? 0,
      retryAfter: parseRetryAfter(res.headers['retry-after']),
      body: Buffer.concat(chunks).toString(),
    }),
  );
  return promise;
}

/** An HTTP client that keeps its connections open. */
export interface Http {
  /** Answers redirects instead of following them. @throws NoReply */
  post(post: Post): Promise<Reply>;
  close(): void;
}

/** @param timeoutMs  the time limit of a request with its response */
export function http(timeoutMs: number): Http {
  const keepAlive = { keepAlive: true, maxFreeSockets: 50 };
  const agents = {
    http: new HttpAgent(keepAlive),
    https: new HttpsAgent(keepAlive),
    foreign: new HttpsAgent({ ...keepAlive, lookup: lookupPublic }),
  };

  async function post({ url, headers, body, isForeign }: Post): Promise<Reply> {
    const { protocol, hostname } = new URL(url);
    const isPlain = protocol === 'http:';
    // An IP address in a URL is not looked up, so lookupPublic would not see it.
    if (isForeign && (isPlain || isIP(hostname.replace(/^\[|\]$/g, '')))) throw new NoReply('EPRIVATE');
    const signal = AbortSignal.timeout(timeoutMs);
    const agent = isForeign ? agents.foreign : isPlain ? agents.http : agents.https;
    const { promise, resolve, reject } = Promise.withResolvers<Reply>();
    const req = (isPlain ? httpRequest : httpsRequest)(url, {
      method: 'POST',
      headers: { ...headers, 'Content-Length': Buffer.byteLength(body) },
      agent,
      signal,
    });
    req.on('error', (error: NodeJS.ErrnoException) =>
      reject(new NoReply(signal.aborted ? 'ETIMEDOUT' : (error.code ?? 'ECONNRESET'))),
    );
    req.on('response', (res) => resolve(readReply(res)));
    req.end(body);
    return promise;
  }

  return {
    post,
    close() {
      for (const agent of Object.values(agents)) agent.destroy();
    },
  };
}
