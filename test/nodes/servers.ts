import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { access, appendFile, chmod, chown, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from '../support/server/processes.ts';

const run = promisify(execFile);

/** Where Debian installs Postgres 15, the server with PL/Proxy that the tests use. */
const binaries = '/usr/lib/postgresql/15/bin';

/** A Postgres server of this run, in a folder of its own. */
export interface TestServer {
  folder: string;
  port: number;
}

/** A home, its nodes and its forwarder. */
export interface Servers {
  home: string;
  forwarder: string;
  homeServer: TestServer;
  nodes: { name: string; url: string; server: TestServer }[];
}

/** The element for this Jest worker of an environment variable that is a JSON array; undefined if it is not set. */
export function ofWorker(variable: string): unknown {
  const all = process.env[variable];
  return all === undefined
    ? undefined
    : (JSON.parse(all) as unknown[])[Number(process.env['JEST_WORKER_ID'] ?? '1') - 1];
}

/** The servers that the files of this folder share if they run in the same Jest worker; undefined in other runs. */
export const sharedServers = () => ofWorker('TEST_NODES') as Servers | undefined;

/** The same, for a file of this folder. */
export function servers(): Servers {
  const found = sharedServers();
  if (!found) throw new Error('These tests need several servers: run them with npm run test:nodes.');
  return found;
}

/** Whether Postgres 15 and PL/Proxy are installed. */
export const isInstalled = (): Promise<boolean> =>
  Promise.all([
    access(`${binaries}/postgres`),
    access('/usr/share/postgresql/15/extension/plproxy.control'),
    access('/usr/lib/postgresql/15/lib/plproxy.so'),
  ]).then(
    () => true,
    () => false,
  );

/** Postgres refuses to run as root. Debian's package creates the user postgres. */
async function account(): Promise<{ uid: number; gid: number } | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const [uid, gid] = await Promise.all(['-u', '-g'].map(async (flag) => (await run('id', [flag, 'postgres'])).stdout));
  return { uid: Number(uid), gid: Number(gid) };
}

const call = async (program: string, args: string[]) =>
  run(join(binaries, program), args, { cwd: '/', ...(await account()) });

export const serverUrl = ({ port }: TestServer, database: string): string =>
  `postgres://postgres@127.0.0.1:${String(port)}/${database}`;

/** An empty folder for a cluster. */
async function createFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'school-node-'));
  const owner = await account();
  if (owner) await chown(folder, owner.uid, owner.gid);
  await chmod(folder, 0o700);
  return folder;
}

/** Creates a cluster and starts it. */
export async function createServer(): Promise<TestServer> {
  const folder = await createFolder();
  await call('initdb', ['-D', folder, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C.UTF-8', '--no-sync']);
  const server = { folder, port: await freePort() };
  // The roles of other servers need their passwords.
  await writeFile(
    join(folder, 'pg_hba.conf'),
    `host all,replication postgres,school_api,school_worker,school_graphql 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
`,
  );
  await appendFile(
    join(folder, 'postgresql.conf'),
    `port = ${String(server.port)}
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = logical
max_connections = 200
max_logical_replication_workers = 20
max_worker_processes = 20
wal_retrieve_retry_interval = 200ms
fsync = off
full_page_writes = off
`,
  );
  await startServer(server);
  return server;
}

export async function startServer({ folder }: TestServer): Promise<void> {
  await call('pg_ctl', ['-D', folder, '-l', join(folder, 'log'), '-w', '-t', '60', 'start']);
}

/** Stops a server at once, like a crash. */
export async function stopServer({ folder }: TestServer): Promise<void> {
  await call('pg_ctl', ['-D', folder, '-m', 'immediate', '-w', 'stop']);
}

/** Makes a backup of a running server. @returns its folder */
export async function backUp({ port }: TestServer): Promise<string> {
  const folder = await createFolder();
  const connection = ['-h', '127.0.0.1', '-p', String(port), '-U', 'postgres'];
  await call('pg_basebackup', [...connection, '-D', folder, '-c', 'fast', '--no-sync']);
  return folder;
}

/** Starts a server with the data of a backup beside the other one, on another port. */
export async function startCopy(backup: string): Promise<TestServer> {
  const server = { folder: backup, port: await freePort() };
  await appendFile(join(backup, 'postgresql.conf'), `port = ${String(server.port)}\n`);
  await startServer(server);
  return server;
}

/** Replaces the data of a server by those of a backup, also by one of another server. */
export async function restore(server: TestServer, backup: string): Promise<void> {
  await stopServer(server);
  await rm(server.folder, { recursive: true });
  await rename(backup, server.folder);
  await appendFile(join(server.folder, 'postgresql.conf'), `port = ${String(server.port)}\n`);
  await startServer(server);
}

/** Copies the files of a server, with its replication slots, as a snapshot of its machine. @returns their folder */
export async function snapshot(server: TestServer): Promise<string> {
  const folder = `${await createFolder()}/data`;
  await stopServer(server);
  await run('cp', ['-a', server.folder, folder]);
  await startServer(server);
  return folder;
}

/** Sends a signal to all processes of a server. */
export function signalServer({ folder }: TestServer, name: NodeJS.Signals): void {
  const main = Number(readFileSync(join(folder, 'postmaster.pid'), 'utf8').split('\n')[0]);
  const send = (pid: number) => {
    try {
      process.kill(pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  };
  // First, so that it starts no other process meanwhile.
  send(main);
  const children = spawnSync('pgrep', ['-P', String(main)], { encoding: 'utf8' })
    .stdout.trim()
    .split('\n');
  for (const pid of children.map(Number)) send(pid);
}

export async function removeServer(server: TestServer): Promise<void> {
  await stopServer(server).catch(() => undefined);
  await rm(server.folder, { recursive: true, force: true });
}
