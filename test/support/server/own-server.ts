import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { type EmbeddedServer, ensureDatabase, startEmbedded } from '../../../src/database/embedded.ts';
import { withOwner } from '../../../src/database/pool/pool.ts';
import { freePort } from './processes.ts';

/** A Postgres server of one test file, for tests that can't use the shared one. */
export interface OwnServer {
  /** The folder of its cluster: startEmbedded(folder) starts it again. */
  folder: string;
  server: EmbeddedServer;
  url(database: string): string;
  remove(): Promise<void>;
}

/** Creates a folder that the Postgres user may enter. */
export async function ownFolder(prefix: string, parent = tmpdir()): Promise<string> {
  const folder = await mkdtemp(join(parent, prefix));
  await chmod(folder, 0o711);
  return folder;
}

/** Copies the cluster of a stopped server, with the owner of its files, which Postgres checks. fs.cp would change it. */
export const copyCluster = (from: string, to: string) => promisify(execFile)('cp', ['-a', from, to]);

/**
 * Gives a data directory a cluster with the migrated database `school`, as `npm start` would create it in several
 * seconds.
 */
export async function copyMigratedCluster(dataDir: string): Promise<void> {
  await mkdir(dataDir, { recursive: true });
  await chmod(dataDir, 0o711);
  await copyCluster(process.env['TEST_CLUSTER'] ?? '', join(dataDir, 'postgres'));
}

/** Starts a server with an empty database `school`. */
export async function ownServer(): Promise<OwnServer> {
  const folder = await ownFolder('school-own-');
  const own: OwnServer = {
    folder,
    server: await startEmbedded(folder, ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off']),
    url: (database) => own.server.url(database),
    async remove() {
      await own.server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
  await ensureDatabase(own.server, 'school');
  return own;
}

/**
 * A server that a test may crash; its address stays the same. Committed data survive a crash of its processes, not of
 * the machine.
 */
export interface CrashingServer {
  folder: string;
  /** The address of its database `school`. */
  url: string;
  /** Kills the whole server, or one backend, after which Postgres restarts all others. Resolves when it is back. */
  crash(target: 'server' | 'backend', milliseconds: number): Promise<void>;
  /** The file with the id of its main process. */
  pidFile: string;
  remove(): Promise<void>;
}

/** Kills a process. @returns whether it existed */
function endProcess(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** Kills a backend of a database, after which Postgres restarts all others. Resolves when it is back. */
export async function crashBackend(url: string): Promise<void> {
  const witness = new pg.Client({ connectionString: url });
  await witness.connect();
  const isOver = new Promise((done) => witness.on('error', () => undefined).on('end', () => done(true)));
  // Prefers a backend that runs a request. If it has ended in the meantime, picks another one.
  for (let isEnded = false; !isEnded;) {
    const { rows } = await witness.query<{ pid: number }>(
      `select pid from pg_stat_activity
       where (application_name = '' or application_name like 'school_api%') and datname = current_database()
       order by application_name desc, state
       limit 1`,
    );
    isEnded = rows.some(({ pid }) => endProcess(pid));
    if (!isEnded) await pause(20);
  }
  await isOver;
  while (!(await withOwner(url, () => Promise.resolve(true)).catch(() => false))) await pause(20);
}

/** Starts a server that may crash. Its database `school` is migrated in a test run, and empty in a program. */
export async function crashingServer(): Promise<CrashingServer> {
  const folder = await ownFolder('school-crash-');
  if (process.env['TEST_CLUSTER']) await copyMigratedCluster(folder);
  const port = await freePort();
  const start = () =>
    startEmbedded(folder, ['listen_addresses=127.0.0.1', `port=${String(port)}`, 'fsync=off', 'full_page_writes=off']);
  const address = (database: string) => `postgres://postgres@127.0.0.1:${String(port)}/${database}`;
  const url = address('school');
  let server: EmbeddedServer | undefined = await start();
  try {
    await ensureDatabase({ url: address }, 'school');
  } catch (error) {
    await server.stop();
    throw error;
  }
  return {
    folder,
    url,
    pidFile: join(folder, 'postgres', 'postmaster.pid'),
    async crash(target, milliseconds) {
      if (target === 'backend') {
        await crashBackend(url);
        return;
      }
      await server?.stop('immediate');
      server = undefined;
      await pause(milliseconds);
      server = await start();
    },
    async remove() {
      await server?.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
