// `npm run test:matrix`: everything that takes too long for CI. Goes on after a failure, and continues an earlier run of
// the same commit.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { startRun } from '../support/server/run.ts';
import { installPackages } from './install.ts';
import { matrixPackages, matrixParts } from './parts.ts';
import { finish, namesOf, printTable, type Result, root, runStep, select } from './step.ts';

const git = async (...args: string[]) =>
  (await promisify(execFile)('git', args, { cwd: root, maxBuffer: 1e8 })).stdout.trim();

/** The commit, with a hash of the changes since then. */
async function state(): Promise<string> {
  const commit = await git('rev-parse', 'HEAD');
  const untracked = (await git('ls-files', '--others', '--exclude-standard')).split('\n').filter((path) => path !== '');
  const hashes = untracked.length === 0 ? '' : await git('hash-object', '--', ...untracked);
  const changes = (await git('diff', 'HEAD')) + untracked.join() + hashes;
  return changes === '' ? commit : `${commit}-${createHash('sha256').update(changes).digest('hex').slice(0, 8)}`;
}

const { only, list, again } = new Command('test:matrix')
  .description('Runs the parts of the tests that take too long for CI. Parts that this commit has passed are skipped.')
  .option('--only <parts>', `some of ${namesOf(matrixParts)}, separated by commas`)
  .option('--again', 'also runs what this commit has passed')
  .option('--list', 'prints the table of this commit, and runs nothing')
  .parse()
  .opts<{ only?: string; list?: true; again?: true }>();

/** Git ignores it. */
const results = join(root, '.matrix', await state());
const file = (name: string) => join(results, `${name}.json`);
const resultOf = (name: string) =>
  readFile(file(name), 'utf8').then(
    (text) => JSON.parse(text) as Result,
    () => undefined,
  );

const parts = select(matrixParts, only);
if (!list) {
  const { folder } = await startRun();
  await mkdir(results, { recursive: true });
  const absent = await installPackages(matrixPackages);
  if (absent.length > 0) process.stderr.write(`Missing: ${absent.join(' ')}\n`);
  for (const part of parts) {
    if (!again && (await resultOf(part.name))?.failed === 0) continue;
    await writeFile(file(part.name), JSON.stringify(await runStep(part, folder)));
  }
}
const table = new Map<string, Result | undefined>();
for (const { name } of parts) table.set(name, await resultOf(name));
printTable(table);
if (!list) finish(table);
