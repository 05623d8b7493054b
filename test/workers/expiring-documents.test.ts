import { beforeEach, expect, test } from '@jest/globals';
import { queueIsEmpty } from '../support/fakes/mail.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { day, transportSchool } from '../support/fixtures/transport.ts';

const service = await serviceOfFile();
let fleet: Awaited<ReturnType<typeof transportSchool>>;
let manager: string;

beforeEach(async () => {
  fleet = await transportSchool(service);
  manager = (await fleet.school.user(['transport_manager'])).email;
  await queueIsEmpty(service);
});

/** Sets the local time of the school, runs the task, and returns the new notifications. */
async function takeNotifications(hour = 8): Promise<[string, string, string][]> {
  const offset = hour - new Date().getUTCHours();
  await service.database.query('update platform.tenant set time_zone = $2 where id = $1', [
    fleet.school.id,
    `<X>${-offset}`,
  ]);
  await service.database.query("select graphile_worker.add_job('send_due_notices')");
  await queueIsEmpty(service);
  const rows = await service.database.query<{ email: string; title: string; message: string }>(
    `delete from ${fleet.schema}.notification n using ${fleet.schema}.user_account u where u.id = n.user_id and n.type = 'transport.expiring' returning u.email, n.title, n.message`,
  );
  return rows
    .map(({ email, title, message }): [string, string, string] => [email, title, message])
    .sort(([, a], [, b]) => (a < b ? -1 : 1));
}

test('transport managers are notified of each expiring document once per reminder', async () => {
  const bus = await fleet.addBus({
    registration_number: 'KA-01',
    insurance_expires_on: day(5),
    fitness_expires_on: day(60),
  });
  const driver = await fleet.addDriver({ name: 'Ama', license_expires_on: day(-3) });
  const [license, insurance, ...more] = await takeNotifications();
  expect([license?.slice(0, 2), insurance?.slice(0, 2), more]).toEqual([
    [manager, 'The driving license of Ama expires'],
    [manager, 'The insurance of bus KA-01 expires'],
    [],
  ]);
  expect(license?.[2]).toMatch(
    /^The driving license of Ama has the expiry date \d+ [A-Z][a-z]+ \d{4} \([234] days ago\)\.$/,
  );
  expect(await takeNotifications()).toEqual([]);

  await fleet.admin.put(`/api/transport/buses/${bus}`, { insurance_expires_on: day(-5) });
  await fleet.admin.put(`/api/transport/drivers/${driver}`, { license_expires_on: day(90) });
  expect((await takeNotifications()).map(([, title]) => title)).toEqual(['The insurance of bus KA-01 expires']);
  expect(await takeNotifications()).toEqual([]);
});

test('nobody is notified before 7:00, nor in a school that lacks transport or has switched the event off', async () => {
  await fleet.addBus({ registration_number: 'KA-02', insurance_expires_on: day(5) });
  expect(await takeNotifications(6)).toEqual([]);
  await service.operator.put(`/api/platform/tenants/${fleet.school.id}`, { feature_flags: { transport: false } });
  expect(await takeNotifications()).toEqual([]);
  await service.operator.put(`/api/platform/tenants/${fleet.school.id}`, { feature_flags: { transport: true } });
  expect((await takeNotifications()).map(([recipient]) => recipient)).toEqual([manager]);
  await fleet.admin.put('/api/notifications/events/transport.expiring', { is_enabled: false });
  await fleet.addBus({ registration_number: 'KA-03', insurance_expires_on: day(5) });
  expect(await takeNotifications()).toEqual([]);
});
