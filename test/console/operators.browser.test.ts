import { expect } from '@jest/globals';
import { browserOfFile } from '../support/client/browser.ts';
import { button, heading, toast } from '../support/client/page.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { operatorEmail, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { operator } = service;
const { test, openSession } = await browserOfFile(service);

interface OperatorRecord {
  id: number;
  email: string;
  role: string;
  tenant_ids: number[] | null;
  is_active: boolean;
}
const find = async (email: string) =>
  (await operator.get<OperatorRecord[]>(`/api/platform/operators?search=${email}`)).data[0];

test('an admin invites an analyst of one school, who chooses a password by the link in the email', async () => {
  const email = `${unique('analyst').toLowerCase()}@test.example`;
  const { context, openTab } = await openSession();
  const page = await openTab('/operators');
  await heading(page, 'Operators');
  await button(page, 'Invite operator').click();
  const dialog = page.getByRole('dialog', { name: 'Invite operator' });
  await dialog.getByLabel('Email').fill(email);
  await dialog.getByRole('button', { name: 'Send invitation' }).click();
  await dialog.getByText(/^First name must/).waitFor();
  await dialog.getByLabel('First name').fill('Ana');
  await dialog.getByLabel('Last name').fill('Lytic');
  await dialog.getByLabel('Only some schools').check();
  await dialog.getByRole('button', { name: 'Send invitation' }).click();
  await dialog.getByText('Choose at least one school.').waitFor();
  await dialog.getByRole('combobox', { name: 'Add a school' }).fill(school.subdomain);
  await dialog.getByRole('listbox').getByRole('option').click();
  await dialog.getByRole('button', { name: /^Remove / }).waitFor();
  await dialog.getByRole('button', { name: 'Send invitation' }).click();
  await toast(page, `Invitation sent to ${email}.`);
  expect(await find(email)).toMatchObject({ role: 'analyst', tenant_ids: [school.id] });
  const row = page.getByRole('row', { name: /Ana Lytic/ });
  await row.getByText('invited').waitFor();

  const { text } = await mailTo(service, email, 'Your account');
  const choose = await context.newPage();
  await choose.goto(/https?:\S+#token=\S+/.exec(text)?.[0].replace(/^https?:\/\/[^/]+/, service.url) ?? '');
  await choose.locator('input[type=password]').first().fill(testPassword);
  await choose.keyboard.press('Enter');
  await choose.getByText('Password changed. You can now log in.').waitFor();
  const analyst = await service.anonymous.login({ is_platform: true, email, password: testPassword });
  await analyst.get('/api/platform/operators', 403);
});

test('an admin changes the role of an operator, disables and enables them', async () => {
  const email = `${unique('colleague').toLowerCase()}@test.example`;
  await operator.post(
    '/api/platform/operators',
    { email, first_name: 'Col', last_name: 'League', role: 'analyst' },
    201,
  );
  const { openTab } = await openSession();
  const page = await openTab('/operators');
  await page.getByRole('searchbox', { name: 'Search operators' }).fill(email);
  await page.locator('.pager').getByText('1 operator', { exact: true }).waitFor();
  const dialog = page.getByRole('dialog', { name: 'Col League' });
  const open = async () => {
    await button(page, 'Col League').click();
    await dialog.getByText('No password has been chosen yet').waitFor();
  };
  await open();
  await dialog.getByLabel('Role').selectOption('Admin');
  await dialog.getByRole('button', { name: 'Save changes' }).click();
  await toast(page, 'Col League saved.');
  expect(await find(email)).toMatchObject({ role: 'admin', is_active: true });

  await open();
  await dialog.getByRole('button', { name: 'Disable' }).click();
  await page.getByRole('dialog', { name: 'Disable Col League?' }).getByRole('button', { name: 'Disable' }).click();
  await toast(page, 'Col League disabled.');
  expect((await find(email))?.is_active).toBe(false);
  await page
    .getByRole('row', { name: /Col League/ })
    .getByText('disabled')
    .waitFor();

  await open();
  await dialog.getByRole('button', { name: 'Enable' }).click();
  await page.getByRole('dialog', { name: 'Enable Col League?' }).getByRole('button', { name: 'Enable' }).click();
  await toast(page, 'Col League enabled.');
  expect((await find(email))?.is_active).toBe(true);

  // An invitation was sent a moment ago: the dialog stays open and says so.
  await open();
  await mailTo(service, email, 'Your account');
  await dialog.getByRole('button', { name: 'Send invitation again' }).click();
  const question = page.getByRole('dialog', { name: /^Send the invitation/ });
  await question.getByRole('button', { name: 'Send invitation' }).click();
  await question.getByText('An invitation was sent a moment ago.').waitFor();
  await question.getByRole('button', { name: 'Cancel' }).click();

  await page.goto('/console/audit');
  await page.locator('.entry', { hasText: 'Disabled an operator' }).first().waitFor();
});

test('admins see themselves in the list, but cannot change their own access', async () => {
  const { openTab } = await openSession();
  const page = await openTab(`/operators?search=${operatorEmail}`);
  const row = page.getByRole('row', { name: new RegExp(operatorEmail) });
  await row.getByText('(you)').waitFor();
  await row.getByRole('button').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('You cannot change your own role.').waitFor();
  expect(await dialog.getByRole('button').allInnerTexts()).toEqual(['', 'Close']);
});

test('an operator sees their sessions in the profile, and ends the others', async () => {
  const email = `${unique('sessions').toLowerCase()}@test.example`;
  const { data } = await operator.post<{ id: number }>(
    '/api/platform/operators',
    { email, first_name: 'Ses', last_name: 'Sion', role: 'admin' },
    201,
  );
  const { text } = await mailTo(service, email, 'Your account');
  await service.anonymous.post('/api/auth/password/reset', {
    token: /#token=(\S+)/.exec(text)?.[1],
    password: testPassword,
  });
  const login = () => service.anonymous.login({ is_platform: true, email, password: testPassword });
  const others = [await login(), await login(), await login()];
  const { openTab } = await openSession({ as: { email, password: testPassword } });
  const page = await openTab('/profile');
  await page.locator('.session').nth(3).waitFor();
  expect(await page.locator('.session', { hasText: 'this session' }).count()).toBe(1);
  const dialog = page.getByRole('dialog');
  await page
    .getByRole('button', { name: /^End session / })
    .first()
    .click();
  await dialog.getByRole('button', { name: 'End session' }).click();
  await toast(page, 'Session ended.');
  await button(page, 'End all other sessions').click();
  await dialog.getByRole('button', { name: 'End sessions' }).click();
  await toast(page, '2 sessions ended.');
  expect(await page.locator('.session').count()).toBe(1);
  for (const other of others) await other.get('/api/auth/profile', 401);
  const log = await operator.get<{ target_id: number }[]>('/api/platform/audit-logs?action=operator.session');
  expect(log.data.filter(({ target_id }) => target_id === data.id)).toHaveLength(3);
});
