import { createPublicKey, ECDH } from 'node:crypto';
import { z } from 'zod';

/** Where a browser gets its messages, as `PushSubscription` has it. */
export interface Subscription {
  endpoint: string;
  keys: { p256dh: string; auth: string };
}

/**
 * Where Web Push may go: a host, `*.host` for all below it, both by https at the usual port; or an origin, which is taken at its word, a test server
 * in one's own network for example.
 */
export type PushHost = string;

/** The push services of the browsers. */
export const browserPushHosts: PushHost[] = [
  'fcm.googleapis.com',
  'updates.push.services.mozilla.com',
  '*.push.services.mozilla.com',
  'web.push.apple.com',
  '*.push.apple.com',
  '*.notify.windows.com',
];

/** Whether the entry is an origin, and so may be any address. */
const isOrigin = (host: PushHost) => host.includes('://');

/** Whether messages may be sent to an address. Its port and scheme count: whoever names it is a stranger. */
export function allowsEndpoint(endpoint: string, hosts: readonly PushHost[]): boolean {
  const url = URL.parse(endpoint);
  if (url?.username !== '' || url.password !== '') return false;
  return hosts.some((host) => {
    if (isOrigin(host)) return url.origin === host;
    if (url.protocol !== 'https:' || url.port !== '') return false;
    return host.startsWith('*.') ? url.hostname.endsWith(host.slice(1)) : url.hostname === host;
  });
}

/** Whether the operator named the origin itself, so that it may also be an address of their own network. */
export const isNamed = (endpoint: string, hosts: readonly PushHost[]): boolean =>
  hosts.some((host) => isOrigin(host) && URL.parse(endpoint)?.origin === host);

/** Bytes in base64url; undefined where it is none. Padding is what some clients add. */
function bytes(text: string): Buffer | undefined {
  const plain = text.replace(/={1,2}$/, '');
  if (!/^[\w-]+$/.test(plain)) return undefined;
  const decoded = Buffer.from(plain, 'base64url');
  return decoded.toString('base64url') === plain ? decoded : undefined;
}

/** Whether it is a point of the curve P-256, not just as long as one. */
export function isPublicKey(text: string): boolean {
  const key = bytes(text);
  if (key?.length !== 65 || key[0] !== 4) return false;
  try {
    createPublicKey({
      format: 'jwk',
      key: {
        kty: 'EC',
        crv: 'P-256',
        x: key.subarray(1, 33).toString('base64url'),
        y: key.subarray(33).toString('base64url'),
      },
    });
    ECDH.convertKey(key, 'prime256v1');
    return true;
  } catch {
    return false;
  }
}

const SubscriptionInput = z.object({
  endpoint: z.string().refine((endpoint) => URL.canParse(endpoint), 'must be a URL'),
  keys: z.object({
    p256dh: z.string().refine(isPublicKey, 'must be a public key (P-256) in base64url'),
    auth: z.string().refine((auth) => bytes(auth)?.length === 16, 'must be 16 bytes in base64url'),
  }),
});

/**
 * A subscription, from the JSON of one.
 * @returns it, or as the rest of a sentence what is wrong with it
 */
export function readSubscription(token: string): Subscription | string {
  let given: unknown;
  try {
    given = JSON.parse(token);
  } catch {
    return 'must be the JSON of a PushSubscription';
  }
  const parsed = SubscriptionInput.safeParse(given);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const place = issue?.path.map(String).join('.');
  return place
    ? `must be the JSON of a PushSubscription; in it ${place} ${issue?.message ?? ''}`
    : 'must be the JSON of a PushSubscription';
}

/** A subscription as it is stored: always the same text, so that one browser is one device whatever else its JSON says. */
export const tokenOf = ({ endpoint, keys }: Subscription): string =>
  JSON.stringify({ endpoint, keys: { p256dh: keys.p256dh, auth: keys.auth } });
