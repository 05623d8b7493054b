import { Agent } from 'node:http';

/** The connections that the clients of a test process keep open between requests. */
export const agent = new Agent({ keepAlive: true });

/** Closes the idle connections. A service that stops waits a second for each of its connections. */
export function closeIdleConnections(): void {
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}
