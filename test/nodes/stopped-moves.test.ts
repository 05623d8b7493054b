import { describe, expect, test } from '@jest/globals';
import { unsubscribe } from '../../src/servers/replication/subscriptions.ts';
import type { MoveStep } from '../../src/servers/moves/move.ts';
import { until } from '../support/client/until.ts';
import { type School, unique } from '../support/server/service.ts';
import { startProgram } from '../support/server/processes.ts';
import { servers } from './servers.ts';
import type { ServerName } from './schools.ts';
import {
  cancel,
  confirm,
  holdRow,
  move,
  pools,
  publicationsOn,
  rows,
  schemasOn,
  schoolOn,
  service,
  slotsOn,
  subscriptionsOn,
  tableSlotsOn,
  urls,
  whileDown,
  whileHung,
} from './moves.ts';
import { type Student, students } from './writing.ts';

const { home } = servers();
const { withOwner } = shared;

describe('a move that stops', () => {
  class Stopped extends Error {}

  test.each<[MoveStep]>([['prepared'], ['copied'], ['closed'], ['switched'], ['opened'], ['cleaned']])(
    'after the step %s continues when it is repeated, and loses nothing',
    async (last) => {
      const school = await schoolOn('node-1');
      await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
      const stopped = move(school, 'node-2', (step) => {
        if (step === last) throw new Stopped();
      });
      await expect(stopped).rejects.toThrow(Stopped);
      // In service, or closed. Never with two histories.
      const { status, data } = await school.admin.send<Student>('POST', '/api/students', {
        body: { first_name: 'Ada', last_name: unique('Moved') },
      });
      expect(status).toBe(last === 'closed' || last === 'switched' ? 503 : 201);
      const before = status === 201 ? await students(school) : undefined;
      if (last === 'cleaned') await expect(move(school, 'node-2')).resolves.toBeUndefined();
      else await move(school, 'node-2');
      const after = await students(school);
      if (before) expect(after).toEqual(before);
      if (status === 201) expect(after).toContain(data.last_name);
      expect(await schemasOn('node-2', school)).toEqual([school.schema]);
      await confirm(school);
      expect(await schemasOn('node-1', school)).toEqual([]);
      await school.admin.post('/api/students', { first_name: 'Still', last_name: 'Here' }, 201);
      expect(await subscriptionsOn('node-2', school)).toEqual([]);
      expect(await slotsOn('node-1', school)).toEqual([]);
      expect(await publicationsOn('node-1', school)).toEqual([]);
    },
  );

  test('before the school was closed can be canceled, and starts over later', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'copied') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await cancel(school, 'node-2');
    expect(await schemasOn('node-2', school)).toEqual([]);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    await move(school, 'node-2');
    expect(await students(school)).toHaveLength(1);
    await expect(cancel(school, 'node-2')).rejects.toThrow('is open on node-2');
    await confirm(school);
  });

  test.each<[ServerName, ServerName, MoveStep]>([
    ['node-1', 'node-2', 'closed'],
    ['node-1', 'node-2', 'switched'],
    ['home', 'node-1', 'switched'],
    ['node-1', 'home', 'closed'],
  ])('from %s to %s after the step %3$s can be canceled: the school is in service again', async (from, to, last) => {
    const school = await schoolOn(from);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, to, (step) => {
      if (step === last) throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await cancel(school, to);
    expect(await students(school)).toEqual(before);
    expect(await schemasOn(from, school)).toEqual([school.schema]);
    expect(await schemasOn(to, school)).toEqual([]);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    await service.operator.post(`/api/platform/tenants/${school.id}/suspend`, {}, 200);
    await service.operator.post(`/api/platform/tenants/${school.id}/activate`, {}, 200);
    await move(school, to);
    expect(await students(school)).toHaveLength(2);
    await confirm(school);
  });

  test('while the school was closed is neither continued to another server nor canceled from one', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'closed') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    for (const attempt of [() => move(school, 'home'), () => cancel(school, 'home')])
      await expect(attempt()).rejects.toThrow('A move of the school to node-2 has begun');
    expect(await rows('home', `select node_id from platform.tenant where id = ${school.id}`)).toEqual([
      { node_id: '1' },
    ]);
    await expect(confirm(school)).rejects.toThrow('not finished');
    expect(await schemasOn('node-1', school)).toEqual([`moved_${school.schema}`]);
    await move(school, 'node-2');
    await expect(cancel(school, 'home')).rejects.toThrow('The school is open on node-2, which is not home');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    expect(await students(school)).toHaveLength(1);
    await confirm(school);
  });

  test('before the school was closed does not begin to another server, whose rows would miss changes', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'copied') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    for (const attempt of [() => move(school, 'home'), () => cancel(school, 'home')])
      await expect(attempt()).rejects.toThrow('A move of the school to node-2 has begun');
    expect(await schemasOn('home', school)).toEqual([]);
    expect(await slotsOn('node-1', school)).toEqual([`school_move_${school.id}_2`]);
    const { data } = await school.admin.post<Student>(
      '/api/students',
      { first_name: 'Ada', last_name: unique('Moved') },
      201,
    );
    await cancel(school, 'node-2');
    await move(school, 'home');
    expect(await students(school)).toEqual([data.last_name]);
    await confirm(school);
  });

  test('to a node that was removed since leaves nothing that keeps the school from moving', async () => {
    const school = await schoolOn('node-1');
    const name = `school_move_${school.id}_99`;
    await rows('node-1', `create publication ${name} for tables in schema ${school.schema}`);
    await rows('node-1', `comment on publication ${name} is '12345'`);
    for (const slot of [name, 'pg_1_sync_2_12345', 'pg_1_sync_2_54321'])
      await rows('node-1', `select from pg_create_logical_replication_slot('${slot}', 'pgoutput')`);
    await move(school, 'node-2');
    expect(await publicationsOn('node-1', school)).toEqual([]);
    expect(await slotsOn('node-1', school)).toEqual([]);
    expect(await tableSlotsOn('node-1')).toEqual([{ slot_name: 'pg_1_sync_2_54321' }]);
    await rows('node-1', "select pg_drop_replication_slot('pg_1_sync_2_54321')");
    await confirm(school);
  });

  test('is not continued after a cancel that stopped, which is repeated instead', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'closed') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    // As a cancel that was killed leaves it.
    await withOwner(urls['node-2'], (client) => unsubscribe(client, `school_move_${school.id}_2`));
    await expect(move(school, 'node-2')).rejects.toThrow('The school is closed, and node-2 has no copy of it');
    await expect(cancel(school, 'home')).rejects.toThrow('A move of the school to node-2 has begun');
    await cancel(school, 'node-2');
    expect(await students(school)).toEqual(before);
    expect(await schemasOn('node-2', school)).toEqual([]);
    await move(school, 'node-2');
    expect(await students(school)).toEqual(before);
    await confirm(school);
  });

  test('is refused while two other servers have kept tables of the school, until the older ones are deleted', async () => {
    const school = await schoolOn('node-1');
    await move(school, 'node-2');
    // As after a move from the home that was not confirmed before the home was lost for some time.
    await rows('home', `create schema moved_${school.schema}`);
    for (const attempt of [() => move(school, 'node-1'), () => confirm(school), () => cancel(school, 'node-2')])
      await expect(attempt()).rejects.toThrow('Several servers have kept tables of this school: home, node-1.');
    await expect(confirm(school, 'node-2')).rejects.toThrow('node-2 has kept no tables of this school');
    await confirm(school, 'home');
    expect(await schemasOn('home', school)).toEqual([]);
    expect(await schemasOn('node-1', school)).toEqual([`moved_${school.schema}`]);
    await confirm(school);
    expect(await schemasOn('node-1', school)).toEqual([]);
    expect(await schemasOn('node-2', school)).toEqual([school.schema]);
    await school.admin.get('/api/students');
  });

  test('because its target is lost is canceled: the school has what it had when it was closed', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'switched') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await expect(cancel(school, 'node-2', true)).rejects.toThrow('The server node-2 answers');
    await whileDown('node-2', async () => {
      await expect(cancel(school, 'node-2')).rejects.toThrow('ECONNREFUSED');
      await cancel(school, 'node-2', true);
      expect(await students(school)).toEqual(before);
      await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    });
    // The server was not lost after all. Nobody is led to its copies, and they can be deleted.
    expect(await students(school)).toHaveLength(2);
    await cancel(school, 'node-2');
    expect(await schemasOn('node-2', school)).toEqual([]);
    await move(school, 'node-2');
    expect(await students(school)).toHaveLength(2);
    await confirm(school);
  });

  test('because its target hangs is canceled like one whose target is lost', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'closed') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await whileHung(async () => {
      await expect(cancel(school, 'node-2')).rejects.toThrow('The server node-2 does not answer');
      await cancel(school, 'node-2', true);
      expect(await students(school)).toEqual(before);
      await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
      expect(await slotsOn('node-1', school)).toEqual([]);
    });
    await cancel(school, 'node-2');
    expect(await schemasOn('node-2', school)).toEqual([]);
    expect(await students(school)).toHaveLength(2);
  });

  test('because its target is lost while tables are copied leaves no slot, and begins again when the target is back', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const row = `insert into ${school.schema}.counter (name, value) values ('held', 1)`;
    await rows('node-1', row);
    let held: Awaited<ReturnType<typeof holdRow>> | undefined;
    const stopped = move(school, 'node-2', async (step) => {
      // The copy of the table waits for this row.
      if (step === 'prepared') held = await holdRow('node-2', row);
    });
    const failed = expect(stopped).rejects.toThrow(/Connection terminated|not queryable|ECONNRESET/);
    await until(async () => {
      const copying = await rows(
        'node-2',
        `select from pg_stat_activity
         where backend_type = 'logical replication worker' and wait_event = 'transactionid'`,
      );
      return copying.length || undefined;
    });
    expect(await tableSlotsOn('node-1')).not.toEqual([]);
    await whileDown('node-2', async () => {
      await failed;
      await held?.release();
      await cancel(school, 'node-2', true);
      expect(await tableSlotsOn('node-1')).toEqual([]);
      expect(await slotsOn('node-1', school)).toEqual([]);
      expect(await publicationsOn('node-1', school)).toEqual([]);
    });
    // Its subscription is still there, without a slot.
    expect(await subscriptionsOn('node-2', school)).toHaveLength(1);
    await move(school, 'node-2');
    expect(await students(school)).toEqual(before);
    expect(await subscriptionsOn('node-2', school)).toEqual([]);
    expect(await tableSlotsOn('node-1')).toEqual([]);
    await confirm(school);
  });

  test('canceled before its subscription exists drops its replication slot', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'prepared') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await rows('node-1', `select from pg_create_logical_replication_slot('school_move_${school.id}_2', 'pgoutput')`);
    await cancel(school, 'node-2');
    expect(await slotsOn('node-1', school)).toEqual([]);
    expect(await publicationsOn('node-1', school)).toEqual([]);
  });

  test('is refused when the school was migrated since, until it is canceled and begun again', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'copied') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    // As if the copies were made with an earlier version.
    await rows('node-2', `select core.move_note('${school.schema}', ${school.id}, 1)`);
    await expect(move(school, 'node-2')).rejects.toThrow('was migrated');
    await school.admin.get('/api/students');
    await cancel(school, 'node-2');
    await move(school, 'node-2');
    await confirm(school);
  });

  test('because its process was killed continues when it is repeated', async () => {
    const school = await schoolOn('node-1');
    const args = ['tenant', 'move', school.subdomain, 'node-2'];
    const killed = startProgram('src/cli/main.ts', args, { DATABASE_URL: home });
    await until(async () => (await publicationsOn('node-1', school)).length || undefined);
    killed.kill('SIGKILL');
    await killed.ended;
    await until(() =>
      move(school, 'node-2').then(
        () => true as const,
        (error: unknown) => {
          // Until the server has noticed that the process is gone.
          if (error instanceof Error && error.message.startsWith('Another command')) return undefined;
          throw error;
        },
      ),
    );
    await school.admin.get('/api/students');
    await confirm(school);
  });
});

describe('a move never replaces', () => {
  test('a school that is open on its target, as after its server was restored to a moment before a move', async () => {
    const school = await schoolOn('node-1');
    await move(school, 'node-2');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    // As node-1 and the home were before the move.
    await pools['node-1'].query(
      `update platform.tenant set schema_version = core.move_version('moved_${school.schema}'), node_id = null
       where id = ${school.id};
       select core.move_note_remove('moved_${school.schema}');
       alter schema moved_${school.schema} rename to ${school.schema}`,
    );
    const nodeId = (name: string) => `(select id from platform.node where name = '${name}')`;
    const atHome = (name: string) =>
      pools.home.query(`update platform.tenant set node_id = ${nodeId(name)} where id = ${school.id}`);
    await atHome('node-1');
    await expect(move(school, 'node-2')).rejects.toThrow(
      `School ${school.id} (${school.subdomain}) is on node-2 with the claim 2, and open with an older one on node-1`,
    );
    expect(await rows('node-2', `select first_name from ${school.schema}.student`)).toEqual([{ first_name: 'Ada' }]);
    await atHome('node-2');
    await pools['node-1'].query('select core.move_close($1, id) from platform.node where is_this', [school.id]);
    expect(await students(school)).toHaveLength(1);
    await confirm(school);
  });

  test('a schema of the school that no move has created', async () => {
    const school = await schoolOn('node-1');
    await pools['node-2'].query(`create schema ${school.schema}; create table ${school.schema}.kept as select 1 as id`);
    await expect(move(school, 'node-2')).rejects.toThrow(`a schema ${school.schema} that no move has created`);
    expect(await rows('node-2', `select id from ${school.schema}.kept`)).toEqual([{ id: 1 }]);
    await pools['node-2'].query(`drop schema ${school.schema} cascade`);
    await move(school, 'node-2');
    await confirm(school);
  });
});

describe('a server without room for a move', () => {
  /** Sets how many tables node-2 copies at the same time. */
  const setTableWorkers = async (count: number) => {
    await rows('node-2', `alter system set max_sync_workers_per_subscription = ${count}`);
    await rows('node-2', 'select pg_reload_conf()');
    await until(async () => {
      const [now] = await rows('node-2', "select current_setting('max_sync_workers_per_subscription') as count");
      return now?.['count'] === String(count) || undefined;
    });
  };
  /** Nothing has begun, and the school is in service. */
  const expectNothing = async (school: School, from: ServerName, to: ServerName) => {
    expect(await schemasOn(to, school)).toEqual([]);
    expect(await publicationsOn(from, school)).toEqual([]);
    expect(await slotsOn(from, school)).toEqual([]);
    await school.admin.get('/api/students');
  };

  test('as its target: the move does not begin, and names the settings, their values and what is needed', async () => {
    const school = await schoolOn('node-1');
    const [found] = await rows('node-2', 'select count(*)::integer as count from pg_subscription where subenabled');
    const subscriptions = Number(found?.['count']);
    await rows('node-2', `alter system set max_logical_replication_workers = ${subscriptions + 1}`);
    await rows('node-2', `alter system set max_worker_processes = ${subscriptions + 2}`);
    try {
      await whileDown('node-2', () => Promise.resolve());
      await expect(move(school, 'node-2')).rejects.toThrow(
        `The settings of the server node-2 leave no room for the move: max_logical_replication_workers is ${subscriptions + 1}, and ` +
          `${subscriptions + 2} is needed; max_worker_processes is ${subscriptions + 2}, and ${subscriptions + 3} is needed.`,
      );
      await expectNothing(school, 'node-1', 'node-2');
    } finally {
      await rows('node-2', 'alter system reset max_logical_replication_workers');
      await rows('node-2', 'alter system reset max_worker_processes');
      await whileDown('node-2', () => Promise.resolve());
    }
    await move(school, 'node-2');
    await confirm(school);
  });

  test('as its source: the move does not begin', async () => {
    const school = await schoolOn('node-1');
    const [{ free } = { free: 0 }] = await rows(
      'node-1',
      `select current_setting('max_replication_slots')::integer - count(*)::integer as free from pg_replication_slots`,
    );
    await rows(
      'node-1',
      `select pg_create_physical_replication_slot('taken_' || n) from generate_series(2, ${String(free)}) n`,
    );
    try {
      await expect(move(school, 'node-2')).rejects.toThrow(
        'The settings of the server node-1 leave no room for the move: max_replication_slots is 10, and 11 is needed.',
      );
      await expectNothing(school, 'node-1', 'node-2');
    } finally {
      await rows(
        'node-1',
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name ~ '^taken_'",
      );
    }
  });

  test('that copies no table for some time: the move fails, and continues when it is repeated', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    try {
      const stalled = move(
        school,
        'node-2',
        async (step) => {
          if (step === 'prepared') await setTableWorkers(0);
        },
        { stallTimeoutMs: 300 },
      );
      await expect(stalled).rejects.toThrow(
        /^node-2 has copied no table of the school for 0\.3 s, and \d+ are missing\. Its log .* raise max_logical_replication_workers there, which is 20,/,
      );
      await expect(move(school, 'node-2')).rejects.toThrow('max_sync_workers_per_subscription is 0, and 1 is needed.');
      expect(await students(school)).toEqual(before);
    } finally {
      await setTableWorkers(2);
    }
    await move(school, 'node-2');
    expect(await students(school)).toEqual(before);
    await confirm(school);
  });

  test('is not one that copies a table for long: the move goes on', async () => {
    const school = await schoolOn('node-1');
    const row = `insert into ${school.schema}.counter (name, value) values ('held', 1)`;
    await rows('node-1', row);
    let held: Awaited<ReturnType<typeof holdRow>> | undefined;
    let [missing, changedAt] = [0, 0];
    const moved = move(
      school,
      'node-2',
      async (step) => {
        // The copy of the table waits for this row.
        if (step === 'prepared') held = await holdRow('node-2', row);
      },
      {
        stallTimeoutMs: 500,
        onProgress({ copied, total }) {
          if (total - copied !== missing) [missing, changedAt] = [total - copied, performance.now()];
        },
      },
    );
    // All others are copied meanwhile.
    const waited = until(() => (missing === 1 && performance.now() - changedAt > 700) || undefined);
    await Promise.race([waited, moved]);
    await held?.release();
    expect(missing).toBe(1);
    await moved;
    await confirm(school);
  });

  test('is what `school doctor` warns of', async () => {
    const check = (name: ServerName, wanted: number) =>
      rows(name, `select level, what, remedy from core.check_replication_workers(${wanted})`);
    expect(await check('home', 3)).toEqual([]);
    expect(await check('node-2', 18)).toEqual([]);
    expect(await check('node-2', 20)).toEqual([
      {
        level: 'warning',
        what: 'max_logical_replication_workers is 20, and subscriptions take 1 of them: 19 are left, fewer than 20.',
        remedy: 'alter system set max_logical_replication_workers = 21; -- then restart the server',
      },
      {
        level: 'warning',
        what: 'max_worker_processes is 20, and subscriptions take 2 of them: 18 are left, fewer than 20.',
        remedy: 'alter system set max_worker_processes = 22; -- then restart the server',
      },
    ]);
  });
});
