// Runs the tests of the API and of the worker with a PgBouncer between the service and Postgres: `npm run test:pgbouncer`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { Command } from 'commander';
import { startRun } from '../support/server/run.ts';

const root = join(import.meta.dirname, '../..');

/** Debian installs it in /usr/sbin, which is not in the PATH of every user. */
async function findProgram(): Promise<string | undefined> {
  for (const folder of [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin']) {
    const path = join(folder, 'pgbouncer');
    if (
      await access(path).then(
        () => true,
        () => false,
      )
    )
      return path;
  }
  return undefined;
}

const command = new Command('test:pgbouncer')
  .description('Runs the tests of the API and of the worker behind a PgBouncer in transaction mode.')
  .argument('[options...]', 'files and options for Jest')
  .passThroughOptions()
  .parse();

const program = await findProgram();
if (program === undefined) {
  process.stderr.write('PgBouncer is not installed. On Debian: apt-get install pgbouncer\n');
  process.exitCode = 1;
} else {
  await startRun();
  const isFile = (option: string) => !option.startsWith('-');
  const files = ['test/api', 'test/workers', 'test/programs/worker-crash-recovery.test.ts'];
  const options = command.args.some(isFile) ? command.args : [...files, ...command.args];
  const child = spawn('npm', ['test', '--', ...options], {
    cwd: root,
    env: { ...process.env, TEST_PGBOUNCER: program },
    stdio: 'inherit',
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  process.exitCode = code ?? 1;
}
