import type { Logger } from 'pino';
import { answerTimeoutMs, withOwnerInTime } from '../database/pool/pool.ts';
import { reasonOf } from '../domain/reason.ts';
import { homeName, readServers, type Server } from '../servers/servers.ts';
import { compareTokens, nodesBehind, refusalOf } from '../servers/tokens.ts';
import { endsWithin } from './end-in-time.ts';

/** A running worker. */
export interface RunningWorker {
  isAlive(): boolean;
  stop(): Promise<void>;
}

interface Started {
  url: string;
  worker: RunningWorker;
}

interface ServerWorkersOptions {
  /** The database of this process: a home, a node or a single server. */
  ownerUrl: string;
  /** Whether the database can have nodes: the embedded server has none. */
  canHaveNodes: boolean;
  /** The names of the servers to serve; undefined for all. */
  names: readonly string[] | undefined;
  start: (server: Server) => Promise<RunningWorker>;
  logger: Logger;
}

/** How often the servers are looked up, and workers that ended are started again. */
const checkMs = 15_000;
/** The same for a server without nodes, where each look-up is a connection for nothing. */
const idleCheckMs = 60_000;
/** How long the end of the process waits for workers that are being started or stopped. */
const changeTimeoutMs = 15_000;

/** The servers whose jobs may run. */
interface Served {
  /** Nobody, if the database of this process is a copy, or older than others remember it. */
  servers: Server[];
  refusal: string | null;
  /** The nodes that are older than the home remembers them, or at whose address another database answers. */
  behind: string[];
}

/**
 * @param canHaveNodes  see ServerWorkersOptions
 * @param compares  whether to ask the nodes which servers are behind; a check of the worker at home does so later
 */
const readServed = (ownerUrl: string, canHaveNodes: boolean, compares: boolean): Promise<Served> =>
  withOwnerInTime(ownerUrl, answerTimeoutMs * 2, async (client) => {
    if (compares) await compareTokens(client);
    const refusal = await refusalOf(client);
    const behind = await nodesBehind(client);
    const [own, ...nodes] = await readServers(client, ownerUrl);
    const servers = canHaveNodes ? [own, ...nodes] : [own];
    return {
      servers: refusal === null ? servers.filter(({ name }) => !behind.includes(name)) : [],
      refusal,
      behind,
    };
  });

/**
 * Keeps a worker running for the database of this process, and for each of its nodes, also for those that are added later
 * or were down. A server that was restored to an earlier moment, or that runs twice, gets none: its queue has jobs that
 * were done.
 * @returns a function that stops all of them
 * @throws if the worker of this database cannot be started
 */
export async function serverWorkers({
  ownerUrl,
  canHaveNodes,
  names,
  start,
  logger,
}: ServerWorkersOptions): Promise<() => Promise<void>> {
  const workers = new Map<string, Started>();
  /** What was logged last about a server, so that one that stays down is one line. */
  const problems = new Map<string, string>();
  let isStopped = false;
  const warn = (name: string, cause: string) => {
    if (problems.get(name) !== cause) logger.warn({ message: `The worker of ${name} does not run.`, cause });
    problems.set(name, cause);
  };

  /** The starts and stops that are under way, by server: one that does not answer delays no other. */
  const changes = new Map<string, Promise<void>>();
  function change(name: string, work: () => Promise<void>): void {
    if (changes.has(name)) return;
    const changed = work()
      .catch((error: unknown) => warn(name, reasonOf(error)))
      .finally(() => changes.delete(name));
    changes.set(name, changed);
  }

  async function stopOne(name: string): Promise<void> {
    const running = workers.get(name);
    workers.delete(name);
    await running?.worker.stop();
  }

  async function startOne(server: Server): Promise<void> {
    await stopOne(server.name);
    workers.set(server.name, { url: server.url, worker: await start(server) });
    problems.delete(server.name);
  }

  const isRunning = ({ name, url }: Server) => {
    const running = workers.get(name);
    return running?.url === url && running.worker.isAlive();
  };
  const isChosen = ({ name }: Server) => names === undefined || names.includes(name);

  function warnAbout({ refusal, behind }: Served): void {
    if (refusal !== null) warn(homeName, refusal);
    for (const name of behind)
      warn(name, 'It is older than the home remembers it, or another database answers. See: school node verify');
  }

  /** @returns the number of servers */
  async function check(): Promise<number> {
    const served = await readServed(ownerUrl, canHaveNodes, false);
    if (isStopped) return served.servers.length;
    warnAbout(served);
    const chosen = served.servers.filter(isChosen);
    for (const name of workers.keys())
      if (!chosen.some((server) => server.name === name)) change(name, () => stopOne(name));
    for (const server of chosen) if (!isRunning(server)) change(server.name, () => startOne(server));
    return served.servers.length;
  }

  const first = await readServed(ownerUrl, canHaveNodes, true);
  warnAbout(first);
  const [own] = first.servers;
  if (own && isChosen(own)) await startOne(own);

  let timer: NodeJS.Timeout | undefined;
  let checking: Promise<void> = Promise.resolve();
  const run = () => {
    checking = check()
      .catch((error: unknown) => warn('the servers', reasonOf(error)))
      .then((count) => {
        if (!isStopped) timer = setTimeout(run, count === 1 ? idleCheckMs : checkMs).unref();
      });
  };
  run();
  return async function stop(): Promise<void> {
    isStopped = true;
    clearTimeout(timer);
    await checking;
    // The server of a worker that is being started may have become silent.
    await endsWithin(changeTimeoutMs, Promise.all(changes.values()));
    await Promise.all([...workers.values()].map(({ worker }) => worker.stop()));
  };
}
