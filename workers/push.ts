import type { JWT } from 'google-auth-library';
import { allowsEndpoint, isNamed, type PushHost, readSubscription } from '../src/domain/push.ts';
import { type Http, http, NoReply, type Reply } from './http.ts';

/** One message to one device. */
export interface PushMessage {
  /** The same at each attempt: by it a device shows the second of two as the first. Base64url, 32 characters at most. */
  id: string;
  platform: 'ios' | 'android' | 'web';
  token: string;
  title: string;
  message: string;
  /** Goes along for the app; values of null are left out. */
  data: Record<string, string | null>;
}

/** What came of one attempt. Reasons are codes: they are stored, and name nobody. */
export type Outcome =
  | { status: 'sent' }
  /** isGone: the push service knows the device no longer. */
  | { status: 'failed'; reason: string; isGone?: boolean }
  /** after: seconds that the other side asked for. isDown: it gave no answer, so that the next message would not fare better. */
  | { status: 'retry'; reason: string; after?: number | undefined; isDown?: boolean };

/** The ways to devices that are set up. */
export interface Push {
  platforms: PushMessage['platform'][];
  /** Who carries it out, for what goes wrong with all that they do. */
  carrier(message: PushMessage): string;
  send(message: PushMessage): Promise<Outcome>;
  close(): void;
}

/** A Google service account, as far as this module reads it. */
export interface FcmCredentials {
  project_id: string;
  client_email: string;
  private_key: string;
  token_uri: string;
}

/** The credentials of the push services; a service without credentials is not used. */
export interface PushSettings {
  FCM_CREDENTIALS?: FcmCredentials | undefined;
  FCM_URL: string;
  VAPID_PUBLIC_KEY?: string | undefined;
  VAPID_PRIVATE_KEY?: string | undefined;
  VAPID_SUBJECT?: string | undefined;
  WEB_PUSH_HOSTS: readonly PushHost[];
}

/** Push services keep a message for a device that is off for so long. After it a message is of no use: what it says is in the app. */
const keptForSeconds = 24 * 3600;
/** Push services take 4,096 bytes, of which some are theirs. */
const maxBytes = 3600;

/** JSON of a message, its text shortened until all of it is small enough to be taken. */
function fitted<T>(message: string, make: (message: string) => T): T {
  let letters = Array.from(message);
  let made = make(message);
  while (letters.length > 0 && Buffer.byteLength(JSON.stringify(made)) > maxBytes) {
    letters = letters.slice(0, Math.floor(letters.length * 0.8));
    made = make(`${letters.join('').trimEnd()}…`);
  }
  return made;
}

const given = (data: PushMessage['data']) =>
  Object.fromEntries(Object.entries(data).filter((entry): entry is [string, string] => entry[1] !== null));

/** What holds of every service: later is better, or never. */
function otherwise({ status, retryAfter }: Reply, carrier: string, code = String(status)): Outcome {
  const reason = `${carrier}_${code}`;
  return status === 408 || status === 429 || status >= 500
    ? { status: 'retry', reason, after: retryAfter }
    : { status: 'failed', reason };
}

const unreachable = (error: unknown, carrier: string): Outcome => {
  if (!(error instanceof NoReply)) throw error;
  return { status: 'retry', reason: `${carrier}_${error.message}`, isDown: true };
};

interface FcmError {
  error?: { message?: string; details?: { errorCode?: string; fieldViolations?: { field?: string }[] }[] };
}

/** What FCM calls the error; whether it is about the token alone. 400 stands for any fault: only one of the token is the device's. */
function fcmFault(body: string): { code: string | undefined; isAboutToken: boolean } {
  let error: FcmError['error'];
  try {
    error = (JSON.parse(body) as FcmError | null)?.error;
  } catch {
    // A proxy's page, for example.
  }
  const details = Array.isArray(error?.details) ? error.details : [];
  const fields = details.flatMap(({ fieldViolations }) => fieldViolations ?? []).map(({ field }) => field);
  return {
    code: details.map(({ errorCode }) => errorCode).find((code) => code !== undefined && /^[A-Z_]{1,40}$/.test(code)),
    isAboutToken:
      fields.length > 0
        ? fields.every((field) => field === 'message.token')
        : /registration token/i.test(error?.message ?? ''),
  };
}

/** Firebase Cloud Messaging, HTTP v1. */
function firebase(connection: Http, account: FcmCredentials, baseUrl: string) {
  const url = `${baseUrl.replace(/\/$/, '')}/v1/projects/${account.project_id}/messages:send`;
  let client: Promise<JWT> | undefined;

  async function signIn(): Promise<JWT> {
    const { JWT } = await import('google-auth-library');
    const { client_email: email, private_key: key, token_uri } = account;
    const made = new JWT({
      email,
      key,
      scopes: ['https://www.googleapis.com/auth/firebase.messaging'],
      additionalClaims: { aud: token_uri },
    });
    // The library asks Google, whatever the account says.
    made.transporter.interceptors.request.add({
      resolved: (options) =>
        Promise.resolve({ ...options, url: new URL(token_uri), timeout: 10_000, retryConfig: { retry: 0 } }),
    });
    return made;
  }

  return async ({ id, token, title, message, data }: PushMessage): Promise<Outcome> => {
    let bearer: string | null | undefined;
    try {
      bearer = (await (await (client ??= signIn())).getAccessToken()).token;
    } catch (error) {
      const { status, code } = error as { status?: number; code?: string };
      return { status: 'retry', reason: `fcm_token_${String(status ?? code ?? 'error')}`, isDown: true };
    }
    const body = fitted(message, (text) => ({
      message: {
        token,
        notification: { title, body: text },
        data: { ...given(data), id },
        // Not collapse_key: of more than four different ones a phone that is off gets only some.
        android: { ttl: `${String(keptForSeconds)}s`, notification: { tag: id } },
        apns: {
          headers: {
            'apns-collapse-id': id,
            'apns-expiration': String(Math.floor(Date.now() / 1000) + keptForSeconds),
          },
        },
      },
    }));
    const headers = { Authorization: `Bearer ${bearer ?? ''}`, 'Content-Type': 'application/json; charset=utf-8' };
    const reply = await connection
      .post({ url, headers, body: JSON.stringify(body), isForeign: false })
      .catch((error: unknown) => unreachable(error, 'fcm'));
    if (!('body' in reply)) return reply;
    if (reply.status === 200) return { status: 'sent' };
    const { code, isAboutToken } = fcmFault(reply.body);
    if (reply.status === 404 && code === 'UNREGISTERED')
      return { status: 'failed', reason: 'fcm_unregistered', isGone: true };
    if (reply.status === 400 && code === 'INVALID_ARGUMENT' && isAboutToken)
      return { status: 'failed', reason: 'fcm_invalid_token', isGone: true };
    if (reply.status === 401) {
      client = undefined;
      return { status: 'retry', reason: 'fcm_401' };
    }
    return otherwise(reply, 'fcm', code?.toLowerCase());
  };
}

/** Web Push (RFC 8030), encrypted (RFC 8291), in the name of this installation (RFC 8292). */
function browsers(
  connection: Http,
  vapid: { subject: string; publicKey: string; privateKey: string },
  hosts: readonly PushHost[],
) {
  const { subject, publicKey, privateKey } = vapid;
  /** Who we are, signed for each service; it holds for half a day and is made anew each hour, since signing costs more than all else. */
  const signed = new Map<string, { authorization: string; at: number }>();
  const authorization = (audience: string, sign: typeof import('web-push').getVapidHeaders): string => {
    let found = signed.get(audience);
    if (!found || performance.now() - found.at > 3600_000) {
      found = {
        authorization: sign(audience, subject, publicKey, privateKey, 'aes128gcm').Authorization,
        at: performance.now(),
      };
      // Hosts below a domain that is known have names without end.
      if (signed.size >= 100) signed.clear();
      signed.set(audience, found);
    }
    return found.authorization;
  };

  return async ({ id, token, title, message, data }: PushMessage): Promise<Outcome> => {
    const subscription = readSubscription(token);
    // Registered before it was looked at, or by hosts that were known then.
    if (typeof subscription === 'string') return { status: 'failed', reason: 'web_invalid_subscription', isGone: true };
    if (!allowsEndpoint(subscription.endpoint, hosts)) return { status: 'failed', reason: 'web_host_not_allowed' };
    const { default: webPush } = await import('web-push');
    const payload = JSON.stringify(fitted(message, (text) => ({ id, title, message: text, ...given(data) })));
    const { headers, body, endpoint } = webPush.generateRequestDetails(subscription, payload, {
      TTL: keptForSeconds,
      topic: id,
      contentEncoding: 'aes128gcm',
    });
    const reply = await connection
      .post({
        url: endpoint,
        headers: { ...headers, Authorization: authorization(new URL(endpoint).origin, webPush.getVapidHeaders) },
        body,
        isForeign: !isNamed(endpoint, hosts),
      })
      .catch((error: unknown) => unreachable(error, 'web'));
    if (!('body' in reply)) return reply;
    if (reply.status >= 200 && reply.status < 300) return { status: 'sent' };
    if (reply.status === 404 || reply.status === 410) return { status: 'failed', reason: 'web_gone', isGone: true };
    return otherwise(reply, 'web');
  };
}

/** The ways to devices that the settings open. Libraries are loaded with the first message. */
export function push(settings: PushSettings): Push {
  const {
    FCM_CREDENTIALS,
    VAPID_PUBLIC_KEY: publicKey,
    VAPID_PRIVATE_KEY: privateKey,
    VAPID_SUBJECT: subject,
  } = settings;
  const connection = http();
  const mobile = FCM_CREDENTIALS && firebase(connection, FCM_CREDENTIALS, settings.FCM_URL);
  const web =
    publicKey && privateKey && subject
      ? browsers(connection, { subject, publicKey, privateKey }, settings.WEB_PUSH_HOSTS)
      : undefined;
  return {
    platforms: [...(mobile ? (['ios', 'android'] as const) : []), ...(web ? (['web'] as const) : [])],
    carrier({ platform, token }) {
      if (platform !== 'web') return 'fcm';
      const subscription = readSubscription(token);
      return typeof subscription === 'string' ? 'web' : new URL(subscription.endpoint).host;
    },
    async send(message) {
      const way = message.platform === 'web' ? web : mobile;
      return way ? way(message) : { status: 'failed', reason: 'push_not_configured' };
    },
    close: () => connection.close(),
  };
}
