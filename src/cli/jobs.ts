import type pg from 'pg';
import type { Config } from '../process/config.ts';
import { type Queue, readQueue } from '../database/queue.ts';
import { withOwner } from '../database/pool.ts';
import { formatMinute, withDatabase } from '../process/database-access.ts';

interface Format {
  json?: boolean;
}

const print = (text: string) => process.stdout.write(`${text}\n`);

const withQueue = <T>(config: Config, work: (client: pg.Client) => Promise<T>): Promise<T> =>
  withDatabase(config, (ownerUrl) => withOwner(ownerUrl, work));

/** Formats a table; columns of numbers are right-aligned. */
function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const widths = head.map((name, column) => Math.max(name.length, ...rows.map((row) => String(row[column]).length)));
  const isNumber = head.map((_, column) => rows.every((row) => typeof row[column] === 'number'));
  return [head, ...rows]
    .map((row) =>
      row.map((cell, column) =>
        isNumber[column] ? String(cell).padStart(widths[column] ?? 0) : String(cell).padEnd(widths[column] ?? 0),
      ),
    )
    .map((cells) => `${cells.join('  ').trimEnd()}\n`)
    .join('');
}

/** Formats a duration with its two largest units: `2 d 3 h`. */
function duration(seconds: number): string {
  const whole = Math.floor(seconds);
  const units = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3_600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const;
  const first = units.findIndex(([value]) => value > 0);
  if (first < 0) return '0 s';
  return units
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${String(value)} ${unit}`)
    .join(' ');
}

/** `id (subdomain)`, as in the output of other commands. */
const schoolOf = ({ tenant_id, subdomain }: { tenant_id: string | number | null; subdomain: string | null }) =>
  tenant_id === null ? '-' : subdomain === null ? String(tenant_id) : `${String(tenant_id)} (${subdomain})`;

const total = (tasks: Queue['tasks'], state: 'ready' | 'waiting' | 'running' | 'failed') =>
  tasks.reduce((sum, each) => sum + each[state], 0);

/** `school jobs list`: the number of jobs by task and state. */
export async function jobsList(config: Config, { json }: Format): Promise<void> {
  const queue = await withQueue(config, readQueue);
  if (json) {
    print(JSON.stringify(queue));
    return;
  }
  const { tasks } = queue;
  const oldest = tasks.flatMap(({ oldest_ready_seconds: seconds }) => seconds ?? []);
  const rows = [
    ...tasks.map((each) => ({ ...each, oldest: each.oldest_ready_seconds })),
    {
      task: 'all',
      ready: total(tasks, 'ready'),
      waiting: total(tasks, 'waiting'),
      running: total(tasks, 'running'),
      failed: total(tasks, 'failed'),
      oldest: oldest.length > 0 ? Math.max(...oldest) : null,
    },
  ].map(({ task, ready, waiting, running, failed, oldest: seconds }) => [
    task,
    ready,
    waiting,
    running,
    failed,
    seconds === null ? '-' : duration(seconds),
  ]);
  process.stdout.write(table(['TASK', 'READY', 'WAITING', 'RUNNING', 'FAILED', 'OLDEST READY'], rows));
  if (!queue.worker) print('No worker is running: jobs are not processed.');
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
}

/** @throws for a task name that no worker has ever had: probably a typo */
async function checkTask(client: pg.Client, task: string | undefined): Promise<void> {
  if (task === undefined) return;
  const { tasks } = await readQueue(client);
  if (!tasks.some(({ task: name }) => name === task)) {
    throw new Error(`There is no task ${JSON.stringify(task)}. Tasks: ${tasks.map((each) => each.task).join(', ')}.`);
  }
}

/** `school jobs failed`: failed jobs with their errors. */
export async function jobsFailed(
  config: Config,
  { task, limit, json }: Format & { task?: string; limit: number },
): Promise<void> {
  const rows = await withQueue(config, async (client) => {
    await checkTask(client, task);
    return (await client.query<FailedJob>('select * from core.failed_jobs($1, $2)', [task, limit])).rows;
  });
  const count = Number(rows[0]?.total ?? 0);
  if (json) {
    const jobs = rows.map(({ id, tenant_id, total: _total, ...job }) => ({
      id: Number(id),
      tenant_id: tenant_id === null ? null : Number(tenant_id),
      ...job,
    }));
    print(JSON.stringify({ total: count, jobs }));
    return;
  }
  if (count === 0) {
    print('No job has failed.');
    return;
  }
  process.stdout.write(
    table(
      ['ID', 'TASK', 'SCHOOL', 'ATTEMPTS', 'NEXT RUN', 'ERROR'],
      rows.map((job) => [
        Number(job.id),
        job.task,
        schoolOf(job),
        `${String(job.attempts)} of ${String(job.max_attempts)}`,
        job.next_run_at ? formatMinute(job.next_run_at) : 'never',
        job.error ?? '-',
      ]),
    ),
  );
  if (count > rows.length) print(`${String(count - rows.length)} more. Show all with --limit ${String(count)}.`);
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
export async function jobsShow(config: Config, id: number, { json }: Format): Promise<void> {
  const job = await withQueue(
    config,
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
 * `school jobs retry` and `school jobs cancel`.
 * @returns the exit code: 1 when a job given by id is running or does not exist
 */
export async function jobsChange(
  config: Config,
  action: 'retry' | 'cancel',
  ids: number[],
  { task, failed = false, json }: Format & { task?: string; failed?: boolean },
): Promise<number> {
  if (ids.length > 0 === (task !== undefined)) throw new Error('Give either job ids or --task.');
  if (action === 'cancel' && failed && task === undefined) throw new Error('--failed needs --task.');
  const changed = await withQueue(config, async (client) => {
    await checkTask(client, task);
    const { rows } = await client.query<{ changed: Changes }>('select core.change_jobs($1, $2, $3, $4) as changed', [
      action,
      ids,
      task,
      failed,
    ]);
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
  return ids.length > 0 && running.length + unknown.length > 0 ? 1 : 0;
}
