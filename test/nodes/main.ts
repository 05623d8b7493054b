import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { startRun } from '../support/server/run.ts';
import { isInstalled } from './servers.ts';

/**
 * `npm run test:nodes`: the tests of this folder, with a home, two nodes and a forwarder for each Jest worker, which its
 * files share; then those of the API, of attacks and of the worker, with servers for each Jest worker and databases for
 * each file, whose schools are spread over two nodes. Arguments go to Jest; if they name files, only the runs that have
 * them take place.
 */
function run(config: string, args: string[]): number {
  const jest = join(import.meta.dirname, '../../node_modules/jest/bin/jest.js');
  const options = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', jest];
  const { status } = spawnSync(process.execPath, [...options, '--config', join(import.meta.dirname, config), ...args], {
    stdio: 'inherit',
  });
  return status ?? 1;
}

const args = process.argv.slice(2);
const files = args.filter((argument) => argument.startsWith('test/'));
const isOfNodes = (file: string) => file.startsWith('test/nodes');
const others = args.filter((argument) => !files.includes(argument));

if (await isInstalled()) {
  await startRun();
  const statuses: number[] = [];
  if (files.length === 0 || files.some(isOfNodes))
    statuses.push(run('jest.config.js', [...others, ...files.filter(isOfNodes)]));
  const spread = files.filter((file) => !isOfNodes(file));
  if (files.length === 0 || spread.length > 0) statuses.push(run('spread.config.js', [...others, ...spread]));
  process.exitCode = Math.max(...statuses);
} else {
  process.stderr.write(
    'The tests of several servers need Postgres 15 with PL/Proxy.\n' +
      'Debian: apt-get install postgresql-15 postgresql-15-plproxy\n',
  );
  process.exitCode = 1;
}
