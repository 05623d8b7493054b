import type { Logger } from 'pino';
import { readNodes } from '../servers/nodes/nodes.ts';
import { answerTimeoutMs, withOwnerInTime } from '../database/pool/pool.ts';
import { reasonOf } from '../domain/reason.ts';
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

interface NodeWorkerOptions {
  /** The home. */
  ownerUrl: string;
  /** The names of the nodes to serve; undefined for all. */
  names: readonly string[] | undefined;
  start: (node: { name: string; url: string }) => Promise<RunningWorker>;
  logger: Logger;
}

/** How often the nodes are looked up, and workers that ended are started again. */
const checkMs = 15_000;
/** The same for a server without nodes, where each look-up is a connection for nothing. */
const idleCheckMs = 60_000;
/** How long the end of the process waits for workers that are being started or stopped. */
const changeTimeoutMs = 15_000;

/**
 * Keeps a worker running for each node of the home, also for those that are added later or were down.
 * @returns a function that stops all of them
 */
export function nodeWorkers({ ownerUrl, names, start, logger }: NodeWorkerOptions): () => Promise<void> {
  const workers = new Map<string, Started>();
  /** What was logged last about a node, so that a node that stays down is one line. */
  const problems = new Map<string, string>();
  let isStopped = false;
  const warn = (name: string, cause: string) => {
    if (problems.get(name) !== cause) logger.warn({ message: `The worker of ${name} does not run.`, cause });
    problems.set(name, cause);
  };

  /** The starts and stops that are under way, by node: a server that does not answer delays no other. */
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

  async function startOne(node: { name: string; url: string }): Promise<void> {
    await stopOne(node.name);
    workers.set(node.name, { url: node.url, worker: await start(node) });
    problems.delete(node.name);
  }

  const isRunning = ({ name, url }: { name: string; url: string }) => {
    const running = workers.get(name);
    return running?.url === url && running.worker.isAlive();
  };

  /** @returns the number of nodes */
  async function check(): Promise<number> {
    const nodes = await withOwnerInTime(ownerUrl, answerTimeoutMs, readNodes);
    if (isStopped) return nodes.length;
    const served = nodes.filter(
      ({ name, status }) => status !== 'joining' && (names === undefined || names.includes(name)),
    );
    for (const name of workers.keys())
      if (!served.some((node) => node.name === name)) change(name, () => stopOne(name));
    for (const node of served) if (!isRunning(node)) change(node.name, () => startOne(node));
    return nodes.length;
  }

  let timer: NodeJS.Timeout | undefined;
  let checking: Promise<void> = Promise.resolve();
  const run = () => {
    checking = check()
      .catch((error: unknown) => warn('the nodes', reasonOf(error)))
      .then((count) => {
        if (!isStopped) timer = setTimeout(run, count === 0 ? idleCheckMs : checkMs).unref();
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
