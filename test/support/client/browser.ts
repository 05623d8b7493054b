import { afterAll, afterEach, expect, test } from '@jest/globals';
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core';
import { chromiumPath } from '../server/browser-found.ts';
import { operatorEmail, type TestService, testPassword } from '../server/service.ts';

/** A reader with a browser of their own: cookies, tabs. */
export interface Reader {
  context: BrowserContext;
  /** Another tab, at an address below /console. */
  tab: (path: string) => Promise<Page>;
}

interface ReaderOptions extends BrowserContextOptions {
  /** Who is logged in already; the operator of the tests unless it says otherwise. */
  as?: { email: string; password: string } | 'nobody';
}

export interface BrowserOfFile {
  /** `test`, or `test.skip` on a machine without a browser. */
  test: typeof test | typeof test.skip;
  /** Without options the reader that all tests of the file share: the operator, who must not log out. */
  reader: (options?: ReaderOptions) => Promise<Reader>;
}

const flags = [
  ...[
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
  ],
  // A process less for each page.
  ...['--in-process-gpu', '--renderer-process-limit=1'],
];

async function launch(): Promise<Browser | undefined> {
  const executablePath = chromiumPath();
  if (executablePath === undefined) {
    if (process.env['CI'] === 'true')
      throw new Error('No Chromium was found, and CI=true: install it, or name one by CHROMIUM_PATH.');
    return undefined;
  }
  const { chromium } = await shared.playwright();
  return chromium.launch({ executablePath, args: flags });
}

/**
 * The browser of a test file, closed after its last test. What a page logs as an error, a breach of its policy for example, fails the test.
 * @throws where there is none though CI=true
 */
export async function browserOfFile(service: TestService): Promise<BrowserOfFile> {
  const browser = await launch().catch(async (error: unknown) => {
    // Jest runs no afterAll of a file that failed to load.
    await service.close();
    throw error;
  });
  if (!browser) {
    // Nor of one whose tests are all skipped: the service would keep Jest waiting for ever.
    await service.close();
    return { test: test.skip, reader: () => Promise.reject(new Error('There is no browser.')) };
  }
  const faults: string[] = [];
  let contexts: BrowserContext[] = [];
  let common: Promise<Reader> | undefined;
  afterEach(async () => {
    await Promise.all([
      ...contexts.map((context) => context.close()),
      ...((await common)?.context.pages().map((page) => page.close()) ?? []),
    ]);
    contexts = [];
    expect(faults.splice(0)).toEqual([]);
  });
  afterAll(() => browser.close());

  const open = async ({
    as = { email: operatorEmail, password: testPassword },
    ...options
  }: ReaderOptions): Promise<Reader> => {
    const remembered = { origin: service.url, localStorage: [{ name: 'console.has-session', value: 'yes' }] };
    const context = await browser.newContext({
      storageState: { cookies: [], origins: as === 'nobody' ? [] : [remembered] },
      baseURL: service.url,
      viewport: { width: 1280, height: 800 },
      locale: 'en-GB',
      timezoneId: 'Europe/Berlin',
      reducedMotion: 'reduce',
      ...options,
    });
    context.setDefaultTimeout(8000);
    context.on('console', (message) => {
      // A browser tells of every refused request; which of them are refused rightly is for the tests to say.
      if (
        message.type() === 'error' &&
        !/^Failed to load resource: (the server responded with a status of 4|net::ERR_INTERNET_DISCONNECTED)/.test(
          message.text(),
        )
      ) {
        faults.push(message.text());
      }
    });
    context.on('weberror', (error) => faults.push(String(error.error().stack)));
    if (as !== 'nobody') {
      const answer = await context.request.post('/api/auth/login', {
        data: { ...as, is_platform: true, refresh_cookie: true },
      });
      expect(answer.status()).toBe(200);
    }
    return {
      context,
      async tab(to) {
        const page = await context.newPage();
        await page.goto(`/console${to}`);
        return page;
      },
    };
  };
  return {
    test,
    async reader(options) {
      if (!options) return (common ??= open({}));
      const own = await open(options);
      contexts.push(own.context);
      return own;
    },
  };
}
