import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Command } from 'commander';
import { recordedReleases, sources, unpack } from './releases.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');

/** Writes db/core/served-releases.sql from the recorded releases. */
async function writeServedReleases(): Promise<void> {
  const rows = (await recordedReleases()).map(({ version, fingerprint }) => `    '${fingerprint}' -- ${version}`);
  // A comma belongs before the comment.
  const list = rows.map((row, n) => (n < rows.length - 1 ? row.replace("' --", "', --") : row)).join('\n');
  await writeFile(
    join(root, 'db/core/served-releases.sql'),
    `-- The earlier releases whose processes can use these functions. \`npm run release\` writes this file.

create function core.served_fingerprints() returns text[] language sql immutable
  return array[
${list}
  ]::text[];
comment on function core.served_fingerprints is
  'The fingerprints of the earlier releases whose processes these functions serve, during an upgrade and a rollback.';
`,
  );
}

const [version, commit] = new Command('release')
  .description('Record a commit as a release from which later versions can be reached without downtime.')
  .argument('<version>', 'its version, as in package.json')
  .argument('[commit]', 'its commit', 'HEAD')
  .parse().args as [string, string | undefined];

const folder = join(root, 'releases', version);
const scratch = await mkdtemp(join(tmpdir(), 'school-release-'));
try {
  const { stdout: id } = await run('git', ['rev-parse', `${commit ?? 'HEAD'}^{commit}`], { cwd: root });
  await mkdir(folder, { recursive: true });
  // Without the time of packing, so that the same commit gives the same bytes.
  const archive = ['-c', 'tar.tar.gz.command=gzip -9n', 'archive', '--format=tar.gz'];
  await run('git', [...archive, `--output=${join(folder, 'source.tar.gz')}`, id.trim(), ...sources], { cwd: root });
  const source = await unpack({ version, folder }, scratch);
  const program = `import { fingerprint } from './src/database/migrate/install.ts'; console.log(await fingerprint());`;
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: source });
  const record = { commit: id.trim(), fingerprint: stdout.trim() };
  await writeFile(join(folder, 'release.json'), `${JSON.stringify(record, null, 2)}\n`);
  await writeServedReleases();
  process.stdout.write(`Recorded ${version}: commit ${record.commit}, functions ${record.fingerprint.slice(0, 12)}\n`);
} finally {
  await rm(scratch, { recursive: true, force: true });
}
