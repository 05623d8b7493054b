import type pg from 'pg';
import type { Config } from '../process/config.ts';
import { type Queue, readQueue } from '../database/queue.ts';
import { withOwner } from '../database/pool/pool.ts';
import { formatMinute, withMigratedDatabase } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { duration, type Format, print, table } from './output.ts';
import { findTenant } from '../database/find-tenant.ts';
import {
  homeName,
  type OfServer,
  onEachServer,
  onServer,
  type Server,
  serverOfSchool,
  serversOfCommand,
} from '../servers/servers.ts';

/** The servers of a command: all of them, or the one that `--node` names. */
const withServers = <T>(
  config: Config,
  node: string | undefined,
  work: (servers: Server[]) => Promise<T>,
): Promise<T> => withMigratedDatabase(config, async (ownerUrl) => work(await serversOfCommand(ownerUrl, node)));

/** Runs `work` on the server that `--node` names; without it, on the database of the command. */
const withQueue = <T>(config: Config, node: string | undefined, work: (client: pg.Client) => Promise<T>): Promise<T> =>
  withMigratedDatabase(config, async (ownerUrl) => {
    const [server] = await serversOfCommand(ownerUrl, node ?? homeName);
    return onServer(server, ({ url }) => withOwner(url, work));
  });

interface Answers<T> {
  /** The results of the servers that answered. */
  found: { name: string; result: T }[];
  /** The servers that did not, with the reason. */
  failed: { name: string; error: string }[];
}

/** The results of all servers. A node that does not answer is a line on standard error. @throws if no server answers */
function reachable<T>(results: OfServer<T>[]): Answers<T> {
  const found = results.flatMap(({ server, result }) => (result === undefined ? [] : [{ name: server.name, result }]));
  if (found.length === 0) throw new Error(results[0]?.error);
  const failed = results.flatMap(({ server, error }) => (error === undefined ? [] : [{ name: server.name, error }]));
  for (const { name, error } of failed) process.stderr.write(`${name} does not answer: ${error}\n`);
  return { found, failed };
}

/** `id (subdomain)`, as in the output of other commands. */
const schoolOf = ({ tenant_id, subdomain }: { tenant_id: string | number | null; subdomain: string | null }) =>
  tenant_id === null ? '-' : subdomain === null ? String(tenant_id) : `${String(tenant_id)} (${subdomain})`;

const total = (tasks: Queue['tasks'], state: 'ready' | 'waiting' | 'running' | 'failed') =>
  tasks.reduce((sum, each) => sum + each[state], 0);

/** Jobs as those of one task. The oldest ready job counts for the age. */
function addUp(task: string, tasks: Queue['tasks']): Queue['tasks'][number] {
  const ages = tasks.flatMap(({ oldest_ready_seconds: seconds }) => seconds ?? []);
  return {
    task,
    ready: total(tasks, 'ready'),
    waiting: total(tasks, 'waiting'),
    running: total(tasks, 'running'),
    failed: total(tasks, 'failed'),
    oldest_ready_seconds: ages.length > 0 ? Math.max(...ages) : null,
  };
}

/** The queues of all servers as one. */
function combineQueues(queues: Queue[]): Queue {
  const byTask = Map.groupBy(
    queues.flatMap(({ tasks }) => tasks),
    ({ task }) => task,
  );
  return {
    worker: queues.every(({ worker }) => worker),
    tasks: [...byTask].map(([task, each]) => addUp(task, each)),
  };
}

/**
 * `school jobs list`: the number of jobs by task and state, of all servers or the one that `--node` names.
 * @returns the exit code: `failed` if a server does not answer
 */
export async function jobsList(config: Config, { json, node }: Format & { node?: string }): Promise<number> {
  const { found: queues, failed } = await withServers(config, node, async (servers) =>
    reachable(await onEachServer(servers, ({ url }) => withOwner(url, readQueue))),
  );
  const exitCode = failed.length > 0 ? exitCodes.failed : exitCodes.done;
  const isOne = queues.length + failed.length === 1;
  const queue = combineQueues(queues.map(({ result }) => result));
  if (json) {
    const ofNodes = [...queues.map(({ name, result }) => ({ name, ...result })), ...failed];
    print(JSON.stringify({ ...queue, ...(isOne ? {} : { nodes: ofNodes }) }));
    return exitCode;
  }
  const { tasks } = queue;
  const rows = [...tasks, addUp('all', tasks)].map(
    ({ task, ready, waiting, running, failed, oldest_ready_seconds: seconds }) => [
      task,
      ready,
      waiting,
      running,
      failed,
      seconds === null ? '-' : duration(seconds),
    ],
  );
  process.stdout.write(table(['TASK', 'READY', 'WAITING', 'RUNNING', 'FAILED', 'OLDEST READY'], rows));
  for (const { name, result } of queues)
    if (!result.worker) print(`No worker is running${isOne ? '' : ` for ${name}`}: jobs are not processed.`);
  return exitCode;
}

interface FailedJob {
  id: string;
  task: string;
  tenant_id: string | null;
  subdomain: string | null;
  attempts: number;
  max_attempts: number;
  error: string | null;
  next_run_at: Date | null;
  total: string;
  /** Of a row of the outbox. */
  event: string | null;
}

/** @throws for a task name that no worker has ever had: probably a typo */
function checkTask(task: string | undefined, queues: Queue[]): void {
  const names = new Set(queues.flatMap(({ tasks }) => tasks.map((each) => each.task)));
  if (task === undefined || names.has(task)) return;
  throw new Error(`There is no task ${JSON.stringify(task)}. Tasks: ${[...names].join(', ')}.`);
}

/**
 * `school jobs failed`: failed jobs with their errors, of all servers or the one that `--node` names.
 * @returns the exit code: `failed` if a server does not answer
 */
export async function jobsFailed(
  config: Config,
  { task, limit, json, node }: Format & { task?: string; limit: number; node?: string },
): Promise<number> {
  const { found, failed } = await withServers(config, node, async (servers) =>
    reachable(
      await onEachServer(servers, ({ url }) =>
        withOwner(url, async (client) => {
          const queue = await readQueue(client);
          const { rows } = await client.query<FailedJob>('select * from core.failed_jobs($1, $2, true)', [task, limit]);
          return { queue, jobs: rows };
        }),
      ),
    ),
  );
  // A node whose worker has not started yet has no tasks.
  checkTask(
    task,
    found.map(({ result }) => result.queue),
  );
  const exitCode = failed.length > 0 ? exitCodes.failed : exitCodes.done;
  const isOne = found.length + failed.length === 1;
  const count = found.reduce((sum, { result }) => sum + Number(result.jobs[0]?.total ?? 0), 0);
  const rows = found.flatMap(({ name, result }) => result.jobs.map((job) => ({ ...job, node: name }))).slice(0, limit);
  if (json) {
    const jobs = rows.map(({ id, tenant_id, total: _total, node: name, event, ...job }) => ({
      id: Number(id),
      tenant_id: tenant_id === null ? null : Number(tenant_id),
      ...(isOne ? {} : { node: name }),
      ...job,
      ...(event === null ? {} : { event }),
    }));
    print(JSON.stringify({ total: count, jobs, ...(failed.length > 0 ? { unreachable: failed } : {}) }));
    return exitCode;
  }
  if (count === 0) {
    print(failed.length > 0 ? 'No job has failed on the servers that answer.' : 'No job has failed.');
    return exitCode;
  }
  process.stdout.write(
    table(
      [...(isOne ? [] : ['NODE']), 'ID', 'TASK', 'SCHOOL', 'ATTEMPTS', 'NEXT RUN', 'ERROR'],
      rows.map((job) => [
        ...(isOne ? [] : [job.node]),
        Number(job.id),
        job.event === null ? job.task : `${job.task} ${job.event}`,
        schoolOf(job),
        `${String(job.attempts)} of ${String(job.max_attempts)}`,
        job.next_run_at ? formatMinute(job.next_run_at) : 'never',
        job.error ?? '-',
      ]),
    ),
  );
  if (count > rows.length) print(`${String(count - rows.length)} more. Show all with --limit ${String(count)}.`);
  return exitCode;
}

interface Job {
  id: number;
  task: string;
  state: string;
  tenant_id: number | null;
  subdomain: string | null;
  attempts: number;
  max_attempts: number;
  priority: number;
  created_at: string;
  run_at: string;
  locked_at: string | null;
  error: string | null;
  payload: object;
}

/** `school jobs show`: one job. @throws when it does not exist */
export async function jobsShow(config: Config, id: number, { json, node }: Format & { node?: string }): Promise<void> {
  const job = await withQueue(
    config,
    node,
    async (client) => (await client.query<{ job: Job | null }>('select core.job($1) as job', [id])).rows[0]?.job,
  );
  if (!job) throw new Error(`There is no job ${String(id)}. Finished jobs are removed from the queue.`);
  if (json) {
    print(JSON.stringify(job));
    return;
  }
  const time = (text: string) => formatMinute(new Date(text));
  const lines: [string, string][] = [
    ['Job', `${String(job.id)}, ${job.task}`],
    ['State', job.state === 'failed' ? 'failed, no attempts left' : job.state],
    ['School', schoolOf(job)],
    ['Attempts', `${String(job.attempts)} of ${String(job.max_attempts)}`],
    ['Queued', time(job.created_at)],
    ['Due', job.state === 'failed' ? 'never' : time(job.run_at)],
    ...(job.locked_at === null ? [] : [['Running since', time(job.locked_at)] satisfies [string, string]]),
    ['Error', job.error ?? '-'],
    ['Payload', JSON.stringify(job.payload)],
  ];
  process.stdout.write(lines.map(([name, value]) => `${name.padEnd(13)}  ${value}\n`).join(''));
}

interface Changes {
  /** The number of changed jobs by task. */
  done: Record<string, number>;
  running: number[];
  unknown: number[];
}

const countJobs = (count: number) => (count === 1 ? '1 job' : `${String(count)} jobs`);

/** The first 20 ids. */
const listIds = (ids: number[]) =>
  `${ids.slice(0, 20).join(', ')}${ids.length > 20 ? ` and ${String(ids.length - 20)} more` : ''}`;

/**
 * Runs `work` on the server that `--node` names, or on that of the school, with the id of the school. Without both, on
 * the database of the command.
 */
const withQueueOf = <T>(
  config: Config,
  { node, tenant }: Record<'node' | 'tenant', string | undefined>,
  work: (client: pg.Client, schoolId: string | undefined) => Promise<T>,
): Promise<T> => {
  if (tenant === undefined) return withQueue(config, node, (client) => work(client, undefined));
  return withMigratedDatabase(config, async (ownerUrl) => {
    const { id } = await withOwner(ownerUrl, (home) => findTenant(home, tenant));
    const server =
      node === undefined ? await serverOfSchool(ownerUrl, id) : (await serversOfCommand(ownerUrl, node))[0];
    return onServer(server, ({ url }) => withOwner(url, (client) => work(client, id)));
  });
};

/**
 * `school jobs retry` and `school jobs cancel`.
 * @returns the exit code: 1 when a job given by id is running or does not exist
 */
export async function jobsChange(
  config: Config,
  action: 'retry' | 'cancel',
  ids: number[],
  {
    task,
    tenant,
    failed = false,
    json,
    node,
  }: Format & { task?: string; tenant?: string; failed?: boolean; node?: string },
): Promise<number> {
  // The ids of events are not those of jobs.
  if (task !== 'outbox' && ids.length > 0 === (task !== undefined)) throw new Error('Give either job ids or --task.');
  if (ids.length > 0 && tenant !== undefined) throw new Error('Give either ids or --tenant.');
  if (tenant !== undefined && task === undefined) throw new Error('--tenant needs --task.');
  if (action === 'cancel' && failed && task === undefined) throw new Error('--failed needs --task.');
  const changed = await withQueueOf(config, { node, tenant }, async (client, schoolId) => {
    if (task !== undefined) checkTask(task, [await readQueue(client)]);
    const { rows } = await client.query<{ changed: Changes }>(
      'select core.change_jobs($1, $2, $3, $4, $5) as changed',
      [action, ids, task, failed, schoolId],
    );
    return rows[0]?.changed ?? { done: {}, running: [], unknown: [] };
  });
  const { done, running, unknown } = changed;
  if (json) print(JSON.stringify(changed));
  else {
    const verb = action === 'retry' ? 'Queued again' : 'Removed';
    for (const [name, count] of Object.entries(done)) print(`${verb}: ${countJobs(count)} of ${name}.`);
    if (running.length > 0) print(`Running, not changed: ${listIds(running)}.`);
    if (unknown.length > 0) print(`Not found, possibly finished: ${listIds(unknown)}.`);
    if (Object.keys(done).length + running.length + unknown.length === 0) print('No jobs matched.');
  }
  return ids.length > 0 && running.length + unknown.length > 0 ? exitCodes.failed : exitCodes.done;
}
