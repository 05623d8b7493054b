import { lookup } from 'node:dns';
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { BlockList, isIP, type LookupFunction } from 'node:net';

/** A POST, with all that is to be said. */
export interface Post {
  url: string;
  headers: Record<string, string | number>;
  body: string | Buffer;
  /** Somebody else named the address: whatever its name stands for must not be in a network of ours. */
  isForeign: boolean;
}

/** What came back. */
export interface Reply {
  status: number;
  /** Seconds until it makes sense to try again, where the answer says so. */
  retryAfter: number | undefined;
  /** The beginning of the body. */
  body: string;
}

/** No answer came. The message is a code, without an address. */
export class NoReply extends Error {}

const timeoutMs = 10_000;
/** Nobody answers a push with more. */
const maxBytes = 64 * 1024;

/** What is no public address: RFC 6890 and what else is reserved. */
const reserved = new BlockList();
/** Global unicast is 2000::/3. */
const global = new BlockList();
global.addSubnet('2000::', 3, 'ipv6');

const block = (family: 'ipv4' | 'ipv6', nets: string) => {
  for (const net of nets.split(' ')) {
    const [address = '', prefix] = net.split('/');
    reserved.addSubnet(address, Number(prefix), family);
  }
};
block(
  'ipv4',
  '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16',
);
block('ipv4', '198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4');
// Of global unicast, what leads elsewhere or nowhere.
block('ipv6', '2001::/23 2001:db8::/32 2002::/16 3fff::/20');

/** Whether an address is of the internet, and not of a network of somebody's own. */
export const isPublic = (address: string): boolean =>
  isIP(address) === 6
    ? global.check(address, 'ipv6') && !reserved.check(address, 'ipv6')
    : isIP(address) === 4 && !reserved.check(address, 'ipv4');

/** Looks a name up for the very connection that is made, so that it can't stand for something else a moment later. */
const lookupPublic: LookupFunction = (name, options, callback) => {
  lookup(name, { ...options, all: true }, (error, found) => {
    const fit = error ? [] : found.filter(({ address }) => isPublic(address));
    const [first] = fit;
    if (!first) callback(error ?? Object.assign(new Error('no public address'), { code: 'EPRIVATE' }), '', 4);
    else if (options.all) callback(null, fit);
    else callback(null, first.address, first.family);
  });
};

/** Seconds of a Retry-After: a number, or a moment. */
function secondsUntil(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header);
  const moment = Date.parse(header);
  return Number.isNaN(moment) ? undefined : Math.max(0, Math.ceil((moment - Date.now()) / 1000));
}

/** Sends POSTs, and keeps connections between them. */
export interface Http {
  /** Follows no redirect: it is an answer like any other. @throws NoReply */
  post(post: Post): Promise<Reply>;
  close(): void;
}

export function http(): Http {
  const keep = { keepAlive: true, maxFreeSockets: 50 };
  const agents = {
    http: new HttpAgent(keep),
    https: new HttpsAgent(keep),
    foreign: new HttpsAgent({ ...keep, lookup: lookupPublic }),
  };

  const send = ({ url, headers, body, isForeign }: Post): Promise<Reply> =>
    new Promise((done, fail) => {
      const { protocol, hostname } = new URL(url);
      const isPlain = protocol === 'http:';
      // A name is looked up; an address as such is not.
      if (isForeign && (isPlain || isIP(hostname.replace(/^\[|\]$/g, '')))) throw new NoReply('EPRIVATE');
      const signal = AbortSignal.timeout(timeoutMs);
      const agent = isForeign ? agents.foreign : isPlain ? agents.http : agents.https;
      const req = (isPlain ? httpRequest : httpsRequest)(url, {
        method: 'POST',
        headers: { ...headers, 'Content-Length': Buffer.byteLength(body) },
        agent,
        signal,
      });
      const lost = (error: Error & { code?: string }) =>
        fail(new NoReply(signal.aborted ? 'ETIMEDOUT' : (error.code ?? 'ECONNRESET')));
      req.on('error', lost);
      req.on('response', (res) => {
        const chunks: Buffer[] = [];
        let size = 0;
        // The status has come: a rest that is cut off, late or endless does not take back what it says.
        const finish = () => {
          const { statusCode: status = 0, headers: said } = res;
          done({ status, retryAfter: secondsUntil(said['retry-after']), body: Buffer.concat(chunks).toString() });
        };
        res.on('data', (chunk: Buffer) => {
          chunks.push(chunk);
          size += chunk.length;
          if (size > maxBytes) res.destroy();
        });
        res.on('error', () => undefined);
        res.on('close', finish);
      });
      req.end(body);
    });

  return {
    post: send,
    close() {
      for (const agent of Object.values(agents)) agent.destroy();
    },
  };
}
