import type { Logger } from 'pino';
import { readNodes } from '../database/nodes.ts';
import { withOwner } from '../database/pool.ts';

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

const causeOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

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

  async function keepRunning(node: { name: string; url: string }): Promise<void> {
    const running = workers.get(node.name);
    if (running?.worker.isAlive() && running.url === node.url) return;
    try {
      workers.delete(node.name);
      await running?.worker.stop();
      workers.set(node.name, { url: node.url, worker: await start(node) });
      problems.delete(node.name);
    } catch (error) {
      warn(node.name, causeOf(error));
    }
  }

  /** @returns the number of nodes */
  async function check(): Promise<number> {
    const nodes = await withOwner(ownerUrl, readNodes);
    const served = nodes.filter(
      ({ name, status }) => status !== 'joining' && (names === undefined || names.includes(name)),
    );
    for (const [name, { worker }] of workers)
      if (!served.some((node) => node.name === name)) {
        workers.delete(name);
        await worker.stop();
      }
    await Promise.all(served.map(keepRunning));
    return nodes.length;
  }

  let timer: NodeJS.Timeout | undefined;
  let checking: Promise<void> = Promise.resolve();
  const run = () => {
    checking = check()
      .catch((error: unknown) => warn('the nodes', causeOf(error)))
      .then((count) => {
        if (!isStopped) timer = setTimeout(run, count === 0 ? idleCheckMs : checkMs).unref();
      });
  };
  run();
  return async function stop(): Promise<void> {
    isStopped = true;
    clearTimeout(timer);
    await checking;
    await Promise.all([...workers.values()].map(({ worker }) => worker.stop()));
  };
}
