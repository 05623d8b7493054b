import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { button } from '../support/client/page.ts';
import { until } from '../support/client/until.ts';
import { analystOf } from '../support/fixtures/analysts.ts';
import { enable } from '../support/fixtures/second-factors.ts';
import { serviceOfFile, testPassword } from '../support/server/service.ts';

const service = await serviceOfFile({}, 1);
await service.school({ name: 'Ashgrove' });
const { test, openSession } = await browserOfFile(service);

async function openPage(as: { email: string; password: string } | 'nobody', path = '') {
  const { context } = await openSession({ as });
  const page = await context.newPage();
  await page.goto(`/graphql/ide/${path}`);
  return page;
}
const loggedOut = (page: Page) => page.getByText('For platform staff with the role analyst or admin.').waitFor();
async function logIn(page: Page, email: string) {
  await loggedOut(page);
  await page.getByLabel('Email').fill(email);
  await page.getByLabel('Password').fill(testPassword);
  await button(page, 'Log in').click();
}
/** Waits for the editor, which loads the schema by itself. */
const editor = (page: Page) => page.locator('.graphiql-query-editor').waitFor();

test('an analyst logs in with email, password and second factor, runs a query and logs out', async () => {
  const analyst = await analystOf(service, null);
  const app = await enable(analyst);
  const page = await openPage('nobody');
  await logIn(page, analyst.email);
  await service.database.query('update platform.second_factor set last_step = null');
  await page.getByLabel('Code', { exact: true }).fill(app.code());
  await button(page, 'Verify').click();
  await editor(page);
  await page.getByText(analyst.email).waitFor();
  const answer = page.locator('.graphiql-response').getByText('"Ashgrove"');
  // GraphiQL ignores the button until its editors are ready, and does not show when they are.
  await until(async () => {
    await page.getByRole('button', { name: /Execute query/ }).click();
    return answer.waitFor({ timeout: 5_000 }).then(
      () => true as const,
      () => undefined,
    );
  });
  expect(await page.evaluate('JSON.stringify([document.cookie, { ...sessionStorage }])')).toBe('["",{}]');
  await button(page, 'Log out').click();
  await loggedOut(page);
});

test('an operator who is logged in to the console needs no second log-in', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/');
  await page.goto('/graphql/ide/');
  await editor(page);
});

test('the query editor has the whole window', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/');
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto('/graphql/ide/');
  await editor(page);
  const box = await page.locator('.ide-editor').boundingBox();
  expect(box).toMatchObject({ x: 0, width: 1440 });
  expect((box?.y ?? 0) + (box?.height ?? 0)).toBe(900);
});

test('an analyst opens a built-in question, saves a copy, shares it by link, and sees its answer as table and chart', async () => {
  const analyst = await analystOf(service, null);
  const page = await openPage({ email: analyst.email, password: testPassword });
  await editor(page);
  await button(page, 'Questions').click();
  await page.getByLabel('Search questions').fill('signed up');
  await button(page, 'How many schools signed up, by quarter?').click();
  await page.getByRole('heading', { level: 1, name: 'How many schools signed up, by quarter?' }).waitFor();
  await page.locator('.graphiql-query-editor').getByText('SIGNED_UP_ON_TRUNCATED_TO_QUARTER').waitFor();

  await button(page, 'Save').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('Sign-ups');
  await dialog.getByLabel('Send the answer').selectOption('weekly');
  await dialog.getByLabel('Recipients').fill(analyst.email);
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { level: 1, name: 'Sign-ups' }).waitFor();
  const address = page.url();
  expect(address).toMatch(/\/graphql\/ide\/\?question=\d+$/);

  const other = await openPage('nobody', new URL(address).search);
  await logIn(other, (await analystOf(service, null)).email);
  await other.getByRole('heading', { level: 1, name: 'Sign-ups' }).waitFor();
  await button(other, 'Answer').click();
  const answer = other.getByRole('dialog');
  await answer.getByRole('columnheader', { name: 'sum priceMonthly' }).waitFor();
  await answer.getByLabel('Chart').check();
  await answer.locator('.ide-chart').scrollIntoViewIfNeeded();
  await answer.locator('.ide-chart rect').first().waitFor();
  const download = other.waitForEvent('download');
  await answer.getByRole('button', { name: 'Download CSV' }).click();
  expect((await download).suggestedFilename()).toBe('answer.csv');
});
