// Loses the primary of two servers while clients write, and promotes its replica: `npm run test:failover`. The service is
// not restarted: its address of the database moves, as a virtual address does (docs/operations/production.md#failover).
// Replication is synchronous, so that no acknowledged write may be lost. An asynchronous replica may lack the last ones.
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { type EmbeddedServer, ensureDatabase, startEmbedded } from '../../src/database/embedded.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { demo } from '../../src/process/demo.ts';
import { until } from '../support/client/until.ts';
import { takeBaseBackup } from '../support/server/base-backup.ts';
import { ownFolder } from '../support/server/own-server.ts';
import { ready, runProgram, startProgram } from '../support/server/processes.ts';
import { startRun } from '../support/server/run.ts';

const clients = 4;
/** Acknowledged writes before the primary is lost, and again after the failover. */
const writesOfPhase = 50;

const socketOf = (server: EmbeddedServer) => new pg.Client({ connectionString: server.url('school') }).host;

const query = <Row extends object>(server: EmbeddedServer, text: string) =>
  withOwner(server.url('school'), async (client) => (await client.query<Row>(text)).rows);

/** An address that stays while the server behind it changes. */
async function movingAddress(first: EmbeddedServer) {
  let target = first;
  const proxy = createServer((near) => {
    const far = connect(join(socketOf(target), '.s.PGSQL.5432'));
    const pass = (from: Socket, to: Socket) =>
      from
        .on('error', () => to.destroy())
        .on('close', () => to.destroy())
        .pipe(to);
    pass(near, far);
    pass(far, near);
  });
  await new Promise<void>((done) => void proxy.listen(0, '127.0.0.1', done));
  // It must not keep this process alive.
  proxy.unref();
  const address = proxy.address();
  return {
    url: `postgres://postgres@127.0.0.1:${String(typeof address === 'object' ? address?.port : 0)}/school`,
    moveTo: (server: EmbeddedServer) => void (target = server),
  };
}

/** Starts a replica for which each commit of the primary waits. */
async function startReplica(primary: EmbeddedServer, folder: string): Promise<EmbeddedServer> {
  await takeBaseBackup(primary, folder, 'standby.signal');
  const replica = await startEmbedded(folder, [`primary_conninfo=host=${socketOf(primary)} user=postgres`]);
  await query(primary, "alter system set synchronous_standby_names = '*'");
  await query(primary, 'select pg_reload_conf()');
  const isSynchronous = () => query(primary, "select from pg_stat_replication where sync_state = 'sync'");
  await until(async () => ((await isSynchronous()).length === 1 ? true : undefined));
  return replica;
}

/** Clients that create students all the time. */
function startWrites(url: string, token: string) {
  const acknowledged: string[] = [];
  const statuses = new Map<number, number>();
  let lastAt = performance.now();
  let longestGapMs = 0;
  let isOver = false;
  async function write(name: string): Promise<void> {
    const response = await fetch(`${url}/api/students`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ first_name: 'Failover', last_name: name }),
    });
    await response.arrayBuffer();
    statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
    if (response.status !== 201) return pause(50);
    acknowledged.push(name);
    longestGapMs = Math.max(longestGapMs, performance.now() - lastAt);
    lastAt = performance.now();
  }
  const ended = Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      for (let n = 0; !isOver; n++) await write(`Client${String(client)} Write${String(n)}`);
    }),
  );
  // After a failure elsewhere the service ends first, and nobody waits for the clients.
  ended.catch(() => undefined);
  return {
    acknowledged,
    reach: (count: number) => until(() => (acknowledged.length >= count ? true : undefined)),
    async stop() {
      isOver = true;
      await ended;
      return { statuses, longestGapMs };
    },
  };
}

async function logIn(url: string): Promise<string> {
  const { subdomain, admin: email, password } = demo;
  const response = await fetch(`${url}/api/auth/login`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ subdomain, email, password }),
  });
  return ((await response.json()) as { data: { access_token: string } }).data.access_token;
}

async function failOver(): Promise<string> {
  const folder = await ownFolder('school-failover-');
  const primary = await startEmbedded(join(folder, 'primary'));
  await ensureDatabase(primary, 'school');
  const address = await movingAddress(primary);
  const limits = { RATE_LIMIT_PER_MINUTE: '0', USER_RATE_LIMIT_PER_MINUTE: '0', SCHOOL_RATE_LIMIT_PER_MINUTE: '0' };
  const env = { DATABASE_URL: address.url, DATA_DIR: join(folder, 'data'), PORT: '0', LOG_LEVEL: 'silent', ...limits };
  const service = startProgram('src/main.ts', [], env);
  const { url } = await ready(service);
  const replica = await startReplica(primary, join(folder, 'replica'));

  const writes = startWrites(url, await logIn(url));
  await writes.reach(writesOfPhase);
  await primary.stop('immediate');
  const lostAt = performance.now();
  await query(replica, 'select pg_promote()');
  address.moveTo(replica);
  const promotedAt = performance.now();
  const [promoted] = await query(replica, 'select from core.check_identity()');
  if (!promoted) throw new Error('school doctor does not notice the promotion.');
  await writes.reach(writes.acknowledged.length + 1);
  const backAt = performance.now();
  await writes.reach(writes.acknowledged.length + writesOfPhase);
  const { statuses, longestGapMs } = await writes.stop();

  const stored = await query<{ name: string }>(
    replica,
    "select last_name as name from tenant_1.student where first_name = 'Failover'",
  );
  const names = stored.map(({ name }) => name);
  const lost = writes.acknowledged.filter((name) => !names.includes(name));
  if (lost.length > 0) throw new Error(`${String(lost.length)} acknowledged writes are lost: ${lost.join(', ')}`);
  if (new Set(names).size < names.length) throw new Error('A write is stored twice.');
  const unexpected = [...statuses.keys()].filter((status) => status !== 201 && status !== 503);
  if (unexpected.length > 0) throw new Error(`Clients got the status ${unexpected.join(', ')}.`);
  await until(async () => ((await fetch(`${url}/api/health/ready`)).status === 200 ? true : undefined));
  for (const args of [
    ['database', 'adopt', '--as', 'successor', '--yes'],
    ['doctor', '--data'],
  ]) {
    const { code, stdout, stderr } = await runProgram('src/cli/main.ts', args, env);
    if (code !== 0) throw new Error(`school ${args.join(' ')}: ${stdout}${stderr}`);
  }
  // The first checkpoint after a promotion writes the new timeline into the control file.
  await query(replica, 'checkpoint');
  const [found] = await query<{ what: string }>(replica, 'select what from core.check_identity()');
  if (found) throw new Error(`After school database adopt: ${found.what}`);
  service.kill('SIGTERM');
  await service.ended;
  const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
  return (
    `The replica was promoted in ${seconds(promotedAt - lostAt)}, and the service wrote again ` +
    `${seconds(backAt - promotedAt)} later; ${seconds(longestGapMs)} without a write. ` +
    `${String(writes.acknowledged.length)} acknowledged writes: none is lost, none is stored twice. ` +
    `${String(statuses.get(503) ?? 0)} requests got 503.`
  );
}

const run = await startRun();
try {
  process.stdout.write(`${await failOver()}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
await run.end();
