import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { type EmbeddedServer, ensureDatabase, startEmbedded } from '../../../src/database/embedded.ts';
import { withOwner } from '../../../src/database/pool.ts';
import { freePort } from './processes.ts';

/** A Postgres server of one test file, where the one that all share can't be used. */
export interface OwnServer {
  /** Where its cluster lies: startEmbedded(folder) starts it again. */
  folder: string;
  server: EmbeddedServer;
  url(database: string): string;
  remove(): Promise<void>;
}

/** A folder that the user of the server can enter, so that its cluster lies there. */
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

/** A server that a test lets crash; its address stays the same. What it has committed outlives the crash of its processes, not that of the machine. */
export interface CrashingServer {
  folder: string;
  /** Of its database `school`. */
  url: string;
  /** Ends all of it, or one process that serves a request, for which Postgres ends all others. Answers when it is back. */
  crash(what: 'server' | 'backend', milliseconds: number): Promise<void>;
  remove(): Promise<void>;
}

/** Ends a process without any farewell; whether it was there. */
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
      // Who serves a request, if anybody does; a process that has gone meanwhile is none, and then the next one is looked for.
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
