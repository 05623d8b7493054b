import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TLSSocket } from 'node:tls';
import { expect, test } from '@jest/globals';
import { schoolPool } from '../../src/database/pool/school-pool.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const service = await serviceOfFile();

/** A self-signed certificate and its key. */
function certificate(): { key: Buffer; cert: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'school-tls-'));
  try {
    const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    const options = ['-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '1', '-subj', '/CN=localhost'];
    execFileSync('openssl', ['req', ...options, '-keyout', key, '-out', cert], { stdio: 'ignore' });
    return { key: readFileSync(key), cert: readFileSync(cert) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Answers SSLRequest like Postgres, and passes what it decrypts on to the server. Refuses connections without TLS. */
async function tlsServer(target: { host: string; port: number }) {
  const credentials = certificate();
  let connections = 0;
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', (request) => {
      if (request.length !== 8 || request.readInt32BE(4) !== 80877103) {
        socket.destroy();
        return;
      }
      connections++;
      socket.write('S');
      const secure = new TLSSocket(socket, { isServer: true, ...credentials });
      const database = connect(`${target.host}/.s.PGSQL.${String(target.port)}`);
      for (const each of [secure, database]) each.on('error', () => undefined);
      secure.pipe(database).pipe(secure);
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return { server, port: (server.address() as AddressInfo).port, count: () => connections };
}

test('a read is cancelled over TLS, and its connection serves the next request', async () => {
  const { host, port, user, database, password } = new shared.pg.Client({ connectionString: service.database.url });
  const proxy = await tlsServer({ host, port });
  const pool = schoolPool({
    size: 1,
    maxConnectionMb: 1000,
    connectionTimeoutMs: 3000,
    preferredWaitMs: 20,
    client: {
      host: '127.0.0.1',
      port: proxy.port,
      ...(user ? { user } : {}),
      ...(database ? { database } : {}),
      ...(password ? { password } : {}),
      ssl: { rejectUnauthorized: false },
    },
  });
  const request = { school: 1, isVerified: true, planKey: 'x', isRead: true };
  const backend = async () =>
    (await pool.query<{ pid: number }>('select pg_backend_pid() as pid', request)).rows[0]?.pid;
  const before = await backend();
  const client = new AbortController();
  const sleep = pool
    .query('select pg_sleep(40)', { ...request, signal: client.signal })
    .catch((error: unknown) => error);
  await until(
    async () =>
      (
        await service.database.query(
          `select from pg_stat_activity where pid = ${String(before)} and wait_event = 'PgSleep'`,
        )
      ).length === 1 || undefined,
  );
  client.abort(new Error('gone'));
  expect(await sleep).toMatchObject({ message: 'gone' });
  expect(await backend()).toBe(before);
  expect(proxy.count()).toBe(2);
  await pool.end();
  proxy.server.close();
});
