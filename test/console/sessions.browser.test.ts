import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { button, heading, loginPage, toast } from '../support/client/page.ts';
import { operatorEmail, serviceWithSchool, testPassword } from '../support/server/service.ts';

const { createOperator, passwords, withOwner } = shared;
const { service, school } = await serviceWithSchool();
const { test, openSession } = await browserOfFile(service);

async function logIn(page: Page, password = testPassword, email = operatorEmail): Promise<void> {
  await page.getByLabel('Email').fill(email);
  await page.getByLabel('Password').fill(password);
  await button(page, 'Log in').click();
}

/** Adds another operator. */
async function addOperator(email: string, role: 'admin' | 'analyst') {
  const passwordHash = await passwords({ memoryCost: 64 }).hash(testPassword);
  await withOwner(service.database.url, (owner) =>
    createOperator(owner, { email, passwordHash, firstName: 'Ana', lastName: 'Lyst', role, tenantIds: null }),
  );
  return { email, password: testPassword };
}

test('login leads to the requested page and survives a reload, with no token where scripts could read it', async () => {
  const { openTab, context } = await openSession({ as: 'nobody' });
  const page = await openTab(`/schools/${school.id}`);
  await loginPage(page);
  expect(await page.evaluate('document.activeElement.name')).toBe('email');
  await logIn(page, 'wrong-password');
  await page.getByText('The email or the password is wrong.').waitFor();
  await logIn(page);
  await button(page, 'Suspend').waitFor();
  await page.reload();
  await button(page, 'Suspend').waitFor();
  const cookies = (await context.cookies()).toSorted((a, b) => a.name.localeCompare(b.name));
  expect(cookies).toMatchObject([
    { name: 'known_device', httpOnly: true, sameSite: 'Strict', path: '/api/auth' },
    { name: 'refresh_token', httpOnly: true, sameSite: 'Strict', path: '/api/auth' },
  ]);
  const kept = await page.evaluate('JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }])');
  expect(kept).toBe('["",{"console.has-session":"yes"},{}]');
});

test('logging out or in takes effect in every tab', async () => {
  const { openTab, context } = await openSession({});
  const [one, two] = [await openTab('/'), await openTab('/schools')];
  await heading(one, 'Overview');
  await heading(two, 'Schools');
  await button(one, 'Log out').click();
  await loginPage(one);
  await loginPage(two);
  // The device stays known after a logout.
  expect((await context.cookies()).map(({ name }) => name)).toEqual(['known_device']);
  await logIn(two);
  await heading(two, 'Schools');
  await heading(one, 'Overview');
});

test('a rejected or expired access token is renewed once for all tabs', async () => {
  const { openTab, context } = await openSession({});
  const pages = [await openTab('/audit'), await openTab('/audit'), await openTab('/audit')];
  for (const page of pages) await heading(page, 'Audit log');
  const refreshes: string[] = [];
  context.on('request', (request) => {
    if (request.url().endsWith('/api/auth/refresh')) refreshes.push(request.url());
  });
  // Replace the token of the first request, so that the service rejects it.
  let overviewRequests = 0;
  await pages[0]?.route('**/api/platform/overview', (route) =>
    route.continue(
      overviewRequests++ === 0 ? { headers: { ...route.request().headers(), authorization: 'Bearer a.b.c' } } : {},
    ),
  );
  await pages[0]?.getByRole('link', { name: 'Overview', exact: true }).click();
  await pages[0]?.locator('.figures').waitFor();
  expect([overviewRequests, refreshes.length]).toEqual([2, 1]);
  // After 16 minutes the token has expired in all tabs.
  for (const page of pages) await page.clock.install();
  for (const page of pages) await page.clock.fastForward('16:00');
  // Hold the refresh until all tabs need the token.
  const gate = Promise.withResolvers<undefined>();
  await context.route('**/api/auth/refresh', async (route) => {
    await gate.promise;
    await route.continue();
  });
  await Promise.all(pages.map((page) => page.getByRole('link', { name: 'Schools', exact: true }).click()));
  for (const page of pages) await heading(page, 'Schools');
  gate.resolve(undefined);
  for (const page of pages) await page.locator('tbody tr').first().waitFor();
  expect(refreshes).toHaveLength(2);
});

test('after the session ends, the operator logs in again on the page and the pending save completes', async () => {
  const as = await addOperator('expired@test.example', 'admin');
  const { openTab } = await openSession({ as });
  const page = await openTab(`/schools/${school.id}`);
  await page.getByLabel('Contact email').fill('kept@contact.example');
  await service.database.query('update platform.session set revoked_at = now() where email = $1', [as.email]);
  await button(page, 'Save changes').click();
  const dialog = page.getByRole('dialog', { name: 'Your session has expired' });
  await dialog.waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await dialog.getByLabel('Password').fill(testPassword);
  await dialog.getByRole('button', { name: 'Log in', exact: true }).click();
  await toast(page, 'School saved.');
  const { data } = await service.operator.get<{ contact_email: string }>(`/api/platform/tenants/${school.id}`);
  expect(data.contact_email).toBe('kept@contact.example');
});

test('edits of one operator are never saved in the name of another who has logged in since', async () => {
  const { openTab, context } = await openSession({});
  const page = await openTab(`/schools/${school.id}`);
  await page.getByLabel('Contact email').fill('whose@contact.example');
  const data = { ...(await addOperator('second@test.example', 'admin')), is_platform: true, refresh_cookie: true };
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

test('unsaved changes are guarded against links, the back button, a reload and a logout in another tab', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/schools');
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

  const unloadDialog = page.waitForEvent('dialog');
  await page.evaluate('setTimeout(() => location.reload())');
  const warning = await unloadDialog;
  expect(warning.type()).toBe('beforeunload');
  await warning.dismiss();
  expect(await name.inputValue()).toBe('Half a na');

  const other = await openTab('/');
  await button(other, 'Log out').click();
  await other.getByRole('dialog', { name: 'Log out without saving?' }).getByRole('button', { name: 'Stay' }).click();
  expect(await name.inputValue()).toBe('Half a na');

  await page.goBack();
  await dialog.getByRole('button', { name: 'Leave' }).click();
  await heading(page, 'Schools');
  // Without unsaved changes there is no dialog.
  await page.reload();
  await heading(page, 'Schools');
});

test('an unreachable service is reported, with a button to try again', async () => {
  const { openTab, context } = await openSession();
  const page = await openTab('/');
  await heading(page, 'Overview');
  await context.setOffline(true);
  await page.getByRole('link', { name: 'Audit log' }).click();
  await page.getByText('The service cannot be reached.').first().waitFor();
  await context.setOffline(false);
  await button(page, 'Try again').click();
  await page.locator('.entry').first().waitFor();
  expect(await page.getByText('The service cannot be reached.').count()).toBe(0);
});

test('a busy service is retried automatically after a short Retry-After, but not after a long one', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/profile');
  await heading(page, 'Your profile');
  let attempts = 0;
  const busy = (seconds: number) => ({
    status: 429,
    headers: { 'Retry-After': String(seconds) },
    json: { success: false, error: 'rate_limited', message: 'Too many requests.' },
  });
  await page.route('**/api/platform/overview', (route) =>
    attempts++ === 0 ? route.fulfill(busy(1)) : route.continue(),
  );
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await page.locator('.figures').waitFor();
  expect(attempts).toBe(2);
  await page.route('**/api/platform/audit-logs?*', (route) => route.fulfill(busy(40)));
  await page.getByRole('link', { name: 'Audit log', exact: true }).click();
  expect(await page.getByRole('button', { name: /^Try again in (40|39) s$/ }).isDisabled()).toBe(true);
});

test('an operator changes their name and their password', async () => {
  const as = await addOperator('changes@test.example', 'admin');
  const { openTab } = await openSession({ as });
  const page = await openTab('/profile');
  await page.getByLabel('First name').fill('Änne');
  await button(page, 'Save changes').click();
  await page.locator('.who').getByText('Änne Lyst').waitFor();
  await page.getByLabel('Current password').fill('not-it-at-all');
  await page.getByLabel('New password').fill('another-password');
  await button(page, 'Change password').click();
  await page.getByText('Current password is incorrect').waitFor();
  await page.getByLabel('Current password').fill(testPassword);
  await button(page, 'Change password').click();
  await toast(page, 'Password changed.');
  await service.anonymous.login({ is_platform: true, email: as.email, password: 'another-password' });
});

test('an analyst has no access to the console and is referred to the page for analytics', async () => {
  const { openTab } = await openSession({ as: await addOperator('analyst@test.example', 'analyst') });
  const page = await openTab('/schools');
  await heading(page, 'You do not have access to the console');
  expect(await page.getByRole('link', { name: 'the page for analytics' }).getAttribute('href')).toBe('/graphql/ide/');
  await button(page, 'Log out').click();
  await loginPage(page);
});
