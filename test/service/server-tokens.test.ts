import { expect, test } from '@jest/globals';
import { serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { startProgram } from '../support/server/processes.ts';

const service = await serviceOfFile();
const { database } = service;
/** Its database becomes a copy. */
const own = await serviceOfFile();

/** What another server remembers. */
interface Token {
  counter: number;
  token: string | null;
  earlier_token: string | null;
  is_adopted?: boolean;
}

const uuid = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`;

/** Exchanges a token as a node does with its home. */
async function exchange(server: string, other: Token, token: string | null) {
  const [result] = await database.query<{ outcome: string; counter: number }>(
    `select outcome, counter::integer
     from core.exchange_token('home', $1, json_populate_record(null::platform.server_token, $2), $3)`,
    [server, JSON.stringify({ server, is_adopted: false, ...other }), token],
  );
  return result;
}

/** What this server remembers of another one. */
async function remembers(server: string, { counter, token, earlier_token, is_adopted = false }: Token) {
  await database.query(
    `insert into platform.server_token (server, counter, token, earlier_token, is_adopted) values ($1, $2, $3, $4, $5)`,
    [server, counter, token, earlier_token, is_adopted],
  );
}

const nothing: Token = { counter: 0, token: null, earlier_token: null };

test('two servers that meet for the first time agree, and then only on their last token', async () => {
  const home = unique('home');
  expect(await exchange(home, nothing, uuid(1))).toEqual({ outcome: 'accepted', counter: 1 });
  expect(await exchange(home, { counter: 1, token: uuid(1), earlier_token: null }, uuid(2))).toEqual({
    outcome: 'accepted',
    counter: 2,
  });
  // A server that was created anew, or restored to a moment before they met.
  expect(await exchange(home, nothing, uuid(3))).toMatchObject({ outcome: 'other_behind' });
});

test('a server that lacks the last renewal is accepted, on either side', async () => {
  const home = unique('home');
  await remembers(home, { counter: 7, token: uuid(7), earlier_token: uuid(6) });
  expect(await exchange(home, { counter: 6, token: uuid(6), earlier_token: uuid(5) }, null)).toMatchObject({
    outcome: 'accepted',
  });
  const node = unique('node');
  await remembers(node, { counter: 6, token: uuid(6), earlier_token: uuid(5) });
  expect(await exchange(node, { counter: 7, token: uuid(7), earlier_token: uuid(6) }, uuid(8))).toEqual({
    outcome: 'accepted',
    counter: 8,
  });
});

test.each<[string, Token, Token, string]>([
  [
    'the other one, restored',
    { counter: 7, token: uuid(7), earlier_token: uuid(6) },
    { counter: 5, token: uuid(5), earlier_token: uuid(4) },
    'other_behind',
  ],
  [
    'this one, restored',
    { counter: 5, token: uuid(5), earlier_token: uuid(4) },
    { counter: 7, token: uuid(7), earlier_token: uuid(6) },
    'own_behind',
  ],
  [
    'the other one, with a token that this one has never given',
    { counter: 7, token: uuid(7), earlier_token: uuid(6) },
    { counter: 7, token: uuid(9), earlier_token: uuid(6) },
    'other_behind',
  ],
])('a server that is older is noticed: %s', async (_name, own, other, outcome) => {
  const server = unique('server');
  await remembers(server, own);
  expect(await exchange(server, other, uuid(10))).toMatchObject({ outcome });
  const [row] = await database.query(
    `select counter::integer, behind_since is not null as is_behind, other_behind_since is not null as is_other_behind
     from platform.server_token where server = $1`,
    [server],
  );
  expect(row).toEqual({
    counter: own.counter,
    is_behind: outcome === 'own_behind',
    is_other_behind: outcome === 'other_behind',
  });
  // The administrator says that this one is valid.
  await database.query('update platform.server_token set is_adopted = true where server = $1', [server]);
  expect(await exchange(server, other, uuid(11))).toEqual({ outcome: 'accepted', counter: 8 });
});

test('of two copies of a server that renew in turn, one goes on and the other is refused', async () => {
  const server = unique('server');
  await remembers(server, { counter: 5, token: uuid(5), earlier_token: uuid(4) });
  const both = { counter: 5, token: uuid(5), earlier_token: uuid(4) };
  expect(await exchange(server, both, uuid(61))).toEqual({ outcome: 'accepted', counter: 6 });
  // The second one has the token before, as a replica would.
  expect(await exchange(server, both, uuid(62))).toEqual({ outcome: 'accepted', counter: 6 });
  expect(await exchange(server, { counter: 6, token: uuid(61), earlier_token: uuid(5) }, uuid(71))).toMatchObject({
    outcome: 'other_behind',
  });
  expect(await exchange(server, { counter: 6, token: uuid(62), earlier_token: uuid(5) }, uuid(72))).toEqual({
    outcome: 'accepted',
    counter: 7,
  });
});

test('a home that loses several answers in a row is not behind', async () => {
  const server = unique('server');
  const home = { counter: 5, token: uuid(5), earlier_token: uuid(4) };
  await remembers(server, home);
  for (let n = 0; n < 3; n++)
    expect(await exchange(server, home, uuid(60 + n))).toEqual({ outcome: 'accepted', counter: 6 });
});

test('another database at the address of a node stores nothing', async () => {
  const server = unique('server');
  const [answer] = await database.query(
    `select outcome from core.exchange_token('node_7', $1, json_populate_record(null::platform.server_token, '{}'), null)`,
    [server],
  );
  expect(answer).toEqual({ outcome: null });
  expect(await database.query('select from platform.server_token where server = $1', [server])).toEqual([]);
});

test('a database that was adopted as a copy creates no school and runs no jobs, until it is a successor', async () => {
  const url = own.database.url;
  const adopt = (as: string) =>
    startProgram('src/cli/main.ts', ['database', 'adopt', '--as', as, '--yes', '--json'], { DATABASE_URL: url }).ended;
  expect(await adopt('copy')).toMatchObject({ code: 0, stdout: '{"adopted_as":"copy"}\n' });
  const school = {
    name: 'Too Early',
    subdomain: unique('early').toLowerCase(),
    contact_email: 'head@early.example',
    plan_id: 3,
    admin_password: testPassword,
  };
  const refused = await own.operator.send<object>('POST', '/api/platform/tenants', { body: school });
  expect(refused).toMatchObject({ status: 503, message: expect.stringContaining('a copy beside the one') });
  const worker = startProgram('src/main.ts', ['--only', 'worker'], { DATABASE_URL: url });
  await worker.prints(/The worker of home does not run.*adopt --as copy/);
  worker.kill('SIGTERM');
  await worker.ended;
  const doctor = await startProgram('src/cli/main.ts', ['doctor', '--server', '--offline'], { DATABASE_URL: url })
    .ended;
  expect(doctor.stdout).toContain('warning: This database is a copy beside the one that schools use');

  expect(await adopt('successor')).toMatchObject({ code: 0, stdout: '{"adopted_as":"successor","told":[]}\n' });
  await own.operator.post('/api/platform/tenants', school, 201);
});

test('the doctor warns of a database that was restored or copied to another server, until it is adopted', async () => {
  const doctor = () =>
    startProgram('src/cli/main.ts', ['doctor', '--server', '--offline', '--json'], { DATABASE_URL: database.url })
      .ended;
  expect((await doctor()).stdout).not.toContain('"identity"');
  await database.query('update platform.database_identity set timeline = timeline - 1');
  const [finding] = (await doctor()).stdout
    .split('\n')
    .filter((line) => line.includes('"identity"'))
    .map((line) => JSON.parse(line) as object);
  expect(finding).toMatchObject({ level: 'warning', what: expect.stringContaining('restored, copied or promoted') });
  const args = ['database', 'adopt', '--as', 'successor', '--yes'];
  expect(await startProgram('src/cli/main.ts', args, { DATABASE_URL: database.url }).ended).toMatchObject({ code: 0 });
  expect((await doctor()).stdout).not.toContain('"identity"');
});
