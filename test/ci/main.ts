// `.ci/run`: checks a change before it is merged. Runs every step even if one fails. The table at the end has the
// seconds of each step; the last line is the number of steps and tests that passed and failed.
import { Command } from 'commander';
import { startRun } from '../support/server/run.ts';
import { install } from './install.ts';
import { ciPackages, ciSteps } from './parts.ts';
import { finish, namesOf, printTable, type Result, runStep, select } from './step.ts';

const { only, installedIn } = new Command('test:ci')
  .description('Checks a change before it is merged: `.ci/run` without the packages of the project.')
  .option('--only <steps>', `some of ${namesOf(ciSteps)}, separated by commas`)
  .option('--installed-in <seconds>', 'how long the installation of the packages of the project has taken')
  .parse()
  .opts<{ only?: string; installedIn?: string }>();

const { folder } = await startRun();
const results = new Map<string, Result>();
if (installedIn !== undefined) {
  const start = performance.now();
  const isInstalled = await install(ciPackages).then(
    () => true,
    (error: unknown) => {
      process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
      return false;
    },
  );
  const seconds = Number(installedIn) + Math.round((performance.now() - start) / 1000);
  results.set('install', { seconds, passed: Number(isInstalled), failed: Number(!isInstalled), secondRuns: [] });
}
for (const step of select(ciSteps, only)) results.set(step.name, await runStep(step, folder));
printTable(results);
finish(results);
