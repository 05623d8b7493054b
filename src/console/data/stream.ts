import { createParser } from 'eventsource-parser';
import { useEffect, useRef, useState } from 'preact/hooks';
import { send } from './api.ts';
import { isAbort } from './http.ts';

/** `reconnecting`: the stream has ended or was refused, and the next attempt follows. */
export type StreamStatus = 'connecting' | 'live' | 'reconnecting';

/** A connection without heartbeats is dead. The service sends one every 25 seconds by default. */
const silenceMs = 60_000;
const maxRetryDelayMs = 30_000;

interface StreamOptions {
  signal: AbortSignal;
  lastEventId: string | undefined;
  onOpen: () => void;
  onMessage: (data: string, id: string | undefined) => void;
  onRetry: (ms: number) => void;
}

/** Reads one response until it ends. @throws when it is refused, breaks off or stays silent */
async function readStream(path: string, { signal, lastEventId, onOpen, onMessage, onRetry }: StreamOptions) {
  const silence = new AbortController();
  const response = await send('GET', path, { signal: AbortSignal.any([signal, silence.signal]), lastEventId });
  if (!response.body) return;
  onOpen();
  const parser = createParser({ onEvent: ({ data, id }) => data !== '' && onMessage(data, id), onRetry });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const timer = setTimeout(() => silence.abort(new Error('No heartbeat.')), silenceMs);
    const { value, done } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    parser.feed(value);
  }
}

/** Resolves after a while, or when the signal aborts. */
const pause = (ms: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });

/**
 * Receives the messages of a stream while the page is visible, and reconnects. A hidden page would keep the service busy,
 * and one of the few connections that a browser opens to a host.
 */
export function useStream(path: string, onMessage: (data: unknown) => void): StreamStatus {
  const [status, setStatus] = useState<StreamStatus>('connecting');
  const receive = useRef(onMessage);
  receive.current = onMessage;

  useEffect(() => {
    let stop: AbortController | undefined;
    let lastEventId: string | undefined;

    async function follow(signal: AbortSignal): Promise<void> {
      let retryMs = 2_000;
      let failures = 0;
      const isStopped = () => signal.aborted;
      while (!isStopped()) {
        try {
          await readStream(path, {
            signal,
            lastEventId,
            onOpen: () => {
              failures = 0;
              setStatus('live');
            },
            onMessage: (data, id) => {
              lastEventId = id;
              receive.current(JSON.parse(data));
            },
            onRetry: (ms) => (retryMs = ms),
          });
        } catch (thrown) {
          // The page was hidden or left, or the operator logged out.
          if (isStopped() || isAbort(thrown)) return;
          failures++;
        }
        if (isStopped()) return;
        setStatus('reconnecting');
        await pause(Math.min(retryMs * 2 ** Math.max(0, failures - 1), maxRetryDelayMs), signal);
      }
    }

    function update(): void {
      if (document.visibilityState === 'hidden') {
        stop?.abort();
        stop = undefined;
      } else if (!stop) {
        stop = new AbortController();
        void follow(stop.signal);
      }
    }

    update();
    document.addEventListener('visibilitychange', update);
    return () => {
      document.removeEventListener('visibilitychange', update);
      stop?.abort();
    };
  }, [path]);
  return status;
}
