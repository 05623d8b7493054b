import { expect, test } from '@jest/globals';
import { openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';
import { type School, serviceOfFile, testPassword } from '../support/server/service.ts';
import { schoolOn } from './schools.ts';
import { servers, startServer, stopServer, type TestServer } from './servers.ts';

const { homeServer, nodes, forwarder } = servers();
const { withOwner } = shared;
const service = await serviceOfFile({ STREAM_HEARTBEAT_MS: '300' });
const [first, second] = nodes;
if (!first || !second) throw new Error('There are no two nodes.');
const [near, far] = [await schoolOn(service, 'node-1'), await schoolOn(service, 'node-2')];

/** The ids of new sessions of a school, with their access tokens. */
async function newSession({ id, subdomain, adminEmail: email }: School, url: string) {
  const { token } = await service.anonymous.login({ subdomain, email, password: testPassword });
  const { rows } = await withOwner(url, (client) =>
    client.query<{ id: number }>('select max(id)::double precision as id from platform.session where tenant_id = $1', [
      id,
    ]),
  );
  return { id: rows[0]?.id ?? 0, token };
}

const revoke = (url: string, id: number) =>
  withOwner(url, (client) => client.query('update platform.session set revoked_at = now() where id = $1', [id]));

/** Which of these sessions may no longer have a stream. */
async function endedOf(ids: number[]): Promise<number[]> {
  const { rows } = await withOwner(forwarder, (client) =>
    client.query<{ ended: string[] }>('select core.stream_check($1) as ended', [ids]),
  );
  return (rows[0]?.ended ?? []).map(Number).sort((a, b) => a - b);
}

async function whileDown(server: TestServer, work: () => Promise<void>): Promise<void> {
  await stopServer(server);
  try {
    await work();
  } finally {
    await startServer(server);
    await until(async () => {
      const answers = [
        await service.operator.send('GET', '/api/platform/tenants'),
        await far.admin.send('GET', '/api/students'),
      ];
      return answers.every(({ status }) => status === 200) || undefined;
    });
  }
}

test('the streams of ended sessions end while another server is down, and those of its own sessions go on', async () => {
  const sessions = {
    near: (await newSession(near, first.url)).id,
    nearEnded: (await newSession(near, first.url)).id,
    far: (await newSession(far, second.url)).id,
    farEnded: (await newSession(far, second.url)).id,
  };
  const [operator] = await service.database.query<{ id: number }>(
    `select max(id)::double precision as id from platform.session
     where tenant_id is null and revoked_at is null and expires_at > now()`,
  );
  const all = [...Object.values(sessions), operator?.id ?? 0];
  await revoke(first.url, sessions.nearEnded);
  await revoke(second.url, sessions.farEnded);
  const [nearEnded, farEnded] = [sessions.nearEnded, sessions.farEnded];
  expect(await endedOf(all)).toEqual([nearEnded, farEnded]);
  await whileDown(second.server, async () => expect(await endedOf(all)).toEqual([nearEnded]));
  const { id, token } = await newSession(near, first.url);
  const stream = await openStream(service.url, token);
  const other = await openStream(service.url, far.admin.token);
  await whileDown(homeServer, async () => {
    expect(await endedOf(all)).toEqual([nearEnded, farEnded]);
    await revoke(first.url, id);
    await stream.end();
    expect(other.ended).toBeUndefined();
  });
  await other.close();
});
