// `npm run screenshots`: updates the screenshots of the console in docs/images, from a service with fictional schools.
// Requires Chromium (CHROMIUM_PATH).
import { join } from 'node:path';
import { type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { passwords } from '../src/domain/passwords.ts';
import { readConfig } from '../src/process/config.ts';
import { demo, loadDemo } from '../src/process/demo.ts';
import { ensureDatabase, startScratch } from '../src/database/embedded.ts';
import { migrate } from '../src/database/migrate/migrate.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import { startService } from '../src/process/service.ts';
import { browserPath, missingBrowser } from '../test/support/server/browsers.ts';

const images = join(import.meta.dirname, 'images');
const schoolNames = [
  'Green Valley School',
  'Riverside Academy',
  'Lycée des Collines',
  'Northgate Primary',
  'Oakfield College',
  'Escuela del Sol',
  'Hillcrest High',
  'St. Brigid’s',
  'Lakeview Montessori',
  'Eastbrook School',
  'Mönchberg-Gymnasium',
  'Silver Birch Primary',
  'Harbour International',
  'Kilimani Junior',
  'Sunrise Public School',
  'Ashford Grammar',
  'Cedar Grove',
  'Blue Lagoon Primary',
  'Summit Science School',
  'Willowdale',
  'Fjord Skole',
  'Maple Leaf Academy',
  'Palmetto Prep',
  'Starling House',
];

const executablePath = browserPath('chromium');
if (executablePath === undefined) throw new Error(missingBrowser('chromium'));
const server = await startScratch();
const cleanups = [() => server.stop()];
try {
  await ensureDatabase(server, 'screenshots');
  const url = server.url('screenshots');
  await migrate({ ownerUrl: url });
  await withOwner(url, (owner) => loadDemo(owner, passwords()));
  const config = readConfig({
    PORT: '0',
    NODE_ENV: 'test',
    DATA_DIR: server.dataDir,
    LOG_LEVEL: 'silent',
    APP_URL: 'https://app.school.example',
    JWT_SECRETS: 'a secret for screenshots that is long enough',
  });
  const service = await startService(config, url, ['api']);
  cleanups.push(() => service.close());
  const baseUrl = service.url ?? '';

  const request = async (method: string, to: string, body: object, token = '') => {
    const response = await fetch(baseUrl + to, {
      method,
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${to}: ${await response.text()}`);
    return ((await response.json()) as { data: { id: number; access_token: string } }).data;
  };
  const { access_token } = await request('POST', '/api/auth/login', {
    is_platform: true,
    email: demo.operator,
    password: demo.password,
  });
  const schools: number[] = [];
  for (const [n, name] of schoolNames.entries()) {
    const subdomain = name
      .normalize('NFD')
      .replace(/\p{M}/gu, '')
      .toLowerCase()
      .replace(/[^a-z]+/g, '-')
      .replace(/-$/, '');
    const body = {
      name,
      subdomain,
      contact_email: `office@${subdomain}.example`,
      plan_id: 1 + (n % 3),
      time_zone: 'Europe/London',
      admin_password: 'demo-password',
    };
    schools.push((await request('POST', '/api/platform/tenants', body, access_token)).id);
  }
  await withOwner(url, async (owner) => {
    // Spread the sign-ups over the last months.
    await owner.query(
      "update platform.tenant set created_at = now() - (($1::integer - id) ^ 1.25) * interval '5.5 days' where id > 1",
      [schools.at(-1) ?? 0],
    );
    await owner.query(`
      update platform.tenant_usage
      set students = (tenant_id * 7919) % 180 + 15, teachers = (tenant_id * 31) % 15 + 3, classes = (tenant_id * 17) % 12 + 2
      where tenant_id > 1`);
  });
  const [first = 0] = schools;
  await request(
    'PUT',
    `/api/platform/tenants/${first}`,
    { plan_id: 2, feature_flags: { transport: true } },
    access_token,
  );
  await request('POST', `/api/platform/tenants/${schools[3] ?? 0}/suspend`, {}, access_token);
  await request(
    'POST',
    '/api/platform/notification-templates',
    { key: 'holiday.added', channel: 'email', body: '{{holiday_name}}: no school on {{date}}.' },
    access_token,
  );

  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
  cleanups.push(() => browser.close());
  /** Takes screenshots of some screens in one browser context. */
  const takeScreenshots = async (
    options: BrowserContextOptions,
    shots: [name: string, to: string, prepare?: (page: Page) => Promise<unknown>][],
  ) => {
    const origins = [{ origin: baseUrl, localStorage: [{ name: 'console.has-session', value: 'yes' }] }];
    const context = await browser.newContext({
      baseURL: baseUrl,
      locale: 'en-GB',
      storageState: { cookies: [], origins },
      reducedMotion: 'reduce',
      ...options,
    });
    await context.request.post('/api/auth/login', {
      data: { is_platform: true, email: demo.operator, password: demo.password, refresh_cookie: true },
    });
    const page = await context.newPage();
    for (const [name, to, prepare] of shots) {
      await page.goto(`/console${to}`);
      await page.locator('h1').waitFor();
      await page.locator('.skeleton').first().waitFor({ state: 'detached' });
      await prepare?.(page);
      await page.waitForTimeout(300);
      await page.screenshot({ path: join(images, `console-${name}.png`) });
    }
    await context.close();
  };
  const desktop = { viewport: { width: 1280, height: 800 } };
  const phone = { viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true };
  await takeScreenshots({ ...desktop, colorScheme: 'light' }, [
    ['overview', '/'],
    ['school', `/schools/${first}`],
    [
      'log-in-as',
      `/schools/${first}`,
      async (page) => {
        await page.getByRole('button', { name: 'Log in as admin' }).click();
        await page.getByLabel('Reason').fill('The school asked why an invoice is missing.');
      },
    ],
    ['templates', '/templates/new?key=attendance.absent&channel=email', (page) => page.locator('.preview').waitFor()],
  ]);
  await takeScreenshots({ ...desktop, colorScheme: 'dark' }, [
    ['schools-dark', '/schools'],
    ['audit-dark', '/audit', (page) => page.getByRole('button', { name: 'Details: Updated school' }).first().click()],
    ['settings-dark', '/settings'],
  ]);
  await takeScreenshots({ ...phone, colorScheme: 'light' }, [
    ['phone-overview', '/'],
    ['phone-school', `/schools/${first}`],
  ]);
  await takeScreenshots({ ...phone, colorScheme: 'dark' }, [['phone-schools-dark', '/schools']]);
} finally {
  for (const cleanup of cleanups.reverse()) await cleanup();
}
