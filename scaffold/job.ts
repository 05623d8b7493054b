import { addToChangelog, Changes } from './files.ts';

/**
 * Writes a job that runs for each school, once a day.
 * @param name  what the job does, in snake_case
 * @returns the paths of the files that it has written or changed
 */
export async function writeJob(root: string, name: string): Promise<string[]> {
  if (!/^[a-z]+(_[a-z]+)+$/.test(name))
    throw new Error(`${name} does not say what the job does. Write a verb and a noun: send_reports.`);
  const file = name.replaceAll('_', '-');
  const values = { name, file, words: name.replaceAll('_', ' ') };
  const changes = new Changes(root);
  await changes.add(`db/jobs/${file}.sql`, 'job.sql.txt', values);
  await changes.add(`workers/tasks/${name}.ts`, 'task.ts.txt', values);
  await changes.add(`test/workers/${file}.test.ts`, 'task.test.ts.txt', values);
  await addToChangelog(changes, `The job \`${name}\` runs for each school once a day.`);
  return changes.write();
}
