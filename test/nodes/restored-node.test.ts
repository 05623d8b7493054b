import { rm } from 'node:fs/promises';
import { afterAll, expect, test } from '@jest/globals';
import { until } from '../support/client/until.ts';
import { startProgram } from '../support/server/processes.ts';
import { serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { backUp, createServer, removeServer, restore, servers, serverUrl } from './servers.ts';

const { home } = servers();
const { withOwner } = shared;
const service = await serviceOfFile();

const server = await createServer();
let backup = '';
const url = serverUrl(server, 'school');
const homeByName = home.replace('127.0.0.1', 'localhost');

const command = (...args: string[]) =>
  startProgram('src/cli/main.ts', args, { DATABASE_URL: home, ADMIN_PASSWORD: testPassword }).ended;
async function run(...args: string[]): Promise<void> {
  expect(await command(...args)).toMatchObject({ code: 0, stderr: '' });
}
const rows = (at: string, text: string, values: unknown[] = []) =>
  withOwner(at, async (client) => (await client.query<Record<string, unknown>>(text, values)).rows);

afterAll(async () => {
  await removeServer(server);
  if (backup) await rm(backup, { recursive: true, force: true });
  await command('node', 'remove', 'restored', '--lost', '--delete-schools', '--yes');
});

const subdomain = unique('restored').toLowerCase();

/** What both servers have of the school and of the platform, without the columns that are not copied. */
const stateAt = (at: string, planId: number) =>
  rows(
    at,
    `select t.status, t.name, p.name as plan,
       (select json_agg(json_build_array(a.id, a.action) order by a.id)
        from platform.audit_log a where a.tenant_id = t.id) as entries,
       (select json_agg(email order by email) from platform.user_account) as operators
     from platform.tenant t, platform.plan p
     where t.subdomain = $1 and p.id = $2`,
    [subdomain, planId],
  );

/** The audit entries at home that the node has made about no school. */
const entriesAboutNoSchool = () =>
  rows(
    home,
    `select from platform.audit_log a
     join platform.node n on a.id / 1000000000000 = n.id and n.name = 'restored'
     where a.tenant_id is null`,
  );

/** Waits until the home and the node have the same, with these values. */
const areSame = (planId: number, expected: Record<string, unknown>) =>
  until(async () => {
    const [atHome, onNode] = [await stateAt(home, planId), await stateAt(url, planId)];
    return (
      (JSON.stringify(atHome) === JSON.stringify(onNode) &&
        Object.entries(expected).every(([name, value]) => atHome[0]?.[name] === value)) ||
      undefined
    );
  });

/** Waits until the node has confirmed all changes of the home. A change without confirmation would be sent once more. */
async function areConfirmed(): Promise<void> {
  const [now] = await rows(home, 'select pg_current_wal_lsn()::text as lsn');
  await until(async () => {
    const slots = await rows(
      home,
      `select from pg_replication_slots join platform.node n on slot_name = 'school_home_' || n.id
       where n.name = 'restored' and confirmed_flush_lsn >= $1::pg_lsn`,
      [now?.lsn],
    );
    return slots.length === 1 || undefined;
  });
}

test('a node that was restored from a backup copies the tables of the home again, which copies those of the node', async () => {
  await withOwner(serverUrl(server, 'postgres'), (client) => client.query('create database school'));
  await run('node', 'add', 'restored', url, '--home-url', homeByName, '--json');
  await run('node', 'drain', 'restored');
  const plan = await service.plan();
  const create = ['tenant', 'create', subdomain, '--name', 'Restored', '--plan', String(plan.id), '--node', 'restored'];
  await run(...create, '--contact-email', `head@${subdomain}.example`);
  await areSame(plan.id, { status: 'active', plan: plan.name });
  // An entry about no school, as `school jobs retry --node` makes one.
  await rows(url, "select core.audit('job.retry', 'job', 1, null, '{}')");
  await until(async () => (await entriesAboutNoSchool()).length === 1 || undefined);

  backup = await backUp(server);
  // Lost: the node has neither this state of the school nor the new name of the plan after its restoration.
  await run('tenant', 'suspend', subdomain);
  const name = unique('Plan');
  await service.operator.put(`/api/platform/plans/${plan.id}`, { name });
  await areSame(plan.id, { status: 'suspended', plan: name });
  await areConfirmed();
  await restore(server, backup);
  expect(await stateAt(url, plan.id)).toMatchObject([{ status: 'active', plan: plan.name }]);

  await run('node', 'add', 'restored', url);
  await areSame(plan.id, { status: 'active', plan: name });
  expect(await entriesAboutNoSchool()).toHaveLength(1);
  // It subscribes under the same address as before.
  expect(await rows(url, "select subconninfo ~ 'localhost' as is_kept from pg_subscription")).toEqual([
    { is_kept: true },
  ]);

  // Later changes arrive too, with the numbers that audit entries had which were lost.
  await run('tenant', 'suspend', subdomain);
  await run('tenant', 'activate', subdomain);
  await run('tenant', 'suspend', subdomain);
  await service.operator.put(`/api/platform/plans/${plan.id}`, { name: plan.name });
  await areSame(plan.id, { status: 'suspended', plan: plan.name });
});
