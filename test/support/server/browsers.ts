import { accessSync, constants, statSync } from 'node:fs';
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

/** The browsers that can run the tests: their names on the PATH, and where macOS has them. */
const browsers = {
  chromium: {
    title: 'Chromium',
    setting: 'CHROMIUM_PATH',
    commands: ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'],
    applications: ['Google Chrome.app/Contents/MacOS/Google Chrome', 'Chromium.app/Contents/MacOS/Chromium'],
    package: 'chromium',
  },
  firefox: {
    title: 'Firefox',
    setting: 'FIREFOX_PATH',
    commands: ['firefox-esr', 'firefox'],
    applications: ['Firefox.app/Contents/MacOS/firefox'],
    package: 'firefox-esr',
  },
};

export type BrowserName = keyof typeof browsers;

/** The browser of this run: TEST_BROWSER, by default Chromium. @throws when it is not one of `browsers` */
export function browserOfRun(): BrowserName {
  const name = process.env['TEST_BROWSER'] ?? 'chromium';
  if (!Object.hasOwn(browsers, name))
    throw new Error(`TEST_BROWSER is ${name}. Allowed: ${Object.keys(browsers).join(', ')}.`);
  return name as BrowserName;
}

/** The path of a browser: its setting, or a common name on the PATH. @throws when the setting is not a program */
export function browserPath(name: BrowserName): string | undefined {
  const { setting, commands, applications } = browsers[name];
  const configured = process.env[setting];
  if (configured !== undefined && configured !== '') {
    if (!isExecutable(configured)) throw new Error(`${setting} is not an executable file: ${configured}`);
    return configured;
  }
  return [...commands.flatMap(onPath), ...applications.map((path) => join('/Applications', path))].find(isExecutable);
}

/** Why there is no browser, and what to do about it. */
export function missingBrowser(name: BrowserName): string {
  const { title, setting, package: debianPackage } = browsers[name];
  return `${title} was not found. Install it (on Debian: apt-get install ${debianPackage}) or set ${setting}.`;
}

/** Says that the browser tests are skipped if there is no browser. With CI=true they fail instead. */
export function warnWithoutBrowser(): void {
  const browser = browserOfRun();
  if (browserPath(browser) === undefined && process.env['CI'] !== 'true')
    process.stderr.write(
      `\n${missingBrowser(browser)}\nThe browser tests (test/**/*.browser.test.ts) are skipped.\n\n`,
    );
}
