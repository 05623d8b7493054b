import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { rolePool } from '../../src/database/pool/pool.ts';
import { startWorker } from '../../workers/worker.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { workerContext } from '../support/server/worker.ts';

let database: TestDatabase;
let large: BareTenant;
let small: BareTenant;

beforeEach(async () => {
  database = await testDatabase(3);
  large = await provision(database);
  small = await provision(database);
});
afterEach(() => database.drop());

const nameOf = (school: BareTenant) => (school === large ? 'large' : 'small');

/** Adds users, and queues an email to each of them, all in one transaction like an import. */
async function queueEmails(school: BareTenant, kind: string, count: number): Promise<void> {
  await database.query(`
    begin;
    set local app.tenant_id = '${school.id}';
    with added as (
      insert into ${school.schema}.user_account (email, first_name, last_name, password_hash)
        select '${nameOf(school)}-${kind}-' || gen_random_uuid() || '@test.example', 'Uma', 'User',
          case when '${kind}' <> 'invitation' then 'hash' end
        from generate_series(1, ${count})
        returning id
    )
    select core.enqueue_all('send_email', array_agg(jsonb_build_object('user_id', id, 'kind', '${kind}'))) from added;
    commit`);
}

/** Queues jobs that are not run. */
const queue = (school: BareTenant, task: string, payload: object, count = 1) =>
  database.query(`
    select core.add_jobs('${task}', array_fill(
      ('${JSON.stringify({ tenant_id: school.id, ...payload })}', null, null)::core.new_job, array[${count}]))`);

/** The waiting jobs in the order in which workers take them, as `<school> <task or kind>`. */
async function order(limit: number): Promise<string[]> {
  const rows = await database.query<{ tenant_id: string; what: string }>(
    `select j.payload ->> 'tenant_id' as tenant_id, coalesce(j.payload ->> 'kind', t.identifier) as what
     from graphile_worker._private_jobs j join graphile_worker._private_tasks t on t.id = j.task_id
     where j.is_available and t.identifier in ('send_email', 'deliver', 'send_invoice_reminder')
     order by j.priority, j.run_at limit $1`,
    [limit],
  );
  return rows.map(({ tenant_id, what }) => `${Number(tenant_id) === large.id ? 'large' : 'small'} ${what}`);
}

/** The recipients of emails in the order in which one worker sends them, as `<school> <kind>`. */
async function sent(count: number, onSent: (number: number) => Promise<void> = () => Promise.resolve()) {
  const pool = rolePool('school_worker', database.url, undefined, 5);
  const recipients: string[] = [];
  const worker = await startWorker(
    workerContext(pool, async ({ to }) => {
      recipients.push(to.address.split('-').slice(0, 2).join(' '));
      await onSent(recipients.length);
    }),
    1,
  );
  await until(() => Promise.resolve(recipients.length >= count || undefined));
  await worker.stop();
  await pool.end();
  return recipients.slice(0, count);
}

describe('with thousands of invitations of one school in the queue', () => {
  test('the emails that another school waits for are sent first, and its invitations in turn', async () => {
    await queueEmails(large, 'invitation', 4900);
    await queueEmails(small, 'invitation', 3);
    await queueEmails(small, 'password_reset', 1);
    await queueEmails(large, 'email_verification', 1);
    expect(await sent(8)).toEqual([
      'small password_reset',
      'large email_verification',
      ...['large invitation', 'small invitation'],
      ...['large invitation', 'small invitation'],
      ...['large invitation', 'small invitation'],
    ]);
  });

  test('emails that users wait for are sent in turn too, also when one school has thousands of them', async () => {
    await queueEmails(large, 'invitation', 10);
    await queueEmails(large, 'email_verification', 2000);
    await queueEmails(small, 'password_reset', 2);
    expect(await sent(4)).toEqual([
      ...['large email_verification', 'small password_reset'],
      ...['large email_verification', 'small password_reset'],
    ]);
  });

  test('a school that comes later begins where the worker is, and a password reset is still the next email', async () => {
    await queueEmails(large, 'invitation', 500);
    const recipients = await sent(110, async (number) => {
      if (number === 100) await queueEmails(small, 'invitation', 5);
      if (number === 104) await queueEmails(small, 'password_reset', 1);
    });
    expect(new Set(recipients.slice(0, 100))).toEqual(new Set(['large invitation']));
    expect(recipients[104]).toBe('small password_reset');
    expect(recipients.filter((recipient) => recipient === 'small invitation').length).toBeGreaterThanOrEqual(4);
  });

  test('reminders and notifications of another school come in turn with them, after the invitation of each turn', async () => {
    await queueEmails(large, 'invitation', 1000);
    await queue(small, 'send_invoice_reminder', {}, 2);
    await queue(small, 'deliver', { from_id: 1, to_id: 1 });
    await queueEmails(small, 'invitation', 1);
    expect(await order(8)).toEqual([
      ...['large invitation', 'small send_invoice_reminder'],
      ...['large invitation', 'small send_invoice_reminder'],
      ...['large invitation', 'small deliver'],
      ...['large invitation', 'small invitation'],
    ]);
  });
});

test('a school does not gain by queuing its messages one by one, or many of them in one job', async () => {
  for (let n = 0; n < 3; n++) await queueEmails(large, 'invitation', 1);
  await queue(large, 'deliver', { from_id: 1, to_id: 100 });
  await queue(large, 'deliver', { from_id: 101, to_id: 101 });
  await queueEmails(small, 'invitation', 20);
  const invitations = (count: number) => Array.from({ length: count }, () => 'small invitation');
  expect(await order(30)).toEqual([
    ...['large invitation', 'small invitation', 'large invitation', 'small invitation', 'large invitation'],
    ...[...invitations(11), 'large deliver', ...invitations(1), 'large deliver', ...invitations(6)],
  ]);
});

test('the order of bulk messages has an end, where jobs are taken in the order in which they came', async () => {
  // These jobs are not run, so they need no users.
  await queue(large, 'send_email', { user_id: 1, kind: 'invitation' }, 20_000);
  await queue(small, 'send_email', { user_id: 1, kind: 'invitation' }, 2);
  const rows = await database.query<{ last: number; count: number }>(
    'select max(priority)::integer as last, count(*)::integer as count from graphile_worker._private_jobs where priority between 9 and 32766',
  );
  expect(rows).toEqual([{ last: 32_000, count: 20_002 }]);
  expect(await order(4)).toEqual(['large invitation', 'small invitation', 'large invitation', 'small invitation']);
});
