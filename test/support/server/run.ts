import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';

/** A run of tests, or of a program of `test`. Everything that it starts or writes belongs to it. */
export interface Run {
  /** The folder of the run, which is also the TMPDIR of its processes. */
  folder: string;
  /** A second folder in memory, if there is enough of it. */
  memoryFolder: string | undefined;
  /** Ends all processes of the run and removes its folders. */
  end(): Promise<void>;
}

const memory = '/dev/shm';
const minFreeBytes = 6e9;

async function hasMemory(): Promise<boolean> {
  const { bavail, bsize } = await statfs(memory).catch(() => ({ bavail: 0, bsize: 0 }));
  return bavail * bsize > minFreeBytes && process.availableMemory() > minFreeBytes;
}

/**
 * Creates a folder of a run. As root, other users may write into it: Postgres does not run as root. Its name is short in
 * a run that another one has started, because the path of a socket has at most 107 bytes.
 */
async function createFolder(parent: string): Promise<string> {
  const prefix = parent === process.env['TEST_RUN'] ? 'run-' : `school-run-${String(process.pid)}-`;
  const folder = await mkdtemp(join(parent, prefix));
  if (process.getuid?.() === 0) await chmod(folder, 0o1777);
  return folder;
}

/**
 * Starts a run and its guard (guard.ts). The guard is a separate process that ends the run when this process ends, even
 * by `kill -9`. A server survives the process that started it, so an interrupted run would leave it behind.
 */
export async function startRun(): Promise<Run> {
  const folder = await createFolder(tmpdir());
  const memoryFolder = (await hasMemory()) ? await createFolder(memory) : undefined;
  const folders = memoryFolder === undefined ? [folder] : [folder, memoryFolder];
  const guard = spawn(process.execPath, [join(import.meta.dirname, 'guard.ts'), ...folders], {
    // Its own session, which Ctrl-C does not reach, and no variable by which the guard of an outer run would find it.
    detached: true,
    env: {},
    cwd: '/',
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  guard.unref();
  process.env['TEST_RUN'] = folder;
  process.env['TMPDIR'] = folder;
  return {
    folder,
    memoryFolder,
    async end() {
      guard.ref();
      const ended = guard.exitCode ?? once(guard, 'exit');
      guard.stdin.end();
      await ended;
    },
  };
}

interface Found {
  pid: number;
  isServer: boolean;
}

/** The processes that name one of the folders in their command line or are started with it as TEST_RUN. */
export async function processesOf(folders: readonly string[]): Promise<Found[]> {
  const found: Found[] = [];
  const add = (pid: number, command: string, environment: string) => {
    if (pid === process.pid || !folders.some((folder) => command.includes(folder) || environment.includes(folder)))
      return;
    found.push({ pid, isServer: /^\S*\/postgres[\0 ]/.test(command) });
  };
  const names = await readdir('/proc').catch(() => undefined);
  if (names) {
    for (const name of names.filter((each) => /^\d+$/.test(each))) {
      const read = (file: string) => readFile(`/proc/${name}/${file}`, 'utf8').catch(() => '');
      add(Number(name), await read('cmdline'), await read('environ'));
    }
    return found;
  }
  const { stdout } = await promisify(execFile)('ps', ['axeww', '-o', 'pid=,command=']);
  for (const [, pid, command = ''] of stdout.matchAll(/^ *(\d+) (.*)$/gm)) add(Number(pid), command, '');
  return found;
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    // It has ended, or is of another user, who may look at the folder.
    if (!['ESRCH', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

/** After this time, a server that does not end is killed like the others. */
const serverTimeoutMs = 8_000;
const timeoutMs = 15_000;

/** Ends all processes of a run and removes its folders. */
export async function removeRun(folders: readonly string[]): Promise<void> {
  const start = performance.now();
  while (performance.now() - start < timeoutMs) {
    const found = await processesOf(folders);
    if (found.length === 0) break;
    for (const { pid, isServer } of found) {
      // Postgres ends at once, with its children, and frees its shared memory. A test may have stopped it.
      if (isServer && performance.now() - start < serverTimeoutMs) {
        send(pid, 'SIGQUIT');
        send(pid, 'SIGCONT');
      } else send(pid, 'SIGKILL');
    }
    await pause(50);
  }
  // Node would take seconds for the 18,000 files of a cluster.
  await promisify(execFile)('rm', ['-rf', ...folders]);
}
