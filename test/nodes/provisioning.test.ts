import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import { nodeStates } from '../../src/servers/nodes/check.ts';
import { releaseReservations } from '../../src/servers/nodes/new-schools.ts';
import { until } from '../support/client/until.ts';
import { freePort, type Program, startProgram } from '../support/server/processes.ts';
import { serviceOfFile, testJwtSecret, testPassword } from '../support/server/service.ts';
import { newSchool } from './schools.ts';
import { servers, startServer, stopServer } from './servers.ts';

const { home, forwarder, nodes } = servers();
const { withOwner, pg } = shared;
const service = await serviceOfFile();
const [node] = nodes;
if (!node) throw new Error('There is no node.');

const pools = { home: pool(home), node: pool(node.url), forwarder: pool(forwarder) };
type Place = keyof typeof pools;
afterAll(() => Promise.all(Object.values(pools).map((each) => each.end())));

function pool(connectionString: string) {
  const opened = new pg.Pool({ connectionString, max: 2, application_name: 'test' });
  opened.on('error', () => undefined);
  return opened;
}

const rows = async (place: Place, text: string, values: unknown[] = []) =>
  (await pools[place].query<Record<string, unknown>>(text, values)).rows;

const school = (...args: string[]) =>
  startProgram('src/cli/main.ts', args, { DATABASE_URL: home, ADMIN_PASSWORD: testPassword });

/** Something that creates a school and can be killed. */
interface Creation {
  program: Program;
  /** What it has reported; undefined if it was killed before that. */
  report: Promise<{ isCreated: boolean; text: string } | undefined>;
}

/** `school tenant create` */
function byCommand({ subdomain, name, contact_email }: ReturnType<typeof newSchool>): Promise<Creation> {
  const options = ['--name', name, '--plan', '3', '--contact-email', contact_email, '--node', 'node-1', '--json'];
  const program = school('tenant', 'create', subdomain, ...options);
  programs.push(program);
  const report = program.ended.then(({ code, signal, stdout, stderr }) =>
    signal === null ? { isCreated: code === 0, text: stdout + stderr } : undefined,
  );
  return Promise.resolve({ program, report });
}

/** An API process of its own, and a request to it. */
async function byApi(body: ReturnType<typeof newSchool>): Promise<Creation> {
  const port = await freePort();
  const program = startProgram('src/main.ts', ['--only', 'api'], {
    ...service.settings,
    DATABASE_URL: home,
    PORT: String(port),
    NODE_ENV: 'test',
    JWT_SECRETS: testJwtSecret,
    MIGRATE_ON_START: 'false',
  });
  programs.push(program);
  const url = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(`${url}/api/health`).catch(() => undefined))?.ok === true || undefined);
  const report = fetch(`${url}/api/platform/tenants`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.operator.token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  }).then(
    async (response) => ({ isCreated: response.status === 201, text: `${response.status} ${await response.text()}` }),
    () => undefined,
  );
  return { program, report };
}

const held: { release: () => Promise<void> }[] = [];
const programs: Program[] = [];
afterEach(async () => {
  for (const program of programs.splice(0)) program.kill('SIGKILL');
  for (const { release } of held.splice(0)) await release();
});

/** Holds a lock until `release`, or the end of the test. */
async function lock(place: Place, table: string): Promise<{ release: () => Promise<void> }> {
  const client = await pools[place].connect();
  client.on('error', () => undefined);
  await client.query(`begin; lock table ${table} in share row exclusive mode`);
  let isReleased = false;
  const one = {
    async release() {
      if (isReleased) return;
      isReleased = true;
      await client.query('rollback').catch(() => undefined);
      client.release(true);
    },
  };
  held.push(one);
  return one;
}

/** Waits until something on the server waits for a lock. */
const isBlocked = (place: Place) =>
  until(async () => {
    const waiting = await rows(
      place,
      `select from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock'
         and application_name similar to 'school_(owner|forwarder)%'`,
    );
    return waiting.length > 0 || undefined;
  });

/** Waits until no statement of a creation runs any more: a backend goes on for a while after its client was killed. */
const isOver = (place: Place) =>
  until(async () => {
    const running = await rows(
      place,
      `select from pg_stat_activity
       where datname = current_database() and backend_type = 'client backend' and state <> 'idle'
         and application_name similar to 'school_(owner|forwarder|api)%'`,
    ).catch(() => [{}]);
    return running.length === 0 || undefined;
  });

/** The points at which a creation stops: the lock that it waits for, in the order of the steps. */
const steps: [string, Place, string][] = [
  ['before the home has reserved it', 'home', 'platform.tenant'],
  ['before the node begins', 'node', 'platform.tenant'],
  ['before the node commits', 'node', 'platform.audit_log'],
];

/** The state of a school: at home, and on the node. */
async function stateOf(subdomain: string) {
  const [atHome] = await rows(
    'home',
    'select t.id::double precision as id, t.status, core.is_reserved(t) as reserved from platform.tenant t where subdomain = $1',
    [subdomain],
  );
  const [onNode] = await rows(
    'node',
    "select id::double precision as id, to_regnamespace('tenant_' || id) is not null as has_schema from platform.tenant where subdomain = $1",
    [subdomain],
  );
  return { atHome, onNode };
}

/**
 * Checks that there is a whole school or nothing. A reservation is listed, and freed by the command.
 * @returns whether there is a school
 */
async function isWhole(body: ReturnType<typeof newSchool>): Promise<boolean> {
  // The forwarder goes on without its client, from the home to the node.
  await isOver('forwarder');
  await Promise.all([isOver('home'), isOver('node')]);
  const { subdomain, contact_email: email } = body;
  const { onNode } = await stateOf(subdomain);
  if (onNode) {
    expect(onNode['has_schema']).toBe(true);
    await until(async () => (await stateOf(subdomain)).atHome?.['status'] === 'active' || undefined);
    await until(async () => {
      const login = { subdomain, email, password: testPassword };
      return (await service.anonymous.send('POST', '/api/auth/login', { body: login })).status === 200 || undefined;
    });
    return true;
  }
  const { atHome } = await stateOf(subdomain);
  if (atHome) {
    expect(atHome['reserved']).toBe(true);
    const [listed] = await withOwner(home, nodeStates);
    expect(listed).toMatchObject({ name: 'node-1', reserved: 1, isReachable: true });
    // A creation that may still be running keeps its reservation.
    expect(await withOwner(home, (client) => releaseReservations(client, 10))).toEqual([]);
    expect(await withOwner(home, (client) => releaseReservations(client, 0))).toEqual([
      { id: atHome['id'], subdomain, node: 'node-1', outcome: 'released' },
    ]);
    expect((await stateOf(subdomain)).atHome).toBeUndefined();
  }
  await service.operator.post('/api/platform/tenants', body, 201);
  return false;
}

/** All schools go to the first node, so that the test knows where they are. */
await withOwner(home, (client) => client.query("update platform.node set status = 'draining' where name <> 'node-1'"));
afterAll(() =>
  withOwner(home, (client) => client.query("update platform.node set status = 'active' where status = 'draining'")),
);

describe.each([
  ['the command', byCommand],
  ['the API', byApi],
])('a school that %s creates', (_creator, create) => {
  test.each(steps)('is whole or not there after kill -9 %s', async (_step, place, table) => {
    const body = newSchool();
    const taken = await lock(place, table);
    const { program, report } = await create(body);
    await isBlocked(place);
    program.kill('SIGKILL');
    expect(await report).toBeUndefined();
    await taken.release();
    await isWhole(body);
  });

  test.each(steps)(
    'is whole or not there, as it reports, after a crash of the node %s',
    async (_step, place, table) => {
      const body = newSchool();
      const taken = await lock(place, table);
      const { program, report } = await create(body);
      await isBlocked(place);
      await stopServer(node.server);
      await taken.release();
      const reported = await report;
      program.kill('SIGKILL');
      await startServer(node.server);
      expect(reported?.isCreated).toBe(false);
      expect(reported?.text).toMatch(/unavailable|school node release|No school was created/);
      expect(await isWhole(body)).toBe(false);
    },
  );

  test('is there after kill -9 and a crash of the node once the node has committed', async () => {
    const body = newSchool();
    const onNode = await lock('node', 'platform.audit_log');
    const { program } = await create(body);
    await isBlocked('node');
    // The home cannot apply its copy of the school.
    const atHome = await lock('home', 'platform.tenant');
    await onNode.release();
    await until(async () => (await stateOf(body.subdomain)).onNode);
    program.kill('SIGKILL');
    await stopServer(node.server);
    await startServer(node.server);
    await atHome.release();
    expect(await isWhole(body)).toBe(true);
  });
});

test('a creation that is canceled on the node leaves nothing', async () => {
  const body = newSchool();
  const taken = await lock('node', 'platform.audit_log');
  const { report } = await byCommand(body);
  await isBlocked('node');
  await rows(
    'node',
    "select pg_cancel_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'school_owner'",
  );
  const reported = await report;
  await taken.release();
  expect(reported).toMatchObject({ isCreated: false, text: expect.stringContaining('canceling statement') });
  expect(await stateOf(body.subdomain)).toEqual({ atHome: undefined, onNode: undefined });
});

test.each([
  [
    'a new school',
    'select from core.school_reserve($1, $2)',
    ({ name, subdomain, contact_email, plan_id }: ReturnType<typeof newSchool>) => ({
      name,
      subdomain,
      contact_email,
      plan_id,
    }),
  ],
  [
    'an import',
    'select from core.archive_reserve($1, $2)',
    ({ name, subdomain, contact_email }: ReturnType<typeof newSchool>) => ({
      plan: 'Basic',
      tenant: { id: 987_654_321, name, subdomain, contact_email, created_at: '2020-01-02T03:04:05Z' },
    }),
  ],
])('%s does not get a node whose removal has begun meanwhile', async (_what, text, fields) => {
  const body = newSchool();
  const removal = await pools.home.connect();
  try {
    // As removeNode does.
    await removal.query("begin; select from platform.node where name = 'node-1' for update");
    await removal.query("update platform.node set status = 'joining' where name = 'node-1'");
    const reserved = withOwner(home, (client) => client.query(text, [JSON.stringify(fields(body)), 'node-1'])).then(
      () => 'reserved',
      (error: unknown) => String(error),
    );
    await isBlocked('home');
    await removal.query('commit');
    expect(await reserved).toContain('The node of the new school is being removed.');
    expect((await stateOf(body.subdomain)).atHome).toBeUndefined();
  } finally {
    await removal.query("rollback; update platform.node set status = 'active' where name = 'node-1'");
    removal.release();
  }
});

test('a reservation whose node does not answer is kept', async () => {
  const { subdomain, ...fields } = newSchool();
  await rows('home', 'select from core.school_reserve($1)', [JSON.stringify({ subdomain, ...fields })]);
  await stopServer(node.server);
  const kept = await school('node', 'release', '--older-than', '0').ended;
  await startServer(node.server);
  expect(kept).toMatchObject({
    code: 1,
    stdout: `${subdomain} (node-1) stays reserved, because its node does not answer.\n`,
  });
  await until(async () => (await rows('node', 'select 1').catch(() => undefined)) && true);
  const freed = await school('node', 'release', '--older-than', '0').ended;
  expect(freed).toMatchObject({ code: 0, stdout: `${subdomain} (node-1) is free again.\n` });
});
