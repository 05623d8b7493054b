import { spawn } from 'node:child_process';
import { access, chown, rm, stat, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { expect, test } from '@jest/globals';
import { testDatabase } from '../support/server/database.ts';
import { ownFolder } from '../support/server/own-server.ts';
import { ready, startProgram } from '../support/server/processes.ts';
import { until } from '../support/client/until.ts';

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );

/** Debian installs it in /usr/sbin, which is not in the PATH of every user. */
async function findPooler(): Promise<string | undefined> {
  for (const folder of [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin'])
    if (await exists(join(folder, 'pgbouncer'))) return join(folder, 'pgbouncer');
  return undefined;
}

const pooler = await findPooler();

(pooler === undefined ? test.skip : test).each([
  ['the same backend for two connections', 0],
  ['backends in turn', 1],
])(
  'processes behind a PgBouncer with %s, which breaks prepared statements and locks, end with the setting that mends it',
  async (_how, roundRobin) => {
    const database = await testDatabase();
    const [server] = await database.query<{ folder: string; host: string }>(
      "select current_setting('data_directory') as folder, current_setting('unix_socket_directories') as host",
    );
    const name = new URL(database.url.replace('@/', '@localhost/')).pathname.slice(1);
    const folder = await ownFolder('school-pooler-');
    const settings = {
      listen_port: 6433,
      unix_socket_dir: folder,
      auth_type: 'trust',
      auth_file: join(folder, 'users.txt'),
      pool_mode: 'transaction',
      server_round_robin: roundRobin,
      logfile: join(folder, 'log'),
    };
    const lines = Object.entries(settings).map(([key, value]) => `${key} = ${String(value)}`);
    await writeFile(
      join(folder, 'settings.ini'),
      ['[databases]', `* = host=${server?.host ?? ''}`, '[pgbouncer]', ...lines, ''].join('\n'),
    );
    await writeFile(settings.auth_file, '"school_api" ""\n"school_worker" ""\n');
    const { uid, gid } = await stat(server?.folder ?? '');
    await chown(folder, uid, gid);
    const child = spawn(pooler ?? '', ['-q', join(folder, 'settings.ini')], { uid, gid, cwd: folder, stdio: 'ignore' });
    const ended = new Promise((done) => child.on('exit', done));
    try {
      await until(async () => ((await exists(join(folder, '.s.PGSQL.6433'))) ? true : undefined));
      const throughPooler = (role: string) =>
        `postgres://${role}@/${name}?host=${encodeURIComponent(folder)}&port=6433`;
      const start = (
        prepared: string,
        part = 'api',
        session = database.url.replace('//postgres@', '//school_worker@'),
      ) =>
        startProgram('src/main.ts', ['--only', part], {
          DATABASE_URL: database.url,
          API_DATABASE_URL: throughPooler('school_api'),
          WORKER_DATABASE_URL: throughPooler('school_worker'),
          SESSION_DATABASE_URL: session,
          PREPARED_STATEMENTS: prepared,
          PORT: '0',
          DATA_DIR: folder,
        });
      const { code, stderr } = await start('true').ended;
      expect(code).toBe(1);
      expect(stderr).toContain('max_prepared_statements = 500');
      expect(stderr).toContain('PREPARED_STATEMENTS=false');
      const served = start('false');
      await ready(served);
      served.kill('SIGTERM');
      await served.ended;
      expect((await start('true', 'worker').ended).stderr).toContain('WORKER_DATABASE_URL leads through a pooler');
      const worker = await start('false', 'worker', throughPooler('school_worker')).ended;
      expect([worker.code, worker.stderr]).toEqual([1, expect.stringContaining('SESSION_DATABASE_URL leads through')]);
      const runs = start('false', 'worker');
      await ready(runs);
      runs.kill('SIGTERM');
      await runs.ended;
    } finally {
      child.kill('SIGTERM');
      await ended;
      await database.drop();
      await rm(folder, { recursive: true, force: true });
    }
  },
  90_000,
);
