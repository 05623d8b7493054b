import type { JWT } from 'google-auth-library';
import { isAllowedEndpoint, isConfiguredOrigin, type PushHost, readSubscription } from '../src/domain/push.ts';
import { type Http, http, NoReply, type Reply } from './http.ts';

/** One message to one device. */
export interface PushMessage {
  /** The same for each attempt, so that a device shows a message only once. At most 32 characters of base64url. */
  id: string;
  platform: 'ios' | 'android' | 'web';
  token: string;
  title: string;
  message: string;
  /** Additional values for the app. Null values are omitted. */
  data: Record<string, string | null>;
}

/** The result of one attempt. Reasons are stored, so they are codes without personal data. */
export type Outcome =
  | { status: 'sent' }
  /** isGone: the push service no longer knows the device. */
  | { status: 'failed'; reason: string; isGone?: boolean }
  /**
   * retryAfterSeconds: as the push service asked for.
   * isServiceDown: it did not answer, so that other messages would fail too.
   */
  | { status: 'retry'; reason: string; retryAfterSeconds?: number | undefined; isServiceDown?: boolean };

/** Sends push messages by the push services that are configured. */
export interface Push {
  platforms: PushMessage['platform'][];
  /** The push service of a message: fcm, or the host of the browser's push service. */
  serviceName(message: PushMessage): string;
  send(message: PushMessage): Promise<Outcome>;
  close(): void;
}

/** The fields of a Google service account that this module reads. */
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

/**
 * How long a push service keeps a message for a device that is offline. Later messages are useless; the app shows the
 * text.
 */
const ttlSeconds = 24 * 3600;
/** VAPID headers are valid for 12 hours. They are reused for one, since signing costs more than the rest of a request. */
const vapidHeaderMs = 60 * 60 * 1000;
/** Push services accept 4,096 bytes, including encryption and headers. */
const maxBytes = 3600;

/** Builds the content of a message, with its text shortened until the JSON has at most `maxBytes`. */
function shortenToFit<T>(message: string, build: (message: string) => T): T {
  let characters = Array.from(message);
  let content = build(message);
  while (characters.length > 0 && Buffer.byteLength(JSON.stringify(content)) > maxBytes) {
    characters = characters.slice(0, Math.floor(characters.length * 0.8));
    content = build(`${characters.join('').trimEnd()}…`);
  }
  return content;
}

const withoutNulls = (data: PushMessage['data']) =>
  Object.fromEntries(Object.entries(data).filter((entry): entry is [string, string] => entry[1] !== null));

/**
 * The result for an error status that no service treats specially: temporary errors are retried, others are permanent.
 */
function errorOutcome({ status, retryAfter }: Reply, service: string, code = String(status)): Outcome {
  const reason = `${service}_${code}`;
  return status === 408 || status === 429 || status >= 500
    ? { status: 'retry', reason, retryAfterSeconds: retryAfter }
    : { status: 'failed', reason };
}

const unreachableOutcome = (error: unknown, service: string): Outcome => {
  if (!(error instanceof NoReply)) throw error;
  return { status: 'retry', reason: `${service}_${error.message}`, isServiceDown: true };
};

interface FcmError {
  error?: { message?: string; details?: { errorCode?: string; fieldViolations?: { field?: string }[] }[] };
}

/**
 * The error code of FCM, and whether the error is about the token only. Any invalid request gets a 400; only an invalid
 * token is a problem of the device.
 */
function readFcmError(body: string): { code: string | undefined; isAboutToken: boolean } {
  let error: FcmError['error'];
  try {
    error = (JSON.parse(body) as FcmError | null)?.error;
  } catch {
    // The body is not JSON, for example the error page of a proxy.
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
function firebaseSender(connection: Http, account: FcmCredentials, baseUrl: string) {
  const url = `${baseUrl.replace(/\/$/, '')}/v1/projects/${account.project_id}/messages:send`;
  let client: Promise<JWT> | undefined;

  async function signIn(): Promise<JWT> {
    const { JWT } = await import('google-auth-library');
    const { client_email: email, private_key: key, token_uri } = account;
    const jwt = new JWT({
      email,
      key,
      scopes: ['https://www.googleapis.com/auth/firebase.messaging'],
      additionalClaims: { aud: token_uri },
    });
    // By default the library sends its token request to Google and ignores token_uri.
    jwt.transporter.interceptors.request.add({
      resolved: (options) =>
        Promise.resolve({ ...options, url: new URL(token_uri), timeout: 10_000, retryConfig: { retry: 0 } }),
    });
    return jwt;
  }

  return async ({ id, token, title, message, data }: PushMessage): Promise<Outcome> => {
    let bearer: string | null | undefined;
    try {
      bearer = (await (await (client ??= signIn())).getAccessToken()).token;
    } catch (error) {
      const { status, code } = error as { status?: number; code?: string };
      return { status: 'retry', reason: `fcm_token_${String(status ?? code ?? 'error')}`, isServiceDown: true };
    }
    const body = shortenToFit(message, (text) => ({
      message: {
        token,
        notification: { title, body: text },
        data: { ...withoutNulls(data), id },
        // No collapse_key: FCM keeps at most four different ones for a phone that is offline.
        android: { ttl: `${String(ttlSeconds)}s`, notification: { tag: id } },
        apns: {
          headers: {
            'apns-collapse-id': id,
            'apns-expiration': String(Math.floor(Date.now() / 1000) + ttlSeconds),
          },
        },
      },
    }));
    const headers = { Authorization: `Bearer ${bearer ?? ''}`, 'Content-Type': 'application/json; charset=utf-8' };
    const reply = await connection
      .post({ url, headers, body: JSON.stringify(body), isForeign: false })
      .catch((error: unknown) => unreachableOutcome(error, 'fcm'));
    if (!('body' in reply)) return reply;
    if (reply.status === 200) return { status: 'sent' };
    const { code, isAboutToken } = readFcmError(reply.body);
    if (reply.status === 404 && code === 'UNREGISTERED')
      return { status: 'failed', reason: 'fcm_unregistered', isGone: true };
    if (reply.status === 400 && code === 'INVALID_ARGUMENT' && isAboutToken)
      return { status: 'failed', reason: 'fcm_invalid_token', isGone: true };
    if (reply.status === 401) {
      client = undefined;
      return { status: 'retry', reason: 'fcm_401' };
    }
    return errorOutcome(reply, 'fcm', code?.toLowerCase());
  };
}

/** Web Push (RFC 8030) with encryption (RFC 8291) and VAPID authentication (RFC 8292). */
function webPushSender(
  connection: Http,
  vapid: { subject: string; publicKey: string; privateKey: string },
  hosts: readonly PushHost[],
) {
  const { subject, publicKey, privateKey } = vapid;
  /** VAPID headers by push service. */
  const headersByAudience = new Map<string, { authorization: string; createdAt: number }>();
  const authorization = (audience: string, sign: typeof import('web-push').getVapidHeaders): string => {
    let cached = headersByAudience.get(audience);
    if (!cached || performance.now() - cached.createdAt > vapidHeaderMs) {
      cached = {
        authorization: sign(audience, subject, publicKey, privateKey, 'aes128gcm').Authorization,
        createdAt: performance.now(),
      };
      // The number of hosts below an allowed domain is not limited.
      if (headersByAudience.size >= 100) headersByAudience.clear();
      headersByAudience.set(audience, cached);
    }
    return cached.authorization;
  };

  return async ({ id, token, title, message, data }: PushMessage): Promise<Outcome> => {
    const subscription = readSubscription(token);
    // The subscription may be older than the validation, or than the current WEB_PUSH_HOSTS.
    if (typeof subscription === 'string') return { status: 'failed', reason: 'web_invalid_subscription', isGone: true };
    if (!isAllowedEndpoint(subscription.endpoint, hosts)) return { status: 'failed', reason: 'web_host_not_allowed' };
    const { default: webPush } = await import('web-push');
    const payload = JSON.stringify(
      shortenToFit(message, (text) => ({ id, title, message: text, ...withoutNulls(data) })),
    );
    const { headers, body, endpoint } = webPush.generateRequestDetails(subscription, payload, {
      TTL: ttlSeconds,
      topic: id,
      contentEncoding: 'aes128gcm',
    });
    const reply = await connection
      .post({
        url: endpoint,
        headers: { ...headers, Authorization: authorization(new URL(endpoint).origin, webPush.getVapidHeaders) },
        body,
        isForeign: !isConfiguredOrigin(endpoint, hosts),
      })
      .catch((error: unknown) => unreachableOutcome(error, 'web'));
    if (!('body' in reply)) return reply;
    if (reply.status >= 200 && reply.status < 300) return { status: 'sent' };
    if (reply.status === 404 || reply.status === 410) return { status: 'failed', reason: 'web_gone', isGone: true };
    return errorOutcome(reply, 'web');
  };
}

/**
 * Creates the sender for the push services that the settings configure. Libraries are loaded with the first message.
 * @param timeoutMs  after this time a push service that does not answer counts as down
 */
export function push(settings: PushSettings, timeoutMs: number): Push {
  const {
    FCM_CREDENTIALS,
    VAPID_PUBLIC_KEY: publicKey,
    VAPID_PRIVATE_KEY: privateKey,
    VAPID_SUBJECT: subject,
  } = settings;
  const connection = http(timeoutMs);
  const mobile = FCM_CREDENTIALS && firebaseSender(connection, FCM_CREDENTIALS, settings.FCM_URL);
  const web =
    publicKey && privateKey && subject
      ? webPushSender(connection, { subject, publicKey, privateKey }, settings.WEB_PUSH_HOSTS)
      : undefined;
  return {
    platforms: [...(mobile ? (['ios', 'android'] as const) : []), ...(web ? (['web'] as const) : [])],
    serviceName({ platform, token }) {
      if (platform !== 'web') return 'fcm';
      const subscription = readSubscription(token);
      return typeof subscription === 'string' ? 'web' : new URL(subscription.endpoint).host;
    },
    async send(message) {
      const sendToDevice = message.platform === 'web' ? web : mobile;
      return sendToDevice ? sendToDevice(message) : { status: 'failed', reason: 'push_not_configured' };
    },
    close: () => connection.close(),
  };
}
