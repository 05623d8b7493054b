import type { Command } from 'commander';
import { readConfig } from '../process/config.ts';
import type { Format } from './output.ts';

/** Adds `school node …`, `school router …` and `school rebalance`. */
export function addNodeCommands(program: Command): void {
  const node = program.command('node').description('servers that hold schools besides the home of the platform');

  node
    .command('add')
    .description('add an empty database of another server as a node, or continue an addition that stopped')
    .argument('<name>', 'lower-case letters, digits and hyphens')
    .argument('<url>', 'database URL of a superuser, as the home and the routers reach it')
    .option('--home-url <url>', 'the home, as the node reaches it (default: DATABASE_URL)')
    .option('--json', 'print JSON')
    .action(async (name: string, url: string, options: Format & { homeUrl?: string }) => {
      const { nodeAdd } = await import('./node.ts');
      await nodeAdd(readConfig(process.env), name, url, options);
    });

  node
    .command('list')
    .description('list the nodes with their schools, and how far the home has copied their changes')
    .option('--json', 'print JSON')
    .action(async (options: Format) => {
      const { nodeList } = await import('./node.ts');
      process.exitCode = await nodeList(readConfig(process.env), options);
    });

  node
    .command('refresh')
    .description(
      'let the home copy the tables that a release has added to the copies; `migrate up` at home does it too',
    )
    .argument('[name]', 'only this node')
    .option('--json', 'print one line of JSON per node')
    .action(async (name: string | undefined, options: Format) => {
      const { nodeRefresh } = await import('./node.ts');
      process.exitCode = await nodeRefresh(readConfig(process.env), name, options);
    });

  node
    .command('drain')
    .description('give a node no new schools')
    .argument('<name>')
    .option('--undo', 'give it new schools again')
    .option('--json', 'print JSON')
    .action(async (name: string, options: Format & { undo?: boolean }) => {
      const { nodeDrain } = await import('./node.ts');
      await nodeDrain(readConfig(process.env), name, options);
    });

  node
    .command('release')
    .description('free the subdomains of schools whose creation on a node has stopped')
    .option('--older-than <minutes>', 'only reservations that are older', Number, 10)
    .option('--json', 'print JSON')
    .action(async (options: Format & { olderThan: number }) => {
      const { nodeRelease } = await import('./node.ts');
      process.exitCode = await nodeRelease(readConfig(process.env), options);
    });

  node
    .command('remove')
    .description('remove a node that has no schools; its database stays')
    .argument('<name>')
    .option('--lost', 'the server no longer exists')
    .option('--json', 'print JSON')
    .action(async (name: string, options: Format & { lost?: boolean }) => {
      const { nodeRemove } = await import('./node.ts');
      await nodeRemove(readConfig(process.env), name, options);
    });

  program
    .command('rebalance')
    .description('move schools until all nodes have as many each, and nodes that are being drained have none')
    .option('--dry-run', 'only print the plan')
    .option('--include-home', 'count the home as a node; otherwise its schools stay there')
    .option('--confirm', 'delete the tables at the earlier server after each move')
    .option('--home-url <url>', 'the home, as the nodes reach it (default: DATABASE_URL)')
    .option('--yes', 'do not ask for a confirmation')
    .option('--json', 'print JSON')
    .action(async (options: Parameters<typeof import('./move.ts').rebalance>[1]) => {
      const { rebalance } = await import('./move.ts');
      await rebalance(readConfig(process.env), options);
    });

  const router = program.command('router').description('databases that forward requests to the server of each school');

  router
    .command('create')
    .description('set up a router in a database, or update it after a migration or a change of the nodes')
    .argument('<name>', 'lower-case letters, digits and underscores; unique among the routers')
    .argument('<url>', 'database URL of a superuser, on a server with PL/Proxy')
    .option('--home-url <url>', 'the home, as the router reaches it (default: DATABASE_URL)')
    .option('--json', 'print JSON')
    .action(async (name: string, url: string, options: Format & { homeUrl?: string }) => {
      const { routerCreate } = await import('./node.ts');
      await routerCreate(readConfig(process.env), name, url, options);
    });

  router
    .command('remove')
    .description('stop the copies of a router; its database stays')
    .argument('<name>')
    .argument('[url]', 'its database URL; leave it out if the router is lost')
    .option('--json', 'print JSON')
    .action(async (name: string, url: string | undefined, options: Format) => {
      const { routerRemove } = await import('./node.ts');
      await routerRemove(readConfig(process.env), name, url, options);
    });
}
