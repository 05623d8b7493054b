import { spawnSync } from 'node:child_process';
import { globSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { prebuiltFolder, prebuiltProgram } from '../../../src/analytics/prebuilt-program.ts';

const root = join(import.meta.dirname, '../../..');

/** The newest modification time of the files that match a pattern. */
const newestMtimeMs = (pattern: string) =>
  Math.max(
    0,
    ...globSync(pattern, { cwd: root, withFileTypes: true }).map(
      (entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs,
    ),
  );

/** The pages that `npm run build` writes: the sources, one of the files, and the program that builds them. */
const pages = [
  {
    name: 'console',
    sources: ['src/console/**/*.*'],
    target: 'dist/console/index.html',
    command: ['node_modules/vite/bin/vite.js', 'build', '--logLevel', 'error'],
  },
  {
    name: 'guide',
    sources: ['docs/**/*.*', 'src/pages/{html,site-page}.ts', 'src/pages/docs/docs.css', 'README.md', 'CHANGELOG.md'],
    target: 'dist/guide/index.html',
    command: ['docs/site/build.ts'],
  },
];

const build = (name: string, command: string[]) => {
  const { status, stderr } = spawnSync(process.execPath, command, { cwd: root, encoding: 'utf8' });
  if (status !== 0) throw new Error(`The ${name} could not be built: ${stderr}`);
};

/** Rebuilds what has sources that are newer than the build. @throws with the error of a build */
export function prepareBuilds(): void {
  for (const { name, sources, target, command } of pages) {
    if (Math.max(...sources.map(newestMtimeMs)) <= newestMtimeMs(target)) continue;
    build(name, command);
  }
  if (prebuiltProgram(prebuiltFolder) === undefined) build('program for analytics', ['packaging/analytics.ts']);
}
