import { execFile } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { type BrowserName, browserPath } from '../support/server/browsers.ts';
import { root } from './step.ts';

const run = promisify(execFile);
const succeeds = (work: Promise<unknown>) =>
  work.then(
    () => true,
    () => false,
  );

/** Debian installs servers there, which is not in the PATH of every user. */
const folders = () => [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin'];
const hasProgram = async (name: string) => {
  const found = folders().map((folder) => succeeds(access(join(folder, name), constants.X_OK)));
  return (await Promise.all(found)).includes(true);
};
const hasBrowser = (name: BrowserName) => Promise.resolve(browserPath(name) !== undefined);

/** The packages of Debian that the tests need, and whether what they provide is there. */
const packages: Record<string, () => Promise<boolean>> = {
  chromium: () => hasBrowser('chromium'),
  'firefox-esr': () => hasBrowser('firefox'),
  pgbouncer: () => hasProgram('pgbouncer'),
  'postgresql-15': () => succeeds(access('/usr/lib/postgresql/15/bin/postgres')),
  'postgresql-15-plproxy': () => succeeds(access('/usr/lib/postgresql/15/lib/plproxy.so')),
};

/** Those of these packages that are missing. */
async function missing(names: readonly string[]): Promise<string[]> {
  const present = await Promise.all(names.map(async (name) => (await packages[name]?.()) ?? false));
  return names.filter((_, index) => !present[index]);
}

/** Installs packages of Debian that are missing. @returns those that are missing then */
export async function installPackages(names: readonly string[]): Promise<string[]> {
  const wanted = await missing(names);
  if (wanted.length === 0) return [];
  const asRoot = process.getuid?.() === 0 ? '' : 'sudo -n ';
  const apt = `${asRoot}env DEBIAN_FRONTEND=noninteractive apt-get -qq`;
  const shell = `${apt} update && ${apt} install -y --no-install-recommends ${wanted.join(' ')}`;
  await run('sh', ['-c', shell], { maxBuffer: 1e8 }).catch((error: unknown) =>
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`),
  );
  return missing(wanted);
}

/** Installs the packages of npm for the conformance tests. Those of the project are there already. */
const installConformance = () => run('npm', ['ci'], { cwd: join(root, 'test/conformance'), maxBuffer: 1e8 });

/**
 * Installs what the tests need besides the packages of the project.
 * @throws with the names of what is still missing
 */
export async function install(names: readonly string[]): Promise<void> {
  const [absent] = await Promise.all([installPackages(names), installConformance()]);
  if (absent.length > 0) throw new Error(`apt-get could not install ${absent.join(' ')}.`);
}
