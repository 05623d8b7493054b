import { readFile } from 'node:fs/promises';
import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { button, heading } from '../support/client/page.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { test, openSession } = await browserOfFile(service);

/** Records the usage of today and of the months before. */
async function record(tenantId: number): Promise<void> {
  await service.database.query(
    `insert into platform.usage_day
       (tenant_id, date, students, teachers, active_users, messages, storage_bytes, requests)
     select $1, case n when 0 then current_date else (date_trunc('month', now()) - make_interval(months => n))::date end,
       700 - 20 * n, 40 - n, 300 - 10 * n, 1000 - 50 * n, (24e8 - 1e8 * n)::bigint, 90000 - 4000 * n
     from generate_series(0, 6) n`,
    [tenantId],
  );
  await service.database.query('update platform.tenant_usage set students = 700, teachers = 40 where tenant_id = $1', [
    tenantId,
  ]);
}

const card = (page: Page, title: string) =>
  page.locator('.card', { has: page.getByRole('heading', { name: title, exact: true }) });

/** The last rows of the table below a chart. */
async function lastRows(page: Page, title: string, count: number): Promise<string[]> {
  await card(page, title).getByText('Show as table').click();
  const cells = await card(page, title).locator('tbody td').allInnerTexts();
  return cells.slice(-count);
}

test('a school has a tab with its usage by month and day, against the limits of its plan', async () => {
  await record(school.id);
  const { data: plan } = await service.operator.post<{ id: number }>(
    '/api/platform/plans',
    { name: 'Near', price_monthly: 1, max_students: 800, max_teachers: 400 },
    201,
  );
  await service.operator.put(`/api/platform/tenants/${school.id}`, { plan_id: plan.id });
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${school.id}`);
  await page.getByRole('link', { name: 'Usage', exact: true }).last().click();
  const figure = (name: string) =>
    page
      .locator('.figure', { has: page.getByText(name, { exact: true }) })
      .locator('dd')
      .innerText();
  await card(page, 'Students by month').waitFor();
  expect((await figure('Students')).split('\n')).toEqual(['700', 'of 800 (87%)']);
  expect((await figure('Storage')).trim()).toBe('2.4 GB');
  expect(await lastRows(page, 'Students by month', 8)).toEqual(['–', '580', '600', '620', '640', '660', '680', '700']);
  expect(await lastRows(page, 'Active users, last 31 days', 1)).toEqual(['300']);
  expect(await lastRows(page, 'Storage by month', 2)).toEqual(['2.3 GB', '2.4 GB']);
  expect(await card(page, 'Students by month').locator('.limit').count()).toBe(1);
  // A line at 400 teachers would make the bars of 40 too small to compare.
  expect(await card(page, 'Teachers by month').locator('.limit').count()).toBe(0);
  expect(await card(page, 'Requests, last 31 days').locator('.bar').count()).toBe(31);

  const [file] = await Promise.all([page.waitForEvent('download'), button(page, 'Export months (CSV)').click()]);
  expect(file.suggestedFilename()).toMatch(/^usage-[\d-]+\.csv$/);
  const lines = (await readFile(await file.path(), 'utf8')).trim().split('\r\n');
  expect(lines).toHaveLength(8);
  expect(lines.at(-1)).toContain(',700,40,300,90000,1000,2400000000,Near,800,400');
});

test('a figure that was not recorded is shown as such, not as 0', async () => {
  const { id } = await service.school();
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${id}/usage`);
  await card(page, 'Messages by month').getByText('Nothing recorded yet').waitFor();
  const messages = page.locator('.figure', { has: page.getByText('Messages', { exact: true }) });
  expect((await messages.locator('dd').innerText()).replace(/\s+/g, ' ')).toBe('– this month');
});

test('the page Usage adds the schools up, and lists those that come near a limit', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/usage');
  await heading(page, 'Usage');
  expect(await lastRows(page, 'Requests by month', 2)).toEqual(['86,000', '90,000']);
  const row = page.getByRole('row', { name: /87%/ });
  expect((await row.innerText()).replace(/\s+/g, ' ')).toContain('700 of 800 40 of 400 87%');
  const [file] = await Promise.all([page.waitForEvent('download'), button(page, 'Export days (CSV)').click()]);
  expect(await readFile(await file.path(), 'utf8')).toContain(school.subdomain);
  await row.getByRole('link').click();
  await heading(page, /^School \d+/);
  await card(page, 'Students by month').waitFor();
});
