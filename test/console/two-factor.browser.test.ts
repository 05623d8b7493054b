import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { button, heading, loginPage, toast } from '../support/client/page.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { app, type App, enable } from '../support/fixtures/second-factors.ts';
import { serviceOfFile, testPassword } from '../support/server/service.ts';

const { createOperator, passwords, withOwner } = shared;
const service = await serviceOfFile();
const { test, openSession } = await browserOfFile(service);
/** Passkeys belong to a host name, not to an IP address. */
const baseURL = service.url.replace('127.0.0.1', 'localhost');

async function addOperator(email: string) {
  const passwordHash = await passwords({ memoryCost: 64 }).hash(testPassword);
  await withOwner(service.database.url, (owner) =>
    createOperator(owner, { email, passwordHash, firstName: 'Ada', lastName: 'Byron', role: 'admin', tenantIds: null }),
  );
  return service.anonymous.login({ is_platform: true, email, password: testPassword });
}

/** Lets the last code be used again, as if a minute had passed. */
const nextMinute = () => service.database.query('update platform.second_factor set last_step = null');

async function sendPassword(page: Page, email: string, password = testPassword) {
  await loginPage(page);
  await page.getByLabel('Email').fill(email);
  await page.getByLabel('Password').fill(password);
  await button(page, 'Log in').click();
}

async function logOut(page: Page) {
  await button(page, 'Log out').click();
  await loginPage(page);
}

test('an operator sets up an app, and logs in with a code, a recovery code and from a remembered device', async () => {
  const email = 'app@test.example';
  await addOperator(email);
  const { openTab } = await openSession({ as: 'nobody', baseURL });
  const page = await openTab('/profile');
  await sendPassword(page, email);
  await heading(page, 'Your profile');
  await button(page, 'Set up an app').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Password').fill(testPassword);
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await dialog.getByRole('img', { name: 'QR code' }).waitFor();
  const made: App = app((await dialog.locator('code.secret').textContent()) ?? '');
  await dialog.getByLabel('Code', { exact: true }).fill(made.code());
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await dialog.locator('.recovery-codes li').nth(9).waitFor();
  const recoveryCodes = await dialog.locator('.recovery-codes code').allTextContents();
  await dialog.getByRole('button', { name: 'Done' }).click();
  await page.getByText('10 recovery codes are left').waitFor();
  await logOut(page);

  await sendPassword(page, email);
  await page.getByLabel('Code', { exact: true }).fill('000000');
  await button(page, 'Verify').click();
  await page.getByText('The code is wrong or was already used.').waitFor();
  await nextMinute();
  await page.getByLabel('Code', { exact: true }).fill(made.code());
  await button(page, 'Verify').click();
  await heading(page, 'Your profile');
  await logOut(page);

  await sendPassword(page, email);
  await button(page, 'Use a recovery code').click();
  await page.getByLabel('Recovery code').fill(recoveryCodes[0] ?? '');
  await page.getByLabel('Remember this device for 30 days').check();
  await button(page, 'Verify').click();
  await page.getByText('9 recovery codes are left').waitFor();
  await logOut(page);

  await sendPassword(page, email);
  await page.getByText('9 recovery codes are left').waitFor();
  await button(page, 'Turn off').click();
  await dialog.getByLabel('Password').fill(testPassword);
  await dialog.getByRole('button', { name: 'Turn off' }).click();
  await toast(page, 'Two-factor login is off.');
});

test('an operator adds a passkey, and logs in with it instead of a code', async () => {
  const email = 'passkey@test.example';
  const own = await addOperator(email);
  const made = await enable(own);
  await nextMinute();
  const { openTab, context } = await openSession({ as: 'nobody', baseURL });
  const page = await openTab('/profile');
  const devtools = await context.newCDPSession(page);
  await devtools.send('WebAuthn.enable');
  await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  await sendPassword(page, email);
  expect(await page.getByRole('button', { name: 'Use a passkey' }).count()).toBe(0);
  await page.getByLabel('Code', { exact: true }).fill(made.code());
  await button(page, 'Verify').click();
  await button(page, 'Add a passkey').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Laptop');
  await dialog.getByLabel('Password').fill(testPassword);
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await toast(page, 'Passkey added.');
  await mailTo(service, email, 'A passkey was added');
  await logOut(page);

  const sent: string[] = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/login/verify')) sent.push(request.postData() ?? '');
  });
  await sendPassword(page, email);
  await button(page, 'Use a passkey').click();
  await heading(page, 'Your profile');
  // The same answer of the passkey works neither again nor for another login.
  const replayed = JSON.parse(sent[0] ?? '{}') as { challenge: string; passkey: object };
  const again = await service.anonymous.post('/api/auth/login/verify', replayed, 401);
  expect(again.error).toBe('invalid_token');
  const answer = await service.anonymous.post(
    '/api/auth/login',
    { is_platform: true, email, password: testPassword },
    401,
  );
  const { challenge } = answer as unknown as { challenge: { token: string; methods: string[] } };
  expect(challenge.methods).toEqual(['totp', 'recovery_code', 'passkey']);
  const elsewhere = await service.anonymous.post(
    '/api/auth/login/verify',
    { challenge: challenge.token, passkey: replayed.passkey },
    401,
  );
  expect(elsewhere.error).toBe('invalid_code');

  await button(page, 'Remove Laptop').click();
  await page.getByText('Passkey Laptop').waitFor({ state: 'detached' });
  await logOut(page);
  await sendPassword(page, email);
  await page.getByLabel('Code', { exact: true }).waitFor();
  expect(await page.getByRole('button', { name: 'Use a passkey' }).count()).toBe(0);
});

test('an operator who has forgotten the password chooses a new one with the link of the email', async () => {
  const email = 'forgetful@test.example';
  await addOperator(email);
  const { openTab } = await openSession({ as: 'nobody' });
  const page = await openTab('/');
  await loginPage(page);
  await page.getByLabel('Email').fill(email);
  await button(page, 'Forgot password?').click();
  await page.getByText('If this address has an account, an email has been sent.').waitFor();
  const { text } = await mailTo(service, email, 'Reset your password');
  await page.goto(/http\S+#token=\S+/.exec(text)?.[0] ?? '');
  await page.getByLabel('New password').fill('a new password');
  await button(page, 'Save').click();
  await page.getByText('Password changed. You can now log in.').waitFor();
  await page.goto('/console/');
  await sendPassword(page, email, 'a new password');
  await heading(page, 'Overview');
});
