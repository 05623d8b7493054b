import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile();
const { test, openSession } = await browserOfFile(service);

async function openGuide(path: string): Promise<Page> {
  const { context } = await openSession({ as: 'nobody' });
  const page = await context.newPage();
  await page.goto(`${service.url}/api/guide/${path}`);
  return page;
}

test('the search finds a section with the keyboard alone, from any page', async () => {
  const page = await openGuide('decisions/0001-one-statement-per-request');
  await page.keyboard.press('/');
  await page.keyboard.type('grace per');
  await page.getByRole('status').getByText('result').waitFor();
  await page.keyboard.press('ArrowDown');
  const focused = await page.evaluate<string>(
    "document.activeElement.closest('#results') && document.activeElement.href",
  );
  expect(focused).toMatch(/\/api\/guide\//);
  await page.keyboard.press('Enter');
  await page.waitForURL(focused);
  await page.getByRole('searchbox').fill('xqzzy');
  await page.getByText('Nothing was found for "xqzzy".').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('Nothing was found').waitFor({ state: 'detached' });
  await page.getByRole('searchbox').fill('cancelled subscription');
  const link = page.locator('#results a').first();
  await link.waitFor();
  expect(await link.locator('.excerpt').textContent()).not.toBe('');
});

test('the pages have no serious accessibility issues in either theme, and do not scroll sideways on a phone', async () => {
  const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  for (const path of ['', 'glossary', 'platform-operators', 'webhooks', 'decisions/0012-calendar-feeds-and-pdf']) {
    const page = await openGuide(path);
    await page.evaluate(axe);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      const serious = await page.evaluate<string[]>(
        `axe.run(document, { resultTypes: ['violations'], preload: false }).then(({ violations }) =>
          violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
            .map(({ id, nodes }) => id + ' ' + nodes[0].html))`,
      );
      expect([path, colorScheme, serious]).toEqual([path, colorScheme, []]);
    }
    await page.setViewportSize({ width: 390, height: 800 });
    expect([path, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([path, 390]);
    await page.close();
  }
});

test('a phone has a link to the menu, and the page that is shown is marked in it', async () => {
  const page = await openGuide('webhooks');
  await page.setViewportSize({ width: 390, height: 800 });
  await page.getByRole('link', { name: 'All pages' }).click();
  const menu = page.getByRole('navigation', { name: 'Pages' });
  await menu.getByRole('link', { name: 'Webhooks' }).waitFor();
  expect(await menu.locator('[aria-current=page]').allTextContents()).toEqual([
    expect.stringMatching(/^\s*Webhooks\s*$/),
  ]);
});
