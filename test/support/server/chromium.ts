import { spawnSync } from 'node:child_process';
import { accessSync, constants, globSync, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const isExecutable = (path: string) => {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
};

const onPath = (name: string) => (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, name));

/** The path of Chromium: CHROMIUM_PATH, or a common name on the PATH. @throws when CHROMIUM_PATH is not a program */
export function chromiumPath(): string | undefined {
  const configured = process.env['CHROMIUM_PATH'];
  if (configured !== undefined && configured !== '') {
    if (!isExecutable(configured)) throw new Error(`CHROMIUM_PATH is not an executable file: ${configured}`);
    return configured;
  }
  return [
    ...['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'].flatMap(onPath),
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    '/Applications/Chromium.app/Contents/MacOS/Chromium',
  ].find(isExecutable);
}

const root = join(import.meta.dirname, '../../..');

/** The newest modification time of the files that match a pattern. */
const newestMtimeMs = (pattern: string) =>
  Math.max(
    0,
    ...globSync(pattern, { cwd: root, withFileTypes: true }).map(
      (entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs,
    ),
  );

/**
 * The pages and the program for analytics that `npm run build` writes: their sources, one of the files, and the program
 * that builds them.
 */
const builtPages = [
  {
    name: 'console',
    sources: ['src/console/**/*.*'],
    target: 'dist/console/index.html',
    command: ['node_modules/vite/bin/vite.js', 'build', '--logLevel', 'error'],
  },
  {
    name: 'guide',
    sources: ['docs/**/*.*', 'README.md', 'CHANGELOG.md'],
    target: 'dist/guide/index.html',
    command: ['docs/site/build.ts'],
  },
  {
    name: 'program for analytics',
    sources: ['src/analytics/*.*', 'package-lock.json', 'packaging/analytics.ts'],
    target: 'dist/analytics/main.mjs',
    command: ['packaging/analytics.ts'],
  },
];

/** Rebuilds what has sources that are newer than the build, and warns if there is no browser to test them with. */
export function preparePages(): void {
  for (const { name, sources, target, command } of builtPages) {
    if (Math.max(...sources.map(newestMtimeMs)) <= newestMtimeMs(target)) continue;
    const { status, stderr } = spawnSync(process.execPath, command, { cwd: root, encoding: 'utf8' });
    if (status !== 0) throw new Error(`The ${name} could not be built: ${stderr}`);
  }
  if (chromiumPath() === undefined && process.env['CI'] !== 'true') {
    process.stderr.write(
      '\nChromium was not found, so the browser tests (test/**/*.browser.test.ts) are skipped.\n' +
        'Install it (on Debian: apt-get install chromium) or set CHROMIUM_PATH.\n\n',
    );
  }
}
