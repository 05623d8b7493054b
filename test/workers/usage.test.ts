import { expect, test } from '@jest/globals';
import type { Usage as UsageSchema } from '../../src/endpoints/platform-usage.ts';
import { queueIsEmpty } from '../support/fakes/mail.ts';
import type { OutputOf } from '../support/client/output.ts';
import { disableRefresh } from '../support/fixtures/analysts.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';

type Usage = OutputOf<typeof UsageSchema>;

const { service, school } = await serviceWithSchool();
const { operator, database } = service;
await disableRefresh(service);

const usageOf = async ({ id }: School) => (await operator.get<Usage>(`/api/platform/usage?tenant_id=${id}`)).data;

async function cleanUp(): Promise<void> {
  await database.query("select graphile_worker.add_job('clean_up')");
  await queueIsEmpty(service);
}

test('the clean-up records students, teachers, storage, active users and messages of the day, and again later', async () => {
  await school.admin.post('/api/students', { first_name: 'Ada', last_name: 'Byron' }, 201);
  await school.insert('teacher', { first_name: 'Alan', last_name: 'Turing' });
  await database.query(`insert into ${school.schema}.file (content, content_type) values ('12345', 'x'), ('123', 'x')`);
  await database.query(
    `insert into mart.notification_day (tenant_id, date, event, channel, messages, pending, sent, failed, dropped, read)
     select $1, current_date, 'x', channel, 9, 1, 6, 2, 0, 0 from unnest('{push,email,in_app}'::text[]) channel`,
    [school.id],
  );
  await cleanUp();
  const first = await usageOf(school);
  expect(first.months.at(-1)).toMatchObject({ teachers: 1, storage_bytes: 8, messages: 12, most_active_users: 1 });
  expect(first.current.storage_bytes).toBe(8);
  const students = first.months.at(-1)?.students ?? 0;
  expect(students).toBeGreaterThan(0);

  await school.user(['teacher']);
  await school.admin.post('/api/students', { first_name: 'Grace', last_name: 'Hopper' }, 201);
  await database.query(`delete from ${school.schema}.file where content = '12345'`);
  await cleanUp();
  const second = await usageOf(school);
  expect(second.months.at(-1)).toMatchObject({ students: students + 1, storage_bytes: 3, most_active_users: 2 });
  expect(second.days.at(-1)).toMatchObject({ active_users: 2, messages: 12 });
});

test('users of API keys are active, those with two sessions count once, and operators who impersonate do not count', async () => {
  const busy = await service.school();
  const { data: profile } = await busy.admin.get<{ id: number; email: string }>('/api/auth/profile');
  await database.query(
    `insert into platform.session (tenant_id, user_id, email, expires_at) values ($1, $2, 'x', now() + interval '1 day')`,
    [busy.id, profile.id],
  );
  await operator.post(`/api/platform/tenants/${busy.id}/impersonate`, { reason: 'To see what the admin sees.' }, 200);
  await busy.insert('api_key', {
    user_id: (await busy.user(['accountant'])).id,
    name: 'Key',
    prefix: `sk_${busy.id}_abcd`,
    key_hash: 'a'.repeat(64),
    permissions: ['student.read'],
    last_used_at: new Date(),
  });
  await database.query('update platform.session set last_used_at = now() - interval $$3 days$$ where roles = $1', [
    ['accountant'],
  ]);
  await cleanUp();
  expect((await usageOf(busy)).days.at(-1)).toMatchObject({ active_users: 2 });
});

test('the day before keeps its highest number of active users after they have come back', async () => {
  const old = await service.school();
  await database.query("update platform.tenant set created_at = now() - interval '9 days' where id = $1", [old.id]);
  const moveSessions = (days: number) =>
    database.query(
      'update platform.session set last_used_at = now() - make_interval(days => $2) where tenant_id = $1',
      [old.id, days],
    );
  await moveSessions(1);
  await cleanUp();
  await moveSessions(0);
  await cleanUp();
  expect((await usageOf(old)).days.slice(-3)).toMatchObject([
    { active_users: 0 },
    { active_users: 1 },
    { active_users: 1 },
  ]);
});

test('the first time, the facts of analysts show the students and messages of the past year', async () => {
  const known = await service.school();
  await database.query(
    `insert into mart.enrollment (tenant_id, class_id, month, gender, students, joiners, leavers)
     select $1, class, date_trunc('month', now())::date - make_interval(months => n), 'female', 10 * n, 0, 0
     from unnest('{1,2}'::integer[]) class cross join generate_series(0, 3) n`,
    [known.id],
  );
  await database.query(
    `insert into mart.notification_day (tenant_id, date, event, channel, messages, pending, sent, failed, dropped, read)
     select $1, (date_trunc('month', now()) - interval '1 month')::date + day, 'x', 'email', 5, 0, 5, 0, 0, 0
     from unnest('{1,2}'::integer[]) day`,
    [known.id],
  );
  await cleanUp();
  const { months } = await usageOf(known);
  expect(months.slice(-5)).toMatchObject([
    { students: null, messages: null },
    { students: 60, messages: null },
    { students: 40, messages: null },
    { students: 20, messages: 10, teachers: null },
    { students: 0, teachers: 0 },
  ]);
  await database.query('update mart.enrollment set students = 99 where tenant_id = $1', [known.id]);
  await cleanUp();
  expect((await usageOf(known)).months).toEqual(months);
});

test('the clean-up deletes the usage of days whose retention has ended', async () => {
  await database.query('delete from platform.usage_day');
  await database.query(
    'insert into platform.usage_day (tenant_id, date, requests) select $1, current_date - n, n from unnest($2::integer[]) n',
    [school.id, [1094, 1097, 2000]],
  );
  await cleanUp();
  expect(
    await database.query('select requests from platform.usage_day where tenant_id = $1 and requests is not null', [
      school.id,
    ]),
  ).toEqual([{ requests: '1094' }]);
});
