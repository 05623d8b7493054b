import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { readServers } from '../../src/servers/servers.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { type Program, ready, startProgram } from '../support/server/processes.ts';
import { apiSettings } from '../nodes/fleet.ts';
import { breakableProxy } from './proxy.ts';
import { pick, type Random } from './random.ts';
import { type ChaosServers, moveAndConfirm, startServers } from './servers.ts';

export const password = 'test-password';
export const operatorEmail = 'op@test.example';

/** A process of the service that can be killed and started again. */
interface Member {
  part: 'api' | 'worker';
  program: Program;
  /** The address of an API. */
  url: string;
  /** The cluster ends it on purpose. */
  isEnding: boolean;
}

/** Postgres with several API processes and workers, and the faults that can hit them. */
export interface Cluster {
  servers: ChaosServers;
  /** The addresses of the API processes that should answer now. */
  apiUrls: () => string[];
  /** Those that can hit these servers: some need a node. */
  faults: Partial<Record<FaultName, (n: Random) => Promise<void>>>;
  /** @throws if a process has ended without a fault, with its output */
  check(): Promise<void>;
  close(): Promise<void>;
}

export type FaultName =
  | 'kill an API'
  | 'stop and start an API'
  | 'freeze an API'
  | 'kill a worker'
  | 'stop and start a worker'
  | 'freeze a worker'
  | 'crash Postgres'
  | 'kill a backend'
  | 'freeze Postgres'
  | 'break connections to Postgres'
  | 'kill an API while Postgres crashes'
  | 'crash a node'
  | 'freeze a node'
  | 'move a school'
  | 'crash a server while a school moves';

/** The ids of a process and of all its children. */
async function processTree(root: number): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const parents = new Map<number, number>();
  for (const pid of pids) {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    const parent = /\) \S (\d+)/.exec(stat)?.[1];
    if (parent) parents.set(Number(pid), Number(parent));
  }
  const isBelow = (pid: number): boolean => {
    const parent = parents.get(pid);
    return pid === root || (parent !== undefined && parent > 1 && isBelow(parent));
  };
  return [...parents.keys()].filter(isBelow);
}

/** Sends a signal to a process, if it still exists. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Suspends processes for a time. */
async function freeze(pids: readonly number[], milliseconds: number): Promise<void> {
  for (const pid of pids) signal(pid, 'SIGSTOP');
  await pause(milliseconds);
  for (const pid of pids) signal(pid, 'SIGCONT');
}

/** Starts Postgres behind a proxy, nodes beside it, API processes and workers. */
export async function startCluster({ apis = 2, workers = 2, nodes = 0 } = {}): Promise<Cluster> {
  const servers = await startServers(nodes);
  const { home } = servers;
  const proxy = await breakableProxy(Number(new URL(home.url).port));
  const members: Member[] = [];
  const proxied = (url: string): string => Object.assign(new URL(url), { port: String(proxy.port) }).href;
  const env = (isFirst: boolean) => ({
    ...(servers.forwarder === undefined
      ? { DATABASE_URL: proxied(home.url) }
      : apiSettings({ home: proxied(home.url), nodes: servers.nodes }, proxied(servers.forwarder))),
    PORT: '0',
    DATA_DIR: join(servers.folder, 'data'),
    DEMO: 'false',
    LOG_LEVEL: 'silent',
    DATABASE_POOL_SIZE: '6',
    WORKER_CONCURRENCY: '2',
    WORKER_CRASH_CHECK_MS: '500',
    JWT_SECRETS: 'a secret of the tests that is long enough',
    MIGRATE_ON_START: String(isFirst),
    RATE_LIMIT_PER_MINUTE: '0',
    USER_RATE_LIMIT_PER_MINUTE: '0',
    SCHOOL_RATE_LIMIT_PER_MINUTE: '0',
    PUBLIC_RATE_LIMIT_PER_MINUTE: '0',
    PLATFORM_ADMIN_EMAIL: operatorEmail,
    PLATFORM_ADMIN_PASSWORD: password,
  });

  /** Starts a program, again if it could not reach a database that a fault has just hit. */
  async function startPart(part: Member['part'], isFirst = false): Promise<Pick<Member, 'program' | 'url'>> {
    for (let attempt = 1; ; attempt++) {
      const program = startProgram('src/main.ts', ['--only', part], env(isFirst));
      try {
        return { program, url: (await ready(program)).url };
      } catch (error) {
        if (attempt === 5) throw error;
        await pause(300);
      }
    }
  }
  async function add(part: Member['part'], isFirst = false): Promise<void> {
    members.push({ part, ...(await startPart(part, isFirst)), isEnding: false });
  }
  async function restart(member: Member, by: NodeJS.Signals, meanwhile?: () => Promise<void>): Promise<void> {
    member.isEnding = true;
    member.program.kill(by);
    await member.program.ended;
    await meanwhile?.();
    Object.assign(member, await startPart(member.part), { isEnding: false });
  }
  const one = (part: Member['part'], n: Random): Member => {
    const member = pick(
      members.filter((each) => each.part === part),
      n,
    );
    if (!member) throw new Error(`There is no ${part}.`);
    return member;
  };
  const freezeServer = async ({ pidFile }: { pidFile: string }, n: Random) =>
    freeze(await processTree(Number((await readFile(pidFile, 'utf8')).split('\n')[0])), 300 + n() * 2000);
  const downtimeMs = (n: Random) => Math.floor(n() * 600);
  const someNode = (n: Random) => pick(servers.nodes, n) ?? home;
  const moveOne = async (n: Random) => {
    const { rows } = await withOwner(home.url, (client) =>
      client.query<{ id: number; node_id: number | null }>(
        "select id::integer, node_id::integer from platform.tenant where status = 'active' order by id",
      ),
    );
    const school = pick(rows, n);
    const others = await withOwner(home.url, (client) => readServers(client, home.url));
    const to = pick(
      others.filter(({ id }) => id !== school?.node_id),
      n,
    );
    if (school && to) await moveAndConfirm(servers, school.id, to.name);
  };
  const ofNodes: Cluster['faults'] = {
    'crash a node': (n) => someNode(n).crash('server', downtimeMs(n)),
    'freeze a node': (n) => freezeServer(someNode(n), n),
    'move a school': moveOne,
    'crash a server while a school moves': async (n) => {
      const moved = moveOne(n);
      moved.catch(() => undefined);
      await pause(n() * 5000);
      await (n() < 0.5 ? home : someNode(n)).crash('server', downtimeMs(n));
      await moved;
    },
  };

  try {
    await add('api', true);
    await Promise.all([
      ...Array.from({ length: apis - 1 }, () => add('api')),
      ...Array.from({ length: workers }, () => add('worker')),
    ]);
  } catch (error) {
    for (const { program } of members) program.kill('SIGKILL');
    await proxy.close();
    await servers.remove();
    throw error;
  }
  return {
    servers,
    apiUrls: () => members.filter(({ part, isEnding }) => part === 'api' && !isEnding).map(({ url }) => url),
    faults: {
      'kill an API': (n) => restart(one('api', n), 'SIGKILL'),
      'stop and start an API': (n) => restart(one('api', n), 'SIGTERM'),
      'freeze an API': (n) => freeze([one('api', n).program.pid], 300 + n() * 3000),
      'kill a worker': (n) => restart(one('worker', n), 'SIGKILL'),
      'stop and start a worker': (n) => restart(one('worker', n), 'SIGTERM'),
      'freeze a worker': (n) => freeze([one('worker', n).program.pid], 300 + n() * 3000),
      'crash Postgres': (n) => home.crash('server', downtimeMs(n)),
      'kill a backend': () => home.crash('backend', 0),
      'freeze Postgres': (n) => freezeServer(home, n),
      'break connections to Postgres': async (n) => {
        proxy.breakConnections(n() < 0.3 ? 0 : Math.floor(n() * 3000));
        await pause(300);
        proxy.breakConnections(0);
      },
      'kill an API while Postgres crashes': (n) =>
        restart(one('api', n), 'SIGKILL', () => home.crash('server', downtimeMs(n))),
      ...(nodes > 0 ? ofNodes : {}),
    },
    async check() {
      for (const { part, program, isEnding } of members) {
        if (isEnding || !program.hasEnded) continue;
        const { code, signal: by, stdout, stderr } = await program.ended;
        throw new Error(`A process (${part}) has ended by itself with ${String(by ?? code)}:\n${stdout}\n${stderr}`);
      }
    },
    async close() {
      for (const member of members) {
        member.isEnding = true;
        signal(member.program.pid, 'SIGCONT');
        member.program.kill('SIGTERM');
      }
      await Promise.all(members.map(({ program }) => program.ended));
      await proxy.close();
      await servers.remove();
    },
  };
}
