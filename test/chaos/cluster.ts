import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { crashingServer } from '../support/server/own-server.ts';
import { type Program, ready, startProgram } from '../support/server/processes.ts';
import { breakableProxy } from './proxy.ts';
import { pick, type Random } from './random.ts';

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
  /** The address of the database, for the owner. */
  url: string;
  /** The addresses of the API processes that should answer now. */
  apiUrls: () => string[];
  faults: Record<FaultName, (n: Random) => Promise<void>>;
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
  | 'kill an API while Postgres crashes';

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

/** Starts Postgres behind a proxy, API processes and workers. */
export async function startCluster({ apis = 2, workers = 2 } = {}): Promise<Cluster> {
  const server = await crashingServer();
  const proxy = await breakableProxy(Number(new URL(server.url).port));
  const members: Member[] = [];
  const proxied = new URL(server.url);
  proxied.port = String(proxy.port);
  const env = (isFirst: boolean) => ({
    DATABASE_URL: proxied.href,
    PORT: '0',
    DATA_DIR: join(server.folder, 'data'),
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
  const postmaster = async () =>
    Number((await readFile(join(server.folder, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);

  try {
    await add('api', true);
    await Promise.all([
      ...Array.from({ length: apis - 1 }, () => add('api')),
      ...Array.from({ length: workers }, () => add('worker')),
    ]);
  } catch (error) {
    for (const { program } of members) program.kill('SIGKILL');
    await proxy.close();
    await server.remove();
    throw error;
  }
  return {
    url: server.url,
    apiUrls: () => members.filter(({ part, isEnding }) => part === 'api' && !isEnding).map(({ url }) => url),
    faults: {
      'kill an API': (n) => restart(one('api', n), 'SIGKILL'),
      'stop and start an API': (n) => restart(one('api', n), 'SIGTERM'),
      'freeze an API': (n) => freeze([one('api', n).program.pid], 300 + n() * 3000),
      'kill a worker': (n) => restart(one('worker', n), 'SIGKILL'),
      'stop and start a worker': (n) => restart(one('worker', n), 'SIGTERM'),
      'freeze a worker': (n) => freeze([one('worker', n).program.pid], 300 + n() * 3000),
      'crash Postgres': (n) => server.crash('server', Math.floor(n() * 600)),
      'kill a backend': () => server.crash('backend', 0),
      'freeze Postgres': async (n) => freeze(await processTree(await postmaster()), 300 + n() * 2000),
      'break connections to Postgres': async (n) => {
        proxy.breakConnections(n() < 0.3 ? 0 : Math.floor(n() * 3000));
        await pause(300);
        proxy.breakConnections(0);
      },
      'kill an API while Postgres crashes': (n) =>
        restart(one('api', n), 'SIGKILL', () => server.crash('server', Math.floor(n() * 600))),
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
      await server.remove();
    },
  };
}
