import { beforeEach, expect, test } from '@jest/globals';
import { queueIsEmpty } from '../support/fakes/mail.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const service = await serviceOfFile();
let school: School;

beforeEach(async () => {
  school = await service.school({ trial_ends_at: new Date(Date.now() + 30 * 86_400_000).toISOString() });
  await school.user(['teacher']);
  await queueIsEmpty(service);
});

/**
 * Sets the end of the trial to this many days from today and the local time of the school to this hour, runs the task and
 * returns the new notifications.
 */
async function daysLeft(days: number, hour = 8): Promise<[string, string, string][]> {
  // A time zone with a fixed offset, in which it is this hour now.
  const offset = hour - new Date().getUTCHours();
  await service.database.query(
    `update platform.tenant set time_zone = $2, trial_ends_at = (((now() at time zone $2)::date + $3::integer) + time '12:00') at time zone $2 where id = $1`,
    [school.id, `<X>${-offset}`, days],
  );
  await service.database.query("select graphile_worker.add_job('notify_daily')");
  await queueIsEmpty(service);
  const rows = await service.database.query<{ email: string; title: string; message: string }>(
    `delete from ${school.schema}.notification n using ${school.schema}.user_account u where u.id = n.user_id and n.type = 'trial.ending' returning u.email, n.title, n.message`,
  );
  return rows.map(({ email, title, message }) => [email, title, message]);
}

test('admins are notified with 7, 3 and 1 days left, once each', async () => {
  expect(await daysLeft(9)).toEqual([]);
  const [[who, title, message] = []] = await daysLeft(7);
  expect([who, title]).toEqual([school.adminEmail, 'Your trial ends in 7 days']);
  expect(message).toMatch(/^The trial of School \d+ ends on \d+ [A-Z][a-z]+ \d{4}\. /);
  expect(await daysLeft(7)).toEqual([]);
  expect((await daysLeft(3)).map(([, words]) => words)).toEqual(['Your trial ends in 3 days']);
  expect(await daysLeft(3)).toEqual([]);
  expect((await daysLeft(1)).map(([, words]) => words)).toEqual(['Your trial ends tomorrow']);
  expect(await daysLeft(1)).toEqual([]);
  const rows = await service.database.query(
    `select status from ${school.schema}.notification_delivery where address = $1`,
    [school.adminEmail],
  );
  expect(rows).toHaveLength(3);
});

test('a missed day is made up for on the next one, and an extended trial counts anew', async () => {
  expect((await daysLeft(6)).map(([, words]) => words)).toEqual(['Your trial ends in 6 days']);
  expect((await daysLeft(2)).map(([, words]) => words)).toEqual(['Your trial ends in 2 days']);
  expect((await daysLeft(5)).map(([, words]) => words)).toEqual(['Your trial ends in 5 days']);
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
  await service.database.query("select graphile_worker.add_job('notify_daily')");
  const error = await until(async () => {
    const [job] = await service.database.query<{ last_error: string | null }>(
      "select last_error from graphile_worker.jobs where task_identifier = 'notify_daily'",
    );
    return job?.last_error ?? undefined;
  });
  expect(error).toMatch(
    new RegExp(
      `^core.notify_trial_ending failed for 1 of \\d+ schools. School ${broken.id}: relation "daily_run" does not exist`,
    ),
  );
  expect(
    await service.database.query(`select from ${whole.schema}.notification where type = 'trial.ending'`),
  ).toHaveLength(1);
  for (const { schema } of [broken, behind])
    await service.database.query(`alter table ${schema}.daily_run_away rename to daily_run`);
  await service.database.query(
    "delete from graphile_worker._private_jobs j using graphile_worker._private_tasks t where t.id = j.task_id and t.identifier = 'notify_daily'",
  );
});
