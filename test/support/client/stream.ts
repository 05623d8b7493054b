import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { createParser } from 'eventsource-parser';
import { until } from './until.ts';

/** A notification as an event stream sends it. */
export interface Told {
  id: number;
  title: string;
  message: string;
  type: string;
  action_url: string | null;
  created_at: string;
}

/** An open stream, and the messages received so far. */
export interface OpenStream<E = Told> {
  status: number;
  headers: IncomingHttpHeaders;
  /** The names of the fields of the messages with data, for example `id data`. */
  messageFields: Set<string>;
  /** The envelope, when the request was refused. */
  refusal: { error?: string; message?: string } | undefined;
  events: E[];
  comments: string[];
  retry: number | undefined;
  /** The Last-Event-ID with which a client would reconnect. */
  lastId: string;
  /**
   * How the service closed it: at the end of the response, or by closing the connection. Undefined while it is open.
   */
  ended: 'end' | 'cut' | undefined;
  /** Waits until `count` events were received. */
  has(count: number): Promise<E[]>;
  /** Waits for its end. */
  end(): Promise<'end' | 'cut'>;
  /** Stops and resumes reading. */
  pause(): void;
  resume(): void;
  /** Disconnects. */
  close(): Promise<void>;
}

const notifications = '/api/notifications/stream';

/**
 * Opens a stream, without a header Authorization if `token` is undefined; `refusal` is set when the service refuses it.
 * @param options.path  by default that of the notifications
 */
export function openStream<E extends object = Told>(
  url: string,
  token: string | undefined,
  {
    path = notifications,
    lastId,
    query = '',
    headers = {},
    method = 'GET',
  }: {
    path?: string;
    lastId?: string | undefined;
    query?: string;
    headers?: Record<string, string>;
    method?: string;
  } = {},
): Promise<OpenStream<E>> {
  return new Promise((done, fail) => {
    const sent = request(`${url}${path}${query}`, {
      method,
      agent: false,
      headers: {
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
        Accept: 'text/event-stream',
        ...(lastId === undefined ? {} : { 'Last-Event-ID': lastId }),
        ...headers,
      },
    });
    sent.on('error', fail);
    sent.on('response', (response: IncomingMessage) => {
      let tail = '';
      const stream: OpenStream<E> = {
        status: response.statusCode ?? 0,
        headers: response.headers,
        messageFields: new Set(),
        refusal: undefined,
        events: [],
        comments: [],
        retry: undefined,
        lastId: lastId ?? '',
        ended: undefined,
        has: (count) => until(() => (stream.events.length >= count ? stream.events : undefined)),
        end: () => until(() => stream.ended),
        pause: () => response.pause(),
        resume: () => response.resume(),
        async close() {
          response.destroy();
          await until(() => response.closed || undefined);
        },
      };
      const parser = createParser({
        onEvent({ id, event, data }) {
          const content = JSON.parse(data) as E;
          if (event !== undefined || (path === notifications && id !== String((content as Partial<Told>).id)))
            throw new Error(`Not a notification: ${event} ${id} ${data}`);
          stream.events.push(content);
        },
        onComment: (comment) => stream.comments.push(comment),
        onRetry: (retry) => (stream.retry = retry),
        onError: fail,
      });
      response.setEncoding('utf8');
      response.on('data', (text: string) => {
        tail += text;
        // As in browsers, an id counts once its block is complete, even without data.
        const end = tail.lastIndexOf('\n\n');
        const at = end < 0 ? -1 : tail.lastIndexOf('\nid: ', end);
        if (at >= 0) stream.lastId = /\d+/.exec(tail.slice(at, at + 30))?.[0] ?? stream.lastId;
        // Not the whole text, because it may be long.
        if (end >= 0) {
          for (const block of tail
            .slice(0, end)
            .split('\n\n')
            .filter((one) => /^data:/m.test(one)))
            stream.messageFields.add(
              block
                .trim()
                .replaceAll(/^(\w+):.*$/gm, '$1')
                .replaceAll('\n', ' '),
            );
          tail = tail.slice(end + 1);
        }
        parser.feed(text);
      });
      response.on('error', () => (stream.ended ??= 'cut'));
      response.on('end', () => {
        stream.ended ??= 'end';
        if (response.headers['content-type']?.startsWith('application/json') && method !== 'HEAD')
          stream.refusal = JSON.parse(tail) as { error?: string };
        if (stream.status !== 200) done(stream);
      });
      if (stream.status === 200) done(stream);
    });
    sent.end();
  });
}
