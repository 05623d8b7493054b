import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mailsTo, mailTo, queueIsEmpty } from '../support/fakes/mail.ts';
import { type School, testPassword, testService, type TestService } from '../support/server/service.ts';

let service: TestService;
let school: School;

beforeAll(async () => {
  service = await testService();
  // Records every job, because the queue deletes finished ones.
  await service.database.query(`
    create table public.job_log (job text not null);
    create function public.log_job() returns trigger language plpgsql as $$
    begin
      insert into public.job_log values (to_jsonb(new)::text);
      return null;
    end $$;
    create trigger log_job after insert or update on graphile_worker._private_jobs for each row execute function public.log_job();
    grant insert on public.job_log to public`);
  school = await service.school();
});
afterAll(() => service.close());

interface User {
  id: number;
  email_verified: boolean;
}

const addUser = (email: string, password?: string) =>
  school.admin.post<User>(
    '/api/users',
    { email, first_name: 'Ida', last_name: 'Invited', ...(password ? { password } : {}) },
    201,
  );

const login = (email: string, password: string) =>
  service.anonymous.send<{ access_token: string }>('POST', '/api/auth/login', {
    body: { tenant_id: school.id, email, password },
  });

describe('an email', () => {
  test('invites a user without a password, and its link sets a password once', async () => {
    const email = 'invited@mail.example';
    await addUser(email);
    const mail = await mailTo(service, email, 'Your account');
    expect(mail.subject).toMatch(/^School \d+: Your account$/);
    expect(mail.text).toContain(`${service.url}/password/choose#token=${mail.token}`);
    expect(mail.text).toContain('Hello Ida Invited,');
    expect(mail.text).toContain('The link works once, for 7 days.');
    expect((await fetch(`${service.url}/password/choose`)).status).toBe(200);
    await service.anonymous.post('/api/auth/password/reset', { token: mail.token, password: 'chosen-password' });
    expect((await login(email, 'chosen-password')).status).toBe(200);
    const again = await service.anonymous.send('POST', '/api/auth/password/reset', {
      body: { token: mail.token, password: 'other-password' },
    });
    expect({ status: again.status, error: again.error }).toEqual({ status: 401, error: 'invalid_token' });
    expect((await login(email, 'other-password')).status).toBe(401);
  });

  test('does not break links over lines or encode letters', async () => {
    const email = 'renee@mail.example';
    await school.admin.post('/api/users', { email, first_name: 'Renée', last_name: 'Müller-Łukasz', phone: null }, 201);
    const { token } = await mailTo(service, email, 'Your account');
    const [file = ''] = (await service.outbox(0)).filter((eml) => eml.includes(token));
    const [, text = '', html = ''] = file.split(/^--.*\r?\n/m);
    const link = `${service.url}/password/choose#token=${token}`;
    expect(text.split(/\r?\n/)).toEqual(expect.arrayContaining(['Hello Renée Müller-Łukasz,', link]));
    expect(html).toContain(`<a href="${link}">`);
    expect(file).toMatch(/^To: =\?UTF-8\?.* <renee@mail\.example>\r?$/m);
  });

  test('verifies the address of a user with a password by a link that can be opened', async () => {
    const email = 'verified@mail.example';
    const { data: user } = await addUser(email, testPassword);
    expect(user.email_verified).toBe(false);
    const mail = await mailTo(service, email, 'Verify your email address');
    const link = /http\S+/.exec(mail.text)?.[0] ?? '';
    expect(link).toBe(`${service.url}/api/auth/email/verify?token=${mail.token}`);
    const answer = await fetch(link);
    expect({ status: answer.status, body: (await answer.json()) as unknown }).toEqual({
      status: 200,
      body: { success: true, data: { id: user.id, email_verified: true } },
    });
    expect((await school.admin.get<User>(`/api/users/${user.id}`)).data.email_verified).toBe(true);
    expect((await fetch(link)).status).toBe(401);
  });

  test('resets a password: the old one stops, the new one works', async () => {
    const email = 'forgetful@mail.example';
    await addUser(email, 'first-password');
    await service.anonymous.post('/api/auth/password/forgot', { tenant_id: school.id, email });
    const mail = await mailTo(service, email, 'Reset your password');
    expect(mail.text).toContain('The link works once, for 1 hour.');
    await service.anonymous.post('/api/auth/password/reset', { token: mail.token, password: 'second-password' });
    expect((await login(email, 'first-password')).status).toBe(401);
    expect((await login(email, 'second-password')).status).toBe(200);
  });

  test('is not sent to an address without a user', async () => {
    await service.anonymous.post('/api/auth/password/forgot', { tenant_id: school.id, email: 'nobody@mail.example' });
    await queueIsEmpty(service);
    expect(await mailsTo(service, 'nobody@mail.example')).toEqual([]);
  });

  test('is sent to an invited operator too', async () => {
    const [home] = service.database.all();
    const [operator] = await home.query<{ id: string }>(
      "insert into platform.user_account (email, first_name, last_name) values ('new-operator@mail.example', 'Opa', 'Rator') returning id",
    );
    await home.query(
      "select graphile_worker.add_job('send_email', json_build_object('tenant_id', null, 'user_id', $1::bigint, 'kind', 'invitation'))",
      [operator?.id],
    );
    const mail = await mailTo(service, 'new-operator@mail.example', 'Your account');
    await service.anonymous.post('/api/auth/password/reset', { token: mail.token, password: 'operator-password' });
    const answer = await service.anonymous.send('POST', '/api/auth/login', {
      body: { is_platform: true, email: 'new-operator@mail.example', password: 'operator-password' },
    });
    expect(answer.status).toBe(200);
  });

  test('leaves no address, name or token in the queue', async () => {
    await queueIsEmpty(service);
    const jobs = (await service.database.query<{ job: string }>('select job from public.job_log')).map(
      ({ job }) => job,
    );
    const tokens = (await service.outbox(1)).flatMap((eml) =>
      [...eml.replaceAll('=\r\n', '').matchAll(/token=(?:3D)?([\w.-]{20,})/g)].map((match) => match[1] ?? ''),
    );
    expect(jobs.length).toBeGreaterThan(5);
    expect(tokens.length).toBeGreaterThan(5);
    for (const job of jobs) {
      expect(job).not.toMatch(/@|mail\.example|Ida|Invited|password-|token/);
      expect(tokens.filter((token) => job.includes(token))).toEqual([]);
    }
    const payload = (JSON.parse(jobs[0] ?? '{}') as { payload: object }).payload;
    expect(Object.keys(payload).sort()).toEqual(['kind', 'tenant_id', 'user_id']);
  });
});
