import { readFile } from 'node:fs/promises';
import { expect } from '@jest/globals';
import { browserOfFile } from '../support/client/browser.ts';
import { button, heading, toast } from '../support/client/page.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

const { service } = await serviceWithSchool({}, 6);
const { operator } = service;
const { test, openSession } = await browserOfFile(service);

const addRows = async (word: string, count: number) => {
  await service.database.query(
    `insert into platform.tenant (name, subdomain, contact_email, plan_id, status)
     select $1 || to_char(n, ' FM00'), lower($1) || '-' || n, 'head@list.example', 1,
            case n when 2 then 'suspended' else 'active' end
     from generate_series(1, $2::integer) n`,
    [word, count],
  );
};

test('the list of schools is exported as CSV with all schools that match the filters', async () => {
  const word = unique('Csv');
  await addRows(word, 23);
  const { openTab } = await openSession();
  const page = await openTab(`/schools?search=${word}&status=active`);
  await page.locator('.pager').getByText('1–20 of 22 schools').waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), button(page, 'Export CSV').click()]);
  expect(file.suggestedFilename()).toMatch(/^schools-[\d-]+\.csv$/);
  const lines = (await readFile(await file.path(), 'utf8')).trim().split('\n');
  expect(lines).toHaveLength(23);
  expect(lines[1]).toContain(`${word} 01`);
  await toast(page, 'Schools exported.');
});

test('a filter is saved under a name, applied from another page load, and removed', async () => {
  const word = unique('Saved');
  await addRows(word, 3);
  const { openTab } = await openSession({});
  const page = await openTab(`/schools?search=${word}`);
  await page.getByRole('radio', { name: 'Suspended' }).check();
  await button(page, 'Save this filter').click();
  const dialog = page.getByRole('dialog', { name: 'Save filter' });
  await dialog.getByRole('button', { name: 'Save filter' }).click();
  await dialog.getByText('Name is required').waitFor();
  await dialog.getByLabel('Name').fill('Closed ones');
  await page.keyboard.press('Enter');
  await toast(page, 'Filter Closed ones saved.');
  await page.goto('/console/schools');
  await page.getByRole('list', { name: 'Saved filters' }).getByRole('link', { name: 'Closed ones' }).click();
  await page.locator('.pager').getByText('1 school', { exact: true }).waitFor();
  expect(await page.getByRole('searchbox').inputValue()).toBe(word);
  expect(await page.getByRole('radio', { name: 'Suspended' }).isChecked()).toBe(true);
  await button(page, 'Remove filter Closed ones').click();
  await page.reload();
  await button(page, 'Save this filter').waitFor();
  expect(await page.getByRole('list', { name: 'Saved filters' }).count()).toBe(0);
});

test('columns are chosen, and stay chosen when the page is loaded again', async () => {
  const { openTab } = await openSession({});
  const page = await openTab('/schools');
  const headers = async () => {
    await page.locator('tbody tr').first().waitFor();
    return page.locator('thead th').allInnerTexts();
  };
  expect(await headers()).toEqual(['School', 'Status', 'Plan', 'Students', 'Created']);
  await button(page, 'Columns').click();
  const dialog = page.getByRole('dialog', { name: 'Columns' });
  await dialog.getByLabel('Teachers').check();
  await dialog.getByLabel('Plan').uncheck();
  await dialog.getByLabel('Period end').check();
  await button(page, 'Done').click();
  const chosen = ['School', 'Status', 'Period end', 'Students', 'Teachers', 'Created'];
  expect(await headers()).toEqual(chosen);
  await page.reload();
  expect(await headers()).toEqual(chosen);
  await button(page, 'Columns').click();
  await button(page, 'Reset').click();
  await button(page, 'Done').click();
  expect(await headers()).toEqual(['School', 'Status', 'Plan', 'Students', 'Created']);
});

test('several schools are suspended, and the result names the one that failed and why', async () => {
  const word = unique('Bulk');
  await addRows(word, 3);
  const { openTab } = await openSession();
  const page = await openTab(`/schools?search=${word}&sort=name&order=asc`);
  const status = async () =>
    (await operator.get<{ status: string }[]>(`/api/platform/tenants?search=${word}&sort=name`)).data.map(
      (school) => school.status,
    );
  await page.getByRole('checkbox', { name: 'Select all schools on this page' }).check();
  const bar = page.getByRole('group', { name: 'Selected schools' });
  await bar.getByText('3 schools selected').waitFor();
  await bar.getByRole('button', { name: 'Suspend' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Suspend' }).click();
  const result = dialog.getByRole('alert');
  await result.getByText('2 schools suspended, 1 failed:').waitFor();
  expect(await result.getByRole('listitem').allInnerTexts()).toEqual([
    `${word} 02: The status of this school cannot change from suspended to suspended.`,
  ]);
  expect(await status()).toEqual(['suspended', 'suspended', 'suspended']);
  await button(page, 'Done').click();
  // Only the school that failed is still selected.
  await bar.getByText('1 school selected').waitFor();
  await page.getByRole('checkbox', { name: 'Select all schools on this page' }).check();
  await bar.getByRole('button', { name: 'Activate' }).click();
  await dialog.getByRole('button', { name: 'Activate' }).click();
  await toast(page, '3 schools activated.');
  expect(await status()).toEqual(['active', 'active', 'active']);
  const log = await operator.get<{ tenant_name: string }[]>('/api/platform/audit-logs?action=tenant.activate');
  expect(log.data.map(({ tenant_name }) => tenant_name).sort()).toEqual([`${word} 01`, `${word} 02`, `${word} 03`]);
});

test('several schools get another plan and a message to their admins', async () => {
  const [first, second] = [await service.school(), await service.school()];
  // Until an address is confirmed, its emails take turns.
  for (const { schema } of [first, second])
    await service.database.query(`update ${schema}.user_account set email_verified_at = now()`);
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  const select = async (subdomain: string) => {
    await page.getByRole('searchbox').fill(subdomain);
    await page.locator('tbody tr', { hasText: subdomain }).getByRole('checkbox').check();
  };
  const selectBoth = async () => {
    await select(first.subdomain);
    // The first stays selected although it is no longer in the list.
    await select(second.subdomain);
    await page.getByText('2 schools selected').waitFor();
  };
  const dialog = page.getByRole('dialog');
  await selectBoth();
  await button(page, 'Change plan').click();
  expect(await dialog.getByRole('button', { name: 'Change plan' }).isDisabled()).toBe(true);
  await dialog.getByLabel('New plan').selectOption('Premium');
  await dialog.getByRole('button', { name: 'Change plan' }).click();
  await toast(page, '2 schools changed.');
  for (const { id } of [first, second])
    expect((await operator.get(`/api/platform/tenants/${id}`)).data).toMatchObject({ plan: { name: 'Premium' } });

  await selectBoth();
  await button(page, 'Message admins').click();
  await dialog.getByLabel('Subject').fill('Maintenance on Sunday');
  await dialog.getByLabel('Message').fill('Dear {{first_name}}, we update the service.');
  await dialog.getByRole('button', { name: 'Message admins' }).click();
  await toast(page, '2 schools messaged.');
  for (const { adminEmail } of [first, second])
    expect((await mailTo(service, adminEmail, 'Maintenance on Sunday')).text).toContain('we update the service.');
});

test('the palette goes to a page or a school, and / focuses the search until it is turned off', async () => {
  const word = unique('Palette');
  await addRows(word, 2);
  const { openTab } = await openSession({});
  const page = await openTab('/');
  await heading(page, 'Overview');
  const palette = page.getByRole('dialog', { name: 'Go to' });
  await page.keyboard.press('Control+k');
  await palette.getByRole('combobox').waitFor();
  await page.keyboard.type('notification');
  await palette.getByRole('option', { name: 'Notification settings' }).waitFor();
  await page.keyboard.press('Enter');
  await heading(page, 'Settings');
  await page.waitForURL(/settings\/notifications$/);

  await page.keyboard.press('Meta+k');
  await page.keyboard.type(word);
  await palette.getByRole('option', { name: `${word} 02` }).waitFor();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await heading(page, `${word} 02`);
  expect(await page.evaluate('document.activeElement.tagName')).toBe('H1');

  await page.keyboard.press('Control+k');
  await page.keyboard.type('nowhere at all');
  await palette.getByText('No matching page or school').waitFor();
  await page.keyboard.press('Escape');
  await palette.waitFor({ state: 'detached' });

  await page.goto('/console/schools');
  await heading(page, 'Schools');
  await page.keyboard.press('/');
  const box = page.getByRole('searchbox', { name: 'Search schools' });
  const focused = () => page.evaluate("document.activeElement.getAttribute('aria-label')");
  expect(await focused()).toBe('Search schools');
  await page.keyboard.type('a/b');
  expect(await box.inputValue()).toBe('a/b');
  await page.goto('/console/profile');
  await page.getByLabel('/ goes to the search field').uncheck();
  await page.goto('/console/schools');
  await page.locator('tbody tr').first().waitFor();
  await page.keyboard.press('/');
  expect(await focused()).toBeNull();
});
