import { describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import type { Client } from '../support/client/client.ts';
import { mailsTo, mailTo, queueIsEmpty } from '../support/fakes/mail.ts';
import { operatorEmail, serviceWithSchool, testPassword } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Session as SessionSchema } from '../../src/endpoints/parts/session.ts';

const { service, school } = await serviceWithSchool({ TRUST_PROXY: '1' });

type Session = OutputOf<typeof SessionSchema>;

const sidOf = (client: Client) => (jwt.decode(client.token) as { sid: number }).sid;
const ownSessions = async (client: Client) => (await client.get<Session[]>('/api/auth/sessions')).data;
const from = (ip: string, user_agent: string) =>
  service.anonymous.with({ 'X-Forwarded-For': ip, 'User-Agent': user_agent });

/** A user with the sessions of a phone and a laptop; the laptop logged in last. */
async function userWithTwoSessions(roles = ['teacher']) {
  const user = await school.user(roles);
  const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
  const phone = await from('203.0.113.7', 'Phone/1.0').login(credentials);
  const laptop = await from('203.0.113.8', `Laptop/2.0 ${'x'.repeat(400)}`).login(credentials);
  return { user, credentials, phone, laptop };
}

describe('your own sessions', () => {
  test('are listed with address, program and times, the last used first, and only the living ones', async () => {
    const { user, phone, laptop } = await userWithTwoSessions();
    const sessions = await ownSessions(phone);
    expect(sessions.map(({ id }) => id)).toEqual([sidOf(laptop), sidOf(phone), sidOf(user)]);
    expect(sessions[1]).toEqual({
      id: sidOf(phone),
      ip: '203.0.113.7',
      user_agent: 'Phone/1.0',
      is_current: true,
      last_used_at: sessions[1]?.created_at,
      expires_at: expect.any(String),
      created_at: expect.any(String),
    });
    expect(sessions.map(({ is_current }) => is_current)).toEqual([false, true, false]);
    expect(sessions[0]?.user_agent).toHaveLength(200);
    const found = await phone.get<Session[]>('/api/auth/sessions?search=laptop');
    expect(found.data.map(({ id }) => id)).toEqual([sidOf(laptop)]);
    await user.post('/api/auth/logout', {});
    await service.database.everywhere(
      "update platform.session set expires_at = now() - interval '1 second' where id = $1",
      [sidOf(laptop)],
    );
    expect((await ownSessions(phone)).map(({ id }) => id)).toEqual([sidOf(phone)]);
  });

  test('show the time and the address of the last refresh', async () => {
    const { phone } = await userWithTwoSessions();
    await service.database.everywhere(
      "update platform.session set last_used_at = now() - interval '1 day', created_at = now() - interval '1 day' where id = $1",
      [sidOf(phone)],
    );
    await service.anonymous.send(
      'POST',
      '/api/auth/refresh',
      { headers: { 'X-Refresh-Token': phone.refreshToken, 'X-Forwarded-For': '203.0.113.99' } },
      200,
    );
    const [session] = await ownSessions(phone);
    expect(session).toMatchObject({ id: sidOf(phone), ip: '203.0.113.99', is_current: true });
    expect(Date.parse(session?.last_used_at ?? '')).toBeGreaterThan(Date.parse(session?.created_at ?? ''));
  });

  test('can be ended: access and refresh token stop at once, the others continue', async () => {
    const { phone, laptop } = await userWithTwoSessions();
    expect((await phone.delete<{ id: number }>(`/api/auth/sessions/${sidOf(laptop)}`)).data).toEqual({
      id: sidOf(laptop),
    });
    expect((await laptop.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    const headers = { 'X-Refresh-Token': laptop.refreshToken };
    await service.anonymous.send('POST', '/api/auth/refresh', { headers }, 401);
    await phone.delete(`/api/auth/sessions/${sidOf(laptop)}`, 404);
    await phone.delete(`/api/auth/sessions/${sidOf(phone)}`);
    await phone.get('/api/auth/profile', 401);
  });

  test('do not include those of another user, who gets a 404 for them', async () => {
    const { phone } = await userWithTwoSessions();
    const stranger = await school.user(['teacher']);
    expect((await ownSessions(stranger)).map(({ id }) => id)).toEqual([sidOf(stranger)]);
    await stranger.delete(`/api/auth/sessions/${sidOf(phone)}`, 404);
    await service.operator.delete(`/api/auth/sessions/${sidOf(phone)}`, 404);
    await phone.get('/api/auth/profile');
  });

  test('do not include an impersonation of the user, and an operator who impersonates cannot end any', async () => {
    const { phone, user } = await userWithTwoSessions(['admin']);
    const { data } = await service.operator.post<{ access_token: string }>(
      `/api/platform/tenants/${school.id}/impersonate`,
      { reason: 'Looking at sessions', user_id: user.id },
    );
    const impersonated = service.anonymous.with({ Authorization: `Bearer ${data.access_token}` });
    expect(await ownSessions(phone)).toHaveLength(3);
    const refused = await impersonated.send('DELETE', `/api/auth/sessions/${sidOf(phone)}`, {}, 403);
    expect(refused.error).toBe('forbidden');
    await phone.get('/api/auth/profile');
  });

  test('exist for operators, whose endings are audited', async () => {
    const credentials = { is_platform: true, email: operatorEmail, password: testPassword };
    const elsewhere = await from('203.0.113.50', 'Elsewhere/1').login(credentials);
    expect(await ownSessions(service.operator)).toContainEqual(
      expect.objectContaining({ id: sidOf(elsewhere), ip: '203.0.113.50', is_current: false }),
    );
    await service.operator.delete(`/api/auth/sessions/${sidOf(elsewhere)}`);
    await elsewhere.get('/api/auth/profile', 401);
    const { data } = await service.operator.get<{ action: string; changes: unknown }[]>(
      '/api/platform/audit-logs?action=operator.session',
    );
    expect(data[0]?.changes).toEqual({ session_id: { before: sidOf(elsewhere), after: null } });
  });
});

describe('the sessions of a user', () => {
  test('are listed and ended with user.update, and hidden without it', async () => {
    const { user, phone, laptop } = await userWithTwoSessions();
    const path = `/api/users/${user.id}/sessions`;
    const { data } = await school.admin.get<Session[]>(path);
    expect(data.map(({ id, is_current }) => [id, is_current])).toEqual([
      [sidOf(laptop), false],
      [sidOf(phone), false],
      [sidOf(user), false],
    ]);
    const reader = await school.user([await school.role('user.read')]);
    await reader.get(path, 403);
    await reader.delete(`${path}/${sidOf(phone)}`, 403);
    await phone.get(path, 403);
    expect((await school.admin.delete(`${path}/${sidOf(phone)}`)).data).toEqual({ id: sidOf(phone) });
    await phone.get('/api/auth/profile', 401);
    await laptop.get('/api/auth/profile');
  });

  test('can be ended only under the user who has them', async () => {
    const { user, phone } = await userWithTwoSessions();
    const other = await school.user(['teacher']);
    await school.admin.delete(`/api/users/${other.id}/sessions/${sidOf(phone)}`, 404);
    await school.admin.delete(`/api/users/${user.id}/sessions/999999`, 404);
    await school.admin.get('/api/users/999999/sessions', 404);
    await phone.get('/api/auth/profile');
  });

  test('of an admin cannot be ended by a user with fewer permissions', async () => {
    const { user, phone } = await userWithTwoSessions(['admin']);
    const clerk = await school.user([await school.role('user.read', 'user.update')]);
    await clerk.delete(`/api/users/${user.id}/sessions/${sidOf(phone)}`, 403);
    await phone.get('/api/auth/profile');
  });

  test('of a user of another school with the same id are not found', async () => {
    const other = await service.school();
    const stranger = await other.user(['teacher']);
    const own = await school.admin.get<{ id: number }[]>('/api/users');
    const id = own.data.find((each) => each.id === stranger.id)?.id ?? own.data[0]?.id;
    await school.admin.delete(`/api/users/${id}/sessions/${sidOf(stranger)}`, 404);
    await stranger.get('/api/auth/profile');
  });
});

describe('a login from a new device', () => {
  const subject = 'New login to your account';
  const mailsAbout = async (email: string) => {
    await queueIsEmpty(service);
    return (await mailsTo(service, email)).filter((mail) => mail.subject.endsWith(subject));
  };
  /** Logs in and returns the token of the device. */
  const deviceOf = async (client: Client, credentials: object, token?: string) => {
    const headers = token === undefined ? {} : { 'X-Known-Device': token };
    const answer = await client.send('POST', '/api/auth/login', { body: credentials, headers }, 200);
    return answer.headers.get('x-known-device') ?? '';
  };

  test('sends the user an email with time, address and program', async () => {
    const user = await school.user(['teacher']);
    const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
    await from('198.51.100.7', 'Thief/6.6 <b>').login(credentials);
    const mail = await mailTo(service, user.email, subject);
    expect(mail.text).toContain('Address: 198.51.100.7');
    expect(mail.text).toContain('Program: Thief/6.6 <b>');
    expect(mail.text).toMatch(/Time: \d+ \w+ \d{4}, \d\d:\d\d \(UTC\)/);
    expect(mail.token).toBe('');
  });

  test('sends an email to an operator too', async () => {
    const credentials = { is_platform: true, email: operatorEmail, password: testPassword };
    await from('198.51.100.9', 'Operator/1').login(credentials);
    const texts = (await mailsAbout(operatorEmail)).map(({ text }) => text);
    expect(texts.filter((text) => text.includes('Address: 198.51.100.9'))).toHaveLength(1);
  });

  test('sends no email at the first login, nor for the program and address of a stored session', async () => {
    const user = await school.user(['teacher']);
    const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
    await from('198.51.100.7', 'Browser/1.0').login(credentials);
    expect(await mailsAbout(user.email)).toHaveLength(1);
    await from('198.51.100.7', 'Browser/2.0').login(credentials);
    expect(await mailsAbout(user.email)).toHaveLength(1);
    await from('198.51.100.8', 'Browser/2.0').login(credentials);
    expect(await mailsAbout(user.email)).toHaveLength(2);
  });

  test('sends no email for a device with the token of an earlier login, from any address', async () => {
    const user = await school.user(['teacher']);
    const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
    const token = await deviceOf(service.anonymous, credentials);
    expect(token).toMatch(/^[\w-]{43}\.\d+-\d+\.[\w-]{22}$/);
    expect(await deviceOf(from('198.51.100.10', 'Other/1'), credentials, token)).toBe(token);
    expect(await mailsAbout(user.email)).toEqual([]);
  });

  test('sends an email if the token belongs to another user, and returns a new token', async () => {
    const [user, stranger] = [await school.user(['teacher']), await school.user(['teacher'])];
    const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
    const foreign = await deviceOf(service.anonymous, { ...credentials, email: stranger.email });
    const own = await deviceOf(from('198.51.100.11', 'Other/1'), credentials, foreign);
    expect(own).not.toBe(foreign);
    expect(await mailsAbout(user.email)).toHaveLength(1);
  });

  test.each([
    ['its session is ended', (user: Client, sid: number) => user.delete(`/api/auth/sessions/${sid}`)],
    [
      'the password changes',
      (user: Client) =>
        user.post('/api/auth/password/change', { current_password: testPassword, password: 'the next password' }),
    ],
  ])('sends an email for a device whose token is invalid because %s', async (reason, forget) => {
    const user = await school.user(['teacher']);
    const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
    const device = from('198.51.100.12', 'Device/1');
    const token = await deviceOf(device, credentials);
    await queueIsEmpty(service);
    const [newest] = await ownSessions(user);
    await forget(user, newest?.id ?? 0);
    const password = reason.includes('password') ? 'the next password' : testPassword;
    const next = await deviceOf(from('198.51.100.13', 'Device/1'), { ...credentials, password }, token);
    expect(next).not.toBe(token);
    expect(await mailsAbout(user.email)).toHaveLength(2);
  });

  test('keeps its token after a logout', async () => {
    const user = await school.user(['teacher']);
    const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
    const client = await service.anonymous.send<{ access_token: string }>(
      'POST',
      '/api/auth/login',
      { body: credentials },
      200,
    );
    const device = client.headers.get('x-known-device') ?? '';
    const headers = { Authorization: `Bearer ${client.data.access_token}` };
    await service.anonymous.with(headers).post('/api/auth/logout', {});
    expect(await deviceOf(service.anonymous, credentials, device)).toBe(device);
  });
});
