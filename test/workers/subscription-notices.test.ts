import { beforeEach, expect, test } from '@jest/globals';
import type { AuditLog, TenantDetail } from '../../src/endpoints/platform.ts';
import type { OutputOf } from '../support/client/output.ts';
import { mailsTo, queueIsEmpty } from '../support/fakes/mail.ts';
import { operatorEmail, type School, serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const service = await serviceOfFile({}, 15);
let school: School;

beforeEach(async () => {
  school = await service.school({ trial_ends_at: new Date(Date.now() + 30 * 86_400_000).toISOString() });
  await school.user(['teacher']);
  await queueIsEmpty(service);
});

/**
 * Sets the end of the period to this many days from today and the local time of the school to this hour, runs the task
 * and returns the new notifications of the event.
 */
async function daysLeft(days: number, hour = 8, event = 'trial.ending'): Promise<[string, string, string][]> {
  // A time zone with a fixed offset, in which it is this hour now.
  const offset = hour - new Date().getUTCHours();
  await service.database.query(
    `with school as (
       update platform.tenant
       set time_zone = $2, trial_ends_at = (((now() at time zone $2)::date + $3::integer) + time '12:00') at time zone $2
       where id = $1
       returning id, trial_ends_at)
     update platform.subscription set current_period_end = trial_ends_at from school where tenant_id = school.id`,
    [school.id, `<X>${-offset}`, days],
  );
  await runTask();
  return notices(event);
}

async function runTask(): Promise<void> {
  await service.database.query("select graphile_worker.add_job('send_due_notices')");
  await queueIsEmpty(service);
}

/** Takes the notifications of an event out of the school: the address of the recipient, the title and the message. */
async function notices(event: string): Promise<[string, string, string][]> {
  const rows = await service.database.query<{ email: string; title: string; message: string }>(
    `delete from ${school.schema}.notification n using ${school.schema}.user_account u where u.id = n.user_id and n.type = $1 returning u.email, n.title, n.message`,
    [event],
  );
  return rows.map(({ email, title, message }) => [email, title, message]);
}

const statusOf = async ({ id }: School) =>
  (await service.operator.get<OutputOf<typeof TenantDetail>>(`/api/platform/tenants/${id}`)).data.subscription.status;
/** The changes of the status that are in the audit log, in their order. */
const auditOf = async ({ id }: School) =>
  (
    await service.operator.get<OutputOf<typeof AuditLog>[]>(`/api/platform/audit-logs?tenant_id=${id}&pageSize=100`)
  ).data
    .filter(({ action }) => action.startsWith('subscription.'))
    .map(({ action, actor }) => [action, actor.email])
    .reverse();
const operatorSubjects = async ({ id }: School) => {
  const { name } = (await service.operator.get<{ name: string }>(`/api/platform/tenants/${id}`)).data;
  return (await mailsTo(service, operatorEmail))
    .filter(({ subject }) => subject.startsWith(`${name}: The`))
    .map(({ subject }) => subject.slice(name.length + 2));
};

test('admins are notified with 7, 3 and 1 days left, once each', async () => {
  expect(await daysLeft(9)).toEqual([]);
  const [[recipient, title, message] = []] = await daysLeft(7);
  expect([recipient, title]).toEqual([school.adminEmail, 'Your trial ends in 7 days']);
  expect(message).toMatch(/^The trial of School \d+ ends on \d+ [A-Z][a-z]+ \d{4}\. /);
  expect(await daysLeft(7)).toEqual([]);
  expect((await daysLeft(3)).map(([, title]) => title)).toEqual(['Your trial ends in 3 days']);
  expect(await daysLeft(3)).toEqual([]);
  expect((await daysLeft(1)).map(([, title]) => title)).toEqual(['Your trial ends tomorrow']);
  expect(await daysLeft(1)).toEqual([]);
  const rows = await service.database.query(
    `select status from ${school.schema}.notification_delivery where address = $1`,
    [school.adminEmail],
  );
  expect(rows).toHaveLength(3);
});

test('a missed day is made up for on the next one, and an extended trial counts anew', async () => {
  expect((await daysLeft(6)).map(([, title]) => title)).toEqual(['Your trial ends in 6 days']);
  expect((await daysLeft(2)).map(([, title]) => title)).toEqual(['Your trial ends in 2 days']);
  expect((await daysLeft(5)).map(([, title]) => title)).toEqual(['Your trial ends in 5 days']);
});

test('admins who were notified with 7 days left are notified again with 3, and with 1', async () => {
  for (const [days, before] of [
    [3, [7]],
    [1, [7, 3]],
  ] as const) {
    expect(await daysLeft(days, 6)).toEqual([]);
    await service.database.query(
      `insert into ${school.schema}.daily_run (task, run_on)
       select 'trial.ending:' || days, (t.trial_ends_at at time zone t.time_zone)::date from platform.tenant t, unnest($2::integer[]) days where t.id = $1`,
      [school.id, before],
    );
    expect(await daysLeft(days)).toHaveLength(1);
    expect(await daysLeft(days)).toEqual([]);
  }
});

test('nobody is notified before 7:00, nor in a school that has subscribed, is suspended or has switched the event off', async () => {
  expect(await daysLeft(3, 6)).toEqual([]);
  await school.admin.put('/api/notifications/events/trial.ending', { is_enabled: false });
  expect(await daysLeft(3)).toEqual([]);
  await school.admin.put('/api/notifications/events/trial.ending', { is_enabled: true });
  await service.operator.post(`/api/platform/tenants/${school.id}/suspend`, undefined);
  expect(await daysLeft(1)).toEqual([]);
  await service.operator.post(`/api/platform/tenants/${school.id}/activate`, undefined);
  await service.database.query("update platform.subscription set status = 'active' where tenant_id = $1", [school.id]);
  expect(await daysLeft(1)).toEqual([]);
});

test('after the trial the school is past due; its admins and the operators get one notice then, and more before the cancellation', async () => {
  const past = (days: number, hour?: number) => daysLeft(days, hour, 'subscription.past_due');
  expect(await past(-1, 6)).toEqual([]);
  const [[recipient, title, message] = []] = await past(-1);
  expect([recipient, title]).toEqual([school.adminEmail, 'Your subscription is past due']);
  expect(message).toMatch(/ended on \d+ \w+ \d{4}\. It will be cancelled on \d+ \w+ \d{4} \(in 13 days\)\. /);
  expect(await past(-1)).toEqual([]);
  expect(await statusOf(school)).toBe('past_due');
  expect(await auditOf(school)).toEqual([['subscription.lapse', 'worker']]);
  for (const [days, words] of [
    [-11, 'in 3 days'],
    [-13, 'tomorrow'],
  ] as const) {
    expect((await past(days)).map(([, , text]) => text)).toEqual([expect.stringContaining(`(${words})`)]);
    expect(await past(days)).toEqual([]);
  }
  expect(await operatorSubjects(school)).toEqual([
    expect.stringMatching(/^The subscription ended on .+\. It will be cancelled in 13 days, on .+\.$/),
    expect.stringContaining('in 3 days'),
    expect.stringContaining('tomorrow'),
  ]);
});

test('after the grace period the subscription is cancelled, with one notice, and a renewal starts the notices anew', async () => {
  await daysLeft(-1);
  expect((await daysLeft(-15, 8, 'subscription.cancelled')).map(([recipient, title]) => [recipient, title])).toEqual([
    [school.adminEmail, 'Your subscription is cancelled'],
  ]);
  await runTask();
  expect(await notices('subscription.cancelled')).toEqual([]);
  expect(await statusOf(school)).toBe('cancelled');
  expect(await auditOf(school)).toEqual([
    ['subscription.lapse', 'worker'],
    ['subscription.cancel', 'worker'],
  ]);
  await service.operator.put(`/api/platform/tenants/${school.id}/subscription`, { status: 'active' });
  expect(await statusOf(school)).toBe('active');
  expect((await daysLeft(3, 8, 'subscription.ending')).map(([, title]) => title)).toEqual([
    'Your subscription ends in 3 days',
  ]);
  expect(await daysLeft(3, 8, 'subscription.ending')).toEqual([]);
  expect((await daysLeft(-1, 8, 'subscription.past_due')).map(([, title]) => title)).toEqual([
    'Your subscription is past due',
  ]);
});

test('a worker that was down for weeks stores each status once and sends only the notice of the last one', async () => {
  expect((await daysLeft(-20, 8, 'subscription.cancelled')).map(([recipient]) => recipient)).toEqual([
    school.adminEmail,
  ]);
  await runTask();
  expect(await notices('subscription.cancelled')).toEqual([]);
  expect(await notices('subscription.past_due')).toEqual([]);
  expect(await auditOf(school)).toEqual([
    ['subscription.lapse', 'worker'],
    ['subscription.cancel', 'worker'],
  ]);
  expect(await operatorSubjects(school)).toEqual(['The subscription is cancelled.']);
});

test('a school without the feature notifications is notified too, and operators also of an event that it has switched off', async () => {
  await school.admin.put('/api/notifications/events/subscription.past_due', { is_enabled: false });
  await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: { notifications: false } });
  expect(await daysLeft(3)).toHaveLength(1);
  expect(await daysLeft(-1, 8, 'subscription.past_due')).toEqual([]);
  expect(await operatorSubjects(school)).toHaveLength(2);
});

test('the grace period has the length that operators set, in days at the school', async () => {
  await service.operator.put(`/api/platform/tenants/${school.id}/subscription`, { grace_days: 30 });
  expect((await daysLeft(-20, 8, 'subscription.past_due')).map(([, , text]) => text)).toEqual([
    expect.stringContaining('(in 10 days)'),
  ]);
});

test.each(['the daily work', 'the operator'])(
  'a renewal concurrent with the daily work wins, also when %s is first',
  async (first) => {
    await daysLeft(-1);
    await service.database.query(
      "update platform.subscription set current_period_end = now() - interval '20 days' where tenant_id = $1",
      [school.id],
    );
    const current_period_end = new Date(Date.now() + 30 * 86_400_000).toISOString();
    const renew = () =>
      service.operator.send('PUT', `/api/platform/tenants/${school.id}/subscription`, { body: { current_period_end } });
    const work = () => service.database.query('select core.subscription_daily($1)', [school.id]);
    const isWaiting = (count: number) =>
      until(
        async () =>
          (
            await service.database.query(
              "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
            )
          ).length >= count || undefined,
      );
    const lock = new shared.pg.Client({ connectionString: service.database.url });
    await lock.connect();
    try {
      await lock.query('begin');
      await lock.query('select from platform.tenant where id = $1 for update', [school.id]);
      const [one, two] = first === 'the operator' ? [renew, work] : [work, renew];
      const running: Promise<unknown>[] = [one()];
      await isWaiting(1);
      running.push(two());
      await isWaiting(2);
      await lock.query('commit');
      await Promise.all(running);
    } finally {
      await lock.end();
    }
    expect(await statusOf(school)).toBe('active');
    expect((await auditOf(school)).slice(0, 2)).toEqual([
      ['subscription.lapse', 'worker'],
      ['subscription.cancel', 'worker'],
    ]);
    await runTask();
    expect(await statusOf(school)).toBe('active');
  },
);

test('a failure at one school, or one that is not migrated, does not stop the others', async () => {
  const trial = { trial_ends_at: new Date(Date.now() + 3 * 86_400_000).toISOString() };
  const [broken, behind, whole] = [
    await service.school(trial),
    await service.school(trial),
    await service.school(trial),
  ];
  const ids = [broken.id, behind.id, whole.id];
  // In this time zone it is 12:00 now.
  await service.database.query('update platform.tenant set time_zone = $2 where id = any ($1)', [
    ids,
    `<X>${new Date().getUTCHours() - 12}`,
  ]);
  await service.database.query(`alter table ${broken.schema}.daily_run rename to daily_run_away`);
  await service.database.query(`alter table ${behind.schema}.daily_run rename to daily_run_away`);
  await service.database.query('update platform.tenant set schema_version = schema_version - 1 where id = $1', [
    behind.id,
  ]);
  await service.database.query("select graphile_worker.add_job('send_due_notices')");
  const error = await until(async () => {
    const [job] = await service.database.query<{ last_error: string | null }>(
      "select last_error from graphile_worker.jobs where task_identifier = 'send_due_notices'",
    );
    return job?.last_error ?? undefined;
  });
  expect(error).toMatch(
    new RegExp(
      `^core.subscription_daily failed for 1 of \\d+ schools. School ${broken.id}: relation "daily_run" does not exist`,
    ),
  );
  await service.settled();
  expect(
    await service.database.query(`select from ${whole.schema}.notification where type = 'trial.ending'`),
  ).toHaveLength(1);
  for (const { schema } of [broken, behind])
    await service.database.query(`alter table ${schema}.daily_run_away rename to daily_run`);
  await service.database.query(
    "delete from graphile_worker._private_jobs j using graphile_worker._private_tasks t where t.id = j.task_id and t.identifier = 'send_due_notices'",
  );
});
