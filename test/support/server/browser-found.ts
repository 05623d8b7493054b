import { spawnSync } from 'node:child_process';
import { accessSync, constants, globSync, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const isProgram = (path: string) => {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
};

const onPath = (name: string) => (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, name));

/** The browser of the tests: CHROMIUM_PATH, or what this machine has under a usual name. @throws when CHROMIUM_PATH names none */
export function chromiumPath(): string | undefined {
  const given = process.env['CHROMIUM_PATH'];
  if (given !== undefined && given !== '') {
    if (!isProgram(given)) throw new Error(`CHROMIUM_PATH names no program: ${given}`);
    return given;
  }
  return [
    ...['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'].flatMap(onPath),
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    '/Applications/Chromium.app/Contents/MacOS/Chromium',
  ].find(isProgram);
}

const root = join(import.meta.dirname, '../../..');

/** When the latest of some files was written. */
const latest = (pattern: string) =>
  Math.max(
    0,
    ...globSync(pattern, { cwd: root, withFileTypes: true }).map(
      (entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs,
    ),
  );

/** Builds the console anew where its source is newer, and says what can not be tested here. */
export function prepareConsole(): void {
  if (latest('src/console/**/*.*') > latest('dist/console/index.html')) {
    const { status, stderr } = spawnSync(
      process.execPath,
      [join(root, 'node_modules/vite/bin/vite.js'), 'build', '--logLevel', 'error'],
      {
        cwd: root,
        encoding: 'utf8',
      },
    );
    if (status !== 0) throw new Error(`The console can not be built: ${stderr}`);
  }
  if (chromiumPath() === undefined && process.env['CI'] !== 'true') {
    process.stderr.write(
      '\nNo Chromium was found, so the tests of the console in a browser (test/console/*.browser.test.ts) are skipped.\nInstall it (on Debian: apt-get install chromium), or name one by CHROMIUM_PATH.\n\n',
    );
  }
}
