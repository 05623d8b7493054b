import type pg from 'pg';

/** The connection of a pg client, which its types lack. */
interface ClientSocket {
  connection?: { stream: { destroy(): void } };
}

/** Ends the connection of a client at once, without waiting for a server that may not answer. Its statement fails. */
export function destroySocket(client: pg.ClientBase | undefined): void {
  (client as unknown as ClientSocket | undefined)?.connection?.stream.destroy();
}
