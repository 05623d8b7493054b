import { Command, InvalidArgumentError } from 'commander';
import { startRun } from '../support/server/run.ts';
import { recordedReleases } from './releases.ts';
import { runUpgrade } from './run.ts';

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('must be a whole number from 1');
  return value;
}

const { seconds, from } = new Command('test:upgrade')
  .description(
    'Upgrades from each recorded release to this version, back, and again, while clients send requests to processes of ' +
      'both. Checks that no request fails, and that the data are those that were acknowledged.',
  )
  .option('--seconds <count>', 'how long the clients run, besides the time of the steps', count, 120)
  .option('--from <version>', 'only from this release')
  .parse()
  .opts<{ seconds: number; from?: string }>();

const print = (line: string) => process.stdout.write(`${line}\n`);
const releases = (await recordedReleases()).filter(({ version }) => from === undefined || version === from);
if (releases.length === 0) {
  print(`There is no release ${from ?? ''} in releases/.`);
  process.exitCode = 1;
}
await startRun();
for (const release of releases) {
  print(`From ${release.version} (functions ${release.fingerprint.slice(0, 12)}) to this version`);
  try {
    await runUpgrade({ release, seconds, print });
    print('No request failed, nothing is lost, and nothing is stored twice.');
  } catch (error) {
    print(error instanceof Error ? error.message : String(error));
    process.exitCode = 1;
  }
}
