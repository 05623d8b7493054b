import { createRequire } from 'node:module';
import { readFile } from 'node:fs/promises';
import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { operatorEmail, serviceWithSchool, testPassword } from '../support/server/service.ts';

const { createOperator, passwords, withOwner } = shared;
const { service, school } = await serviceWithSchool();
const { test, reader } = await browserOfFile(service);

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const heading = (page: Page, name: string) => page.getByRole('heading', { level: 1, name }).waitFor();
const logInPage = (page: Page) => page.getByText('For those who run the platform.').waitFor();

async function logIn(page: Page, password = testPassword, email = operatorEmail): Promise<void> {
  await page.getByLabel('E-mail').fill(email);
  await page.getByLabel('Password').fill(password);
  await button(page, 'Log in').click();
}

/** Another operator. */
async function another(email: string, role: 'admin' | 'analyst') {
  const passwordHash = await passwords({ memoryCost: 64 }).hash(testPassword);
  await withOwner(service.database.url, (owner) =>
    createOperator(owner, { email, passwordHash, firstName: 'Ana', lastName: 'Lyst', role, tenantIds: null }),
  );
  return { email, password: testPassword };
}

test('an operator logs in where the link led, and stays logged in over a reload, with no token that a script could keep', async () => {
  const { tab, context } = await reader({ as: 'nobody' });
  const page = await tab(`/schools/${school.id}`);
  await logInPage(page);
  expect(await page.evaluate('document.activeElement.name')).toBe('email');
  await logIn(page, 'wrong-password');
  await page.getByText('The email or the password is wrong.').waitFor();
  await logIn(page);
  await button(page, 'Suspend').waitFor();
  await page.reload();
  await button(page, 'Suspend').waitFor();
  expect(await context.cookies()).toMatchObject([
    { name: 'refresh_token', httpOnly: true, sameSite: 'Strict', path: '/api/auth' },
  ]);
  const kept = await page.evaluate('JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }])');
  expect(kept).toBe('["",{"console.has-session":"yes"},{}]');
});

test('a log-out and a log-in in one tab hold in every tab', async () => {
  const { tab, context } = await reader({});
  const [one, two] = [await tab('/'), await tab('/schools')];
  await heading(one, 'Overview');
  await heading(two, 'Schools');
  await button(one, 'Log out').click();
  await logInPage(one);
  await logInPage(two);
  expect(await context.cookies()).toEqual([]);
  await logIn(two);
  await heading(two, 'Schools');
  await heading(one, 'Overview');
});

test('an access token that has ended is renewed by the way, by one tab for all', async () => {
  const { tab, context } = await reader({});
  const pages = [await tab('/audit'), await tab('/audit'), await tab('/audit')];
  for (const page of pages) await heading(page, 'Audit log');
  const refreshes: string[] = [];
  context.on('request', (request) => {
    if (request.url().endsWith('/api/auth/refresh')) refreshes.push(request.url());
  });
  // The token of the first request is spoilt, as if it had ended on its way: the service refuses it.
  let spoilt = 0;
  await pages[0]?.route('**/api/platform/overview', (route) =>
    route.continue(spoilt++ === 0 ? { headers: { ...route.request().headers(), authorization: 'Bearer a.b.c' } } : {}),
  );
  await pages[0]?.getByRole('link', { name: 'Overview', exact: true }).click();
  await pages[0]?.locator('.figures').waitFor();
  expect([spoilt, refreshes.length]).toEqual([2, 1]);
  // A quarter of an hour later all of them need another one.
  for (const page of pages) await page.clock.install();
  for (const page of pages) await page.clock.fastForward('16:00');
  // Slow, so that all of them find it under way.
  await context.route('**/api/auth/refresh', async (route) => {
    await new Promise((done) => setTimeout(done, 700));
    await route.continue();
  });
  await Promise.all(pages.map((page) => page.getByRole('link', { name: 'Schools', exact: true }).click()));
  for (const page of pages) await page.locator('tbody tr').first().waitFor();
  expect(refreshes).toHaveLength(2);
});

test('who is logged out while they type logs in again over it, and what they sent is done', async () => {
  const { tab } = await reader({});
  const page = await tab(`/schools/${school.id}`);
  await page.getByLabel('Contact e-mail').fill('kept@contact.example');
  await service.database.query('update platform.session set revoked_at = now()');
  await button(page, 'Save changes').click();
  const dialog = page.getByRole('dialog', { name: 'Your session has ended' });
  await dialog.waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await dialog.getByLabel('Password').fill(testPassword);
  await dialog.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.locator('.notices').getByText('Saved.').waitFor();
  const again = await service.anonymous.login({ is_platform: true, email: operatorEmail, password: testPassword });
  expect((await again.get<{ contact_email: string }>(`/api/platform/tenants/${school.id}`)).data.contact_email).toBe(
    'kept@contact.example',
  );
});

test('what one operator typed is never saved in the name of another who logged in meanwhile', async () => {
  const { tab, context } = await reader();
  const page = await tab(`/schools/${school.id}`);
  await page.getByLabel('Contact e-mail').fill('whose@contact.example');
  const data = { ...(await another('second@test.example', 'admin')), is_platform: true, refresh_cookie: true };
  expect((await context.request.post('/api/auth/login', { data })).status()).toBe(200);
  const sent: string[] = [];
  page.on('request', (request) => sent.push(request.method()));
  page.on('dialog', (dialog) => void dialog.accept());
  await page.clock.install();
  await page.clock.fastForward('16:00');
  await button(page, 'Save changes').click();
  await page.locator('.who').getByText('second@test.example').waitFor();
  expect(sent).not.toContain('PUT');
});

test('edits that are not saved are not lost without a warning: by a link, a step back, a reload, or a log-out in another tab', async () => {
  const { tab } = await reader({});
  const page = await tab('/schools');
  await page.locator('tbody a').first().click();
  const name = page.getByLabel('Name', { exact: true });
  await name.fill('Half a na');
  const dialog = page.getByRole('dialog', { name: 'Leave without saving?' });

  await page.getByRole('link', { name: 'Audit log' }).click();
  await dialog.getByRole('button', { name: 'Stay' }).click();
  await page.goBack();
  await dialog.getByRole('button', { name: 'Stay' }).click();
  expect(page.url()).toMatch(/\/schools\/\d+$/);
  expect(await name.inputValue()).toBe('Half a na');

  const asked = page.waitForEvent('dialog');
  await page.evaluate('setTimeout(() => location.reload())');
  const warning = await asked;
  expect(warning.type()).toBe('beforeunload');
  await warning.dismiss();
  expect(await name.inputValue()).toBe('Half a na');

  const other = await tab('/');
  await button(other, 'Log out').click();
  await other.getByRole('dialog', { name: 'Log out without saving?' }).getByRole('button', { name: 'Stay' }).click();
  expect(await name.inputValue()).toBe('Half a na');

  await page.goBack();
  await dialog.getByRole('button', { name: 'Leave' }).click();
  await heading(page, 'Schools');
  // With nothing left to lose nobody asks.
  await page.reload();
  await heading(page, 'Schools');
});

test('a service that is away is said so, and asked again when the reader wants', async () => {
  const { tab, context } = await reader({});
  const page = await tab('/');
  await heading(page, 'Overview');
  await context.setOffline(true);
  await page.getByRole('link', { name: 'Audit log' }).click();
  await page.getByText('The service cannot be reached.').first().waitFor();
  await context.setOffline(false);
  await button(page, 'Try again').click();
  await page.locator('.entry').first().waitFor();
  expect(await page.getByText('The service cannot be reached.').count()).toBe(0);
});

test('a service that is busy is asked again soon by itself, and later when it said so', async () => {
  const { tab } = await reader();
  const page = await tab('/profile');
  await heading(page, 'Your profile');
  let asked = 0;
  const busy = (seconds: number) => ({
    status: 429,
    headers: { 'Retry-After': String(seconds) },
    json: { success: false, error: 'rate_limited', message: 'Too many requests.' },
  });
  await page.route('**/api/platform/overview', (route) => (asked++ === 0 ? route.fulfill(busy(1)) : route.continue()));
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await page.locator('.figures').waitFor();
  expect(asked).toBe(2);
  await page.route('**/api/platform/audit-logs?*', (route) => route.fulfill(busy(40)));
  await page.getByRole('link', { name: 'Audit log', exact: true }).click();
  expect(await page.getByRole('button', { name: /^Try again in (40|39) s$/ }).isDisabled()).toBe(true);
});

test('an operator changes their name and their password', async () => {
  const as = await another('changes@test.example', 'admin');
  const { tab } = await reader({ as });
  const page = await tab('/profile');
  await page.getByLabel('First name').fill('Änne');
  await button(page, 'Save changes').click();
  await page.locator('.who').getByText('Änne Lyst').waitFor();
  await page.getByLabel('Current password').fill('not-it-at-all');
  await page.getByLabel('New password').fill('another-password');
  await button(page, 'Change password').click();
  await page.getByText('Current password is wrong').waitFor();
  await page.getByLabel('Current password').fill(testPassword);
  await button(page, 'Change password').click();
  await page.locator('.notices').getByText('Your password is changed.').waitFor();
  await service.anonymous.login({ is_platform: true, email: as.email, password: 'another-password' });
});

test('an analyst is told that the console is not for them, and where they find what is', async () => {
  const { tab } = await reader({ as: await another('analyst@test.example', 'analyst') });
  const page = await tab('/schools');
  await heading(page, 'This console is for administrators');
  expect(await page.getByRole('link', { name: '/graphql' }).getAttribute('href')).toBe('/graphql');
  await button(page, 'Log out').click();
  await logInPage(page);
});

const screens = [
  '/',
  '/schools',
  '/schools/new',
  `/schools/${school.id}`,
  '/audit',
  '/templates',
  '/templates/new',
  '/settings',
  '/settings/notifications',
  '/profile',
  '/no/such/place',
];

test('axe finds nothing serious on any screen, in light and in dark; none scrolls sideways on a phone', async () => {
  const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  const { tab } = await reader({});
  const stranger = await (await reader({ as: 'nobody' })).tab('/');
  await logInPage(stranger);
  const page = await tab('/');
  const look = async (seen: Page, where: string) => {
    await seen.evaluate(axe);
    for (const colorScheme of ['light', 'dark'] as const) {
      await seen.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      // What colours do not change is looked at once.
      const rules = colorScheme === 'light' ? '{}' : "{ runOnly: ['color-contrast'] }";
      const found = await seen.evaluate<
        { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[]
      >(`axe.run(document, { resultTypes: ['violations'], ...${rules} }).then(({ violations }) => violations)`);
      const serious = found.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      expect({
        where,
        colorScheme,
        serious: serious.map(({ id, nodes }) => [
          id,
          ...nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`),
        ]),
      }).toEqual({
        where,
        colorScheme,
        serious: [],
      });
    }
    await seen.setViewportSize({ width: 360, height: 700 });
    expect([where, await seen.evaluate('document.documentElement.scrollWidth > innerWidth')]).toEqual([where, false]);
    await seen.setViewportSize({ width: 1280, height: 800 });
  };
  await look(stranger, 'log-in');
  for (const screen of screens) {
    await page.goto(`/console${screen}`);
    await page.locator('h1').waitFor();
    await page.locator('.skeleton').first().waitFor({ state: 'detached' });
    const entry = page.locator('.entry button').first();
    if (await entry.count()) await entry.click();
    await look(page, screen);
  }
  // A dialog, and the menu of a phone.
  await page.goto(`/console/schools/${school.id}`);
  await button(page, 'Delete').click();
  await look(page, 'a dialog');
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 360, height: 700 });
  await button(page, 'Menu').click();
  await page.getByRole('dialog', { name: 'Menu' }).getByRole('link', { name: 'Schools' }).click();
  await heading(page, 'Schools');
});

test('the keyboard is enough: past the menu, through the list, into a school; colours are as chosen', async () => {
  const { tab } = await reader({ colorScheme: 'light' });
  const page = await tab('/schools');
  await page.locator('tbody tr').first().waitFor();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  expect(await page.evaluate('document.activeElement.id')).toBe('main');
  await page.keyboard.press('Tab');
  expect(await page.evaluate('document.activeElement.textContent')).toContain('Create school');
  await page.locator('tbody a').first().focus();
  await page.keyboard.press('Enter');
  await button(page, 'Suspend').waitFor();
  const ground = () => page.evaluate('getComputedStyle(document.documentElement).backgroundColor');
  expect(await ground()).toBe('rgb(246, 247, 249)');
  await page.getByRole('radio', { name: 'Dark' }).check();
  expect(await ground()).toBe('rgb(14, 17, 20)');
  await page.reload();
  await button(page, 'Suspend').waitFor();
  expect(await ground()).toBe('rgb(14, 17, 20)');
});
