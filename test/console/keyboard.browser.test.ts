import { expect } from '@jest/globals';
import type { Locator, Page } from 'playwright-core';
import { seriousIssues } from '../support/client/axe.ts';
import { browserOfFile } from '../support/client/browser.ts';
import { hasFocus, keepsFocus, pressOn, tabTo, typeInto } from '../support/client/keyboard.ts';
import { button, heading, loginPage, toast } from '../support/client/page.ts';
import { operatorEmail, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service } = await serviceWithSchool({ APP_URL: 'https://app.example/enter' }, 6);
const { operator } = service;
const { test, openSession } = await browserOfFile(service);

/** Waits for a screen that was reached by a link: its title has the focus, so that a screen reader says it. */
const arrivedAt = async (page: Page, title: string | RegExp) => {
  await heading(page, title);
  await hasFocus(page, page.getByRole('heading', { level: 1 }));
};
/** Opens a dialog with the keyboard, checks it, and returns it with the focus inside. */
const openDialog = async (page: Page, opener: Locator, name: string | RegExp): Promise<Locator> => {
  await pressOn(page, opener);
  const dialog = page.getByRole('dialog', { name });
  await dialog.waitFor();
  await page.locator('.skeleton').first().waitFor({ state: 'detached' });
  expect(await seriousIssues(page)).toEqual([]);
  await keepsFocus(page);
  return dialog;
};
/** Closes the dialog with Escape. The focus returns to the control that opened it. */
const escapeTo = async (page: Page, opener: Locator) => {
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'detached' });
  await hasFocus(page, opener);
};
const openSchool = async () => {
  const school = await service.school();
  const { openTab } = await openSession();
  const page = await openTab(`/schools/${school.id}`);
  await button(page, 'Suspend').waitFor();
  return { school, page };
};

test('the login is a form with names, and an error leaves the focus in the password', async () => {
  const { openTab } = await openSession({ as: 'nobody' });
  const page = await openTab('/');
  await loginPage(page);
  await hasFocus(page, page.getByRole('textbox', { name: 'Email' }));
  expect(await page.locator('main').ariaSnapshot()).toMatch(
    /heading "Operator console" \[level=1\][^]*textbox "Email"[^]*textbox "Password"[^]*button "Log in"[^]*button "Forgot password\?"/,
  );
  await page.keyboard.type(operatorEmail);
  await typeInto(page, page.getByLabel('Password'), 'wrong-password');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('The email or the password is wrong.').waitFor();
  await hasFocus(page, page.getByLabel('Password'));
  await page.keyboard.type(testPassword);
  await page.keyboard.press('Enter');
  await heading(page, 'Overview');
});

test('the menu and the skip link are the first stops, and name the current page', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/');
  await heading(page, 'Overview');
  expect(await page.getByRole('navigation', { name: 'Main' }).ariaSnapshot()).toContain('- link "Overview"');
  expect(await page.locator('nav.menu [aria-current=page]').innerText()).toBe('Overview');
  await pressOn(page, page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Schools' }));
  await arrivedAt(page, 'Schools');
  await page.reload();
  await heading(page, 'Schools');
  await pressOn(page, page.getByRole('link', { name: 'Skip to main content' }));
  expect(await page.evaluate('document.activeElement.id')).toBe('main');
});

test('on a phone the menu opens as a dialog and returns the focus', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/');
  await page.setViewportSize({ width: 390, height: 800 });
  await heading(page, 'Overview');
  await openDialog(page, button(page, 'Menu'), 'Menu');
  await escapeTo(page, button(page, 'Menu'));
});

test('a school is found, selected and opened', async () => {
  const school = await service.school();
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  await heading(page, 'Schools');
  await page.keyboard.press('/');
  await hasFocus(page, page.getByRole('searchbox', { name: 'Search schools' }));
  await page.keyboard.type(school.subdomain);
  await page.locator('.pager [role=status]').getByText('1 school', { exact: true }).waitFor();
  await pressOn(
    page,
    page.getByRole('table', { name: 'Schools' }).getByRole('checkbox', { name: /^Select School/ }),
    'Space',
  );
  const bar = page.getByRole('group', { name: 'Selected schools' });
  const suspend = bar.getByRole('button', { name: 'Suspend' });
  await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Shift+Tab');
  await tabTo(page, suspend, 'Shift+Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Suspend: 1 school' }).waitFor();
  expect(await seriousIssues(page)).toEqual([]);
  await keepsFocus(page);
  await escapeTo(page, suspend);
  await pressOn(page, page.getByRole('row', { name: new RegExp(school.subdomain) }).getByRole('link'));
  await arrivedAt(page, /School/);
});

test('a school is created, and a missing field gets the focus', async () => {
  const name = unique('Keyboard School');
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  await heading(page, 'Schools');
  await pressOn(page, page.getByRole('link', { name: 'Create school' }));
  await arrivedAt(page, 'Create school');
  await typeInto(page, page.getByLabel('Name', { exact: true }), name);
  // Into the group of plans. Space chooses the first.
  await tabTo(page, page.getByRole('radio', { name: /^Starter/ }));
  await page.keyboard.press('Space');
  await pressOn(page, button(page, 'Create school'));
  const email = page.getByLabel('Contact email');
  await hasFocus(page, email);
  expect(await email.getAttribute('aria-invalid')).toBe('true');
  const description = await email.getAttribute('aria-describedby');
  expect(await page.locator(`#${String(description)}`).innerText()).toMatch(/^Contact email /);
  await page.keyboard.type('head@keyboard.example');
  await page.keyboard.press('Enter');
  await arrivedAt(page, name);
});

test('a school is edited and saved', async () => {
  const { school, page } = await openSchool();
  const name = unique('Renamed by keys');
  await typeInto(page, page.getByLabel('Name', { exact: true }), name);
  await pressOn(page, button(page, 'Save changes'));
  await toast(page, 'School saved.');
  expect((await operator.get<{ name: string }>(`/api/platform/tenants/${school.id}`)).data.name).toBe(name);
});

test('a school is suspended: Escape returns to the button, and afterwards the title has the focus', async () => {
  const { school, page } = await openSchool();
  const suspend = page.locator('.page-head').getByRole('button', { name: 'Suspend' });
  const dialog = await openDialog(page, suspend, /^Suspend /);
  expect(await dialog.ariaSnapshot()).toMatch(
    /dialog "Suspend [^"]+"[^]*heading "Suspend [^"]+" \[level=2\][^]*button "Close"[^]*- listitem: Its users lose access immediately\.[^]*button "Cancel"[^]*button "Suspend"/,
  );
  await escapeTo(page, suspend);
  await page.keyboard.press('Enter');
  // The harmless button has the focus.
  await hasFocus(page, dialog.getByRole('button', { name: 'Cancel' }));
  await pressOn(page, dialog.getByRole('button', { name: 'Suspend' }));
  await toast(page, 'suspended.');
  await hasFocus(page, page.getByRole('heading', { level: 1 }));
  expect((await operator.get(`/api/platform/tenants/${school.id}`)).data).toMatchObject({ status: 'suspended' });
});

test('the subscription is changed in a dialog', async () => {
  const { school, page } = await openSchool();
  await pressOn(page, page.getByRole('link', { name: 'Manage' }));
  const change = button(page, 'Change period');
  await openDialog(page, change, /^Subscription of /);
  await escapeTo(page, change);
  await page.keyboard.press('Enter');
  await typeInto(page, page.getByLabel('Grace period (days)'), '21');
  await page.keyboard.press('Enter');
  await toast(page, 'Subscription saved.');
  await hasFocus(page, change);
  expect((await operator.get(`/api/platform/tenants/${school.id}`)).data).toMatchObject({
    subscription: { grace_days: 21 },
  });
});

test('an operator logs in as an admin of a school: the reason is asked for, and the result gets the focus', async () => {
  const { page } = await openSchool();
  const logIn = page.locator('.page-head').getByRole('button', { name: 'Log in as admin' });
  const dialog = await openDialog(page, logIn, /^Log in to /);
  await escapeTo(page, logIn);
  await page.keyboard.press('Enter');
  const reason = dialog.getByRole('textbox', { name: 'Reason' });
  await hasFocus(page, reason);
  await page.keyboard.type('short');
  await pressOn(page, dialog.getByRole('button', { name: 'Log in as admin' }));
  // The field that is wrong has the focus.
  await page.locator('[aria-invalid=true]').waitFor();
  await hasFocus(page, reason);
  await page.keyboard.type(' was the first reason');
  await pressOn(page, dialog.getByRole('button', { name: 'Log in as admin' }));
  await hasFocus(page, dialog.getByText('You are logged in to'));
  await tabTo(page, dialog.getByRole('link', { name: 'Open school' }));
  expect(await seriousIssues(page)).toEqual([]);
  await escapeTo(page, logIn);
});

test('a template is created with a placeholder and deleted', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/templates');
  await pressOn(page, page.getByRole('link', { name: 'holiday.added, Push: default' }));
  await arrivedAt(page, 'Create template');
  const message = page.getByRole('textbox', { name: 'Message' });
  await typeInto(page, message, 'No school: ');
  await pressOn(page, button(page, 'holiday_name'));
  await hasFocus(page, message);
  expect(await message.inputValue()).toBe('No school: {{holiday_name}}');
  await pressOn(page, button(page, 'Create template'));
  await arrivedAt(page, 'Notification templates');
  await pressOn(page, page.getByRole('link', { name: 'holiday.added, Push: custom' }));
  await arrivedAt(page, /holiday/);
  const remove = page.locator('.page-head').getByRole('button', { name: 'Delete' });
  const dialog = await openDialog(page, remove, /^Delete/);
  await escapeTo(page, remove);
  await page.keyboard.press('Enter');
  await pressOn(page, dialog.getByRole('button', { name: 'Delete' }));
  await arrivedAt(page, 'Notification templates');
});

test('a plan is created and edited, and the focus returns to its name', async () => {
  const name = unique('Keys');
  const { openTab } = await openSession();
  const page = await openTab('/settings');
  const create = button(page, 'Create plan').first();
  const dialog = await openDialog(page, create, 'Create plan');
  await escapeTo(page, create);
  await page.keyboard.press('Enter');
  await hasFocus(page, dialog.getByLabel('Name'));
  await page.keyboard.type(name);
  await typeInto(page, dialog.getByLabel('Price per month'), '10');
  await typeInto(page, dialog.getByLabel('Maximum students'), '100');
  await typeInto(page, dialog.getByLabel('Maximum teachers'), '10');
  await page.keyboard.press('Enter');
  await toast(page, `Plan ${name} created.`);
  await hasFocus(page, create);

  const plan = button(page, name);
  await openDialog(page, plan, name);
  await escapeTo(page, plan);
  await page.keyboard.press('Enter');
  await typeInto(page, page.getByLabel('Maximum students'), '120');
  await page.keyboard.press('Enter');
  await toast(page, `Plan ${name} saved.`);
  await hasFocus(page, plan);
});

test('an operator is invited, changed and disabled', async () => {
  const email = `${unique('keys').toLowerCase()}@test.example`;
  const { openTab } = await openSession();
  const page = await openTab('/operators');
  const invite = button(page, 'Invite operator');
  const dialog = await openDialog(page, invite, 'Invite operator');
  await escapeTo(page, invite);
  await page.keyboard.press('Enter');
  await hasFocus(page, dialog.getByLabel('Email'));
  await page.keyboard.type(email);
  await typeInto(page, dialog.getByLabel('First name'), 'Key');
  await typeInto(page, dialog.getByLabel('Last name'), 'Board');
  await tabTo(page, dialog.getByRole('combobox', { name: 'Role' }));
  await page.keyboard.press('ArrowUp');
  expect(await dialog.getByRole('combobox', { name: 'Role' }).inputValue()).toBe('admin');
  await pressOn(page, dialog.getByRole('button', { name: 'Send invitation' }));
  await toast(page, `Invitation sent to ${email}.`);
  await hasFocus(page, invite);

  const colleague = button(page, 'Key Board');
  await openDialog(page, colleague, 'Key Board');
  await escapeTo(page, colleague);
  await page.keyboard.press('Enter');
  await tabTo(page, page.getByRole('combobox', { name: 'Role' }));
  await page.keyboard.press('ArrowDown');
  await pressOn(page, page.getByRole('checkbox', { name: 'Only some schools' }), 'Space');
  const school = await service.school();
  const picker = page.getByRole('combobox', { name: 'Add a school' });
  const options = page.getByRole('listbox', { name: 'Matching schools' }).getByRole('option');
  await typeInto(page, picker, school.subdomain);
  await options.waitFor();
  // Escape closes the list, not the dialog.
  await page.keyboard.press('Escape');
  await options.waitFor({ state: 'detached' });
  await hasFocus(page, picker);
  await page.keyboard.type(school.subdomain);
  await options.waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('list', { name: 'Schools of the analyst' }).getByRole('listitem').waitFor();
  await pressOn(page, button(page, 'Save changes'));
  await toast(page, 'Key Board saved.');
  await hasFocus(page, colleague);

  await page.keyboard.press('Enter');
  const disable = page.getByRole('dialog', { name: 'Key Board' }).getByRole('button', { name: 'Disable' });
  await pressOn(page, disable);
  const question = page.getByRole('dialog', { name: 'Disable Key Board?' });
  await hasFocus(page, question.getByRole('button', { name: 'Cancel' }));
  await page.keyboard.press('Escape');
  await hasFocus(page, disable);
  await page.keyboard.press('Enter');
  await pressOn(page, question.getByRole('button', { name: 'Disable' }));
  await toast(page, 'Key Board disabled.');
  await hasFocus(page, colleague);
  expect((await operator.get(`/api/platform/operators?search=${email}`)).data).toMatchObject([
    { role: 'analyst', tenant_ids: [school.id], is_active: false },
  ]);
});

test('an API key is created, shown once, and revoked', async () => {
  const name = unique('Billing');
  const { openTab } = await openSession();
  const page = await openTab('/integrations');
  await heading(page, 'Integrations');
  const create = button(page, 'Create key');
  const dialog = await openDialog(page, create, 'Create API key');
  await escapeTo(page, create);
  await page.keyboard.press('Enter');
  await hasFocus(page, dialog.getByLabel('Name'));
  // A name is missing.
  await page.keyboard.press('Enter');
  await page.locator('[aria-invalid=true]').waitFor();
  await hasFocus(page, dialog.getByLabel('Name'));
  await page.keyboard.type(name);
  await page.keyboard.press('Enter');
  const shown = page.getByRole('dialog', { name: `API key ${name}` });
  await hasFocus(page, shown.getByText('Copy the key now.'));
  expect(await shown.getByLabel('Key').innerText()).toMatch(/^sk_platform_[0-9A-Za-z]{43}[0-9a-f]{8}$/);
  await tabTo(page, shown.getByRole('button', { name: 'Copy' }));
  expect(await seriousIssues(page)).toEqual([]);
  await escapeTo(page, create);

  await pressOn(page, button(page, name));
  await pressOn(page, page.getByRole('checkbox', { name: 'Read only' }), 'Space');
  await page.keyboard.press('Enter');
  await toast(page, `API key ${name} saved.`);
  expect((await operator.get(`/api/platform/api-keys?search=${name}`)).data).toMatchObject([
    { role: 'analyst', is_read_only: false },
  ]);
  const revoke = button(page, `Revoke ${name}`);
  const question = await openDialog(page, revoke, `Revoke ${name}?`);
  await escapeTo(page, revoke);
  await page.keyboard.press('Enter');
  await pressOn(page, question.getByRole('button', { name: 'Revoke key' }));
  await toast(page, `API key ${name} revoked.`);
});

test('a webhook is added, tested, and a message sent again', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/integrations/webhooks');
  const add = button(page, 'Add webhook');
  await add.waitFor();
  const dialog = await openDialog(page, add, 'Add webhook');
  await escapeTo(page, add);
  await page.keyboard.press('Enter');
  await hasFocus(page, dialog.getByLabel('Address'));
  const url = `https://${unique('hooks').toLowerCase()}.invalid/in`;
  await page.keyboard.type(url);
  const boxes = dialog.getByRole('checkbox');
  expect(await boxes.count()).toBe(18);
  await typeInto(page, dialog.getByLabel('Description'), 'Billing');
  for (const box of await boxes.all()) await pressOn(page, box, 'Space');
  await page.keyboard.press('Enter');
  const shown = page.getByRole('dialog', { name: 'Webhook added' });
  await hasFocus(page, shown.getByText('Copy the secret now.'));
  expect(await shown.getByLabel('Secret').innerText()).toMatch(/^whsec_/);
  await escapeTo(page, add);
  const types = await service.database.query<{ name: string }>(
    'select name from core.webhook_event_type where permission is null order by name',
  );
  const { data } = await operator.get<{ events: string[] }[]>('/api/platform/webhooks');
  expect(data[0]?.events.toSorted()).toEqual(types.map(({ name }) => name));

  await pressOn(page, page.getByRole('link', { name: url }));
  await arrivedAt(page, url);
  await pressOn(page, button(page, 'Send test event'));
  await toast(page, 'Test event sent.');
  const again = page.getByRole('button', { name: /^Send again: webhook.test/ });
  await pressOn(page, again.first());
  await toast(page, 'The message is sent again.');
  await again.nth(1).waitFor();
  expect(await seriousIssues(page)).toEqual([]);
});

test('the secret of a webhook is replaced, and the webhook deleted', async () => {
  await service.database.query('delete from platform.webhook');
  const { data: webhook } = await operator.post<{ id: number; secret: string }>(
    '/api/platform/webhooks',
    { url: 'https://hooks.example.org/in', events: ['plan.created'] },
    201,
  );
  const { openTab } = await openSession();
  const page = await openTab(`/integrations/webhooks/${webhook.id}`);
  const replace = button(page, 'Replace secret');
  const dialog = await openDialog(page, replace, 'Replace the secret');
  await escapeTo(page, replace);
  await page.keyboard.press('Enter');
  await pressOn(page, dialog.getByRole('button', { name: 'Replace secret' }));
  await hasFocus(page, dialog.getByText('Copy the new secret now.'));
  const secret = await dialog.getByLabel('Secret').innerText();
  expect(secret).toMatch(/^whsec_/);
  expect(secret).not.toBe(webhook.secret);
  await escapeTo(page, replace);
  const remove = page.locator('.page-head').getByRole('button', { name: 'Delete' });
  const question = await openDialog(page, remove, 'Delete this webhook?');
  await pressOn(page, question.getByRole('button', { name: 'Delete webhook' }));
  await arrivedAt(page, 'Integrations');
  expect((await operator.get('/api/platform/webhooks')).data).toEqual([]);
});

test('a failed job is removed on the system page, and the focus goes to the title', async () => {
  const [job] = await service.database.query<{ id: string }>(
    "select id from graphile_worker.add_job('unknown_task', run_at => now() + interval '1 day', max_attempts => 1)",
  );
  const id = job?.id ?? '';
  await service.database.query(
    "update graphile_worker._private_jobs set attempts = 1, last_error = 'No connection' where id = $1",
    [id],
  );
  const { openTab } = await openSession();
  const page = await openTab('/system');
  const remove = button(page, `Remove job ${id}`);
  const dialog = await openDialog(page, remove, `Remove job ${id}?`);
  await escapeTo(page, remove);
  await page.keyboard.press('Enter');
  await pressOn(page, dialog.getByRole('button', { name: 'Remove job' }));
  await toast(page, `Job ${id} removed.`);
  await hasFocus(page, page.getByRole('heading', { level: 1 }));
});

test('the lists, the palette and the profile are named for screen readers', async () => {
  const { openTab } = await openSession();
  const page = await openTab('/schools');
  await page.locator('tbody tr').first().waitFor();
  const columns = button(page, 'Columns');
  await openDialog(page, columns, 'Columns');
  await escapeTo(page, columns);
  await page.keyboard.press('Control+k');
  const palette = page.getByRole('dialog', { name: 'Go to' });
  const field = palette.getByRole('combobox', { name: 'Page or school' });
  await hasFocus(page, field);
  await page.keyboard.press('ArrowDown');
  const active = palette.getByRole('option', { selected: true });
  expect(await active.count()).toBe(1);
  expect(await field.getAttribute('aria-activedescendant')).toBe(await active.getAttribute('id'));
  expect(await seriousIssues(page)).toEqual([]);
  await keepsFocus(page);
  await escapeTo(page, columns);

  await page.goto('/console/profile');
  await page.locator('.session').first().waitFor();
  expect(await page.locator('main').ariaSnapshot()).toMatch(
    /heading "Your profile" \[level=1\][^]*heading "Sessions" \[level=2\][^]*heading "Keyboard shortcuts" \[level=2\][^]*checkbox "\/ goes to the search field of a page" \[checked\]/,
  );
  await tabTo(page, page.getByRole('checkbox', { name: /goes to the search field/ }));
});
