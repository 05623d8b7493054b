import { afterAll, describe, expect, test } from '@jest/globals';
import { confirmMove } from '../../src/servers/moves/confirm.ts';
import { moveSchool } from '../../src/servers/moves/move.ts';
import { refreshCopies } from '../../src/servers/nodes/copies.ts';
import { readNodes } from '../../src/servers/nodes/nodes.ts';
import { until } from '../support/client/until.ts';
import { analystOf, askGraphql } from '../support/fixtures/analysts.ts';
import { startProgram } from '../support/server/processes.ts';
import { type School, serviceOfFile, unique } from '../support/server/service.ts';
import { schoolOn, type ServerName } from './schools.ts';
import { servers } from './servers.ts';

const { home, nodes } = servers();
const { withOwner, pg } = shared;
const service = await serviceOfFile();

const urls = { home, 'node-1': nodes[0]?.url ?? '', 'node-2': nodes[1]?.url ?? '' };
const pools = Object.fromEntries(
  Object.entries(urls).map(([name, connectionString]) => [name, new pg.Pool({ connectionString, max: 2 })]),
) as Record<ServerName, InstanceType<typeof pg.Pool>>;
afterAll(() => Promise.all(Object.values(pools).map((pool) => pool.end())));

const rows = async (name: ServerName, text: string) => (await pools[name].query<Record<string, unknown>>(text)).rows;
const command = (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home }).ended;

/** Adds a class, and refreshes the facts of the school on its server. */
async function addClass(school: School, name: ServerName): Promise<number> {
  const { classId } = await school.classroom(unique('Class'));
  await rows(name, `select core.analytics_refresh(${school.id}, true)`);
  return classId;
}

/** The facts of a school at home: its classes, in their order. */
const classesAtHome = async ({ id }: School) =>
  (await rows('home', `select class_id::integer as id from mart.class where tenant_id = ${id} order by 1`)).map(
    (row) => row['id'],
  );

const classesArrive = (school: School, classIds: number[]) =>
  until(async () => JSON.stringify(await classesAtHome(school)) === JSON.stringify(classIds) || undefined);

test('every table that a node sends to the home ignores rows of schools that the node does not hold', async () => {
  const unguarded = await rows(
    'home',
    `select r.srrelid::regclass::text as name
     from pg_subscription_rel r
     where not exists (
         select from pg_trigger t
         where t.tgrelid = r.srrelid and t.tgname in ('accept_copy', 'accept_fact') and t.tgenabled = 'R')
       or not exists (
         select from pg_trigger t
         where t.tgrelid = r.srrelid and t.tgname = 'refuse_copied_truncate' and t.tgenabled = 'R')`,
  );
  expect(unguarded).toEqual([]);
  const copied = await rows('home', 'select distinct srrelid::regclass::text as name from pg_subscription_rel');
  const facts = await rows(
    'home',
    "select format('mart.%s', relname) as name from core.relations_in('mart') where relkind = 'r'",
  );
  expect(copied.map(({ name }) => name)).toEqual(
    expect.arrayContaining(['platform.tenant', 'platform.usage_day', ...facts.map(({ name }) => name)]),
  );
});

describe('analysts and operators', () => {
  test('see the facts of schools on nodes, and analysts only those of their schools', async () => {
    const east = await schoolOn(service, 'node-1');
    const west = await schoolOn(service, 'node-2');
    const ofEast = await addClass(east, 'node-1');
    const ofWest = await addClass(west, 'node-2');
    await classesArrive(east, [ofEast]);
    await classesArrive(west, [ofWest]);
    const ask = async (tenantIds: number[] | null) => {
      const { token } = await analystOf(service, tenantIds);
      const { data } = await askGraphql<{
        tenants: {
          nodes: { tenantId: string; refreshedAt: string | null; classes: { nodes: { classId: string }[] } }[];
        };
      }>(service, token, '{ tenants { nodes { tenantId refreshedAt classes { nodes { classId } } } } }');
      return data.tenants.nodes
        .filter(({ tenantId }) => [east.id, west.id].includes(Number(tenantId)))
        .map(({ tenantId, refreshedAt, classes }) => [
          Number(tenantId),
          refreshedAt !== null,
          ...classes.nodes.map(({ classId }) => Number(classId)),
        ]);
    };
    expect(await ask([east.id])).toEqual([[east.id, true, ofEast]]);
    expect(await ask([west.id])).toEqual([[west.id, true, ofWest]]);
    const ofAll = await ask(null);
    expect(ofAll).toHaveLength(2);
    expect(ofAll).toEqual(
      expect.arrayContaining([
        [east.id, true, ofEast],
        [west.id, true, ofWest],
      ]),
    );
  });

  test('see the usage of schools on nodes', async () => {
    const school = await schoolOn(service, 'node-2');
    await rows('node-2', `select core.record_requests('{${school.id}}', '{41}')`);
    await rows('node-2', `select core.record_requests('{${school.id}}', '{1}')`);
    await until(async () => {
      const { data } = await service.operator.get<{ days: { requests: number | null }[] }>(
        `/api/platform/usage?tenant_id=${school.id}`,
      );
      // The requests of this test are counted too.
      return (data.days.at(-1)?.requests ?? 0) >= 42 || undefined;
    });
  });
});

test('a node cannot write, change or delete facts of a school that is elsewhere', async () => {
  const own = await schoolOn(service, 'node-1');
  const other = await schoolOn(service, 'node-2');
  const atHome = await schoolOn(service, 'home');
  const classId = await addClass(other, 'node-2');
  await classesArrive(other, [classId]);
  await rows('node-2', `select core.record_requests('{${other.id}}', '{7}')`);
  await until(async () => (await rows('home', `select from platform.usage_day where tenant_id = ${other.id}`))[0]);
  const facts = async () =>
    rows(
      'home',
      `select to_jsonb(c) as fact from mart.class c where tenant_id in (${other.id}, ${atHome.id})
       union all
       select to_jsonb(u) - '{requests,updated_at}'::text[] from platform.usage_day u
       where tenant_id in (${other.id}, ${atHome.id})
       order by 1`,
    );
  const before = await facts();

  // Its superuser can write what he likes on the node.
  for (const { id } of [other, atHome]) {
    await rows('node-1', `insert into mart.class values (${id}, ${classId}, 1, 'forged', 'F', 1)`);
    await rows('node-1', `insert into mart.class values (${id}, 987, 1, 'forged', 'F', 1)`);
    await rows('node-1', `update mart.class set grade = 'changed' where tenant_id = ${id}`);
    await rows('node-1', `delete from mart.class where tenant_id = ${id}`);
  }
  await rows(
    'node-1',
    `begin;
     set local session_replication_role = replica;
     insert into platform.usage_day (tenant_id, date, students) values (${other.id}, current_date - 3, 99);
     insert into mart.class values (${own.id}, 11, 1, 'own', 'O', 1);
     update mart.class set tenant_id = ${other.id} where tenant_id = ${own.id};
     insert into mart.class values (${own.id}, 12, 1, 'own', 'O', 1);
     commit`,
  );
  await classesArrive(own, [11, 12]);
  expect(await facts()).toEqual(before);
  const [{ changes } = {}] = await rows(
    'node-1',
    "select format('%s %s', pubtruncate, pubdelete) as changes from pg_publication where pubname = 'school_facts'",
  );
  expect(changes).toBe('f t');
});

describe('the facts of a school that moves', () => {
  test.each<[ServerName, ServerName]>([
    ['node-1', 'node-2'],
    ['home', 'node-1'],
    ['node-2', 'home'],
  ])('from %s to %s are there once, before, after and when its earlier server has deleted them', async (from, to) => {
    const school = await schoolOn(service, from);
    const first = await addClass(school, from);
    await rows(from, `select core.record_requests('{${school.id}}', '{5}')`);
    await classesArrive(school, [first]);
    const usage = () =>
      rows('home', `select date::text, students, messages from platform.usage_day where tenant_id = ${school.id}`);
    await until(async () => (await usage())[0]);
    const usageBefore = await usage();

    await withOwner(home, (client) => moveSchool(client, { homeUrl: home, school: school.id, to }));
    expect(await classesAtHome(school)).toEqual([first]);
    const second = await addClass(school, to);
    await classesArrive(school, [first, second]);
    await withOwner(home, (client) => confirmMove(client, { homeUrl: home, school: school.id }));
    if (from !== 'home') {
      expect(await rows(from, `select from mart.class where tenant_id = ${school.id}`)).toEqual([]);
      // What the earlier node sends after its deletions has arrived, and so have they.
      const marker = await schoolOn(service, from);
      await classesArrive(marker, [await addClass(marker, from)]);
    }
    const third = await addClass(school, to);
    await classesArrive(school, [first, second, third]);
    expect(await usage()).toEqual(usageBefore);
  });
});

test('a node that joined with an earlier release sends its facts after `node refresh`', async () => {
  const school = await schoolOn(service, 'node-1');
  // As an earlier release left it.
  await rows('node-1', 'alter publication school_facts drop table mart.class, platform.usage_day');
  await withOwner(home, async (client) => {
    await client.query('alter subscription school_node_1 refresh publication');
  });
  const classId = await addClass(school, 'node-1');
  // The home had the school before, with a class that has gone since.
  await rows('home', `insert into mart.class values (${school.id}, 987, 1, 'old', 'O', 1)`);
  await rows('node-1', 'select core.define_publications()');

  const moved = withOwner(home, (client) => moveSchool(client, { homeUrl: home, school: school.id, to: 'node-2' }));
  await expect(moved).rejects.toThrow('school node refresh node-1');

  const { code, stdout } = await command('node', 'refresh', '--json');
  expect(code).toBe(0);
  expect(
    stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown),
  ).toEqual([
    { name: 'node-1', tables: ['mart.class', 'platform.usage_day'] },
    { name: 'node-2', tables: [] },
  ]);
  expect(await classesAtHome(school)).toEqual([classId]);
  const next = await addClass(school, 'node-1');
  await classesArrive(school, [classId, next]);
  expect((await command('node', 'refresh', 'nowhere')).stderr).toContain('There is no node nowhere');
});

describe('a school that moves', () => {
  const node = async (name: string) => {
    const found = (await withOwner(home, readNodes)).find((each) => each.name === name);
    if (!found) throw new Error(`There is no node ${name}.`);
    return found;
  };
  const refresh = async (name: string) => {
    const { id, url } = await node(name);
    return withOwner(home, (client) => refreshCopies(client, { id, url }, 60_000));
  };
  /** As before the release that adds the table mart.class. */
  const stopCopying = async (name: 'node-1' | 'node-2') => {
    await rows(name, 'alter publication school_facts drop table mart.class');
    const { id } = await node(name);
    await withOwner(home, (client) => client.query(`alter subscription school_node_${id} refresh publication`));
  };

  test('is not closed while the home does not copy a table that was added meanwhile, and moves when it does', async () => {
    const school = await schoolOn(service, 'node-1');
    const names = ['node-1', 'node-2'] as const;
    for (const name of names) await stopCopying(name);
    let classId: number | undefined;
    const move = () =>
      withOwner(home, (client) =>
        moveSchool(client, {
          homeUrl: home,
          school: school.id,
          to: 'node-2',
          async onStep(step) {
            if (step !== 'copied' || classId !== undefined) return;
            // As the migration of a release that adds the table.
            for (const name of names) await rows(name, 'select core.define_publications()');
            classId = await addClass(school, 'node-1');
          },
        }),
      );
    await expect(move()).rejects.toThrow('school node refresh node-1');
    await school.admin.get('/api/classes');
    for (const name of names) expect(await refresh(name)).toEqual(['mart.class']);
    await move();
    expect(await classesAtHome(school)).toEqual([classId]);
    await withOwner(home, (client) => confirmMove(client, { homeUrl: home, school: school.id }));
    const next = await addClass(school, 'node-2');
    await classesArrive(school, [classId ?? 0, next]);
  });

  test('keeps `node refresh` waiting while it is closed', async () => {
    const school = await schoolOn(service, 'node-1');
    let isRefreshed = false;
    let refreshing: Promise<unknown> | undefined;
    await withOwner(home, (client) =>
      moveSchool(client, {
        homeUrl: home,
        school: school.id,
        to: 'node-2',
        async onStep(step) {
          if (step !== 'closed') return;
          await stopCopying('node-2');
          // As the migration of a release that adds the table.
          await rows('node-2', 'select core.define_publications()');
          refreshing = refresh('node-2').then(() => (isRefreshed = true));
          await until(async () => {
            const waiting = await rows('home', "select from pg_locks where locktype = 'advisory' and not granted");
            return waiting.length === 1 || undefined;
          });
          expect(isRefreshed).toBe(false);
        },
      }),
    );
    await refreshing;
    expect(isRefreshed).toBe(true);
    await withOwner(home, (client) => confirmMove(client, { homeUrl: home, school: school.id }));
  });
});
