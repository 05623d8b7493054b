import { expect, test } from '@jest/globals';
import { operatorEmail, type School, serviceOfFile, testPassword } from '../support/server/service.ts';
import type { Client } from '../support/client/client.ts';

const service = await serviceOfFile();
const [lost, later] = [await service.school(), await service.school()];

const logIn = ({ subdomain, adminEmail: email }: School) =>
  service.anonymous.login({ subdomain, email, password: testPassword });
const logInOperator = () =>
  service.anonymous.login({ is_platform: true, email: operatorEmail, password: testPassword });

/** Brings the sessions back to the state before the newest one, as a restore does. */
async function restoreSessions(): Promise<void> {
  const [newest] = await service.database.query<{ id: string }>('select max(id) as id from platform.session');
  const id = String(newest?.id);
  await service.database.query('delete from platform.session where id = $1', [id]);
  await service.database.query("select setval(pg_get_serial_sequence('platform.session', 'id'), $1, false)", [id]);
}

const sessionOf = ({ token }: Client) =>
  (JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as { sid: number }).sid;

// Access tokens are valid for 15 minutes, and name a session by its number.
test.each<[string, () => Promise<Client>, () => Promise<Client>, string]>([
  ['a user of another school', () => logIn(lost), () => logIn(later), '/api/students'],
  ['an operator', () => logIn(lost), logInOperator, '/api/platform/tenants'],
  ['a user of a school, the lost one of an operator', logInOperator, () => logIn(later), '/api/students'],
])('a token of a lost session is refused when its number was given to %s', async (_of, logInLost, logInLater, path) => {
  const before = await logInLost();
  await restoreSessions();
  const after = await logInLater();
  expect(sessionOf(after)).toBe(sessionOf(before));
  expect((await before.get(path, 401)).error).toBe('invalid_token');
  expect((await before.get('/api/auth/profile', 401)).error).toBe('invalid_token');
  await after.get(path);
  await after.get('/api/auth/profile');
});
