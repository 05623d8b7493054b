import { addAbortListener } from 'node:events';
import pg from 'pg';

/** How long the server may take to answer a cancel request. */
const cancelTimeoutMs = 2_000;

/** The fields of a pg client that its types lack. */
interface ClientInternals {
  host: string;
  port: number;
  processID: number;
  secretKey: number;
  connectionParameters: { ssl: boolean | object; sslnegotiation?: string };
}

/** The methods and events of a pg connection that its types lack. */
interface CancelConnection {
  connect(port: number | string, host?: string): void;
  requestSsl(): void;
  cancel(processId: number, secretKey: number): void;
  stream: { destroy(): void };
  on(event: 'connect' | 'sslconnect' | 'end', listener: () => void): void;
  on(event: 'error', listener: (error: Error) => void): void;
}

/**
 * Asks the server to cancel the running statement of a client, on a connection of its own with the same TLS settings.
 * `Client.cancel` of pg does not use TLS. Works behind PgBouncer, which passes the request on to the right backend.
 *
 * When the promise is fulfilled, the server has sent the signal to the backend. An idle backend ignores it. So the
 * cancellation cannot hit a statement that the client sends later.
 * @throws when the server has not answered within the time; a later statement may then be cancelled
 */
function cancelStatement(client: pg.ClientBase, timeoutMs: number): Promise<void> {
  const { host, port, processID, secretKey, connectionParameters } = client as unknown as ClientInternals;
  const { ssl, sslnegotiation } = connectionParameters;
  const isDirect = sslnegotiation === 'direct';
  return new Promise((done, fail) => {
    const connection = new pg.Connection({
      ssl,
      ...(isDirect ? { sslNegotiation: 'direct' } : {}),
    }) as unknown as CancelConnection;
    let isSent = false;
    const timer = setTimeout(() => end(new Error('The server did not answer a cancel request in time.')), timeoutMs);
    function end(error?: Error): void {
      clearTimeout(timer);
      connection.stream.destroy();
      if (error) fail(error);
      else done();
    }
    const send = () => {
      connection.cancel(processID, secretKey);
      isSent = true;
    };
    connection.on('connect', () => {
      if (!ssl) send();
      else if (!isDirect) connection.requestSsl();
    });
    connection.on('sslconnect', send);
    connection.on('error', (error) => end(error));
    // The server closes the connection after it has sent the signal.
    connection.on('end', () => end(isSent ? undefined : new Error('The server refused a cancel request.')));
    if (host.startsWith('/')) connection.connect(`${host}/.s.PGSQL.${String(port)}`);
    else connection.connect(port, host);
  });
}

/**
 * Cancels the running statement of a client when the signal aborts.
 * @returns a function to call when the statement has ended: it waits until the cancellation can no longer hit another
 *   one, and returns whether that is certain
 */
export function cancelOnAbort(
  client: pg.ClientBase,
  signal: AbortSignal,
  onAbort?: () => void,
): () => Promise<boolean> {
  let cancellation = Promise.resolve(true);
  const listener = addAbortListener(signal, () => {
    onAbort?.();
    cancellation = cancelStatement(client, cancelTimeoutMs).then(
      () => true,
      () => false,
    );
  });
  return () => {
    listener[Symbol.dispose]();
    return cancellation;
  };
}
