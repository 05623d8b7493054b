import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { raw } from '../support/client/raw.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { test, openSession } = await browserOfFile(service);

async function openDocs(path: string): Promise<Page> {
  const { context } = await openSession({ as: 'nobody' });
  const page = await context.newPage();
  await page.goto(`${service.url}/api/docs/${path}`);
  return page;
}

/** Opens the form of an operation. */
async function tryOut(page: Page, operationId: string) {
  const operation = page.locator(`#${operationId}`);
  await operation.getByText('Try it out').click();
  const send = async () => {
    await operation.getByRole('button', { name: 'Send' }).click();
    await operation.locator('output pre').waitFor();
    return operation.locator('output pre');
  };
  return { operation, send };
}

test('the pages of the reference show every operation of the document', async () => {
  const document = (await (await fetch(`${service.url}/api/openapi.json`)).json()) as {
    paths: Record<string, Record<string, { operationId: string }>>;
  };
  const ids = Object.values(document.paths).flatMap((methods) =>
    Object.values(methods).map(({ operationId }) => operationId),
  );
  const page = await openDocs('');
  const links = await page.evaluate<string[]>(
    "[...document.querySelectorAll('nav li a')].map((link) => link.getAttribute('href'))",
  );
  expect(links.map((link) => link.split('#')[1]).sort()).toEqual([...ids].sort());
  const shown = new Set<string>();
  for (const file of new Set(links.map((link) => link.split('#')[0] ?? ''))) {
    const { body } = await raw(service.url, { path: `/api/docs/${file}` });
    for (const [, id = ''] of body.matchAll(/<article id="(\w+)"/g)) shown.add(id);
  }
  expect([...shown].sort()).toEqual([...ids].sort());
  expect((await raw(service.url, { path: '/api/docs/no-such-section' })).status).toBe(404);
});

test('a login in the reference gives the token to the requests of other sections', async () => {
  const page = await openDocs('');
  const login = await tryOut(page, 'auth_login');
  await login.operation
    .getByLabel('Body')
    .fill(JSON.stringify({ subdomain: school.subdomain, email: school.adminEmail, password: testPassword }));
  await (await login.send()).getByText('200 OK').waitFor();
  await page.getByLabel('Find an operation').fill('get /api/students list');
  await page.getByRole('link', { name: 'List students', exact: true }).click();
  const list = await tryOut(page, 'students_list');
  await list.operation.getByLabel('pageSize').fill('7');
  const answer = await list.send();
  await answer.getByText('"pageSize": 7').waitFor();
  const created = await tryOut(page, 'students_create');
  await created.operation.getByLabel('Body').fill('{"first_name": "Amina"}');
  await (await created.send()).getByText('"path": "last_name"').waitFor();
});

test('the reference has no serious accessibility issues in either theme, and does not scroll sideways on a phone', async () => {
  const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  const page = await openDocs('subjects');
  await page.evaluate(axe);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const serious = await page.evaluate<string[]>(
      `axe.run(document, { resultTypes: ['violations'], preload: false }).then(({ violations }) =>
        violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
          .map(({ id, nodes }) => id + ' ' + nodes[0].html))`,
    );
    expect({ colorScheme, serious }).toEqual({ colorScheme, serious: [] });
  }
  await page.setViewportSize({ width: 390, height: 844 });
  await page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true");
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
});
