import { createECDH, createPublicKey, createVerify, type ECDH, generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import ece from 'http_ece';
import jwt from 'jsonwebtoken';
import webPush from 'web-push';

/**
 * What a push service does with a message: says `status`, with a body; cuts the connection; never answers; or waits for
 * `until` before it goes on.
 */
export interface Behaviour {
  status?: number;
  headers?: Record<string, string>;
  body?: object | string;
  isCut?: boolean;
  isSilent?: boolean;
  until?: Promise<unknown>;
}

/** A message as the service took it. */
export interface Taken<Content> {
  token: string;
  content: Content;
  at: number;
}

/** A push service on loopback that is as strict as the real one and misbehaves as it is told. */
export interface PushService<Content> {
  url: string;
  /** All that was asked, in order; what the service found wrong with it is in `faults`. */
  taken: Taken<Content>[];
  faults: string[];
  /** Settings of a process that uses it. */
  env: Record<string, string>;
  /**
   * What it does from now on with this token; without one, with all others. Given a list, one after the other, the last
   * for good.
   */
  behave(behaviour: Behaviour | Behaviour[], token?: string): void;
  /** The messages to one token. */
  to(token: string): Content[];
  close(): Promise<void>;
}

async function bytesOf(req: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/**
 * The part that both have in common: `read` says to whom a request is, and what; null when it has answered by itself.
 */
async function service<Content>(
  env: (url: string) => Record<string, string>,
  accept: number,
  read: (
    req: IncomingMessage,
    body: Buffer,
    res: ServerResponse,
    fault: (text: string) => void,
  ) => Omit<Taken<Content>, 'at'> | null,
): Promise<PushService<Content>> {
  const behaviours = new Map<string, Behaviour[]>();
  const taken: Taken<Content>[] = [];
  const faults: string[] = [];
  const next = (token: string): Behaviour => {
    const list = behaviours.get(token) ?? behaviours.get('') ?? [];
    return (list.length > 1 ? list.shift() : list[0]) ?? {};
  };
  const server = createServer((req, res) => {
    void (async () => {
      const message = read(req, await bytesOf(req), res, (text) => faults.push(text));
      if (!message) return;
      const { status = accept, headers = {}, body = {}, isCut, isSilent, until } = next(message.token);
      taken.push({ ...message, at: Date.now() });
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
    taken,
    faults,
    env: env(url),
    behave: (behaviour, token = '') => void behaviours.set(token, [behaviour].flat()),
    to: (token) => taken.filter((each) => each.token === token).map(({ content }) => content),
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

/** FCM's own words for an error. */
export const fcmError = (status: number, errorCode: string, message: string, more: object[] = []): Behaviour => ({
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
 * Firebase: gives tokens to who signs as the account, and takes messages of who shows one. `revoke` makes all tokens
 * worthless.
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
  const made = await service<FcmContent>(
    (url) => ({ FCM_URL: url, FCM_CREDENTIALS: JSON.stringify({ ...account, token_uri: `${url}/token` }) }),
    200,
    (req, body, res, fault) => {
      const refuse = (status: number, error: string): null => {
        fault(`${req.url ?? ''}: ${error}`);
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
        if (typeof value !== 'string') return refuse(400, 'data takes strings');
      return { token: message.token, content: message };
    },
  );
  return Object.assign(made, { grants: () => grants, revoke: () => (valid = 'none') });
}

export interface WebContent {
  topic: string;
  ttl: number;
  /** What the browser shows of it, decrypted. */
  payload: { id: string; title: string; message: string; action_url?: string; notification_id?: string };
}

/** A browser that subscribed: the JSON of its PushSubscription. */
export interface Browser {
  path: string;
  subscription: { endpoint: string; expirationTime: null; keys: { p256dh: string; auth: string } };
  token: string;
}

/** A Web Push service; messages are decrypted with the keys of the browser, as it would do it. */
export async function webPushService(): Promise<
  PushService<WebContent> & { browser: () => Browser; vapidPublicKey: string }
> {
  const vapid = webPush.generateVAPIDKeys();
  const keys = new Map<string, { key: ECDH; secret: string }>();
  const made = await service<WebContent>(
    (url) => ({
      VAPID_PUBLIC_KEY: vapid.publicKey,
      VAPID_PRIVATE_KEY: vapid.privateKey,
      VAPID_SUBJECT: 'mailto:push@test.example',
      WEB_PUSH_HOSTS: url,
    }),
    201,
    (req, body, res, fault) => {
      const refuse = (status: number, error: string): null => {
        fault(`${req.url ?? ''}: ${error}`);
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
  return Object.assign(made, {
    vapidPublicKey: vapid.publicKey,
    browser() {
      const key = createECDH('prime256v1');
      const p256dh = key.generateKeys('base64url');
      const auth = randomBytes(16).toString('base64url');
      const path = `/push/${randomBytes(12).toString('base64url')}`;
      keys.set(path, { key, secret: auth });
      const subscription = { endpoint: `${made.url}${path}`, expirationTime: null, keys: { p256dh, auth } };
      return { path, subscription, token: JSON.stringify(subscription) };
    },
  });
}
