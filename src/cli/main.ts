#!/usr/bin/env node
import '../process/environment-file.ts';
import { readFileSync } from 'node:fs';
import { Command, InvalidArgumentError, Option } from 'commander';
import { action } from './action.ts';
import { readConfig } from '../process/config.ts';
import { addExamples } from './examples.ts';
import { exitCodeHelp, exitCodes } from './exit-codes.ts';
import { addNodeCommands } from './node-commands.ts';
import { addPeopleCommands } from './people-commands.ts';
import { addTenantCommands } from './tenant-commands.ts';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

const program = new Command('school')
  .description('Administer the school management service.')
  .version(version)
  .showHelpAfterError()
  .addHelpText('after', exitCodeHelp);

program
  .command('commit-migration')
  .description('turn migrations/current.sql into the next committed migration')
  .argument('<message>', 'a short description, used as the file name')
  // For tests.
  .addOption(new Option('--migrations <folder>', 'absolute path of the folder of the migrations').hideHelp())
  .action(async (message: string, options: { migrations?: string }) => {
    const { commitMigration } = await import('./commit.ts');
    await commitMigration(message, options.migrations);
  });

const database = program.command('database').description('the database itself: restored, copied, or embedded');

database
  .command('adopt')
  .description(
    'say what this database is, after it was restored, copied or promoted: the successor of the one that other servers ' +
      'remember, or a copy that takes no part',
  )
  .requiredOption('--as <copy|successor>')
  .option('--yes', 'do not ask for a confirmation')
  .option('--json', 'print JSON')
  .action(action(() => import('./adopt.ts'), 'databaseAdopt'));

database
  .command('reset')
  .description('delete the embedded database with all its schools; the next start creates a new one')
  .option('--yes', 'skip the confirmation')
  .option('--json', 'print JSON')
  .action(action(() => import('./database-reset.ts'), 'databaseReset'));

program
  .command('analytics')
  .description('the analytics facts of all schools')
  .command('refresh')
  .description('recompute all facts, not only what has changed')
  .option('--tenant <id or subdomain>', 'only this school')
  .option('--json', 'print one line of JSON per school')
  .action(action(() => import('./analytics.ts'), 'analyticsRefresh'));

const count = (value: string) => {
  if (!/^[1-9]\d{0,5}$/.test(value)) throw new InvalidArgumentError('must be a whole number from 1 to 999999');
  return Number(value);
};

program
  .command('status')
  .description(
    'the state of the installation: server, release, schools, workers, queue, connections, replicas; of each node too',
  )
  .option('--watch', 'print it again every few seconds')
  .option('--interval <seconds>', 'with --watch, the time between two reports', count, 2)
  .option('--json', 'print JSON; with --watch one line per report')
  .action(action(() => import('./status.ts'), 'statusCommand'));

program
  .command('doctor')
  .description('check the server, the functions and tables, and the data of all schools')
  .option('--tenant <id or subdomain>', 'only this school')
  .option('--server', 'check only the server and the definitions, not the data')
  .option('--data', 'check only the data')
  .option('--offline', 'do not connect to email and push services')
  .option('--fix', 'run the remedies that are harmless')
  .option('--min-free <MB>', 'report less free space in DATA_DIR than this', count, 1024)
  .option('--json', 'print one line of JSON per problem and per school')
  .addHelpText('after', '\nExit codes: 0 no problem, 1 an error, 2 only warnings.')
  .action(action(() => import('./doctor.ts'), 'doctor'));

program
  .command('sql')
  .description('run SQL statements for one school, read only: typed on a terminal, from --file or from standard input')
  .argument('<school>', 'id or subdomain of the school')
  .option('--file <path>', 'run the statements of this file')
  .option('--write', 'change data: all statements in one transaction, which is committed after a confirmation')
  .option('--yes', 'with --write, skip the confirmation')
  .option('--json', 'print one line of JSON per statement, with its rows')
  .action(action(() => import('./school-sql.ts'), 'schoolSql'));

const jobId = (value: string, earlier: number[] = []) => {
  if (!/^[1-9]\d{0,14}$/.test(value)) throw new InvalidArgumentError('must be a job id');
  return [...earlier, Number(value)];
};

const jobs = program.command('jobs').description('the queue of background jobs');

jobs
  .command('list')
  .description(
    'number of jobs by task and state (ready, waiting, running, failed), and the age of the oldest ready job',
  )
  .option('--node <name>', 'only this node, or home')
  .option('--json', 'print JSON')
  .action(action(() => import('./jobs.ts'), 'jobsList'));

jobs
  .command('failed')
  .description('failed jobs, and events of the outbox, with their errors, including those that will be retried')
  .option('--task <task>', 'only jobs of this task')
  .option('--limit <count>', 'maximum number of jobs', count, 50)
  .option('--node <name>', 'only this node, or home')
  .option('--json', 'print JSON')
  .action(action(() => import('./jobs.ts'), 'jobsFailed'));

jobs
  .command('show')
  .description('details of one job, without personal data')
  .argument('<id>', 'id of the job', jobId)
  .option('--node <name>', 'the node of the jobs (default: home)')
  .option('--json', 'print JSON')
  .action(async ([id]: [number], options: { json?: boolean; node?: string }) => {
    const { jobsShow } = await import('./jobs.ts');
    await jobsShow(readConfig(process.env), id, options);
  });

jobs
  .command('retry')
  .description('run jobs now, with a full set of attempts; with --task, the failed jobs of the task')
  .argument('[id...]', 'ids of the jobs', jobId)
  .option('--task <task>', 'all failed jobs of this task; with outbox, also ids of its events')
  .option('--tenant <id or subdomain>', 'with --task, only those of this school')
  .option('--node <name>', 'the node of the jobs (default: that of the school, or home)')
  .option('--json', 'print JSON')
  .action(async (ids: number[], options: { task?: string; tenant?: string; json?: boolean; node?: string }) => {
    const { jobsChange } = await import('./jobs.ts');
    const failed = ids.length === 0;
    process.exitCode = await jobsChange(readConfig(process.env), 'retry', ids, { ...options, failed });
  });

jobs
  .command('cancel')
  .description('remove jobs from the queue, except running ones')
  .argument('[id...]', 'ids of the jobs', jobId)
  .option('--task <task>', 'all jobs of this task; with outbox, also ids of its events')
  .option('--tenant <id or subdomain>', 'with --task, only those of this school')
  .option('--failed', 'with --task, only failed jobs')
  .option('--node <name>', 'the node of the jobs (default: that of the school, or home)')
  .option('--json', 'print JSON')
  .action(
    async (
      ids: number[],
      options: { task?: string; tenant?: string; failed?: boolean; json?: boolean; node?: string },
    ) => {
      const { jobsChange } = await import('./jobs.ts');
      process.exitCode = await jobsChange(readConfig(process.env), 'cancel', ids, options);
    },
  );

const migrationVersion = (value: string, earlier: number[] = []) => {
  if (!/^\d{1,4}$/.test(value))
    throw new InvalidArgumentError('must be the number of a tenant migration, such as 0014');
  return [...earlier, Number(value)];
};

const parallelCount = (value: string) => {
  const jobs = count(value);
  if (jobs > 64) throw new InvalidArgumentError('must be a whole number from 1 to 64');
  return jobs;
};

const each = (value: string, earlier: string[] = []) => [...earlier, value];

const migrate = program
  .command('migrate')
  .description('migrate the database to this version: shared schemas, then every school, then the functions')
  .addHelpText(
    'after',
    `
Without a command: up.

Exit codes: 0 done; 1 a school or the command failed; 2 status: something is to be applied; 3 a canary failed.`,
  );

/** Options of every command of `migrate`. The folder is for tests and trials. */
const migrateCommand = (name: string) =>
  migrate
    .command(name, { isDefault: name === 'up' })
    .option('--json', 'print JSON')
    .addOption(new Option('--tenant-migrations <folder>', 'folder of the tenant migrations').hideHelp());

migrateCommand('up')
  .description('migrate; one line per school')
  .option('--tenant <id or subdomain>', 'only this school, even if it is skipped')
  .option('--dry-run', 'run every migration and roll it back; shows times and locks')
  .option('--sample <count>', 'with --dry-run: try only so many schools', count)
  .option('--canary <count>', 'migrate so many schools first, and stop if one fails', count)
  .option('--jobs <count>', 'number of schools to migrate at the same time (default: 2)', parallelCount)
  .addOption(new Option('--parallel <count>', 'earlier name of --jobs').argParser(parallelCount).hideHelp())
  .option('--replace <number>', 'replace a failed migration by its edited file (repeatable)', migrationVersion)
  .option('--skip <id or subdomain>', 'leave this school at its version (repeatable); needs --reason', each)
  .option('--reason <text>', 'why the schools are skipped')
  .option('--unskip <id or subdomain>', 'no longer skip this school (repeatable)', each)
  .option('--here', 'only this database; without it, its nodes are migrated first')
  .option('--accept-failures', 'install the functions even if schools that failed can then no longer be used')
  .action(action(() => import('./migrate.ts'), 'migrateUp'));

migrateCommand('status')
  .description('schools by schema version, and which failed or are skipped')
  .action(action(() => import('./migrate.ts'), 'migrateStatus'));

migrateCommand('plan')
  .description('what each pending migration will lock and rewrite')
  .option('--sample <count>', 'number of schools of the dry run', count, 3)
  .action(action(() => import('./migrate.ts'), 'migratePlan'));

migrateCommand('new')
  .description('start the next tenant migration')
  .argument('<name>', 'its topic, for example student-lockers')
  .action(async (name: string, options: { json?: boolean }) => {
    const { migrateNew } = await import('./migrate.ts');
    process.exitCode = await migrateNew(name, options);
  });

migrateCommand('watch')
  .description('apply current.sql, the newest tenant migration and db/ to a development database at each save')
  .action(action(() => import('./migrate.ts'), 'migrateWatch'));

program
  .command('openapi')
  .description('print the OpenAPI document')
  .option('--lint', 'print lint problems instead; exit code 1 if there are any')
  .action(async (options: { lint?: boolean }) => {
    const { lintOpenapi, openapi } = await import('./openapi.ts');
    const text = await openapi(process.env['PUBLIC_URL']);
    const lines = options.lint ? await lintOpenapi(text) : [text];
    process.stdout.write(lines.map((line) => `${line}\n`).join(''));
    process.exitCode = options.lint && lines.length > 0 ? exitCodes.failed : exitCodes.done;
  });

program
  .command('graphql-schema')
  .description('print the schema of the GraphQL API')
  .option('--catalog', 'print the views that it is built from instead, as in src/analytics/catalog.json')
  .action(async (options: { catalog?: boolean }) => {
    process.env['GRAPHILE_ENV'] = 'production';
    const { graphqlCatalog, graphqlSchema } = await import('./graphql-schema.ts');
    const text = await (options.catalog ? graphqlCatalog : graphqlSchema)(readConfig(process.env));
    process.stdout.write(`${text}\n`);
  });

addPeopleCommands(program);
addTenantCommands(program);
addNodeCommands(program);
addExamples(program);

/** The message of an error, with advice if the functions in the database are of another version. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const isOtherVersion = 'code' in error && error.code === '42883' && /\b(core|api)\./.test(error.message);
  return isOtherVersion
    ? `${error.message}. The database was migrated by another version. Run this first: npm run migrate`
    : error.message;
}

// The reader of a pipe may end first, as in `school doctor | head -1`. Then this ends too, as other programs do. A command
// that has started a server listens as well, and stops it before.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    if (stream.listenerCount('error') === 1) process.exit(exitCodes.closedPipe);
  });

try {
  await program.parseAsync();
} catch (error) {
  // The message of a ConfigError has one line per problem.
  process.stderr.write(`${explain(error)}\n`);
  process.exitCode = exitCodes.failed;
}
