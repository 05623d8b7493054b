import { createServer, connect, type Socket } from 'node:net';

/** A TCP proxy in front of Postgres, whose connections a test can break. */
export interface BreakableProxy {
  port: number;
  /** Resets all connections, each after it has passed on this many more bytes in either direction. */
  breakConnections(afterBytes: number): void;
  close(): Promise<void>;
}

/** Starts a proxy to a port of this machine. */
export async function breakableProxy(targetPort: number): Promise<BreakableProxy> {
  const connections = new Set<{ near: Socket; far: Socket; bytesLeft: number }>();
  const server = createServer((near) => {
    const far = connect(targetPort, '127.0.0.1');
    const connection = { near, far, bytesLeft: Infinity };
    connections.add(connection);
    const end = () => {
      connections.delete(connection);
      near.destroy();
      far.destroy();
    };
    const pass = (from: Socket, to: Socket) => {
      from.on('data', (bytes) => {
        const passed = bytes.subarray(0, Math.min(bytes.length, connection.bytesLeft));
        connection.bytesLeft -= passed.length;
        if (passed.length > 0 && !to.write(passed)) {
          from.pause();
          to.once('drain', () => from.resume());
        }
        if (connection.bytesLeft <= 0) end();
      });
      from.on('error', end).on('close', end);
    };
    pass(near, far);
    pass(far, near);
  });
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done));
  const address = server.address();
  return {
    port: typeof address === 'object' && address ? address.port : 0,
    breakConnections(afterBytes) {
      for (const connection of connections) {
        connection.bytesLeft = afterBytes;
        if (afterBytes === 0) {
          connection.near.destroy();
          connection.far.destroy();
        }
      }
    },
    async close() {
      const closed = new Promise((done) => server.close(done));
      for (const { near, far } of connections) {
        near.destroy();
        far.destroy();
      }
      await closed;
    },
  };
}
