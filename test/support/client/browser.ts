import { afterAll, afterEach, expect, test } from '@jest/globals';
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core';
import { browserOfRun, browserPath, missingBrowser } from '../server/browsers.ts';
import { operatorEmail, type TestService, testPassword } from '../server/service.ts';

/** A browser session with its own cookies and tabs. */
export interface BrowserSession {
  context: BrowserContext;
  /** Opens a tab at a path below /console. */
  openTab: (path: string) => Promise<Page>;
}

interface SessionOptions extends BrowserContextOptions {
  /** The user who is logged in. By default the operator of the tests. */
  as?: { email: string; password: string } | 'nobody';
}

export interface FileBrowser {
  /** `test`, or `test.skip` on a machine without a browser. */
  test: typeof test | typeof test.skip;
  /**
   * Opens a session. Without options, returns the session that all tests of the file share: the operator, who must not
   * log out. Its first tab is reused by the next test, so use a separate session for page.clock and localStorage.
   */
  openSession: (options?: SessionOptions) => Promise<BrowserSession>;
}

const chromiumFlags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Fewer processes: no GPU process, and one renderer for all pages.
  '--in-process-gpu',
  '--renderer-process-limit=1',
];

const desktop = { width: 1280, height: 800 };

/** The browser of this run (TEST_BROWSER). */
export const browserName = browserOfRun();

async function launch(): Promise<Browser | undefined> {
  const executablePath = browserPath(browserName);
  if (executablePath === undefined) {
    if (process.env['CI'] === 'true') throw new Error(missingBrowser(browserName));
    return undefined;
  }
  const playwright = await shared.playwright();
  return browserName === 'firefox'
    ? launchFirefox(playwright, executablePath)
    : playwright.chromium.launch({ executablePath, args: chromiumFlags });
}

/** The parts of Playwright's own objects that `launchFirefox` needs. */
interface PlaywrightInternals {
  _connection: { toImpl: (browser: Browser) => { _browserSession: object } };
}
type Send = (method: string, params: unknown) => Promise<unknown>;

/**
 * Starts a released Firefox. Playwright controls it by WebDriver BiDi, and sends each new context a command that the
 * long-term support release does not have yet. It would only set the color scheme.
 */
async function launchFirefox(
  playwright: Awaited<ReturnType<typeof shared.playwright>>,
  executablePath: string,
): Promise<Browser> {
  const browser = await playwright.firefox.launch({
    channel: 'moz-firefox',
    executablePath,
    // Otherwise no element has the focus unless the window has it.
    firefoxUserPrefs: { 'focusmanager.testmode': true },
  });
  const { _connection: connection } = browser as unknown as PlaywrightInternals;
  const session = Object.getPrototypeOf(connection.toImpl(browser)._browserSession) as { send: Send };
  const { send } = session;
  session.send = function (this: unknown, method, params) {
    if (method === 'emulation.setMediaFeaturesOverride') return Promise.resolve({});
    return send.call(this, method, params);
  };
  return browser;
}

/**
 * Chromium logs every response with an error status, and the tests check those themselves. Any other error in the
 * console of a page, such as a violation of the content security policy, fails the test.
 */
const isFailedRequest = (text: string) =>
  /^Failed to load resource: (the server responded with a status of 4|net::ERR_INTERNET_DISCONNECTED)/.test(text);

/**
 * Starts the browser of a test file and closes it after the last test.
 * @throws when there is no browser although CI=true
 */
export async function browserOfFile(service: TestService): Promise<FileBrowser> {
  const launched = await launch().catch(async (error: unknown) => {
    // Jest does not run afterAll for a file that failed to load.
    await service.close();
    throw error;
  });
  if (!launched) {
    // Jest does not run afterAll if all tests are skipped, and the running service would keep it from exiting.
    await service.close();
    return { test: test.skip, openSession: () => Promise.reject(new Error('There is no browser.')) };
  }
  const browser = launched;
  const pageErrors: string[] = [];
  let ownContexts: BrowserContext[] = [];
  let sharedSession: Promise<BrowserSession> | undefined;
  /** The reused tab of the shared session. Opening a tab takes longer than loading the page. */
  let sharedPage: Page | undefined;
  let isSharedPageInUse = false;

  afterEach(async () => {
    const sharedContext = (await sharedSession)?.context;
    const otherPages = (sharedContext?.pages() ?? []).filter((page) => page !== sharedPage);
    await Promise.all([...ownContexts, ...otherPages].map((closable) => closable.close()));
    await sharedContext?.unrouteAll({ behavior: 'ignoreErrors' });
    await sharedContext?.setOffline(false);
    if (sharedPage) {
      await sharedPage.unrouteAll({ behavior: 'ignoreErrors' });
      for (const event of ['request', 'dialog']) await sharedPage.removeAllListeners(event, { behavior: 'default' });
      await sharedPage.setViewportSize(desktop);
      await sharedPage.emulateMedia({ colorScheme: null });
    }
    ownContexts = [];
    isSharedPageInUse = false;
    expect(pageErrors.splice(0)).toEqual([]);
  });
  afterAll(() => browser.close());

  async function openContext({
    as = { email: operatorEmail, password: testPassword },
    ...options
  }: SessionOptions): Promise<BrowserContext> {
    const hasSession = { origin: service.url, localStorage: [{ name: 'console.has-session', value: 'yes' }] };
    const context = await browser.newContext({
      storageState: { cookies: [], origins: as === 'nobody' ? [] : [hasSession] },
      baseURL: service.url,
      viewport: desktop,
      locale: 'en-GB',
      timezoneId: 'Europe/Berlin',
      reducedMotion: 'reduce',
      ...options,
    });
    context.setDefaultTimeout(30_000);
    context.on('console', (message) => {
      if (message.type() === 'error' && !isFailedRequest(message.text())) pageErrors.push(message.text());
    });
    context.on('weberror', (error) => pageErrors.push(String(error.error().stack)));
    if (as !== 'nobody') {
      const response = await context.request.post('/api/auth/login', {
        data: { ...as, is_platform: true, refresh_cookie: true },
      });
      expect(response.status()).toBe(200);
    }
    return context;
  }

  /** Loads a path below /console. Does not wait for the load event: tests wait for the elements that they check. */
  async function load(page: Page, path: string): Promise<Page> {
    // Firefox has one active tab, and no element of another tab has the focus.
    await page.bringToFront();
    await page.goto(`/console${path}`, { waitUntil: 'commit' });
    return page;
  }

  async function openSharedSession(): Promise<BrowserSession> {
    const context = await openContext({});
    return {
      context,
      async openTab(path) {
        if (isSharedPageInUse) return load(await context.newPage(), path);
        isSharedPageInUse = true;
        sharedPage ??= await context.newPage();
        return load(sharedPage, path);
      },
    };
  }

  return {
    test,
    async openSession(options) {
      if (!options) return (sharedSession ??= openSharedSession());
      const context = await openContext(options);
      ownContexts.push(context);
      return { context, openTab: async (path) => load(await context.newPage(), path) };
    },
  };
}
