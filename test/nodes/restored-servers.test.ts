import { afterAll, expect, test } from '@jest/globals';
import { until } from '../support/client/until.ts';
import { startProgram } from '../support/server/processes.ts';
import { testPassword, unique } from '../support/server/service.ts';
import { type Fleet, type FleetApi, startApi, startHome } from './fleet.ts';
import {
  agrees,
  backup,
  check,
  commandAt,
  type CreatedSchool,
  createSchool,
  fleet,
  rows,
  run,
  started,
  verify,
} from './restores.ts';
import { removeServer, restore, serverUrl, startCopy } from './servers.ts';
import { keepWriting, type Student, students, type Writing } from './writing.ts';

const { withOwner } = shared;

const apis: FleetApi[] = [];
afterAll(() => Promise.all(apis.map((api) => api.stop())));

/** An administrator of each of these schools, who sends requests to an API process of this fleet. */
async function admins(servers: Fleet, schools: readonly CreatedSchool[]) {
  const api = await startApi(servers);
  apis.push(api);
  const anonymous = await shared.client(api.url);
  const logIn = ({ subdomain }: CreatedSchool) =>
    anonymous.login({ subdomain, email: `head@${subdomain}.example`, password: testPassword });
  return { api, schools: await Promise.all(schools.map(async (school) => ({ admin: await logIn(school) }))) };
}

/** Waits until clients go on writing. */
async function isWritten({ acknowledged }: Writing): Promise<void> {
  const count = acknowledged.length;
  await until(() => acknowledged.length > count + 5 || undefined);
}

/** Stops clients, and checks that each student that they were told of is there once. */
async function expectAll(writing: Writing): Promise<void> {
  const acknowledged = await writing.stop();
  // While home and node copy each other's tables again, requests may fail.
  for (const status of writing.statuses.keys()) expect([0, 201, 503]).toContain(status);
  const found = await students(writing);
  // Whether a name that is listed twice is one student on two pages, or two students.
  for (const name of new Set(found.filter((name, at) => found.indexOf(name) !== at)))
    expect((await writing.admin.get<Student[]>(`/api/students?search=${name}`)).data).toEqual([{ last_name: name }]);
  expect(found.filter((name) => acknowledged.includes(name)).sort()).toEqual(acknowledged.toSorted());
  expect(new Set(found).size).toBe(found.length);
}

/** Adds subjects to a school on whichever server has it open, until it is stopped. */
function writer(urls: readonly string[], { id }: CreatedSchool) {
  const acknowledged: string[] = [];
  const state = { isStopped: false };
  const write = async (url: string): Promise<boolean> =>
    withOwner(url, async (client) => {
      const { rowCount } = await client.query(
        'select from platform.tenant where id = $1 and node_id is null and schema_version > 0',
        [id],
      );
      if (rowCount !== 1) return false;
      const code = unique('S');
      await client.query("set lock_timeout = '2s'");
      await client.query('begin');
      await client.query('select pg_advisory_xact_lock_shared(core.tenant_lock_key($1))', [id]);
      await client.query(`insert into tenant_${String(id)}.subject (name, code) values ('Written', $1)`, [code]);
      await client.query('commit');
      acknowledged.push(code);
      return true;
    }).catch(() => false);
  const loop = (async () => {
    while (!state.isStopped) for (const url of urls) await write(url);
  })();
  return {
    acknowledged,
    async stop() {
      state.isStopped = true;
      await loop;
    },
  };
}

const subjects = async (url: string, { id }: CreatedSchool) =>
  (await rows(url, `select code from tenant_${String(id)}.subject where name = 'Written' order by code`)).map(
    ({ code }) => code,
  );
const violations = (url: string, { id }: CreatedSchool) =>
  rows(url, 'select invariant from core.find_violations($1)', [id]);

/** Moves a school while it is written to. @returns what was acknowledged */
async function moveUnderWrites(servers: Fleet, school: CreatedSchool, to: string): Promise<string[]> {
  const writing = writer([servers.home, ...servers.nodes.map(({ url }) => url)], school);
  const { acknowledged } = writing;
  await until(() => acknowledged.length > 5 || undefined);
  await run(servers.home, 'tenant', 'move', school.subdomain, to, '--home-url', servers.home);
  const atMove = acknowledged.length;
  await until(() => acknowledged.length > atMove + 5 || undefined);
  await writing.stop();
  return acknowledged.sort();
}

test('a home that was restored to a moment before a move and a creation destroys nothing, and is mended', async () => {
  const servers = await fleet();
  const { home, homeServer, east, west } = servers;
  const moved = await createSchool(home, '--node', 'west');
  await run(home, 'tenant', 'move', moved.subdomain, 'home');
  await run(home, 'tenant', 'move', moved.subdomain, '--confirm', '--yes');
  await check(home);
  const folder = await backup(homeServer);

  const acknowledged = await moveUnderWrites(servers, moved, 'east');
  const created = await createSchool(home, '--node', 'west');
  await agrees(home);
  await check(home, 2);
  await restore(homeServer, folder);

  const found = await verify(home);
  expect(found.code).toBe(1);
  expect(found.disagreements).toMatchObject([
    { id: moved.id, kind: 'open twice', server: 'east', others: ['home'] },
    { id: created.id, kind: 'missing in the directory', server: 'west', others: [] },
  ]);
  expect(found.findings.map(({ text }) => text)).toContainEqual(expect.stringContaining('older than node east'));

  // Nothing that could replace newer rows begins, also not as a job.
  for (const args of [
    ['tenant', 'move', moved.subdomain, 'east', '--home-url', home],
    ['tenant', 'move', moved.subdomain, 'west', '--home-url', home],
    ['tenant', 'create', 'too-early', '--name', 'Too Early', '--plan', '3', '--contact-email', 'a@b.example'],
    ['node', 'reconcile', '--yes', '--home-url', home],
    ['node', 'add', 'east', east.url],
    ['node', 'remove', 'west'],
    ['forwarder', 'create', 'early', serverUrl(east.server, 'postgres')],
  ]) {
    const refused = await commandAt(home, ...args);
    expect(refused).toMatchObject({ code: 1 });
    expect(refused.stderr).toContain('restored to an earlier moment');
  }

  await run(home, 'database', 'adopt', '--as', 'successor', '--yes');
  const moveTooEarly = await commandAt(home, 'tenant', 'move', moved.subdomain, 'west', '--home-url', home);
  expect(moveTooEarly).toMatchObject({ code: 1 });
  expect(moveTooEarly.stderr).toContain('school node reconcile');
  await run(home, 'node', 'reconcile', '--yes', '--home-url', home);
  await agrees(home);
  expect(await subjects(east.url, moved)).toEqual(acknowledged);
  expect(await violations(east.url, moved)).toEqual([]);
  expect(
    await rows(home, 'select n.name from platform.tenant t join platform.node n on n.id = t.node_id order by t.id'),
  ).toEqual([{ name: 'east' }, { name: 'west' }]);
  // The next school gets an id that no server has used.
  expect((await createSchool(home, '--node', 'west')).id).toBeGreaterThan(created.id);
  expect((await verify(home)).unconfirmed_moves).toMatchObject([{ id: moved.id, server: 'east', kept_on: 'home' }]);
  const kept = await commandAt(home, 'doctor', '--server', '--offline');
  expect(kept.stdout).toContain(`has kept the tables of a school that moved away: ${moved.subdomain}.`);
  expect(kept.stdout).toContain(`npm run school -- tenant move ${moved.subdomain} --confirm`);
  await run(home, 'tenant', 'move', moved.subdomain, '--confirm', '--yes');
  expect(await rows(home, `select nspname from pg_namespace where nspname ~ 'tenant_${String(moved.id)}$'`)).toEqual(
    [],
  );
  await run(home, 'tenant', 'move', moved.subdomain, 'west', '--home-url', home);
  expect(await subjects(west.url, moved)).toEqual(acknowledged);
});

test('a copy of the home beside it is noticed on both, and as a copy it takes no part', async () => {
  const servers = await fleet();
  const { home, homeServer, east } = servers;
  const school = await createSchool(home, '--node', 'east');
  const atHome = await createSchool(home, '--node', 'west');
  await run(home, 'tenant', 'move', atHome.subdomain, 'home', '--home-url', home);
  const { schools } = await admins(servers, [school, atHome]);
  const writings = schools.map(keepWriting);
  await check(home);
  const folder = await backup(homeServer);
  await check(home, 2);

  const copyServer = await startCopy(folder);
  started.push(copyServer);
  const copy = serverUrl(copyServer, 'school');
  // The copy takes the slots, and the home no longer gets changes, whichever of both was first.
  await rows(
    east.url,
    `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name ~ '^school_node_' and active`,
  );
  const hasTaken = async (url: string) => {
    const [node] = JSON.parse((await commandAt(url, 'node', 'list', '--json')).stdout) as { copies_to_home: string }[];
    return node?.copies_to_home;
  };
  await until(async () => {
    await rows(home, "select pg_terminate_backend(pid) from pg_stat_subscription where subname ~ '^school_node_'");
    return (await hasTaken(home)) === 'taken by another database' || undefined;
  });
  expect((await commandAt(home, 'doctor', '--server', '--offline')).stdout).toMatch(
    /The subscription school_node_\d copies nothing: .* or another database uses it/,
  );
  expect(await moveRefused(home, school)).toContain('restored to an earlier moment');

  // The worker of the copy would send emails again. It does not start, and the copy creates no school.
  const fields = ['--name', 'Copy', '--plan', '3', '--contact-email', 'a@b.example'];
  const createOnCopy = () => commandAt(copy, 'tenant', 'create', 'on-the-copy', ...fields);
  const created = await createOnCopy();
  expect(created).toMatchObject({ code: 1 });
  const worker = startProgram('src/main.ts', ['--only', 'worker'], { DATABASE_URL: copy });
  await until(() => worker.output().includes('The worker of home does not run') || undefined);
  worker.kill('SIGTERM');
  await worker.ended;

  await run(copy, 'database', 'adopt', '--as', 'copy', '--yes');
  expect(await rows(copy, "select from pg_subscription where subname ~ '^school_'")).toEqual([]);
  await until(async () => (await hasTaken(home)) === 'copying' || undefined);
  const refused = await createOnCopy();
  expect(refused.stderr).toContain('is a copy');
  // The home goes on, and gets what the copy has read.
  await check(home);
  await run(home, 'node', 'reconcile', '--yes', '--home-url', home);
  await agrees(home);
  await createSchool(home, '--node', 'east');
  await Promise.all(writings.map(isWritten));
  for (const writing of writings) await expectAll(writing);
  await agrees(home);
}, 300_000);

/** The refusal of a move. */
async function moveRefused(home: string, { id, subdomain }: CreatedSchool): Promise<string> {
  // The home does not learn of this any more.
  const [{ url } = { url: '' }] = (await rows(home, "select url from platform.node where name = 'east'")) as {
    url: string;
  }[];
  await rows(url, 'select core.raise_claim($1, 0)', [id]);
  const refused = await commandAt(home, 'tenant', 'move', subdomain, 'home', '--home-url', home);
  expect(refused).toMatchObject({ code: 1 });
  return refused.stderr;
}

test('a node that was restored to a moment before a school left it keeps its rows aside', async () => {
  const servers = await fleet();
  const { home, east, west } = servers;
  const school = await createSchool(home, '--node', 'east');
  await check(home);
  const folder = await backup(east.server);
  const acknowledged = await moveUnderWrites(servers, school, 'west');
  await run(home, 'tenant', 'move', school.subdomain, '--confirm', '--yes');
  await check(home, 2);
  await restore(east.server, folder);

  const added = await commandAt(home, 'node', 'add', 'east', east.url);
  expect(added).toMatchObject({ code: 1 });
  expect(added.stderr).toContain('school node verify');
  const refused = await commandAt(home, 'tenant', 'move', school.subdomain, 'east', '--home-url', home);
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.stderr).toContain('east is older than the home remembers it');

  await run(east.url, 'database', 'adopt', '--as', 'successor', '--yes');
  await run(home, 'node', 'reconcile', '--yes', '--home-url', home);
  await agrees(home);
  expect(await subjects(west.url, school)).toEqual(acknowledged);
  expect(await rows(east.url, "select nspname from pg_namespace where nspname ~ '^(moved_)?tenant_'")).toEqual([
    { nspname: `moved_tenant_${String(school.id)}` },
  ]);
  await run(home, 'tenant', 'move', school.subdomain, '--confirm', '--yes');
  await run(home, 'tenant', 'move', school.subdomain, 'east', '--home-url', home);
  expect(await subjects(east.url, school)).toEqual(acknowledged);
});

test('a home and a node that were both restored to different moments are brought together', async () => {
  const servers = await fleet();
  const { home, homeServer, east, west } = servers;
  const first = await createSchool(home, '--node', 'east');
  await check(home);
  const earlyHome = await backup(homeServer);
  const acknowledged = await moveUnderWrites(servers, first, 'west');
  const second = await createSchool(home, '--node', 'east');
  await agrees(home);
  const lateEast = await backup(east.server);
  await run(home, 'tenant', 'move', second.subdomain, 'west', '--home-url', home);
  await check(home, 3);
  await restore(homeServer, earlyHome);
  await restore(east.server, lateEast);

  for (const url of [home, east.url]) await run(url, 'database', 'adopt', '--as', 'successor', '--yes');
  await run(home, 'node', 'reconcile', '--yes', '--home-url', home);
  await agrees(home);
  expect(await subjects(west.url, first)).toEqual(acknowledged);
  const nodes = await rows(
    home,
    'select t.id::integer, n.name from platform.tenant t join platform.node n on n.id = t.node_id order by t.id',
  );
  expect(nodes).toEqual([
    { id: first.id, name: 'west' },
    { id: second.id, name: 'west' },
  ]);
});

test('a lost home without a backup is built again from its nodes', async () => {
  const servers = await fleet();
  const { home: lost, homeServer, east, west } = servers;
  const schools = [await createSchool(lost, '--node', 'east'), await createSchool(lost, '--node', 'west')];
  await run(lost, 'operator', 'create', 'root@platform.example', '--json');
  const plan = await rows(
    lost,
    'insert into platform.plan select (jsonb_populate_record(p, \'{"id": 77, "name": "Rare"}\')).* from platform.plan p where id = 3 returning name',
  );
  expect(plan).toEqual([{ name: 'Rare' }]);
  await until(async () => (await rows(west.url, 'select from platform.plan where id = 77')).length || undefined);
  const { api, schools: clients } = await admins(servers, schools);
  const writings = clients.map(keepWriting);
  await Promise.all(writings.map(isWritten));
  await removeServer(homeServer);

  const { home, homeServer: newServer } = await startHome();
  started.push(newServer);
  for (const { name, url } of [east, west])
    await run(home, 'node', 'add', name, url, '--take-over', '--home-url', home);
  await run(home, 'node', 'reconcile', '--yes', '--home-url', home);
  await agrees(home);
  expect(
    await rows(
      home,
      'select t.subdomain, n.name from platform.tenant t join platform.node n on n.id = t.node_id order by t.id',
    ),
  ).toEqual([
    { subdomain: schools[0]?.subdomain, name: 'east' },
    { subdomain: schools[1]?.subdomain, name: 'west' },
  ]);
  expect(await rows(home, 'select name from platform.plan where id = 77')).toEqual(plan);
  expect(await rows(home, 'select email from platform.user_account')).toEqual([{ email: 'root@platform.example' }]);
  expect((await createSchool(home, '--node', 'east')).id).toBeGreaterThan(schools[1]?.id ?? 0);
  await run(home, 'forwarder', 'create', 'api', api.forwarder, '--home-url', home);
  await Promise.all(writings.map(isWritten));
  for (const writing of writings) await expectAll(writing);
  await agrees(home);
}, 300_000);
