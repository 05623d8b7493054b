#!/usr/bin/env node
import { Command, InvalidArgumentError, Option } from 'commander';
import { ConfigError, readConfig } from '../process/config.ts';

const program = new Command('school')
  .description('Run and look after the school management service.')
  .showHelpAfterError();

program
  .command('commit-migration')
  .description('turn migrations/current.sql into the next committed migration')
  .argument('<message>', 'what it does, in a few words')
  .action(async (message: string) => {
    const { commitMigration } = await import('./commit.ts');
    await commitMigration(message);
  });

program
  .command('database')
  .description('the embedded database')
  .command('reset')
  .description('remove the embedded database with all its schools; the next start makes a new one')
  .option('--yes', 'do not ask')
  .action(async (options: { yes?: boolean }) => {
    const { databaseReset } = await import('./database-reset.ts');
    await databaseReset(readConfig(process.env), options);
  });

program
  .command('analytics')
  .description('the facts of all schools for analysts')
  .command('refresh')
  .description('read them out of the schools anew, all of them, instead of what has changed')
  .option('--tenant <id or subdomain>', 'only of this school')
  .action(async (options: { tenant?: string }) => {
    const { analyticsRefresh } = await import('./analytics.ts');
    process.exitCode = await analyticsRefresh(readConfig(process.env), options);
  });

const jobId = (value: string, earlier: number[] = []) => {
  if (!/^[1-9]\d{0,14}$/.test(value)) throw new InvalidArgumentError('must be the number of a job');
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
    'how many jobs of each task are ready, wait for their time, run, or have failed for good; and how long the oldest ready one waits',
  )
  .option('--json', 'for programs')
  .action(async (options: { json?: boolean }) => {
    const { jobsList } = await import('./jobs.ts');
    await jobsList(readConfig(process.env), options);
  });

jobs
  .command('failed')
  .description('jobs that have failed, for good or to be tried again, with their errors')
  .option('--task <task>', 'only of this task')
  .option('--limit <count>', 'at most so many', count, 50)
  .option('--json', 'for programs')
  .action(async (options: { task?: string; limit: number; json?: boolean }) => {
    const { jobsFailed } = await import('./jobs.ts');
    await jobsFailed(readConfig(process.env), options);
  });

jobs
  .command('show')
  .description('all about one job that is not personal')
  .argument('<id>', 'its number', jobId)
  .option('--json', 'for programs')
  .action(async ([id]: [number], options: { json?: boolean }) => {
    const { jobsShow } = await import('./jobs.ts');
    await jobsShow(readConfig(process.env), id, options);
  });

jobs
  .command('retry')
  .description('let jobs run now, with all their attempts; of a task those that have failed')
  .argument('[id...]', 'their numbers', jobId)
  .option('--task <task>', 'all of this task that have failed')
  .option('--json', 'for programs')
  .action(async (ids: number[], options: { task?: string; json?: boolean }) => {
    const { jobsChange } = await import('./jobs.ts');
    process.exitCode = await jobsChange(readConfig(process.env), 'retry', ids, { ...options, failed: true });
  });

jobs
  .command('cancel')
  .description('remove jobs from the queue; those that are running are left alone')
  .argument('[id...]', 'their numbers', jobId)
  .option('--task <task>', 'all of this task')
  .option('--failed', 'of the task only those that have failed')
  .option('--json', 'for programs')
  .action(async (ids: number[], options: { task?: string; failed?: boolean; json?: boolean }) => {
    const { jobsChange } = await import('./jobs.ts');
    process.exitCode = await jobsChange(readConfig(process.env), 'cancel', ids, options);
  });

program
  .command('migrate')
  .description('bring the database to this version: shared schemas first, then every school')
  .option('--tenant <id or subdomain>', 'only this school')
  .option('--dry-run', 'change nothing, say what would be done')
  .option('--parallel <count>', 'schools at a time', '2')
  .action(async (options: { tenant?: string; dryRun?: boolean; parallel: string }) => {
    const { migrateCommand } = await import('./migrate.ts');
    process.exitCode = await migrateCommand(readConfig(process.env), options);
  });

program
  .command('openapi')
  .description('print the OpenAPI document')
  .option('--lint', 'say instead what a linter finds in it; exit code 1 when it finds anything')
  .action(async (options: { lint?: boolean }) => {
    const { lintOpenapi, openapi } = await import('./openapi.ts');
    const text = await openapi(process.env['PUBLIC_URL']);
    const lines = options.lint ? await lintOpenapi(text) : [text];
    process.stdout.write(lines.map((line) => `${line}\n`).join(''));
    process.exitCode = options.lint && lines.length > 0 ? 1 : 0;
  });

program
  .command('graphql-schema')
  .description("print the schema of the analysts' GraphQL view")
  .action(async () => {
    process.env['GRAPHILE_ENV'] = 'production';
    const { graphqlSchema } = await import('./graphql-schema.ts');
    process.stdout.write(`${await graphqlSchema(readConfig(process.env))}\n`);
  });

const tenantId = (value: string, earlier: number[] = []) => {
  if (!/^[1-9]\d*$/.test(value)) throw new InvalidArgumentError('must be the number of a school');
  return [...earlier, Number(value)];
};

program
  .command('operator')
  .description('platform operators')
  .command('create')
  .description('create an operator; the password is asked for, or taken from OPERATOR_PASSWORD')
  .argument('<email>')
  .addOption(new Option('--role <role>', 'what they may do').choices(['admin', 'analyst']).default('admin'))
  .option('--first-name <name>', 'first name', 'Platform')
  .option('--last-name <name>', 'last name', 'Operator')
  .option('--tenant <id>', 'a school that an analyst may see; again for each; without it all', tenantId)
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
  .description('every school with its state')
  .action(async () => {
    const { tenantList } = await import('./tenant-list.ts');
    await tenantList(readConfig(process.env));
  });

tenant
  .command('export')
  .description('write a school to a file; it stays in service meanwhile')
  .argument('<id or subdomain>')
  .option('--file <path>', 'where to; DATA_DIR/exports/<subdomain>-<id>-<moment>.jsonl.gz by default')
  .action(async (school: string, options: { file?: string }) => {
    const { tenantExport } = await import('./tenant-export.ts');
    await tenantExport(readConfig(process.env), school, options);
  });

tenant
  .command('import')
  .description('bring the school of a file back, under its old number')
  .argument('<file>')
  .action(async (file: string) => {
    const { tenantImport } = await import('./tenant-import.ts');
    await tenantImport(readConfig(process.env), file);
  });

try {
  await program.parseAsync();
} catch (error) {
  process.stderr.write(
    `${error instanceof ConfigError ? error.problems.join('\n') : error instanceof Error ? error.message : String(error)}\n`,
  );
  process.exitCode = 1;
}
