import type { Command } from 'commander';
import { action } from './action.ts';

/** Adds `school node …`, `school forwarder …` and `school rebalance`. */
export function addNodeCommands(program: Command): void {
  const node = program.command('node').description('manage nodes: servers other than the home that hold schools');

  node
    .command('add')
    .description(
      'add an empty database of another server as a node, continue an interrupted `node add`, or connect a node again ' +
        'that was restored from a backup',
    )
    .argument('<name>', 'lower-case letters, digits and hyphens, a letter first')
    .argument('<url>', 'database URL of a superuser, as the home and the forwarders reach it')
    .option('--home-url <url>', 'the home, as the node reaches it (default: as before, or DATABASE_URL)')
    .option('--take-over', 'the node had another home, which is lost')
    .option('--json', 'print JSON')
    .action(action(() => import('./node.ts'), 'nodeAdd'));

  node
    .command('list')
    .description('list the nodes: their schools, whether they answer, and how far the home has copied their changes')
    .option('--json', 'print JSON')
    .action(action(() => import('./node.ts'), 'nodeList'));

  node
    .command('verify')
    .description(
      'compare which schools the servers have with the directory, the copies between them, and the rows that they copy; ' +
        'change nothing',
    )
    .option('--json', 'print JSON')
    .action(action(() => import('./verify.ts'), 'nodeVerify'));

  node
    .command('reconcile')
    .description(
      'make the directory agree with the servers, after a home or a node was restored; of two copies of a school, the ' +
        'one with the higher claim is used, and the other kept under another name',
    )
    .option('--dry-run', 'only print what would be done')
    .option('--home-url <url>', 'the home, as the nodes reach it (default: as before, or DATABASE_URL)')
    .option('--yes', 'do not ask for a confirmation')
    .option('--json', 'print JSON')
    .action(action(() => import('./verify.ts'), 'nodeReconcile'));

  node
    .command('refresh')
    .description(
      'start copying the tables that a release has added to those copied to the home; `migrate up` at home does it too',
    )
    .argument('[name]', 'only this node')
    .option('--json', 'print one line of JSON per node')
    .action(action(() => import('./node.ts'), 'nodeRefresh'));

  node
    .command('drain')
    .description('choose a node for new schools no longer; `--node` still creates schools there')
    .argument('<name>')
    .option('--undo', 'choose it again')
    .option('--json', 'print JSON')
    .action(action(() => import('./node.ts'), 'nodeDrain'));

  node
    .command('release')
    .description('free the subdomains of schools whose creation on a node has stopped')
    .option('--older-than <minutes>', 'only reservations that are older', Number, 10)
    .option('--json', 'print JSON')
    .action(action(() => import('./node.ts'), 'nodeRelease'));

  node
    .command('remove')
    .description('remove a node whose schools were moved or purged; its database stays')
    .argument('<name>')
    .option('--lost', 'the server no longer exists')
    .option('--delete-schools', 'with --lost: mark its schools as purged, so that their files can be imported at home')
    .option('--yes', 'do not ask for a confirmation')
    .option('--json', 'print JSON')
    .action(action(() => import('./node.ts'), 'nodeRemove'));

  program
    .command('rebalance')
    .description(
      'move schools until the active nodes have the same number of them, plus or minus one, and drained nodes have none',
    )
    .option('--dry-run', 'only print the plan')
    .option('--include-home', 'count the home as a node; otherwise its schools stay there')
    .option('--confirm', 'delete the data of the school on the earlier server after each move')
    .option('--home-url <url>', 'the home, as the nodes reach it (default: DATABASE_URL)')
    .option('--yes', 'do not ask for a confirmation')
    .option('--json', 'print JSON')
    .action(action(() => import('./move.ts'), 'rebalance'));

  const forwarder = program
    .command('forwarder')
    .description('databases that forward requests to the server of each school');

  forwarder
    .command('create')
    .description('set up a forwarder in a database, or update it after a migration or a change of the nodes')
    .argument('<name>', 'lower-case letters, digits and underscores, a letter first; unique among the forwarders')
    .argument('<url>', 'database URL of a superuser, on a server with PL/Proxy')
    .option('--home-url <url>', 'the home, as the forwarder reaches it (default: DATABASE_URL)')
    .option('--json', 'print JSON')
    .action(action(() => import('./node.ts'), 'forwarderCreate'));

  forwarder
    .command('remove')
    .description('stop the copies of a forwarder; its database stays')
    .argument('<name>')
    .argument('[url]', 'its database URL; leave it out if the forwarder is lost')
    .option('--json', 'print JSON')
    .action(action(() => import('./node.ts'), 'forwarderRemove'));
}
