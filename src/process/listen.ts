import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * Listens on the first of some ports that is free.
 * @param setting  the variable that chooses the port
 * @returns the address as a client writes it
 * @throws when all are taken
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
  throw new Error(`Port ${String(ports[0])} is in use. Set ${setting} to another one.`);
}
