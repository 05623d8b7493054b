import { EventSourceParserStream } from 'eventsource-parser/stream';
import { ApiError, errorOf } from './errors.ts';
import type { components } from './schema.ts';

/** A notification, as the stream sends it. */
export type StreamedNotification = Pick<
  components['schemas']['Notification'],
  'id' | 'title' | 'message' | 'type' | 'action_url' | 'created_at'
>;

export interface StreamOptions {
  /** Ends the stream. */
  signal?: AbortSignal;
  /** The id of the last notification that you have; the stream continues after it. By default it starts now. */
  lastEventId?: number;
}

interface Connection {
  /** The address of the stream. */
  url: string;
  send: (request: Request) => Promise<Response>;
  /** The id after which a stream without `lastEventId` begins. */
  firstId: () => Promise<number>;
}

const maxDelayMs = 30_000;

/** Waits, or until the signal aborts. */
const wait = (ms: number, signal: AbortSignal | undefined) =>
  new Promise<void>((done) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      done();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });

/** Whether a later attempt may succeed. */
const isTemporary = (error: unknown) => !(error instanceof ApiError) || error.status === 429 || error.status >= 500;

/**
 * The messages of a stream. Reconnects when the connection ends, and continues after the last message.
 * @throws ApiError if the session has ended
 */
export async function* streamMessages<Message>(
  { url, send, firstId }: Connection,
  { signal, lastEventId }: StreamOptions,
): AsyncGenerator<Message, void, undefined> {
  let lastId = lastEventId;
  let retryMs = 1_000;
  let failures = 0;
  while (!signal?.aborted) {
    let delayMs = retryMs;
    try {
      // Without an id, messages between two connections would be lost.
      lastId ??= await firstId();
      const response = await send(
        new Request(url, {
          headers: { Accept: 'text/event-stream', 'Last-Event-ID': String(lastId) },
          signal: signal ?? null,
        }),
      );
      if (!response.ok || !response.body) throw await errorOf(response);
      failures = 0;
      const events = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(
        new EventSourceParserStream({
          onRetry: (ms) => {
            retryMs = ms;
          },
        }),
      );
      const reader = events.getReader();
      try {
        for (let next = await reader.read(); !next.done; next = await reader.read()) {
          if (next.value.id !== undefined) lastId = Number(next.value.id);
          if (next.value.data !== '') yield JSON.parse(next.value.data) as Message;
        }
      } finally {
        await reader.cancel().catch(() => undefined);
      }
      delayMs = retryMs;
    } catch (error) {
      if (signal?.aborted) return;
      if (!isTemporary(error)) throw error;
      failures++;
      const retryAfterMs = error instanceof ApiError ? (error.retryAfterSeconds ?? 0) * 1_000 : 0;
      delayMs = Math.max(retryAfterMs, Math.min(retryMs * 2 ** (failures - 1), maxDelayMs));
    }
    await wait(delayMs, signal);
  }
}
