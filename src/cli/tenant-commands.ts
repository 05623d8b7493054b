import type { Command } from 'commander';
import { action } from './action.ts';
import { readConfig } from '../process/config.ts';
import type { Format } from './output.ts';

const changes = {
  suspend: 'suspend a school: its users get an error from their next request on',
  activate: 'activate a suspended school',
  delete: 'delete a school; its data stay until it is purged',
  restore: 'restore a deleted school that was not purged',
} as const;

/** Adds `school tenant …`. */
export function addTenantCommands(program: Command): void {
  const tenant = program.command('tenant').description('schools');

  tenant
    .command('list')
    .description('list all schools with their status')
    .option('--json', 'print JSON')
    .action(action(() => import('./tenant.ts'), 'tenantList'));

  tenant
    .command('show')
    .description('show one school')
    .argument('<id or subdomain>')
    .option('--json', 'print JSON')
    .action(action(() => import('./tenant.ts'), 'tenantShow'));

  tenant
    .command('create')
    .description('create a school; the first admin gets an invitation unless ADMIN_PASSWORD is set')
    .argument('<subdomain>')
    .requiredOption('--name <name>', 'name of the school')
    .requiredOption('--plan <id or name>', 'plan of the school')
    .requiredOption('--contact-email <email>', 'address of the school')
    .option('--admin-email <email>', 'address of the first admin (default: the contact)')
    .option('--admin-first-name <name>', 'first name of the admin')
    .option('--admin-last-name <name>', 'last name of the admin')
    .option('--time-zone <name>', 'time zone, for example Africa/Lagos')
    .option('--trial-ends-at <time>', 'end of the trial, for example 2027-01-31T00:00:00Z')
    .option('--node <name>', 'with several servers: the node of the school (default: the one with the fewest schools)')
    .option('--json', 'print JSON')
    .action(action(() => import('./tenant.ts'), 'tenantCreate'));

  for (const action of ['suspend', 'activate', 'delete', 'restore'] as const) {
    const command = tenant
      .command(action)
      .description(changes[action])
      .argument('<id or subdomain>')
      .option('--json', 'print JSON');
    if (action === 'delete') command.option('--yes', 'skip the confirmation');
    command.action(async (school: string, options: Format & { yes?: boolean }) => {
      const { tenantChange } = await import('./tenant.ts');
      await tenantChange(readConfig(process.env), action, school, options);
    });
  }

  tenant
    .command('move')
    .description('move a school to another server while it is in service, or continue a move that stopped')
    .argument('<id or subdomain>')
    .argument(
      '[node]',
      'the name of a node, or home: where the school moves; with --confirm, the earlier server whose data is deleted',
    )
    .option('--confirm', 'delete the data of the school that the earlier server has kept')
    .option('--cancel', 'give up a move that has not opened the school on the node, and delete its copies')
    .option('--lost', 'with --cancel: the node no longer exists; the school gets what it had when it was closed')
    .option('--home-url <url>', 'the home, as the nodes reach it (default: DATABASE_URL)')
    .option('--yes', 'do not ask for a confirmation')
    .option('--json', 'print JSON')
    .action(action(() => import('./move.ts'), 'tenantMove'));

  tenant
    .command('export')
    .description('export a school to a file, without downtime')
    .argument('<id or subdomain>')
    .option('--file <path>', 'target file (default: DATA_DIR/exports/<subdomain>-<id>-<time>.jsonl.gz)')
    .option('--json', 'print JSON')
    .action(action(() => import('./tenant.ts'), 'tenantExport'));

  tenant
    .command('import')
    .description('import a school from an export file, under its original id')
    .argument('<file>')
    .option('--as <subdomain>', 'import it under this subdomain, and under a new id if its own is taken')
    .option('--node <name>', 'the node, or home (default: the active node with the fewest schools)')
    .option('--json', 'print JSON')
    .action(action(() => import('./tenant.ts'), 'tenantImport'));

  tenant
    .command('clone')
    .description('copy a school under a new id; the copy is suspended')
    .argument('<from>', 'id or subdomain of the school')
    .argument('<to>', 'subdomain of the copy')
    .option('--node <name>', 'its node, or home (default: the active node with the fewest schools)')
    .option('--json', 'print JSON')
    .action(action(() => import('./tenant.ts'), 'tenantClone'));

  tenant
    .command('verify')
    .description('compare the tables of a school with another school or a file; exit code 1 if they differ')
    .argument('<id or subdomain>')
    .argument('<school or file>', 'id or subdomain of another school, or an export file')
    .option('--json', 'print JSON')
    .action(action(() => import('./tenant.ts'), 'tenantVerify'));
}
