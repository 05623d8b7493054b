import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { type EmbeddedServer, ensureDatabase, startEmbedded } from '../../../src/database/embedded.ts';
import { withOwner } from '../../../src/database/pool.ts';
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
async function ownFolder(prefix: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), prefix));
  await chmod(folder, 0o711);
  return folder;
}

/** Starts a server with an empty database `school`. */
export async function ownServer(
  settings: string[] = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off'],
): Promise<OwnServer> {
  const folder = await ownFolder('school-own-');
  const own: OwnServer = {
    folder,
    server: await startEmbedded(folder, settings),
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
  crash(what: 'server' | 'backend', milliseconds: number): Promise<void>;
  remove(): Promise<void>;
}

/** Kills a process. Answers whether it existed. */
function endProcess(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** Starts a server with an empty database `school` that may crash. */
export async function crashingServer(): Promise<CrashingServer> {
  const folder = await ownFolder('school-crash-');
  const port = await freePort();
  const start = () =>
    startEmbedded(folder, ['listen_addresses=127.0.0.1', `port=${String(port)}`, 'fsync=off', 'full_page_writes=off']);
  const address = (database: string) => `postgres://postgres@127.0.0.1:${String(port)}/${database}`;
  const url = address('school');
  let server: EmbeddedServer | undefined = await start();
  try {
    await withOwner(address('postgres'), (owner) => owner.query('create database school'));
  } catch (error) {
    await server.stop();
    throw error;
  }
  return {
    folder,
    url,
    async crash(what, milliseconds) {
      if (what === 'server') {
        await server?.stop('immediate');
        server = undefined;
        await pause(milliseconds);
        server = await start();
        return;
      }
      const witness = new pg.Client({ connectionString: url });
      await witness.connect();
      const isOver = new Promise((done) => witness.on('error', () => undefined).on('end', () => done(true)));
      // Prefers a backend that runs a request. If it has ended in the meantime, picks another one.
      for (let isEnded = false; !isEnded;) {
        const { rows } = await witness.query<{ pid: number }>(
          "select pid from pg_stat_activity where application_name in ('school_api', '') and datname = 'school' order by application_name desc, state limit 1",
        );
        isEnded = rows.some(({ pid }) => endProcess(pid));
        if (!isEnded) await pause(20);
      }
      await isOver;
      while (!(await withOwner(url, () => Promise.resolve(true)).catch(() => false))) await pause(20);
    },
    async remove() {
      await server?.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
