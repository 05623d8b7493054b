import type pg from 'pg';
import type { Config } from '../process/config.ts';
import { type Queue, readQueue } from '../database/queue.ts';
import { withOwner } from '../database/pool.ts';
import { minute, withDatabase } from '../process/own-database.ts';

interface Format {
  json?: boolean;
}

const print = (text: string) => process.stdout.write(`${text}\n`);

const withQueue = <T>(config: Config, work: (client: pg.Client) => Promise<T>): Promise<T> =>
  withDatabase(config, (ownerUrl) => withOwner(ownerUrl, work));

/** Rows below a head, in columns as wide as they need to be; numbers stand right. */
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

/** A time that has passed, by its two greatest units. */
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

/** A school as other commands name it. */
const schoolOf = ({ tenant_id, subdomain }: { tenant_id: string | number | null; subdomain: string | null }) =>
  tenant_id === null ? '-' : subdomain === null ? String(tenant_id) : `${String(tenant_id)} (${subdomain})`;

const total = (tasks: Queue['tasks'], state: 'ready' | 'waiting' | 'running' | 'failed') =>
  tasks.reduce((sum, each) => sum + each[state], 0);

/** `school jobs list`: the lengths of the queue by task and state. */
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
      ...{
        task: 'all',
        ready: total(tasks, 'ready'),
        waiting: total(tasks, 'waiting'),
        running: total(tasks, 'running'),
      },
      ...{ failed: total(tasks, 'failed'), oldest: oldest.length > 0 ? Math.max(...oldest) : null },
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
  if (!queue.worker) print('No worker is alive: nothing is worked through.');
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

/** Refuses a task that no worker has ever had, which is a slip of the keyboard. */
async function checkTask(client: pg.Client, task: string | undefined): Promise<void> {
  if (task === undefined) return;
  const { tasks } = await readQueue(client);
  if (!tasks.some((each) => each.task === task)) {
    throw new Error(
      `There is no task ${JSON.stringify(task)}. There are: ${tasks.map((each) => each.task).join(', ')}.`,
    );
  }
}

/** `school jobs failed`: jobs that have failed, with their errors. */
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
        job.next_run_at ? minute(job.next_run_at) : 'never',
        job.error ?? '-',
      ]),
    ),
  );
  if (count > rows.length) print(`and ${String(count - rows.length)} more: --limit ${String(count)} shows all.`);
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

/** `school jobs show`: one job. @throws when there is none */
export async function jobsShow(config: Config, id: number, { json }: Format): Promise<void> {
  const job = await withQueue(
    config,
    async (client) => (await client.query<{ job: Job | null }>('select core.job($1) as job', [id])).rows[0]?.job,
  );
  if (!job) throw new Error(`There is no job ${String(id)}. One that is done is removed.`);
  if (json) {
    print(JSON.stringify(job));
    return;
  }
  const moment = (text: string) => minute(new Date(text));
  const lines: [string, string][] = [
    ['Job', `${String(job.id)}, ${job.task}`],
    ['State', job.state === 'failed' ? 'failed for good' : job.state],
    ['School', schoolOf(job)],
    ['Attempts', `${String(job.attempts)} of ${String(job.max_attempts)}`],
    ['Queued', moment(job.created_at)],
    ['Due', job.state === 'failed' ? 'never' : moment(job.run_at)],
    ...(job.locked_at === null ? [] : [['Running since', moment(job.locked_at)] satisfies [string, string]]),
    ['Error', job.error ?? '-'],
    ['Payload', JSON.stringify(job.payload)],
  ];
  process.stdout.write(lines.map(([name, value]) => `${name.padEnd(13)}  ${value}\n`).join(''));
}

interface Changed {
  /** How many of each task. */
  done: Record<string, number>;
  running: number[];
  unknown: number[];
}

const jobsOf = (count: number) => (count === 1 ? '1 job' : `${String(count)} jobs`);

/** Some numbers, of which nobody reads thousands. */
const numbers = (ids: number[]) =>
  `${ids.slice(0, 20).join(', ')}${ids.length > 20 ? ` and ${String(ids.length - 20)} more` : ''}`;

/** `school jobs retry` and `school jobs cancel`. @returns the exit code: 1 when a job that was named is running or not there */
export async function jobsChange(
  config: Config,
  action: 'retry' | 'cancel',
  ids: number[],
  { task, failed = false, json }: Format & { task?: string; failed?: boolean },
): Promise<number> {
  if (ids.length > 0 === (task !== undefined)) throw new Error('Name jobs by their numbers, or a task by --task.');
  if (action === 'cancel' && failed && task === undefined) throw new Error('--failed goes with --task.');
  const changed = await withQueue(config, async (client) => {
    await checkTask(client, task);
    const { rows } = await client.query<{ changed: Changed }>('select core.change_jobs($1, $2, $3, $4) as changed', [
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
    for (const [name, count] of Object.entries(done)) print(`${verb}: ${jobsOf(count)} of ${name}.`);
    if (running.length > 0) print(`Running, and left alone: ${numbers(running)}.`);
    if (unknown.length > 0) print(`Not there, done perhaps: ${numbers(unknown)}.`);
    if (Object.keys(done).length + running.length + unknown.length === 0) print('There was nothing to do.');
  }
  return ids.length > 0 && running.length + unknown.length > 0 ? 1 : 0;
}
