import { createPublicKey, ECDH } from 'node:crypto';
import { z } from 'zod';

/** The fields of a browser's `PushSubscription` that this service uses. */
export interface Subscription {
  endpoint: string;
  keys: { p256dh: string; auth: string };
}

/**
 * An allowed target of Web Push: a host, or `*.host` for all hosts below it, both with https on the default port; or an
 * origin with any scheme and port, for example a test server in a private network.
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

/** Whether an entry is an origin rather than a host. */
const isOrigin = (host: PushHost) => host.includes('://');

/**
 * Whether messages may be sent to an endpoint. Its scheme and port are checked too, because any user can register any
 * endpoint.
 */
export function isAllowedEndpoint(endpoint: string, hosts: readonly PushHost[]): boolean {
  const url = URL.parse(endpoint);
  if (url?.username !== '' || url.password !== '') return false;
  return hosts.some((host) => {
    if (isOrigin(host)) return url.origin === host;
    if (url.protocol !== 'https:' || url.port !== '') return false;
    return host.startsWith('*.') ? url.hostname.endsWith(host.slice(1)) : url.hostname === host;
  });
}

/**
 * Whether the endpoint has an origin that the operator configured; only such an endpoint may be in a private network.
 */
export const isConfiguredOrigin = (endpoint: string, hosts: readonly PushHost[]): boolean =>
  hosts.some((host) => isOrigin(host) && URL.parse(endpoint)?.origin === host);

/** Decodes base64url; undefined if it is invalid. Some clients add padding. */
function decodeBase64Url(text: string): Buffer | undefined {
  const plain = text.replace(/={1,2}$/, '');
  if (!/^[\w-]+$/.test(plain)) return undefined;
  const decoded = Buffer.from(plain, 'base64url');
  return decoded.toString('base64url') === plain ? decoded : undefined;
}

/** Whether a text is a public key: a point on the curve P-256, in base64url. */
export function isPublicKey(text: string): boolean {
  const key = decodeBase64Url(text);
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
    auth: z.string().refine((auth) => decodeBase64Url(auth)?.length === 16, 'must be 16 bytes in base64url'),
  }),
});

/** Whether the token of a browser is a Firebase token. Any JSON, and any text that begins like it, is a subscription. */
export function isFirebaseToken(token: string): boolean {
  try {
    JSON.parse(token);
    return false;
  } catch {
    return !token.trimStart().startsWith('{');
  }
}

/**
 * Reads a subscription from its JSON.
 * @returns the subscription, or an error message that begins with "must"
 */
export function readSubscription(token: string): Subscription | string {
  let json: unknown;
  try {
    json = JSON.parse(token);
  } catch {
    return 'must be the JSON of a PushSubscription';
  }
  const parsed = SubscriptionInput.safeParse(json);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const path = issue?.path.map(String).join('.');
  return path
    ? `must be the JSON of a PushSubscription; its ${path} ${issue?.message ?? ''}`
    : 'must be the JSON of a PushSubscription';
}

/** The token of a device: the same text for each registration of a browser, regardless of other fields in its JSON. */
export const subscriptionToken = ({ endpoint, keys }: Subscription): string =>
  JSON.stringify({ endpoint, keys: { p256dh: keys.p256dh, auth: keys.auth } });
