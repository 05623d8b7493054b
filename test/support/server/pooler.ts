import { spawn } from 'node:child_process';
import { chown, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import type { EmbeddedServer } from '../../../src/database/embedded.ts';
import { until } from '../client/until.ts';
import { ownFolder } from './own-server.ts';
import { poolerPort, poolerRoles } from './pooler-settings.ts';

/**
 * Starts a PgBouncer in transaction mode in front of the test server, for the whole run.
 * It runs as the user of the Postgres server, since it refuses to run as root. Each transaction takes another
 * backend than the one before, so that nothing works by chance that needs the same one.
 * @param program  its path
 */
export async function startPooler(program: string, { url, cluster }: EmbeddedServer): Promise<void> {
  const folder = await ownFolder('school-pooler-');
  const { host } = new pg.Client({ connectionString: url('postgres') });
  const settings = {
    listen_port: poolerPort,
    unix_socket_dir: folder,
    auth_type: 'trust',
    auth_file: join(folder, 'users.txt'),
    pool_mode: 'transaction',
    server_round_robin: 1,
    default_pool_size: 12,
    max_client_conn: 1000,
    // Tests wait until the connections of their database are closed.
    server_idle_timeout: 1,
    logfile: join(folder, 'log'),
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${String(value)}`);
  await writeFile(
    join(folder, 'settings.ini'),
    ['[databases]', `* = host=${host}`, '[pgbouncer]', ...lines, ''].join('\n'),
  );
  await writeFile(settings.auth_file, poolerRoles.map((role) => `"${role}" ""\n`).join(''));
  const { uid, gid } = await stat(cluster);
  await chown(folder, uid, gid);
  const child = spawn(program, ['-q', join(folder, 'settings.ini')], { uid, gid, cwd: folder, stdio: 'ignore' });
  const ended = new Promise<void>((done) => child.on('error', () => done()).on('exit', () => done()));
  const isReady = () =>
    stat(join(folder, `.s.PGSQL.${String(poolerPort)}`)).then(
      () => true,
      () => undefined,
    );
  await Promise.race([
    until(isReady),
    ended.then(async () => {
      throw new Error(`PgBouncer did not start: ${await readFile(settings.logfile, 'utf8').catch(() => program)}`);
    }),
  ]);
  child.unref();
  process.env['TEST_POOLER_SOCKET'] = folder;
}
