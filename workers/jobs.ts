import { readdir } from 'node:fs/promises';
import { join, parse } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Job } from 'graphile-worker';
import type pg from 'pg';
import { fingerprint } from '../src/database/migrate/install.ts';
import type { TaskContext } from './task-context.ts';

/** Runs a job. It may run twice, and may be killed at any time. */
export type Task = (payload: unknown, context: TaskContext, job: Job) => Promise<void>;

interface JobType {
  name: string;
  former_names: string[];
  schedule: string | null;
}

/**
 * Loads the files of `tasks/`, and joins them with the definitions of the jobs (`core.define_job`).
 * @returns the tasks by name, including the former names of jobs, and the crontab
 * @throws if a file has no definition, or a definition no file. Another release may have installed the functions, during
 *   an upgrade or a rollback. Then jobs that this release does not have are left to its workers.
 */
export async function loadJobs(
  pool: Pick<pg.Pool, 'query'>,
  folder = join(import.meta.dirname, 'tasks'),
): Promise<{ tasks: Map<string, Task>; crontab: string }> {
  const { rows: types } = await pool.query<JobType>(
    'select name, former_names, schedule from core.job_type order by name',
  );
  const faults: string[] = [];
  const loaded = new Map<string, Task>();
  for (const file of (await readdir(folder)).filter((each) => /\.[jt]s$/.test(each)).sort()) {
    const { name } = parse(file);
    const module = (await import(pathToFileURL(join(folder, file)).href)) as Record<string, unknown>;
    if (typeof module[name] === 'function') loaded.set(name, module[name] as Task);
    else faults.push(`workers/tasks/${file} exports no function ${name}.`);
    if (!types.some((type) => type.name === name || type.former_names.includes(name)))
      faults.push(`workers/tasks/${file} has no definition: no file of db/ calls core.define_job('${name}').`);
  }
  const tasks = new Map(loaded);
  const crontab: string[] = [];
  for (const { name, former_names, schedule } of types) {
    const names = [name, ...former_names];
    const own = names.find((each) => loaded.has(each));
    const task = loaded.get(own ?? '');
    if (own === undefined || !task) {
      faults.push(`db/ calls core.define_job('${name}'), but there is no workers/tasks/${name}.ts.`);
      continue;
    }
    for (const each of names) tasks.set(each, task);
    if (schedule !== null) crontab.push(schedule.replace(/^(\S+ \S+ \S+ \S+ \S+)/, `$1 ${own}`));
  }
  if (faults.length > 0) {
    const { rows } = await pool.query<{ installed: string }>("select core.readiness() ->> 'fingerprint' as installed");
    if (rows[0]?.installed === (await fingerprint())) throw new Error(faults.join('\n'));
  }
  return { tasks, crontab: crontab.join('\n') };
}
