import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const folderOfReleases = join(root, 'releases');

/** A release from which this version can be reached without downtime; see releases/README.md. */
export interface Release {
  version: string;
  /** The commit of its source, or null if this history does not have it. */
  commit: string | null;
  /** The fingerprint of its SQL functions. */
  fingerprint: string;
  /** The folder that records it. */
  folder: string;
}

/** What runs of a release, and its list of packages. `git archive` takes them. */
export const sources = ['src', ':!src/console', 'workers', 'db', 'migrations', 'package.json', 'package-lock.json'];

/** The recorded releases, the oldest first. */
export async function recordedReleases(): Promise<Release[]> {
  const entries = await readdir(folderOfReleases, { withFileTypes: true });
  const releases = entries
    .filter((entry) => entry.isDirectory())
    .map(async ({ name }) => {
      const folder = join(folderOfReleases, name);
      const record = JSON.parse(await readFile(join(folder, 'release.json'), 'utf8')) as Omit<
        Release,
        'version' | 'folder'
      >;
      return { version: name, folder, ...record };
    });
  return (await Promise.all(releases)).sort((a, b) =>
    a.version.localeCompare(b.version, 'en', { numeric: true, sensitivity: 'base' }),
  );
}

/** Unpacks a release with its patches, and installs its packages. @returns its folder */
export async function unpack({ folder, version }: Pick<Release, 'folder' | 'version'>, into: string): Promise<string> {
  const target = join(into, version);
  await mkdir(target);
  await run('tar', ['-xzf', join(folder, 'source.tar.gz'), '-C', target]);
  const patches = (await readdir(folder)).filter((name) => name.endsWith('.patch')).sort();
  // Outside of a repository, so that git looks for the files in the folder.
  for (const name of patches)
    await run('git', ['apply', join(folder, name)], {
      cwd: target,
      env: { ...process.env, GIT_CEILING_DIRECTORIES: into },
    });
  // Scripts prepare the console and the embedded server, which are not used.
  await run('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: target });
  return target;
}
