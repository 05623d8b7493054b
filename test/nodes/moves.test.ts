import { describe, expect, test } from '@jest/globals';
import { setDraining } from '../../src/servers/nodes/nodes.ts';
import { openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';
import { testPassword, unique } from '../support/server/service.ts';
import { startProgram } from '../support/server/processes.ts';
import { servers } from './servers.ts';
import type { ServerName } from './schools.ts';
import {
  audited,
  cancel,
  confirm,
  holdRow,
  isWaiting,
  move,
  pools,
  rows,
  schemasOn,
  schoolOn,
  service,
  whileDown,
  whileHung,
} from './moves.ts';
import { keepWriting, students } from './writing.ts';

const { home, nodes } = servers();
const { withOwner } = shared;

describe('a school moves', () => {
  test.each<[ServerName, ServerName]>([
    ['node-1', 'node-2'],
    ['home', 'node-1'],
    ['node-2', 'home'],
  ])('from %s to %s while it is used: every record is there once, and no request fails', async (from, to) => {
    const school = await schoolOn(from);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const entries = await audited(school);
    const writing = keepWriting(school);
    const closedMs = await move(school, to);
    const written = await writing.stop();
    expect([...writing.statuses.keys()]).toEqual([201]);
    expect(written.length).toBeGreaterThan(0);
    expect((await students(school)).sort()).toEqual([...before, ...written].sort());
    expect(closedMs).toBeGreaterThan(0);
    expect(await schemasOn(to, school)).toEqual([school.schema]);
    expect(await schemasOn(from, school)).toEqual([`moved_${school.schema}`]);

    // The session goes on, new ones begin, and ids continue.
    await school.admin.post('/api/students', { first_name: 'New', last_name: 'Here' }, 201);
    const { subdomain, adminEmail: email } = school;
    await service.anonymous.login({ subdomain, email, password: testPassword });
    await service.operator.post(`/api/platform/tenants/${school.id}/suspend`, {}, 200);
    expect((await school.admin.get('/api/students', 403)).error).toBe('tenant_suspended');
    await service.operator.post(`/api/platform/tenants/${school.id}/activate`, {}, 200);

    await confirm(school);
    expect(await schemasOn(from, school)).toEqual([]);
    if (from !== 'home') {
      expect(await rows(from, `select from platform.tenant where id = ${school.id}`)).toEqual([]);
      expect(await rows(from, `select from platform.session where tenant_id = ${school.id}`)).toEqual([]);
    }
    await school.admin.post('/api/students', { first_name: 'Still', last_name: 'Here' }, 201);
    // What operators did before the move is there once, and nothing of it was deleted.
    await until(async () => {
      const all = await audited(school);
      return (all.length === entries.length + 2 && entries.every((id) => all.includes(id))) || undefined;
    });
  });

  test('while a notification stream is open, which goes on with every notification once', async () => {
    const school = await schoolOn('node-1');
    const user = await school.user(['teacher']);
    const notify = (title: string) =>
      school.admin.post('/api/notifications/send', { user_ids: [user.id], title, message: 'In the hall.' });
    const stream = await openStream(service.url, user.token);
    await notify('Before');
    await stream.has(1);
    await move(school, 'node-2');
    await notify('After');
    await stream.has(2);
    expect(stream.events.map(({ title }) => title)).toEqual(['Before', 'After']);
    await stream.close();
    await confirm(school);
  });

  test('with a row that is written to an empty table while the replication of this table begins', async () => {
    const school = await schoolOn('node-1');
    let held: Awaited<ReturnType<typeof holdRow>> | undefined;
    const moved = move(school, 'node-2', async (step) => {
      if (step !== 'prepared') return;
      held = await holdRow(
        'node-1',
        `insert into ${school.schema}.holiday (name, date) values ('Founders', current_date)`,
      );
    });
    // The slot waits for the transaction, whose row it will not contain.
    await until(() => isWaiting('node-1', 'pg_create_logical_replication_slot'));
    await held?.commit();
    await moved;
    const { data } = await school.admin.get<{ name: string }[]>('/api/holidays');
    expect(data.map(({ name }) => name)).toEqual(['Founders']);
    await confirm(school);
  });

  test('with its waiting jobs, which run on the new server only', async () => {
    const school = await schoolOn('node-1');
    const key = unique('later');
    await pools['node-1'].query(
      `select core.add_jobs('send_email', array[(jsonb_build_object('tenant_id', $1::bigint, 'user_id', 1,
         'kind', 'email_verification'), $2, now() + interval '1 day')::core.new_job])`,
      [school.id, key],
    );
    const waiting = (name: ServerName) =>
      rows(name, `select locked_by from graphile_worker._private_jobs where core.job_school(payload) = ${school.id}`);
    await move(school, 'node-2');
    expect(await waiting('node-2')).toEqual([{ locked_by: null }]);
    expect(await waiting('node-1')).toEqual([{ locked_by: 'school move' }]);
    await confirm(school);
    expect(await waiting('node-1')).toEqual([]);
  });

  test('with events whose notifications are not written yet: they are written once, on the new server', async () => {
    const school = await schoolOn('node-1');
    const user = await school.user(['teacher']);
    const holder = await pools['node-1'].connect();
    try {
      // The worker of the first server does not write for the school meanwhile.
      await holder.query("select pg_advisory_lock(core.lock_key('notifications', $1))", [school.id]);
      const message = { user_ids: [user.id], title: 'Before', message: 'In the hall.' };
      await school.admin.post('/api/notifications/send', message);
      await move(school, 'node-2');
    } finally {
      await holder.query('select pg_advisory_unlock_all()');
      holder.release();
    }
    await school.admin.post('/api/notifications/send', { user_ids: [user.id], title: 'After', message: 'x' });
    await service.settled();
    const { data } = await user.get<{ title: string }[]>('/api/notifications?order=asc');
    expect(data.map(({ title }) => title).slice(-2)).toEqual(['Before', 'After']);
    expect(data.filter(({ title }) => title === 'Before')).toHaveLength(1);
    await confirm(school);
    expect(await rows('node-1', `select from platform.outbox where tenant_id = ${school.id}`)).toEqual([]);
  });
});

describe('during a move', () => {
  test('no other command works on the moves of the school', async () => {
    const school = await schoolOn('node-1');
    await move(school, 'node-2', async (step) => {
      if (step !== 'copied') return;
      for (const other of [() => move(school, 'node-2'), () => cancel(school, 'node-2'), () => confirm(school)])
        await expect(other()).rejects.toThrow('Another command is moving this school');
    });
    await confirm(school);
  });

  test('another server can be down', async () => {
    const school = await schoolOn('home');
    await whileDown('node-2', async () => {
      await move(school, 'node-1');
      await school.admin.get('/api/students');
      await confirm(school);
    });
    expect(await schemasOn('node-1', school)).toEqual([school.schema]);
  });

  test.each<[ServerName, ServerName]>([
    ['node-1', 'home'],
    ['home', 'node-1'],
  ])('from %s to %s another server can hang', async (from, to) => {
    const school = await schoolOn(from);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    await whileHung(async () => {
      await move(school, to);
      expect(await students(school)).toEqual(before);
      await confirm(school);
    });
    expect(await schemasOn(to, school)).toEqual([school.schema]);
    expect(await schemasOn(from, school)).toEqual([]);
  });

  test('a lock on the target does not keep the school closed', async () => {
    const school = await schoolOn('node-1');
    const { release } = await holdRow('node-2', `insert into platform.tenant_usage (tenant_id) values (${school.id})`);
    const moved = move(school, 'node-2');
    await until(() => isWaiting('node-2', 'insert into platform.tenant_usage'));
    const last_name = unique('Moved');
    await until(async () => {
      const { status } = await school.admin.send('POST', '/api/students', { body: { first_name: 'Ada', last_name } });
      return status === 201 || undefined;
    });
    await release();
    await moved;
    expect(await students(school)).toEqual([last_name]);
    await confirm(school);
  });

  test('a target that hangs does not keep the school closed', async () => {
    const school = await schoolOn('node-1');
    const { release } = await holdRow('node-2', `insert into platform.tenant_usage (tenant_id) values (${school.id})`);
    const moved = move(school, 'node-2');
    await until(() => isWaiting('node-2', 'insert into platform.tenant_usage'));
    const last_name = unique('Moved');
    await whileHung(async () => {
      await expect(moved).rejects.toThrow('The server node-2 did not answer while the school was closed.');
      await school.admin.post('/api/students', { first_name: 'Ada', last_name }, 201);
    });
    await release();
    await move(school, 'node-2');
    expect(await students(school)).toEqual([last_name]);
    await confirm(school);
  });

  test('an operator who suspends a school while it is closed gets 503, and the school stays active', async () => {
    const school = await schoolOn('node-1');
    // The move waits for this row, after it has read that of the school.
    const { release } = await holdRow('node-2', `insert into platform.tenant_usage (tenant_id) values (${school.id})`);
    const moved = move(school, 'node-2');
    await until(() => isWaiting('node-2', 'insert into platform.tenant_usage'));
    let isAnswered = false;
    const suspended = service.operator.send('POST', `/api/platform/tenants/${school.id}/suspend`, { body: {} });
    void suspended.finally(() => (isAnswered = true));
    await until(() => (isAnswered ? 1 : isWaiting('node-1', 'core.call')));
    await release();
    await moved;
    const { status } = await suspended;
    expect(status).toBe(503);
    await school.admin.get('/api/students');
    await confirm(school);
  });

  test('all rows outside its schema are moved, also when there are thousands', async () => {
    const school = await schoolOn('node-1');
    const usage = `select date from platform.usage_day where tenant_id = ${school.id} and date < '2020-01-01'`;
    await rows(
      'node-1',
      `insert into platform.usage_day (tenant_id, date, requests)
       select ${school.id}, date '2000-01-01' + n, n from generate_series(0, 5001) n`,
    );
    const before = await rows('node-1', `${usage} order by 1`);
    await move(school, 'node-2');
    expect(await rows('node-2', `${usage} order by 1`)).toEqual(before);
    await confirm(school);
    expect(await rows('node-1', usage)).toEqual([]);
  });
});

test('an impersonation ends with a move, also if the school moves back', async () => {
  const school = await schoolOn('home');
  const { data } = await service.operator.post<{ access_token: string }>(
    `/api/platform/tenants/${school.id}/impersonate`,
    { reason: 'The school asked why an invoice is missing.' },
    200,
  );
  const status = async () => (await send(service.url, { path: '/api/students', token: data.access_token })).status;
  expect(await status()).toBe(200);
  await move(school, 'node-2');
  expect(await status()).toBe(401);
  await confirm(school);
  await move(school, 'home');
  expect(await status()).toBe(401);
  await confirm(school);
});

describe('the command line', () => {
  const run = async (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home }).ended;

  test('moves a school, refuses another move before the first is confirmed, and deletes what was left', async () => {
    const school = await schoolOn('node-1');
    expect(await run('tenant', 'move', school.subdomain, 'nowhere')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('There is no node nowhere'),
    });
    const moved = await run('tenant', 'move', school.subdomain, 'node-2', '--json');
    expect(moved).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(moved.stdout)).toMatchObject({ id: school.id, node: 'node-2' });
    expect(await run('tenant', 'move', school.subdomain, 'home')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`not confirmed. Run: school tenant move ${school.subdomain} --confirm`),
    });
    expect(await run('tenant', 'move', school.subdomain, 'node-2', '--confirm', '--cancel', '--yes')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('--confirm and --cancel exclude each other'),
    });
    expect(await schemasOn('node-1', school)).toEqual([`moved_${school.schema}`]);
    expect(await run('tenant', 'move', school.subdomain, '--confirm', '--yes')).toMatchObject({ code: 0 });
    expect(await schemasOn('node-1', school)).toEqual([]);
    await school.admin.get('/api/students');
  });

  test('plans and makes the moves after which the nodes have as many schools each', async () => {
    const [{ ahead } = { ahead: 0 }] = await rows(
      'home',
      `select (count(*) filter (where node_id = 1) - count(*) filter (where node_id = 2))::integer as ahead
       from platform.tenant where status <> 'deleted'`,
    );
    for (let more = Number(ahead); Math.abs(more) < 3; more++) await schoolOn('node-1');
    interface Plan {
      counts: { name: string; before: number; after: number }[];
      moves: { school: number; to: string; error?: string }[];
      blocked: object[];
    }
    const plan = JSON.parse((await run('rebalance', '--dry-run', '--json')).stdout) as Plan;
    const [one] = plan.moves;
    // A school that cannot move does not keep the others from moving.
    await rows('home', `create schema moved_tenant_${one?.school ?? 0}`);
    const promised = JSON.parse((await run('rebalance', '--dry-run', '--json')).stdout) as Plan;
    const partly = await run('rebalance', '--yes', '--confirm', '--json');
    expect(partly).toMatchObject({ code: 1, stderr: '' });
    const { moves: made, blocked } = JSON.parse(partly.stdout) as Plan;
    expect(blocked).toEqual([
      {
        school: one?.school,
        subdomain: expect.any(String),
        reason: expect.stringContaining('home has kept its tables'),
      },
    ]);
    expect(made).toEqual(promised.moves);
    expect(made.map(({ school }) => school)).not.toContain(one?.school);
    await rows('home', `drop schema moved_tenant_${one?.school ?? 0}`);
    const [first, second] = plan.counts.map(({ after }) => after);
    expect(Math.abs((first ?? 0) - (second ?? 0))).toBeLessThanOrEqual(1);
    const done = await run('rebalance', '--yes', '--confirm', '--json');
    expect(done).toMatchObject({ code: 0, stderr: '' });
    const { moves: last } = JSON.parse(done.stdout) as Plan;
    const again = JSON.parse((await run('rebalance', '--dry-run', '--json')).stdout) as Plan;
    expect(again.moves).toEqual([]);
    const placed = await rows(
      'home',
      'select id::double precision as id, node_id::integer as node from platform.tenant',
    );
    for (const { school, to } of [...made, ...last])
      expect(placed).toContainEqual({ id: school, node: to === 'node-1' ? 1 : 2 });
  });

  test('lists the schools that would move, and says that drained nodes keep theirs without an active one', async () => {
    const school = await schoolOn('node-1');
    const drain = (isDraining: boolean) =>
      withOwner(home, async (client) => {
        for (const { name } of nodes) await setDraining(client, name, isDraining);
      });
    const [{ count } = { count: 0 }] = await rows(
      'home',
      "select count(*)::integer as count from platform.tenant where node_id is not null and status <> 'deleted'",
    );
    await drain(true);
    try {
      const stranded = await run('rebalance', '--dry-run');
      expect(stranded).toMatchObject({ code: 1, stdout: expect.stringContaining('There is no active node') });
      expect(stranded.stdout).toMatch(new RegExp(`drained nodes keep ${String(count)} schools?\\. .*--include-home`));
      expect(stranded.stdout).not.toContain('Nothing has to move');
      const planned = await run('rebalance', '--dry-run', '--include-home');
      expect(planned.code).toBe(0);
      expect(planned.stdout.match(/: node-[12] → home$/gm)).toHaveLength(Number(count));
      expect(planned.stdout).toContain(`\n${school.subdomain}: node-1 → home\n`);
    } finally {
      await drain(false);
    }
  });

  test('names the servers that do not answer, and plans no moves from or to them', async () => {
    const [moved, stays] = [await schoolOn('node-2'), await schoolOn('node-1')];
    await move(moved, 'node-1');
    await whileDown('node-2', async () => {
      const { code, stdout } = await run('rebalance', '--dry-run', '--json');
      expect(code).toBe(1);
      expect(JSON.parse(stdout)).toMatchObject({ moves: [], unreachable: ['node-2'], stranded: 0 });
      expect((await run('rebalance', '--dry-run')).stdout).toContain('node-2 does not answer. Its schools stay there');
      expect(await run('tenant', 'move', stays.subdomain, 'node-2')).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(
          new RegExp(
            `^The server node-2 does not answer: .*ECONNREFUSED.* school tenant move ${stays.subdomain} node-2 --cancel --lost$`,
            'm',
          ),
        ),
      });
      await expect(confirm(moved)).rejects.toThrow('These do not answer: node-2.');
    });
    await confirm(moved);
    expect(await schemasOn('node-2', moved)).toEqual([]);
  });
});
