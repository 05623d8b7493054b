import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * Listens on the first free port of a list.
 * @param setting  the environment variable that sets the port, for the error message
 * @returns the base URL for clients
 * @throws when all ports are in use
 */
export async function listen(server: Server, host: string, ports: readonly number[], setting: string): Promise<string> {
  for (const port of ports) {
    try {
      await new Promise<void>((done, fail) => {
        server.once('error', fail);
        server.listen(port, host, () => {
          server.off('error', fail);
          done();
        });
      });
      return `http://${host.includes(':') ? `[${host}]` : host}:${String((server.address() as AddressInfo).port)}`;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code !== 'EADDRINUSE') throw error;
    }
  }
  throw new Error(`Port ${String(ports[0])} is in use. Set ${setting} to another port.`);
}
