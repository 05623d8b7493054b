#!/usr/bin/env node
import { Command, InvalidArgumentError, Option } from 'commander';
import { readConfig } from '../process/config.ts';

const program = new Command('school').description('Administer the school management service.').showHelpAfterError();

program
  .command('commit-migration')
  .description('turn migrations/current.sql into the next committed migration')
  .argument('<message>', 'a short description, used as the file name')
  .action(async (message: string) => {
    const { commitMigration } = await import('./commit.ts');
    await commitMigration(message);
  });

program
  .command('database')
  .description('the embedded database')
  .command('reset')
  .description('delete the embedded database with all its schools; the next start creates a new one')
  .option('--yes', 'skip the confirmation')
  .action(async (options: { yes?: boolean }) => {
    const { databaseReset } = await import('./database-reset.ts');
    await databaseReset(readConfig(process.env), options);
  });

program
  .command('analytics')
  .description('the analytics facts of all schools')
  .command('refresh')
  .description('recompute all facts, not only what has changed')
  .option('--tenant <id or subdomain>', 'only this school')
  .action(async (options: { tenant?: string }) => {
    const { analyticsRefresh } = await import('./analytics.ts');
    process.exitCode = await analyticsRefresh(readConfig(process.env), options);
  });

const jobId = (value: string, earlier: number[] = []) => {
  if (!/^[1-9]\d{0,14}$/.test(value)) throw new InvalidArgumentError('must be a job id');
  return [...earlier, Number(value)];
};

const count = (value: string) => {
  if (!/^[1-9]\d{0,5}$/.test(value)) throw new InvalidArgumentError('must be a whole number from 1 to 999999');
  return Number(value);
};

const jobs = program.command('jobs').description('the queue of background jobs');

jobs
  .command('list')
  .description(
    'number of jobs by task and state (ready, waiting, running, failed), and the age of the oldest ready job',
  )
  .option('--json', 'print JSON')
  .action(async (options: { json?: boolean }) => {
    const { jobsList } = await import('./jobs.ts');
    await jobsList(readConfig(process.env), options);
  });

jobs
  .command('failed')
  .description('failed jobs with their errors, including those that will be retried')
  .option('--task <task>', 'only jobs of this task')
  .option('--limit <count>', 'maximum number of jobs', count, 50)
  .option('--json', 'print JSON')
  .action(async (options: { task?: string; limit: number; json?: boolean }) => {
    const { jobsFailed } = await import('./jobs.ts');
    await jobsFailed(readConfig(process.env), options);
  });

jobs
  .command('show')
  .description('details of one job, without personal data')
  .argument('<id>', 'id of the job', jobId)
  .option('--json', 'print JSON')
  .action(async ([id]: [number], options: { json?: boolean }) => {
    const { jobsShow } = await import('./jobs.ts');
    await jobsShow(readConfig(process.env), id, options);
  });

jobs
  .command('retry')
  .description('run jobs now, with a full set of attempts; with --task, the failed jobs of the task')
  .argument('[id...]', 'ids of the jobs', jobId)
  .option('--task <task>', 'all failed jobs of this task')
  .option('--json', 'print JSON')
  .action(async (ids: number[], options: { task?: string; json?: boolean }) => {
    const { jobsChange } = await import('./jobs.ts');
    process.exitCode = await jobsChange(readConfig(process.env), 'retry', ids, { ...options, failed: true });
  });

jobs
  .command('cancel')
  .description('remove jobs from the queue, except running ones')
  .argument('[id...]', 'ids of the jobs', jobId)
  .option('--task <task>', 'all jobs of this task')
  .option('--failed', 'with --task, only failed jobs')
  .option('--json', 'print JSON')
  .action(async (ids: number[], options: { task?: string; failed?: boolean; json?: boolean }) => {
    const { jobsChange } = await import('./jobs.ts');
    process.exitCode = await jobsChange(readConfig(process.env), 'cancel', ids, options);
  });

program
  .command('migrate')
  .description('migrate the database to this version: shared schemas first, then every school')
  .option('--tenant <id or subdomain>', 'only this school')
  .option('--dry-run', 'print what would be done, without changing anything')
  .option('--parallel <count>', 'number of schools to migrate concurrently', '2')
  .action(async (options: { tenant?: string; dryRun?: boolean; parallel: string }) => {
    const { migrateCommand } = await import('./migrate.ts');
    process.exitCode = await migrateCommand(readConfig(process.env), options);
  });

program
  .command('openapi')
  .description('print the OpenAPI document')
  .option('--lint', 'print lint problems instead; exit code 1 if there are any')
  .action(async (options: { lint?: boolean }) => {
    const { lintOpenapi, openapi } = await import('./openapi.ts');
    const text = await openapi(process.env['PUBLIC_URL']);
    const lines = options.lint ? await lintOpenapi(text) : [text];
    process.stdout.write(lines.map((line) => `${line}\n`).join(''));
    process.exitCode = options.lint && lines.length > 0 ? 1 : 0;
  });

program
  .command('graphql-schema')
  .description('print the schema of the GraphQL API')
  .action(async () => {
    process.env['GRAPHILE_ENV'] = 'production';
    const { graphqlSchema } = await import('./graphql-schema.ts');
    process.stdout.write(`${await graphqlSchema(readConfig(process.env))}\n`);
  });

const tenantId = (value: string, earlier: number[] = []) => {
  if (!/^[1-9]\d*$/.test(value)) throw new InvalidArgumentError('must be a school id');
  return [...earlier, Number(value)];
};

program
  .command('operator')
  .description('platform operators')
  .command('create')
  .description('create an operator; prompts for the password unless OPERATOR_PASSWORD is set')
  .argument('<email>')
  .addOption(new Option('--role <role>', 'role of the operator').choices(['admin', 'analyst']).default('admin'))
  .option('--first-name <name>', 'first name', 'Platform')
  .option('--last-name <name>', 'last name', 'Operator')
  .option('--tenant <id>', 'a school that an analyst may see (repeatable; default: all schools)', tenantId)
  .action(
    async (
      email: string,
      options: { role: 'admin' | 'analyst'; firstName: string; lastName: string; tenant?: number[] },
    ) => {
      const { operatorCreate } = await import('./operator.ts');
      await operatorCreate(readConfig(process.env), email, options);
    },
  );

const tenant = program.command('tenant').description('schools');

tenant
  .command('list')
  .description('list all schools with their status')
  .action(async () => {
    const { tenantList } = await import('./tenant-list.ts');
    await tenantList(readConfig(process.env));
  });

tenant
  .command('export')
  .description('export a school to a file, without downtime')
  .argument('<id or subdomain>')
  .option('--file <path>', 'target file (default: DATA_DIR/exports/<subdomain>-<id>-<time>.jsonl.gz)')
  .action(async (school: string, options: { file?: string }) => {
    const { tenantExport } = await import('./tenant-export.ts');
    await tenantExport(readConfig(process.env), school, options);
  });

tenant
  .command('import')
  .description('import a school from an export file, under its original id')
  .argument('<file>')
  .action(async (file: string) => {
    const { tenantImport } = await import('./tenant-import.ts');
    await tenantImport(readConfig(process.env), file);
  });

try {
  await program.parseAsync();
} catch (error) {
  // The message of a ConfigError has one line per problem.
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
