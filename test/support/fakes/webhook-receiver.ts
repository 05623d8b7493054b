import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A message that the receiver has got. */
export interface ReceivedWebhook {
  path: string;
  id: string;
  body: { type: string; timestamp: string; data: Record<string, unknown> };
  /** Whether one of the signatures is by this secret. */
  isSignedBy: (secret: string) => boolean;
}

/** How the receiver responds: by default with 204; `isCut` closes the connection. It first waits for `until`. */
export interface WebhookBehavior {
  status?: number;
  headers?: Record<string, string>;
  body?: string;
  isCut?: boolean;
  until?: Promise<unknown>;
}

/** A receiver of webhooks on loopback. */
export interface WebhookReceiver {
  url: string;
  received: ReceivedWebhook[];
  /** Sets the response to messages for a path. Of a list, each entry is used once and the last one from then on. */
  respondWith(path: string, ...behaviors: WebhookBehavior[]): void;
  /** The messages to a path. */
  messagesTo(path: string): ReceivedWebhook[];
  close(): Promise<void>;
}

/** Starts a receiver that verifies signatures as the specification of Standard Webhooks tells receivers to. */
export async function webhookReceiver(): Promise<WebhookReceiver> {
  const received: ReceivedWebhook[] = [];
  const behaviors = new Map<string, WebhookBehavior[]>();
  const server = createServer((req, res) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of req) chunks.push(chunk as Buffer);
      const text = Buffer.concat(chunks).toString();
      const path = req.url ?? '';
      const header = (name: string) => String(req.headers[name]);
      const content = `${header('webhook-id')}.${header('webhook-timestamp')}.${text}`;
      const signatures = header('webhook-signature').split(' ');
      const isRecent = Math.abs(Date.now() / 1000 - Number(header('webhook-timestamp'))) < 300;
      received.push({
        path,
        id: header('webhook-id'),
        body: JSON.parse(text) as ReceivedWebhook['body'],
        isSignedBy(secret) {
          const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
          return isRecent && signatures.includes(`v1,${createHmac('sha256', key).update(content).digest('base64')}`);
        },
      });
      const list = behaviors.get(path) ?? [];
      const { status = 204, headers = {}, body, isCut, until } = (list.length > 1 ? list.shift() : list[0]) ?? {};
      await until;
      if (isCut) req.socket.destroy();
      else res.writeHead(status, headers).end(body);
    })();
  });
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    respondWith: (path, ...given) => void behaviors.set(path, given),
    messagesTo: (path) => received.filter((each) => each.path === path),
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
}
