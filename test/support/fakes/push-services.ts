import { createECDH, createPublicKey, createVerify, type ECDH, generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import ece from 'http_ece';
import jwt from 'jsonwebtoken';
import webPush from 'web-push';

/**
 * How a fake push service responds to a message: with `status` and `body`, by closing the connection (`isCut`), or not at
 * all (`isSilent`). It first waits for `until`.
 */
export interface PushBehavior {
  status?: number;
  headers?: Record<string, string>;
  body?: object | string;
  isCut?: boolean;
  isSilent?: boolean;
  until?: Promise<unknown>;
}

/** A message that the service received. */
export interface ReceivedMessage<Content> {
  token: string;
  content: Content;
  at: number;
}

/** A push service on loopback. Validates requests like the real one, and simulates failures. */
export interface PushService<Content> {
  url: string;
  /** The valid messages, in order. */
  received: ReceivedMessage<Content>[];
  /** Why requests were rejected as invalid. */
  protocolErrors: string[];
  /** The environment variables of a process that uses it. */
  env: Record<string, string>;
  /**
   * Sets the response to messages for a token; without a token, for all tokens that have none of their own. Of a list,
   * each entry is used once and the last one from then on.
   */
  respondWith(behavior: PushBehavior | PushBehavior[], token?: string): void;
  /** The messages to one token. */
  messagesTo(token: string): Content[];
  close(): Promise<void>;
}

async function bytesOf(req: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/**
 * Starts a fake push service. `read` validates a request and returns its token and content, or responds by itself and
 * returns null.
 */
async function service<Content>(
  env: (url: string) => Record<string, string>,
  successStatus: number,
  read: (
    req: IncomingMessage,
    body: Buffer,
    res: ServerResponse,
    report: (error: string) => void,
  ) => Omit<ReceivedMessage<Content>, 'at'> | null,
): Promise<PushService<Content>> {
  const behaviors = new Map<string, PushBehavior[]>();
  const received: ReceivedMessage<Content>[] = [];
  const protocolErrors: string[] = [];
  const next = (token: string): PushBehavior => {
    const list = behaviors.get(token) ?? behaviors.get('') ?? [];
    return (list.length > 1 ? list.shift() : list[0]) ?? {};
  };
  const server = createServer((req, res) => {
    void (async () => {
      const message = read(req, await bytesOf(req), res, (text) => protocolErrors.push(text));
      if (!message) return;
      const { status = successStatus, headers = {}, body = {}, isCut, isSilent, until } = next(message.token);
      received.push({ ...message, at: Date.now() });
      await until;
      if (isCut) req.socket.destroy();
      else if (!isSilent)
        res
          .writeHead(status, { 'Content-Type': 'application/json', ...headers })
          .end(typeof body === 'string' ? body : JSON.stringify(body));
    })();
  });
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    received,
    protocolErrors,
    env: env(url),
    respondWith: (behavior, token = '') => void behaviors.set(token, [behavior].flat()),
    messagesTo: (token) => received.filter((each) => each.token === token).map(({ content }) => content),
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
}

export interface FcmContent {
  token: string;
  notification: { title: string; body: string };
  data: Record<string, string>;
  android: { ttl: string; collapse_key?: string; notification: { tag: string } };
  apns: { headers: Record<string, string> };
}

/** An error response in the format of FCM. */
export const fcmError = (status: number, errorCode: string, message: string, more: object[] = []): PushBehavior => ({
  status,
  body: {
    error: {
      code: status,
      message,
      status: 'X',
      details: [{ '@type': 'type.googleapis.com/google.firebase.fcm.v1.FcmError', errorCode }, ...more],
    },
  },
});

/**
 * A fake of Firebase Cloud Messaging. It issues access tokens for assertions signed by the service account, and accepts
 * messages that carry the latest one. `revoke` invalidates that token.
 */
export async function fcmService(): Promise<PushService<FcmContent> & { grants: () => number; revoke: () => void }> {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const account = {
    type: 'service_account',
    project_id: 'a-project',
    client_email: 'pusher@a-project.iam.example',
    private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
  };
  let valid = '';
  let grants = 0;
  const fake = await service<FcmContent>(
    (url) => ({ FCM_URL: url, FCM_CREDENTIALS: JSON.stringify({ ...account, token_uri: `${url}/token` }) }),
    200,
    (req, body, res, report) => {
      const refuse = (status: number, error: string): null => {
        report(`${req.url ?? ''}: ${error}`);
        res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify({ error }));
        return null;
      };
      if (req.url === '/token') {
        const form = new URLSearchParams(body.toString());
        if (form.get('grant_type') !== 'urn:ietf:params:oauth:grant-type:jwt-bearer')
          return refuse(400, 'unsupported_grant_type');
        try {
          const claims = jwt.verify(form.get('assertion') ?? '', publicKey, {
            algorithms: ['RS256'],
            issuer: account.client_email,
            audience: `http://${req.headers.host ?? ''}/token`,
          }) as jwt.JwtPayload & { scope: string };
          if (claims.scope !== 'https://www.googleapis.com/auth/firebase.messaging')
            return refuse(400, 'invalid_scope');
        } catch (error) {
          return refuse(400, `invalid_grant ${String(error)}`);
        }
        valid = `ya29.${randomBytes(8).toString('hex')}`;
        grants++;
        res
          .writeHead(200, { 'Content-Type': 'application/json' })
          .end(JSON.stringify({ access_token: valid, token_type: 'Bearer', expires_in: 3600 }));
        return null;
      }
      if (req.method !== 'POST' || req.url !== '/v1/projects/a-project/messages:send')
        return refuse(404, 'no such path');
      if (req.headers.authorization !== `Bearer ${valid}`) return refuse(401, 'UNAUTHENTICATED');
      if (body.length > 4096) return refuse(400, 'too big');
      const { message } = JSON.parse(body.toString()) as { message: FcmContent };
      for (const value of Object.values(message.data))
        if (typeof value !== 'string') return refuse(400, 'the values of data must be strings');
      return { token: message.token, content: message };
    },
  );
  return Object.assign(fake, { grants: () => grants, revoke: () => (valid = 'none') });
}

export interface WebContent {
  topic: string;
  ttl: number;
  /** The decrypted payload. */
  payload: { id: string; title: string; message: string; action_url?: string; notification_id?: string };
}

/** A browser with a push subscription. `token` is the JSON of its PushSubscription. */
export interface Browser {
  path: string;
  subscription: { endpoint: string; expirationTime: null; keys: { p256dh: string; auth: string } };
  token: string;
}

/** A fake Web Push service. It decrypts messages with the keys of the browser. */
export async function webPushService(): Promise<
  PushService<WebContent> & { browser: () => Browser; vapidPublicKey: string }
> {
  const vapid = webPush.generateVAPIDKeys();
  const keys = new Map<string, { key: ECDH; secret: string }>();
  const fake = await service<WebContent>(
    (url) => ({
      VAPID_PUBLIC_KEY: vapid.publicKey,
      VAPID_PRIVATE_KEY: vapid.privateKey,
      VAPID_SUBJECT: 'mailto:push@test.example',
      WEB_PUSH_HOSTS: url,
    }),
    201,
    (req, body, res, report) => {
      const refuse = (status: number, error: string): null => {
        report(`${req.url ?? ''}: ${error}`);
        res.writeHead(status).end(error);
        return null;
      };
      const path = req.url ?? '';
      const browser = keys.get(path);
      if (req.method !== 'POST' || !browser) return refuse(404, 'no such subscription');
      const [, token = '', k] = /^vapid t=([^,]+), ?k=(\S+)$/.exec(req.headers.authorization ?? '') ?? [];
      const point = Buffer.from(vapid.publicKey, 'base64url');
      const key = createPublicKey({
        format: 'jwk',
        key: {
          kty: 'EC',
          crv: 'P-256',
          x: point.subarray(1, 33).toString('base64url'),
          y: point.subarray(33).toString('base64url'),
        },
      });
      const [head = '', claims = '', signature = ''] = token.split('.');
      const { aud, exp, sub } = JSON.parse(Buffer.from(claims || 'e30', 'base64url').toString()) as {
        aud?: string;
        exp?: number;
        sub?: string;
      };
      if (k !== vapid.publicKey) return refuse(403, 'another key');
      const isSigned = createVerify('SHA256')
        .update(`${head}.${claims}`)
        .verify({ key, dsaEncoding: 'ieee-p1363' }, Buffer.from(signature, 'base64url'));
      if (!isSigned) return refuse(403, 'not signed');
      if (aud !== `http://${req.headers.host ?? ''}` || sub !== 'mailto:push@test.example')
        return refuse(403, `claims ${claims}`);
      if (!exp || exp < Date.now() / 1000 || exp > Date.now() / 1000 + 24 * 3600) return refuse(403, 'exp');
      const { ttl, topic, 'content-encoding': encoding } = req.headers;
      if (typeof ttl !== 'string' || !/^\d+$/.test(ttl)) return refuse(400, 'no TTL');
      if (typeof topic !== 'string' || !/^[\w-]{1,32}$/.test(topic)) return refuse(400, 'topic');
      if (encoding !== 'aes128gcm' || body.length > 4096) return refuse(400, 'content');
      const content = ece
        .decrypt(body, { version: 'aes128gcm', privateKey: browser.key, authSecret: browser.secret })
        .toString();
      return {
        token: path,
        content: { topic, ttl: Number(ttl), payload: JSON.parse(content) as WebContent['payload'] },
      };
    },
  );
  return Object.assign(fake, {
    vapidPublicKey: vapid.publicKey,
    browser() {
      const key = createECDH('prime256v1');
      const p256dh = key.generateKeys('base64url');
      const auth = randomBytes(16).toString('base64url');
      const path = `/push/${randomBytes(12).toString('base64url')}`;
      keys.set(path, { key, secret: auth });
      const subscription = { endpoint: `${fake.url}${path}`, expirationTime: null, keys: { p256dh, auth } };
      return { path, subscription, token: JSON.stringify(subscription) };
    },
  });
}
