import type { Server, ServerResponse } from 'node:http';
import { Server as NetServer } from 'node:net';

/** How long a stopping service waits for the requests in progress. */
const closeTimeoutMs = 10_000;

/**
 * How long a connection stays open after the server has stopped listening, if no request comes. Long enough for a
 * request that was sent before its client could know: without an answer, a proxy does not repeat it.
 */
const idleTimeoutMs = 1_000;

/**
 * Prepares a server to be closed while clients use it. Call it before the first request.
 * @returns a function that refuses new connections, answers what arrives on the others, asks their clients to close
 *   them, and resolves when they are closed
 */
export function gracefulClose(server: Server): () => Promise<void> {
  const running = new Set<ServerResponse>();
  let isClosing = false;
  server.prependListener('request', (_req, res) => {
    if (isClosing) res.setHeader('Connection', 'close');
    else {
      running.add(res);
      res.on('close', () => running.delete(res));
    }
  });
  return async () => {
    isClosing = true;
    for (const res of running) if (!res.headersSent) res.setHeader('Connection', 'close');
    // The method of http.Server would also close idle connections at once, on which a request may be on its way.
    const closed = new Promise((done) => NetServer.prototype.close.call(server, done));
    // After the requests that have arrived were read: a busy process runs its timers first.
    const closeIdle = setInterval(() => setImmediate(() => server.closeIdleConnections()), idleTimeoutMs);
    const closeAll = setTimeout(() => server.closeAllConnections(), closeTimeoutMs);
    await closed;
    clearInterval(closeIdle);
    clearTimeout(closeAll);
    // Ends the timer with which http.Server checks its connections.
    server.close();
  };
}
