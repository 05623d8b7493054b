import { readFile } from 'node:fs/promises';
import { expect } from '@jest/globals';
import type { Page } from 'playwright-core';
import { seriousIssues } from '../support/client/axe.ts';
import { browserOfFile } from '../support/client/browser.ts';
import { button, heading, loginPage, toast } from '../support/client/page.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({}, 6);
const { operator } = service;
const { test, openSession } = await browserOfFile(service);

test('the overview shows school counts, sign-ups as a chart and a table, and recent activity', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/');
  await heading(page, 'Overview');
  const { data } = await operator.get<{
    total_tenants: number;
    signups_this_month: number;
    signups_by_month: object[];
  }>('/api/platform/overview');
  const figure = (name: string) =>
    page
      .locator('.figure', { has: page.getByText(name, { exact: true }) })
      .locator('dd')
      .innerText();
  expect(await figure('Schools')).toBe(String(data.total_tenants));
  expect(await figure('Sign-ups this month')).toBe(String(data.signups_this_month));
  expect(await page.locator('.chart .bar').count()).toBe(12);
  await page.setViewportSize({ width: 390, height: 800 });
  const labels = await Promise.all((await page.locator('.chart .bar .tick').all()).map((label) => label.boundingBox()));
  const ends = labels.flatMap((box) => (box ? [box.x, box.x + box.width] : []));
  expect(ends).toHaveLength(12);
  expect(ends).toEqual([...ends].sort((a, b) => a - b));
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.getByText('Show as table').click();
  expect(await page.locator('.chart tbody tr').count()).toBe(12);
  expect(await page.locator('.chart tbody tr').last().locator('td').innerText()).toBe(String(data.signups_this_month));
  const entry = page.locator('.entry', { hasText: 'Created school' }).first();
  await entry.getByRole('button').click();
  expect(
    await entry
      .locator('.changes')
      .getByRole('row', { name: /^subdomain empty/ })
      .innerText(),
  ).toContain(school.subdomain);
  await page.getByRole('link', { name: 'View all' }).click();
  await heading(page, 'Audit log');
});

test('the audit log filters by school, action and date, shows changes, and exports to CSV', async () => {
  const created = await service.school({ name: unique('Audited') });
  await operator.put(`/api/platform/tenants/${created.id}`, { name: `${created.subdomain} renamed` });
  await operator.post(`/api/platform/tenants/${created.id}/suspend`);
  const { openTab } = await openSession();
  const page = await openTab('/audit');
  await page.getByRole('combobox', { name: 'School' }).fill(created.subdomain);
  await page.getByRole('listbox').getByRole('option').waitFor();
  await page.keyboard.press('Enter');
  await page.locator('.pager').getByText('3 entries').waitFor();
  expect(await page.getByRole('combobox', { name: 'School' }).inputValue()).toBe(`${created.subdomain} renamed`);
  await page.getByLabel('Action').selectOption('tenant.update');
  await page.locator('.pager').getByText('1 entry', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Details: Updated school' }).click();
  expect(await page.locator('.changes tbody tr').allInnerTexts()).toEqual([
    expect.stringMatching(/^name\s+Audited-\d+\s+school-.* renamed$/),
  ]);
  await page.getByLabel('To').fill('2020-01-01');
  await page.getByText('No matching entries').waitFor();
  expect(await page.getByText(/^No (matching )?entries/).count()).toBe(1);
  await page.getByText('Dates are in UTC').waitFor();
  await page.getByLabel('To').fill('');
  // Otherwise the text below could still be that of the first filter.
  await page.locator('.pager').getByText('1 entry', { exact: true }).waitFor();
  await page.getByLabel('From').fill('2099-01-01');
  await page.getByText('No matching entries').waitFor();
  expect(await page.getByText(/^No (matching )?entries/).count()).toBe(1);
  await page.getByLabel('From').fill('');
  await page.locator('.pager').getByText('1 entry', { exact: true }).waitFor();

  const [file] = await Promise.all([page.waitForEvent('download'), button(page, 'Export CSV').click()]);
  expect(file.suggestedFilename()).toMatch(/^audit-log-[\d-]+\.csv$/);
  const lines = (await readFile(await file.path(), 'utf8')).trim().split('\n');
  expect(lines).toHaveLength(2);
  expect(lines[1]).toContain('tenant.update');
});

test('malformed addresses and page numbers past the end of a list offer a way back', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/schools/%E0%A4%A');
  await heading(page, 'Page not found');
  for (const [list, first] of [
    ['/schools?page=999', 'tbody tr'],
    ['/audit?page=999', '.entry'],
  ] as const) {
    await page.goto(`/console${list}`);
    await button(page, 'Go to the first page').click();
    await page.locator(first).first().waitFor();
    expect(page.url()).not.toContain('page=');
  }
});

test('a notification template is created with a preview, edited and deleted', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/templates');
  await page.getByRole('searchbox').fill('attendance.absent');
  await page.getByRole('link', { name: 'attendance.absent, Email: default' }).click();
  await heading(page, 'Create template');
  await page.locator('.preview').getByText('Amina García').first().waitFor();
  await page.getByLabel('Message').fill('Dear parents, ');
  await button(page, 'student_name').click();
  await page.locator('.preview').getByText('Dear parents, Amina García').waitFor();
  await page.getByLabel('Message').pressSequentially(' {{nobody}}');
  // Not a placeholder of the event, so it is text.
  await page.locator('.preview').getByText('Dear parents, Amina García {{nobody}}').waitFor();
  await page.getByLabel('Message').fill('Dear parents, {{student_name}} was absent.');
  await button(page, 'Create template').click();
  await toast(page, 'Template created.');

  await page.getByRole('link', { name: 'attendance.absent, Email: custom' }).click();
  await page.getByLabel('Message').fill('{{student_name}} was not there.');
  await page.getByLabel('Active').uncheck();
  await button(page, 'Save changes').click();
  await toast(page, 'Template saved.');
  const { data } = await operator.get<{ body: string; is_active: boolean }[]>(
    '/api/platform/notification-templates?key=attendance.absent',
  );
  expect(data).toMatchObject([{ body: '{{student_name}} was not there.', is_active: false }]);

  await button(page, 'Delete').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await toast(page, 'Template deleted.');
  await page.getByRole('link', { name: 'attendance.absent, Email: default' }).waitFor();
});

test('plans are created, edited and deleted, but a plan in use cannot be deleted', async () => {
  const name = unique('Village');
  const { openTab } = await openSession();
  const page = await openTab('/settings');
  const dialog = page.getByRole('dialog');
  await button(page, 'Create plan').click();
  await dialog.getByLabel('Name').fill(name);
  await dialog.getByLabel('Price per month').fill('12.5');
  await dialog.getByLabel('Maximum students').fill('80');
  await dialog.getByRole('button', { name: 'Create plan' }).click();
  await dialog.getByText('Maximum teachers is required').waitFor();
  await dialog.getByLabel('Maximum teachers').fill('9');
  await dialog.getByLabel('Timetable').check();
  expect(await dialog.getByLabel('Schools can choose this plan').isChecked()).toBe(true);
  await dialog.getByLabel('Schools can choose this plan').uncheck();
  await dialog.getByRole('button', { name: 'Create plan' }).click();
  await toast(page, `Plan ${name} created.`);
  const plans = async () => (await operator.get<{ name: string }[]>(`/api/platform/plans?search=${name}`)).data;
  expect(await plans()).toMatchObject([
    { name, price_monthly: 12.5, max_students: 80, max_teachers: 9, features_json: { features: ['timetable'] } },
  ]);
  expect(await plans()).toMatchObject([{ is_public: false }]);
  const note = page.locator('tr', { hasText: name }).getByText('Only operators can assign it');
  await note.waitFor();

  await button(page, name).click();
  await dialog.getByLabel('Price per month').fill('15');
  await dialog.getByLabel('Schools can choose this plan').check();
  await dialog.getByRole('button', { name: 'Save changes' }).click();
  await toast(page, `Plan ${name} saved.`);
  expect(await plans()).toMatchObject([{ price_monthly: 15, max_students: 80, is_public: true }]);
  await note.waitFor({ state: 'detached' });
  const limits = page.locator('tr', { hasText: name }).getByText('80 students, 9 teachers, 0 schools');
  expect(await limits.isVisible()).toBe(false);
  await page.setViewportSize({ width: 390, height: 800 });
  expect(await limits.isVisible()).toBe(true);
  await page.setViewportSize({ width: 1280, height: 800 });

  await button(page, `Delete plan ${name}`).click();
  await dialog.getByRole('button', { name: 'Delete plan' }).click();
  await toast(page, `Plan ${name} deleted.`);
  expect(await plans()).toEqual([]);
  const premium = page.locator('tr', { hasText: 'Premium' });
  await premium.getByText('in use').waitFor();
  const schools = await premium.locator('td a').innerText();
  await premium.locator('td a').click();
  await page.getByText('Filtered by plan.').waitFor();
  await page
    .locator('.pager')
    .getByText(new RegExp(`(^|of )${schools} schools?$`))
    .waitFor();
  expect(new Set(await page.locator('tbody td:nth-child(4)').allInnerTexts())).toEqual(new Set(['Premium']));
});

test('the currency of prices is a setting, and each price is shown with it', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/settings');
  const standard = page.locator('tr', { hasText: 'Standard' });
  await standard.getByText('US$149.00').waitFor();
  await page.getByRole('link', { name: 'General' }).click();
  await page.getByLabel('Currency of prices').selectOption('EUR');
  await button(page, 'Save changes').click();
  await toast(page, 'Settings saved.');
  expect((await operator.get('/api/platform/settings')).data).toMatchObject({ currency: 'EUR' });
  await page.getByRole('link', { name: 'Plans' }).click();
  await standard.getByText('€149.00').waitFor();
  await button(page, 'Create plan').click();
  await page.getByRole('dialog').getByText('In EUR.').waitFor();
  await page.goto('/console/schools/new');
  await page.locator('.choice', { hasText: 'Standard' }).getByText('€149.00').waitFor();
  await page.goto(`/console/schools/${school.id}/subscription`);
  await page.getByText(/€\d+\.00 per month/).waitFor();
  await operator.put('/api/platform/settings', { currency: 'USD' });
});

test('the system page shows the queue and failed jobs, which an operator runs again or removes', async () => {
  const addFailed = async () => {
    const [job] = await service.database.query<{ id: string }>(
      "select id from graphile_worker.add_job('unknown_task', run_at => now() + interval '1 day', max_attempts => 1)",
    );
    await service.database.query(
      "update graphile_worker._private_jobs set attempts = 1, last_error = 'No connection' where id = $1",
      [job?.id],
    );
    return job?.id ?? '';
  };
  const [first, second] = [await addFailed(), await addFailed()];
  const { openTab } = await openSession();
  const page = await openTab('/system');
  await page.getByText('2 jobs failed at the last attempt.').waitFor();
  const queue = page.getByRole('row', { name: /^unknown_task/ }).first();
  expect((await queue.innerText()).split(/\s+/)).toEqual(['unknown_task', '0', '0', '0', '2', '–']);
  await page.locator('tr', { hasText: first }).getByText('No connection').waitFor();
  await button(page, `Retry job ${first}`).click();
  await toast(page, `Job ${first} (unknown_task) runs again.`);
  await button(page, `Retry job ${first}`).waitFor({ state: 'detached' });
  await button(page, `Remove job ${second}`).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove job' }).click();
  await toast(page, `Job ${second} removed.`);
  await page.getByText('No job has failed').waitFor();
  expect(
    await service.database.query('select id, attempts from graphile_worker.jobs where task_identifier = $1', [
      'unknown_task',
    ]),
  ).toEqual([{ id: first, attempts: 0 }]);
  await service.database.query('select graphile_worker.complete_jobs(array[$1::bigint])', [first]);
});

test('the system page says what the owner of the database may not see, and which statement lets it', async () => {
  const run = (text: string) => service.database.query(text);
  // The function runs with the rights of its owner. Roles belong to the whole server, which other tests use too.
  await run('create role short_sighted bypassrls; grant pg_read_all_data to short_sighted');
  await run(
    'grant usage on schema core to short_sighted; grant execute on all functions in schema core to short_sighted',
  );
  await run('alter function core.status(boolean) owner to short_sighted');
  try {
    const { data } = await operator.get('/api/platform/system');
    expect(data).toMatchObject({
      missing_grant: 'grant pg_read_all_stats to short_sighted',
      long_transactions: null,
      replicas: null,
    });
    const { openTab } = await openSession();
    const page = await openTab('/system');
    await page
      .getByText(/^Long transactions and replicas cannot be seen.*: grant pg_read_all_stats to short_sighted$/)
      .waitFor();
    await page.getByText('cannot be seen', { exact: true }).waitFor();
  } finally {
    await run('alter function core.status(boolean) owner to current_user');
    await run('drop owned by short_sighted; drop role short_sighted');
  }
});

test('the system page is live, and says when it is not', async () => {
  const { context, openTab } = await openSession({});
  const stream = '**/api/platform/system/stream';
  await context.route(stream, (route) => route.abort('internetdisconnected'));
  const page = await openTab('/system');
  const requests: string[] = [];
  page.on('request', (request) => requests.push(new URL(request.url()).pathname));
  const status = page.locator('.lead').getByRole('status');
  const says = (text: string) => status.getByText(text, { exact: true }).waitFor();
  const addJob = (task: string) =>
    service.database.query("select graphile_worker.add_job($1, run_at => now() + interval '1 day')", [task]);
  const shows = (task: string) => page.getByRole('row', { name: new RegExp(`^${task}`) }).waitFor();

  // Without the stream, the page asks.
  await says('reconnecting');
  expect(await status.innerText()).toContain('the page is updated every ten seconds');
  await addJob('asked_for');
  await shows('asked_for');
  expect(requests).toContain('/api/platform/system');

  await context.unroute(stream);
  await says('live');
  requests.length = 0;
  await addJob('sent_by_the_stream');
  await shows('sent_by_the_stream');
  expect(requests).toEqual([]);
});

test('the system page warns of a node that does not answer, and the page of a school that its server does not', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/system');
  await page.getByRole('heading', { name: 'Job queue' }).waitFor();
  expect(await page.getByRole('heading', { name: 'Nodes' }).count()).toBe(0);
  const [east] = await service.database.query<{ id: string }>(
    `insert into platform.node (name, url, status, answered_at, unreachable_since) values
       ('east', '', 'active', now() - interval '8 minutes', now() - interval '7 minutes'),
       ('west', '', 'draining', now(), null)
     returning id`,
  );
  await service.database.query(
    `insert into platform.tenant (name, subdomain, plan_id, contact_email, node_id)
     select 'Far School', 'far-school', plan_id, contact_email, $2 from platform.tenant where id = $1`,
    [school.id, east?.id],
  );
  const [far] = await service.database.query<{ id: string }>(
    `update platform.tenant set schema_version = 0 where subdomain = 'far-school' returning id`,
  );
  try {
    await page.reload();
    await page.getByText('The node east has not answered for 7 min: requests of its 1 school get 503.').waitFor();
    const row = (name: string) => page.getByRole('table', { name: 'Nodes' }).getByRole('row', { name: `${name} ` });
    expect((await row('east').innerText()).split('\t')).toEqual(['east', 'active', '1', 'no, for 7 min']);
    expect((await row('west').innerText()).split('\t')).toEqual(['west', 'draining', '0', 'yes']);
    expect(await seriousIssues(page)).toEqual([]);
    await page.goto(`/console/schools/${far?.id ?? ''}`);
    await page.getByText('The server of this school has not answered since').waitFor();
    await heading(page, 'Far School');
    await page.goto(`/console/schools/${school.id}`);
    await page.getByRole('heading', { name: 'Recent activity' }).waitFor();
    expect(await page.getByText('The server of this school').count()).toBe(0);
  } finally {
    await service.database.query("delete from platform.tenant where subdomain = 'far-school'");
    await service.database.query('delete from platform.node');
  }
});

test('notification settings save channels, quiet hours and limits', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/settings/notifications');
  await page.getByLabel('Push', { exact: true }).uncheck();
  await page.getByLabel('Hold push messages and emails during quiet hours').check();
  await page.getByLabel('Start', { exact: true }).fill('22:00');
  await page.getByLabel('End', { exact: true }).fill('22:00');
  await button(page, 'Save changes').click();
  await page.getByText('End must differ from start').waitFor();
  await page.getByLabel('End', { exact: true }).fill('06:30');
  await page.getByLabel('Emails per address').fill('5');
  await button(page, 'Save changes').click();
  await toast(page, 'Notification settings saved.');
  const { data } = await operator.get('/api/platform/notification-settings');
  expect(data).toMatchObject({
    channels: { in_app: true, push: false, email: true },
    quiet_hours: { start: '22:00', end: '06:30' },
    limits: { emails_per_user_per_day: 5 },
  });
  await page.getByLabel('Hold push messages and emails during quiet hours').uncheck();
  await page.getByLabel('Push', { exact: true }).check();
  await button(page, 'Save changes').click();
  await page.locator('.save-bar').waitFor({ state: 'detached' });
  expect((await operator.get('/api/platform/notification-settings')).data).toMatchObject({
    channels: { push: true },
    quiet_hours: null,
  });
});

test('an incomplete number is reported and not saved as empty', async () => {
  await operator.put('/api/platform/notification-settings', { limits: { emails_per_user_per_day: 50 } });
  const { openTab } = await openSession();
  const page = await openTab('/settings/notifications');
  const sent: string[] = [];
  page.on('request', (request) => sent.push(request.method()));
  const limit = page.getByLabel('Emails per address');
  await limit.press('End');
  await limit.pressSequentially('e');
  await button(page, 'Save changes').click();
  expect(await page.evaluate('document.activeElement.name')).toBe('emails');
  expect(sent).not.toContain('PUT');
  await limit.fill('51');
  await button(page, 'Save changes').click();
  await toast(page, 'Notification settings saved.');
  await limit.fill('52');
  const [message, save] = [page.locator('.toast'), button(page, 'Save changes')];
  const [above, below] = [await message.boundingBox(), await save.boundingBox()];
  expect((above?.y ?? 0) + (above?.height ?? 0)).toBeLessThan(below?.y ?? 0);
  await button(page, 'Discard').click();
  expect((await operator.get('/api/platform/notification-settings')).data).toMatchObject({
    limits: { emails_per_user_per_day: 51 },
  });
  await operator.put('/api/platform/notification-settings', { limits: { emails_per_user_per_day: null } });
});

const screens: [path: string, title: string | RegExp][] = [
  ['/', 'Overview'],
  ['/schools', 'Schools'],
  ['/schools/new', 'Create school'],
  [`/schools/${school.id}`, /^School \d+ active/],
  [`/schools/${school.id}/subscription`, /^School \d+ active/],
  [`/schools/${school.id}/usage`, /^School \d+ active/],
  ['/usage', 'Usage'],
  ['/system', 'System'],
  ['/audit', 'Audit log'],
  ['/templates', 'Notification templates'],
  ['/templates/new', 'Create template'],
  ['/settings', 'Settings'],
  ['/settings/notifications', 'Settings'],
  ['/settings/general', 'Settings'],
  ['/operators', 'Operators'],
  ['/profile', 'Your profile'],
  ['/no/such/page', 'Page not found'],
];

/** Navigates without loading the page again, which keeps axe loaded. Resolves when the new screen is rendered. */
const followLink = (page: Page, path: string) =>
  page.evaluate(`new Promise((done) => {
    const link = document.createElement('a');
    link.href = '/console${path}';
    document.body.append(link);
    link.click();
    link.remove();
    requestAnimationFrame(() => requestAnimationFrame(done));
  })`);

/** Runs axe in both themes, and looks for horizontal overflow at phone width. */
async function checkAccessibility(page: Page, name: string): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    // The theme affects only the contrast rule.
    const serious = await seriousIssues(page, colorScheme === 'light' ? undefined : ['color-contrast']);
    expect({ name, colorScheme, serious }).toEqual({ name, colorScheme, serious: [] });
  }
  await page.setViewportSize({ width: 360, height: 700 });
  expect([name, await page.evaluate('document.documentElement.scrollWidth > innerWidth')]).toEqual([name, false]);
  await page.setViewportSize({ width: 1280, height: 800 });
}

test('no screen has serious accessibility issues in either theme, or scrolls sideways on a phone', async () => {
  const anonymous = await openSession({ as: 'nobody' });
  const loginTab = await anonymous.openTab('/');
  await loginPage(loginTab);
  await checkAccessibility(loginTab, 'login');

  const { openTab } = await openSession();
  const page = await openTab('/');
  await heading(page, 'Overview');
  for (const [path, title] of screens) {
    await followLink(page, path);
    await heading(page, title);
    await page.locator('.skeleton').first().waitFor({ state: 'detached' });
    const entry = page.locator('.entry button').first();
    if (await entry.count()) await entry.click();
    await checkAccessibility(page, path);
  }
  await followLink(page, `/schools/${school.id}`);
  await button(page, 'Delete').click();
  await checkAccessibility(page, 'dialog');
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 360, height: 700 });
  await button(page, 'Menu').click();
  await page.getByRole('dialog', { name: 'Menu' }).getByRole('link', { name: 'Schools' }).click();
  await heading(page, 'Schools');
});

test('the console works with the keyboard alone, and remembers the chosen theme', async () => {
  // The newest school is first in the list.
  await service.school();
  const { openTab } = await openSession({ colorScheme: 'light' });
  const page = await openTab('/schools');
  await page.locator('tbody tr').first().waitFor();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  expect(await page.evaluate('document.activeElement.id')).toBe('main');
  await page.keyboard.press('Tab');
  expect(await page.evaluate('document.activeElement.textContent')).toContain('Export CSV');
  await page.locator('tbody a').first().focus();
  await page.keyboard.press('Enter');
  await button(page, 'Suspend').waitFor();
  const background = () => page.evaluate('getComputedStyle(document.documentElement).backgroundColor');
  expect(await background()).toBe('rgb(246, 247, 249)');
  await page.getByRole('radio', { name: 'Dark' }).check();
  expect(await background()).toBe('rgb(14, 17, 20)');
  await page.reload();
  await button(page, 'Suspend').waitFor();
  expect(await background()).toBe('rgb(14, 17, 20)');
});
