import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mailsTo, mailTo } from '../support/fakes/mail.ts';
import { until } from '../support/client/until.ts';
import { type School, testService, type TestService, unique } from '../support/server/service.ts';
import { plainName } from '../../workers/email.ts';

let service: TestService;
let school: School;
beforeAll(async () => {
  service = await testService();
  school = await service.school();
});
afterAll(() => service.close());

const invite = async (email: string, of: School = school, names: object = {}) =>
  (await of.admin.post<{ id: number }>('/api/users', { email, first_name: 'Ida', last_name: 'Invited', ...names }, 201))
    .data.id;
/** The emails to a user that wait for a later time: in how many seconds each is sent. */
const waiting = (userId: number, of: School = school) =>
  service.database.query<{ key: string; seconds: number }>(
    `select key, extract(epoch from run_at - now())::integer as seconds from graphile_worker._private_jobs
     where payload ->> 'tenant_id' = $1 and payload ->> 'user_id' = $2 and run_at > now()`,
    [String(of.id), String(userId)],
  );
const untilWaiting = (userId: number, of: School = school) =>
  until(async () => {
    const jobs = await waiting(userId, of);
    return jobs.length > 0 ? jobs : undefined;
  });

describe('an address that nobody has confirmed', () => {
  test('gets one invitation in ten minutes, however often users are added with it; the next one is sent later', async () => {
    const email = `${unique('stranger')}@mail.example`;
    const first = await invite(email);
    await mailTo(service, email, 'Your account');
    await school.admin.delete(`/api/users/${first}`);
    const second = await invite(email);
    const [job, ...others] = await untilWaiting(second);
    expect(others).toEqual([]);
    expect(job?.seconds).toBeGreaterThan(9 * 60);
    expect(job?.seconds).toBeLessThanOrEqual(10 * 60);
    expect(await mailsTo(service, email)).toHaveLength(1);
    // Ten minutes later.
    await service.database.query(
      "update platform.rate_limit_counter set window_ends_at = now() where window_ends_at < now() + interval '1 hour'",
    );
    await service.database.query('update graphile_worker._private_jobs set run_at = now() where key = $1', [job?.key]);
    await until(async () => ((await mailsTo(service, email)).length === 2 ? true : undefined));
  });

  test('of one school does not make another school wait', async () => {
    const email = `${unique('parent')}@mail.example`;
    const other = await service.school();
    await invite(email);
    await invite(email, other);
    await until(async () => ((await mailsTo(service, email)).length === 2 ? true : undefined));
  });

  test('waits for the next day if the school has sent as many as it may', async () => {
    const busy = await service.school();
    await invite(`${unique('first')}@mail.example`, busy);
    const key = `sha256(convert_to('unconfirmed ${busy.id}', 'UTF8'))`;
    await until(async () =>
      (await service.database.query(`select from platform.rate_limit_counter where key = ${key}`))[0]
        ? true
        : undefined,
    );
    await service.database.query(
      `update platform.rate_limit_counter set hits = core.max_unconfirmed_emails_per_day() where key = ${key}`,
    );
    const email = `${unique('late')}@mail.example`;
    const [job] = await untilWaiting(await invite(email, busy), busy);
    expect(job?.seconds).toBeGreaterThan(23 * 3600);
    expect(await mailsTo(service, email)).toEqual([]);
    // Another school sends.
    const elsewhere = `${unique('now')}@mail.example`;
    await invite(elsewhere);
    await mailTo(service, elsewhere, 'Your account');
  });
});

describe('the name in the header of an email', () => {
  test.each([
    ['Amina Okafor', 'Amina Okafor'],
    ["Seán O'Brien-Šmíd", "Seán O'Brien-Šmíd"],
    ['Dr.Smith of St. Mary', 'Dr. Smith of St. Mary'],
    ['Win at https://evil.example/x now', 'Win at now'],
    ['pay@evil.example <boss@school.example>', ''],
    ['Visit evil.example', 'Visit evil. example'],
    ['www.evil.example Bank', 'Bank'],
    ['Line\r\nBcc: x', 'Line Bcc: x'],
  ])('%p is written as %p', (name, expected) => {
    expect(plainName(name)).toBe(expected);
  });

  test('has no link and no address that a user typed, nor has the greeting', async () => {
    const email = `${unique('named')}@mail.example`;
    await invite(email, school, { first_name: 'Win https://evil.example', last_name: 'boss@evil.example' });
    const mail = await mailTo(service, email, 'Your account');
    expect(mail.text).toContain('Hello Win,');
    expect(mail.text).not.toContain('evil.example');
  });
});
