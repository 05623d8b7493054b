import { expect } from '@jest/globals';
import type { Request } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { button, heading, toast } from '../support/client/page.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({ APP_URL: 'https://app.example/enter' }, 33);
const { operator } = service;
const { test, openSession } = await browserOfFile(service);

interface SchoolRecord {
  name: string;
  status: string;
  contact_email: string;
  trial_ends_at: string | null;
  plan: { id: number };
  feature_flags: Record<string, boolean>;
  enabled_features: string[];
  is_impersonation_allowed: boolean;
  subscription: { status: string; grace_days: number; is_final: boolean };
}
const getSchool = async (id: number) => (await operator.get<SchoolRecord>(`/api/platform/tenants/${id}`)).data;

test('the school list can be searched, filtered, sorted and paged, and keeps its state in the address', async () => {
  const word = unique('Quarry');
  // Insert only the rows of the list: creating schools with all their tables would take much longer.
  await service.database.query(
    `insert into platform.tenant (name, subdomain, contact_email, plan_id, status)
     select $1 || to_char(n, ' FM00'), lower($1) || '-' || n, 'head@quarry.example', 1,
            case n when 5 then 'suspended' else 'active' end
     from generate_series(1, 22) n`,
    [word],
  );
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  const searches: string[] = [];
  page.on('request', (request) => {
    if (request.url().includes('search=')) searches.push(request.url());
  });
  const box = page.getByRole('searchbox', { name: 'Search schools' });
  await box.pressSequentially(word, { delay: 15 });
  const status = page.locator('.pager [role=status]');
  await status.getByText('1–20 of 22 schools').waitFor();
  expect(searches.length).toBeLessThan(word.length / 2);
  const names = () => page.locator('tbody th a').allInnerTexts();

  await button(page, 'School').click();
  await page.locator('th[aria-sort=ascending]', { hasText: 'School' }).waitFor();
  await page.locator('tbody tr').first().getByText(`${word} 01`).waitFor();
  expect((await names()).slice(0, 2)).toEqual([`${word} 01`, `${word} 02`]);
  await button(page, 'Next').click();
  await status.getByText('21–22 of 22 schools').waitFor();
  expect(await names()).toEqual([`${word} 21`, `${word} 22`]);
  expect(page.url()).toContain(`search=${word}`);

  // Another tab with the same address shows the same page of the list.
  const other = await openTab(page.url().split('/console')[1] ?? '');
  await other.locator('.pager').getByText('21–22 of 22 schools').waitFor();

  await button(page, 'School').click();
  await page.locator('th[aria-sort=descending]', { hasText: 'School' }).waitFor();
  expect(await page.locator('th[aria-sort]').count()).toBe(1);

  await page.getByRole('radio', { name: 'Suspended' }).check();
  await status.getByText('1 school', { exact: true }).waitFor();
  expect(await names()).toEqual([`${word} 05`]);
  await page.getByRole('searchbox').fill(`${word} nowhere`);
  await page.getByText('No matching schools').waitFor();
  await button(page, 'Show all schools').click();
  await page
    .locator('.pager')
    .getByText(/^1–20 of/)
    .waitFor();

  // The late response to an earlier search does not replace the results of a later one.
  const slowSearch = /search=[^&]*-1&/;
  const gate = Promise.withResolvers<undefined>();
  await page.route(slowSearch, async (route) => {
    await gate.promise;
    await route.continue().catch(() => undefined);
  });
  const isSlowSearch = (request: Request) => slowSearch.test(request.url());
  const slowSearchEnds = Promise.race([
    page.waitForEvent('requestfinished', isSlowSearch),
    page.waitForEvent('requestfailed', isSlowSearch),
  ]);
  await box.fill(`${word}-1`);
  await page.waitForURL(/-1$/);
  await box.fill(`${word}-12`);
  await page.locator('tbody tr').first().getByText(`${word} 12`).waitFor();
  gate.resolve(undefined);
  await slowSearchEnds;
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
  expect(await names()).toEqual([`${word} 12`]);
});

test('letters typed while a search is running are kept', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  const box = page.getByRole('searchbox');
  await box.fill('a');
  // Type the second letter at the moment when the search for the first changes the address.
  await page.evaluate(`new Promise((done) => {
    const replace = history.replaceState;
    history.replaceState = function (...args) {
      history.replaceState = replace;
      const field = document.querySelector('[type=search]');
      replace.apply(this, args);
      field.value = 'ab';
      field.dispatchEvent(new Event('input', { bubbles: true }));
      done();
    };
  })`);
  await page.waitForURL(/search=ab$/);
  expect(await box.inputValue()).toBe('ab');
});

test('creating a school reports errors at the fields, and succeeds once they are corrected', async () => {
  const name = `Mönch ${unique('Academy')}`;
  const { openTab } = await openSession();
  const page = await openTab('/schools/new');
  await heading(page, 'Create school');
  await page.getByLabel('Name', { exact: true }).fill(name);
  const subdomain = name.toLowerCase().replace('ö', 'o').replaceAll(' ', '-');
  expect(await page.getByLabel('Subdomain').inputValue()).toBe(subdomain);
  await button(page, 'Create school').click();
  const email = page.getByLabel('Contact email');
  await page.locator('[aria-invalid=true]').first().waitFor();
  expect(await email.getAttribute('aria-invalid')).toBe('true');
  expect(await page.evaluate('document.activeElement.name')).toBe('contact_email');
  await page.getByText('Plan is required').waitFor();

  await email.fill('head@monch.example');
  await page.getByText('Standard', { exact: false }).first().click();
  await page.getByLabel('Subdomain').fill(school.subdomain);
  await button(page, 'Create school').click();
  await page.locator('.error', { hasText: 'subdomain' }).waitFor();
  expect(await page.locator('form').getByText('This subdomain is already in use.').allInnerTexts()).toEqual([
    'This subdomain is already in use.',
  ]);
  await page.getByLabel('Subdomain').fill(subdomain);
  await page.getByLabel('Trial end').fill('2040-07-01T10:00');
  await page.getByText('Override features for this school').click();
  await page.getByRole('radiogroup', { name: 'Transport' }).getByRole('radio', { name: 'On', exact: true }).check();
  const posts: (string | undefined)[] = [];
  page.on('request', (request) => {
    if (request.method() === 'POST') posts.push(request.headers()['idempotency-key']);
  });
  await button(page, 'Create school').dblclick();
  await heading(page, name);
  expect(posts).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)]);
  await toast(page, `${name} created.`);
  const id = Number(/schools\/(\d+)$/.exec(page.url())?.[1]);
  expect(await getSchool(id)).toMatchObject({
    name,
    status: 'active',
    plan: { id: 2 },
    feature_flags: { transport: true },
    contact_email: 'head@monch.example',
  });
  await page.locator('.entry', { hasText: 'Created school' }).waitFor();
  // 10:00 in Berlin, in summer.
  expect(new Date((await getSchool(id)).trial_ends_at ?? '').toISOString()).toBe('2040-07-01T08:00:00.000Z');
  expect(await page.getByLabel('Trial end').inputValue()).toBe('2040-07-01T10:00');
});

test('saving a school sends only the changed fields', async () => {
  const { id, adminEmail } = await service.school();
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${id}`);
  await page.getByLabel('Contact email').fill('new@contact.example');
  await page.getByLabel('Plan', { exact: true }).selectOption({ label: 'Standard, US$149.00 per month' });
  await page.getByRole('radiogroup', { name: 'Timetable' }).getByRole('radio', { name: 'Off', exact: true }).check();
  const sent = page.waitForRequest((request) => request.method() === 'PUT');
  await button(page, 'Save changes').click();
  await toast(page, 'School saved.');
  expect((await sent).postDataJSON()).toEqual({
    contact_email: 'new@contact.example',
    plan_id: 2,
    feature_flags: { timetable: false },
  });
  expect((await sent).headers()['if-match']).toMatch(/^"/);
  expect(await getSchool(id)).toMatchObject({ contact_email: 'new@contact.example', plan: { id: 2 } });
  expect((await getSchool(id)).enabled_features).not.toContain('timetable');
  const entry = page.locator('.entry', { hasText: 'Updated school' });
  await entry.getByRole('button').click();
  expect(await entry.locator('tr', { hasText: 'contact email' }).innerText()).toContain(adminEmail);
  await page.locator('.save-bar').waitFor({ state: 'detached' });
});

test('the subscription of a school is renewed, cancelled and reactivated', async () => {
  const { id } = await service.school();
  const setEnd = (end: string) =>
    service.database.query(`update platform.subscription set current_period_end = ${end} where tenant_id = $1`, [id]);
  await setEnd("now() - interval '2 days'");
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${id}`);
  await page.locator('.facts').getByText('past due', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Manage' }).click();
  const summary = page.locator('.card', { has: page.getByRole('heading', { name: 'Subscription' }) }).locator('.facts');
  await summary.getByText('past due', { exact: true }).waitFor();
  await summary.getByText('Will be cancelled').waitFor();
  await button(page, 'Change period').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('A period end in the future activates the subscription again.').waitFor();
  const end = dialog.getByLabel('Period end');
  await end.fill('2020-07-01T10:00');
  await button(page, 'Save').click();
  await dialog.getByText('Period end must be in the future').waitFor();
  expect(await end.getAttribute('aria-invalid')).toBe('true');
  await end.fill('2040-07-01T10:00');
  await dialog.getByLabel('Grace period (days)').fill('30');
  const sent = page.waitForRequest((request) => request.method() === 'PUT');
  await button(page, 'Save').click();
  // 10:00 in Berlin, in summer.
  expect((await sent).postDataJSON()).toEqual({ current_period_end: '2040-07-01T08:00:00.000Z', grace_days: 30 });
  expect((await sent).headers()['if-match']).toMatch(/^"/);
  await toast(page, 'Subscription saved.');
  await summary.getByText('active', { exact: true }).waitFor();
  expect((await getSchool(id)).subscription).toMatchObject({ status: 'active', grace_days: 30 });
  await page.locator('.entry', { hasText: 'Changed the subscription' }).waitFor();
  await page.locator('.entry', { hasText: 'Subscription became past due' }).waitFor();

  await button(page, 'Cancel subscription').click();
  await dialog.getByText('Users can log in and read, but not change anything.', { exact: false }).waitFor();
  await dialog.getByRole('button', { name: 'Cancel subscription' }).click();
  await toast(page, 'cancelled.');
  await summary.getByText('cancelled', { exact: true }).waitFor();
  await page.getByText('Admins of the school can choose one.').waitFor();
  expect((await getSchool(id)).subscription.is_final).toBe(false);
  await button(page, 'Change period').click();
  await dialog.getByLabel('Period end').fill('2041-07-01T10:00');
  await button(page, 'Save').click();
  await summary.getByText('active', { exact: true }).waitFor();
  expect((await getSchool(id)).subscription.status).toBe('active');
});

test('a subscription is cancelled for good: the school cannot choose a plan again', async () => {
  const { id } = await service.school();
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${id}/subscription`);
  await button(page, 'Cancel subscription').click();
  const dialog = page.getByRole('dialog');
  const isFinal = dialog.getByLabel('The school cannot choose a plan again');
  expect(await isFinal.isChecked()).toBe(false);
  await isFinal.check();
  await dialog.getByRole('button', { name: 'Cancel subscription' }).click();
  await toast(page, 'cancelled.');
  await page.getByText('The school cannot choose a plan again.').waitFor();
  expect((await getSchool(id)).subscription).toMatchObject({ status: 'cancelled', is_final: true });
  await page.locator('.entry', { hasText: 'no new plan by the school' }).waitFor();
});

test('a cancelled subscription is activated for a month, and its history shows each change and nothing else', async () => {
  const { id } = await service.school();
  const path = `/api/platform/tenants/${id}`;
  await operator.put(path, { name: unique('Renamed') });
  await operator.put(path, { plan_id: 1 });
  await operator.put(`${path}/subscription`, { status: 'cancelled' });
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${id}/subscription`);
  const card = page.locator('.card', { has: page.getByRole('heading', { name: 'Subscription', exact: true }) });
  await card.getByText('Users can log in and read, but not change anything.').waitFor();
  await card.getByText('US$49.00 per month').waitFor();
  expect(await button(page, 'Cancel subscription').count()).toBe(0);
  await button(page, 'Activate for a month').click();
  await page.getByRole('dialog').getByText('A paid period of a month starts now.').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Activate subscription' }).click();
  await toast(page, 'activated.');
  await card.getByText('Paid until the period ends.').waitFor();
  expect(await button(page, 'Activate for a month').count()).toBe(0);
  await page.locator('.pager').getByText('4 entries').waitFor();
  expect(await page.locator('.entry .entry-title').allInnerTexts()).toEqual([
    'Changed the subscription',
    'Changed the subscription',
    'Updated school',
    'Created school',
  ]);
  expect(await page.locator('.entry .entry-title + p').allInnerTexts()).toEqual([
    expect.stringMatching(/^cancelled → active · until \d+ \w+ \d{4}$/),
    expect.stringMatching(/^active → cancelled · until /),
    'Premium → Starter',
    expect.stringMatching(/^active · Premium · until .* · grace period 14 days$/),
  ]);

  await button(page, 'Suspend').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click();
  await card.getByText('Without effect while the school is suspended.').waitFor();
  expect(await page.locator('.badge.good').count()).toBe(0);
});

test('a save that conflicts with another user’s changes first lists them, and keeps the edits', async () => {
  const { id } = await service.school();
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${id}`);
  await page.getByLabel('Name', { exact: true }).fill('My name for it');
  await operator.put(`/api/platform/tenants/${id}`, { name: 'Their name', contact_email: 'theirs@contact.example' });
  await button(page, 'Save changes').click();
  const notice = page.locator('.conflict');
  await notice.waitFor();
  expect(await notice.innerText()).toMatch(/Name: .+ changed to Their name. You also changed this field/);
  expect(await notice.innerText()).toContain('changed to theirs@contact.example');
  expect((await getSchool(id)).name).toBe('Their name');
  expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('My name for it');
  expect(await page.getByLabel('Contact email').inputValue()).toBe('theirs@contact.example');
  await button(page, 'Save changes').click();
  await toast(page, 'School saved.');
  expect(await getSchool(id)).toMatchObject({ name: 'My name for it', contact_email: 'theirs@contact.example' });
});

test('suspending, activating, deleting and restoring a school each need confirmation', async () => {
  const created = await service.school();
  const status = async () => (await getSchool(created.id)).status;
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${created.id}`);
  const dialog = page.getByRole('dialog');

  await button(page, 'Suspend').click();
  await dialog.getByText('Its users lose access immediately.').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  expect(await status()).toBe('active');
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Suspend');
  await button(page, 'Suspend').click();
  await dialog.getByRole('button', { name: 'Suspend' }).click();
  await toast(page, 'suspended.');
  expect(await status()).toBe('suspended');
  // Green would say that its users have access.
  expect(await page.locator('.badge.good').count()).toBe(0);

  await button(page, 'Activate').click();
  await dialog.getByRole('button', { name: 'Activate' }).click();
  await toast(page, 'activated.');
  expect(await status()).toBe('active');

  await button(page, 'Delete').click();
  const confirm = dialog.getByRole('button', { name: 'Delete school' });
  expect(await confirm.isDisabled()).toBe(true);
  await dialog.getByRole('textbox').fill(created.subdomain);
  await confirm.click();
  await toast(page, 'deleted.');
  expect(await status()).toBe('deleted');
  await page.locator('fieldset:disabled').first().waitFor();
  expect(await page.getByLabel('Name', { exact: true }).isDisabled()).toBe(true);

  await button(page, 'Restore').click();
  await dialog.getByRole('button', { name: 'Restore' }).click();
  await toast(page, 'restored.');
  expect(await status()).toBe('active');

  // If another operator was faster, the dialog shows the error.
  await button(page, 'Suspend').waitFor();
  await operator.post(`/api/platform/tenants/${created.id}/suspend`);
  await button(page, 'Suspend').click();
  await dialog.getByRole('button', { name: 'Suspend' }).click();
  await dialog.getByText('The status of this school cannot change from suspended to suspended.').waitFor();
});

test('suspending a school while it is edited shows another user’s changes, and moves the focus to them', async () => {
  const { id } = await service.school();
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  const dialog = page.getByRole('dialog');
  await page.locator(`tbody a[href$="/schools/${id}"]`).click();
  await button(page, 'Suspend').click();
  await page.goBack();
  await heading(page, 'Schools');
  await dialog.waitFor({ state: 'detached' });
  // The page shows the school as it was, and loads it again.
  const reloaded = page.waitForResponse((response) => response.url().endsWith(`/tenants/${id}`));
  await page.goForward();
  await (await reloaded).finished();
  await page.getByLabel('Name', { exact: true }).fill('Mine');
  await operator.put(`/api/platform/tenants/${id}`, { name: 'Theirs' });
  await button(page, 'Suspend').click();
  await dialog.locator('button:focus', { hasText: /^Cancel$/ }).waitFor();
  expect(
    await page.evaluate(
      "document.getElementById(document.querySelector('dialog').getAttribute('aria-describedby')).textContent",
    ),
  ).toContain('lose access');
  await dialog.getByRole('button', { name: 'Suspend' }).click();
  await toast(page, 'suspended.');
  expect(await page.locator('.conflict').innerText()).toMatch(
    /Name: .+ changed to Theirs. You also changed this field/,
  );
  await page.locator('.conflict:focus').waitFor();
  await button(page, 'Discard').click();
  expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('Theirs');
  await button(page, 'Activate').click();
  await dialog.getByRole('button', { name: 'Activate' }).click();
  await button(page, 'Suspend').waitFor();
  await dialog.waitFor({ state: 'detached' });
  await page.locator('h1:focus').waitFor();
});

test('another user’s changes that arrive while a dialog is open have the focus when it closes', async () => {
  const { id } = await service.school();
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  const dialog = page.getByRole('dialog');
  await page.locator(`tbody a[href$="/schools/${id}"]`).click();
  await button(page, 'Suspend').waitFor();
  await page.goBack();
  await heading(page, 'Schools');
  // The page shows the school as it was, and loads it again; the response comes when the dialog is open.
  const release = Promise.withResolvers<unknown>();
  await page.route(`**/api/platform/tenants/${id}`, async (route) => {
    await release.promise;
    await route.continue();
  });
  await page.goForward();
  await page.getByLabel('Name', { exact: true }).fill('Mine');
  await operator.put(`/api/platform/tenants/${id}`, { name: 'Theirs' });
  await button(page, 'Suspend').click();
  await dialog.locator('button:focus', { hasText: /^Cancel$/ }).waitFor();
  release.resolve(undefined);
  await page.locator('.conflict').waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.locator('.conflict:focus').waitFor();
});

test('an operator logs in to a school with a reason, until operator login is turned off', async () => {
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${school.id}`);
  const dialog = page.getByRole('dialog');
  await button(page, 'Log in as admin').click();
  await dialog.getByLabel('Reason').fill('short');
  await dialog.getByRole('button', { name: 'Log in as admin' }).click();
  await dialog.locator('.error').waitFor();
  await page.keyboard.press('Escape');
  await button(page, 'Stay').click();
  expect(await dialog.getByLabel('Reason').inputValue()).toBe('short');
  await dialog.getByLabel('Reason').fill('The school asked why an invoice is missing.');
  await dialog.getByRole('button', { name: 'Log in as admin' }).click();
  const link = dialog.getByRole('link', { name: 'Open school' });
  const address = new URL((await link.getAttribute('href')) ?? '');
  expect(address.origin + address.pathname).toBe('https://app.example/enter');
  await dialog.getByText(school.adminEmail).waitFor();
  expect(await dialog.getByRole('timer').innerText()).toMatch(/^The session expires in (10:00|9:5\d)\.$/);
  const headers = { Authorization: `Bearer ${new URLSearchParams(address.hash.slice(1)).get('access_token')}` };
  const { data } = await service.anonymous
    .with(headers)
    .get<{ email: string; impersonated_by: { email: string } }>('/api/auth/profile');
  expect(data).toMatchObject({ email: school.adminEmail, impersonated_by: { email: 'operator@test.example' } });
  await page.keyboard.press('Escape');
  await page
    .locator('.entry', { hasText: 'As school admin' })
    .or(page.locator('.entry', { hasText: 'Logged in as a school admin' }))
    .first()
    .waitFor();

  await button(page, 'Turn off').click();
  await dialog.getByText('Only an admin of the school can turn it on again.').waitFor();
  await dialog.getByRole('button', { name: 'Turn off' }).click();
  await page.getByText('off (only the school can turn it on)').waitFor();
  expect((await getSchool(school.id)).is_impersonation_allowed).toBe(false);
  await button(page, 'Log in as admin').waitFor({ state: 'detached' });
  await service.anonymous.with(headers).get('/api/auth/profile', 401);
});

test('names with markup, right-to-left text or a timestamp, and very long names, are displayed unchanged', async () => {
  const createSchool = async (name: string) => {
    const { id } = await service.school();
    await operator.put(`/api/platform/tenants/${id}`, { name });
    return id;
  };
  const { openTab } = await openSession();
  const page = await openTab('/');
  const dialog = page.getByRole('dialog');
  for (const name of ['<img src=x onerror=alert(1)>', '2026-99-99T99:99:99Z', 'W'.repeat(200)]) {
    await page.goto(`/console/schools/${await createSchool(name)}`);
    await page.locator('.entry', { hasText: 'Updated school' }).getByRole('button').click();
    expect(await page.locator('.changes .after').first().innerText()).toBe(name);
    await page.setViewportSize({ width: 320, height: 700 });
    await button(page, 'Suspend').click();
    expect(await dialog.getByRole('heading').innerText()).toBe(`Suspend ${name}?`);
    expect(
      await page.evaluate(
        `(() => {
          const { scrollWidth, clientWidth } = document.querySelector('dialog');
          return scrollWidth - clientWidth;
        })()`,
      ),
    ).toBe(0);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(320);
    await page.setViewportSize({ width: 1280, height: 800 });
  }
  // A right-to-left override in a name does not move the text after it: the question mark and the badge.
  await page.goto(`/console/schools/${await createSchool('\u202egnp.exe')}`);
  await button(page, 'Suspend').click();
  const isRightOf = (name: string, after: string) =>
    page.evaluate(`(() => {
    const range = document.createRange();
    const left = (node) => (range.selectNode(node), range.getBoundingClientRect().left);
    return left(${after}) > left(${name});
  })()`);
  expect(
    await isRightOf("document.querySelector('dialog h2 bdi')", "document.querySelector('dialog h2').lastChild"),
  ).toBe(true);
  expect(await isRightOf("document.querySelector('h1 bdi')", "document.querySelector('h1 .badge')")).toBe(true);
});
