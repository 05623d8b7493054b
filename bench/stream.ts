import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { passwords } from '../src/domain/passwords.ts';
import { tokens } from '../src/http/credentials/tokens.ts';
import { ensureDatabase, startEmbedded } from '../src/database/embedded.ts';
import { migrate } from '../src/database/migrate/migrate.ts';
import { createOperator } from '../src/database/operator.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import { count } from './run.ts';
import { startApi, startWorker } from './service.ts';
import { usage } from './usage.ts';

// `npm run bench:stream -- [streams]`: opens notification streams in one process and measures its memory and the delay
// from a send to the event. This process and the service each need one open file per stream, so `ulimit -n` must be
// higher.

const [maxStreams] = new Command('bench:stream')
  .description('Opens notification streams in one process, and measures its memory and the delay of events.')
  .argument('[streams]', 'number of streams', count, 5_000)
  .parse().processedArgs as [number];
const fewStreams = Math.min(1_000, maxStreams);
const print = (text: string) => process.stdout.write(`${text}\n`);
const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));
const cleanups: (() => Promise<unknown>)[] = [];

/** Opens a stream. `onText` receives its data. @returns a function that closes it */
function open(url: string, token: string, onText: (text: string) => void): Promise<() => void> {
  return new Promise((done, fail) => {
    const sent = request(
      `${url}/api/notifications/stream`,
      { agent: false, headers: { Authorization: `Bearer ${token}` } },
      (response) => {
        if (response.statusCode !== 200) fail(new Error(`A stream was refused: ${String(response.statusCode)}`));
        response.setEncoding('utf8').on('data', onText);
        response.on('error', () => undefined);
        done(() => response.destroy());
      },
    );
    sent.on('error', fail);
    sent.end();
  });
}

const quantile = (sorted: readonly number[], part: number) =>
  (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? NaN).toFixed(1);
const figures = (times: number[]) => {
  const sorted = times.toSorted((a, b) => a - b);
  return `p50 ${quantile(sorted, 0.5)} ms, p99 ${quantile(sorted, 0.99)} ms, max ${quantile(sorted, 1)} ms`;
};

async function run(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'school-bench-stream-'));
  cleanups.push(() => rm(folder, { recursive: true, force: true }));
  const server = await startEmbedded(folder);
  cleanups.push(() => server.stop());
  await ensureDatabase(server, 'bench');
  const databaseUrl = server.url('bench');
  await migrate({ ownerUrl: databaseUrl });
  const passwordHash = await passwords().hash('bench-password');
  const secret = randomBytes(32).toString('hex');
  const service = await startApi(databaseUrl, secret, 10, folder, (stop) => cleanups.push(stop));
  await startWorker(databaseUrl, secret, folder, (stop) => cleanups.push(stop));
  const signing = tokens([secret]);

  const [tenantId, sessions] = await withOwner(databaseUrl, async (owner) => {
    await createOperator(owner, {
      email: 'operator@bench.example',
      passwordHash,
      firstName: 'Olu',
      lastName: 'Operator',
      role: 'admin',
      tenantIds: null,
    });
    const operator = signing.sign({ session_id: await session(null, 1), user_id: 1, tenant_id: null });
    async function session(tenant: number | null, user: number): Promise<number> {
      const { rows } = await owner.query<{ id: string }>(
        `insert into platform.session (tenant_id, user_id, email, roles, permissions, expires_at) values ($1, $2, 'x', '{admin}', '{notification.send}', now() + interval '1 day') returning id`,
        [tenant, user],
      );
      return Number(rows[0]?.id);
    }
    const response = await fetch(`${service.url}/api/platform/tenants`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${operator}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({
        name: 'Bench',
        subdomain: 'bench',
        contact_email: 'a@bench.example',
        plan_id: 3,
        admin_email: 'a@bench.example',
        admin_password: 'bench-password',
      }),
    });
    const { data } = (await response.json()) as { data: { id: number } };
    const { rows } = await owner.query<{ user_id: string; session_id: string }>(
      `with added as (insert into tenant_${String(data.id)}.user_account (email, first_name, last_name) select 'u' || n || '@bench.example', 'U', 'N' || n from generate_series(1, $1) n returning id)
       insert into platform.session (tenant_id, user_id, email, roles, permissions, expires_at)
       select $2, id, 'x', '{admin}', '{notification.send}', now() + interval '1 day' from added returning user_id, id as session_id`,
      [maxStreams, data.id],
    );
    await owner.query('vacuum analyze');
    return [
      data.id,
      rows.map((row) => ({ user_id: Number(row.user_id), session_id: Number(row.session_id), tenant_id: data.id })),
    ] as const;
  });
  const users = sessions.map((session) => ({ ...session, token: signing.sign(session) }));
  const [sender] = users;
  if (!sender) throw new Error('There are no users to open streams for.');

  /** When each stream received the awaited event. */
  let arrivals: number[] = [];
  let awaited = '';
  const streams: (() => void)[] = [];
  // Warm up, so that the memory used by the first requests is part of the initial figure.
  for (const user of users.slice(0, 50)) (await open(service.url, user.token, () => undefined))();
  await pause(2_000);
  const before = await usage(service.pid);
  const begin = performance.now();
  for (let at = 0; at < maxStreams; at += 50) {
    const opened = users.slice(at, at + 50).map(({ token }) =>
      open(service.url, token, (text) => {
        if (text.includes(awaited)) arrivals.push(performance.now());
      }),
    );
    streams.push(...(await Promise.all(opened)));
  }
  const seconds = (performance.now() - begin) / 1000;
  await pause(5_000);
  const after = await usage(service.pid);
  const perStream = ((after.memoryMb - before.memoryMb) * 1024) / maxStreams;
  print(
    `${String(maxStreams)} streams opened in ${seconds.toFixed(1)} s; memory ${before.memoryMb.toFixed(0)} MB before, ${after.memoryMb.toFixed(0)} MB with them: ${perStream.toFixed(1)} kB per stream`,
  );
  const idle = await usage(service.pid);
  await pause(25_000);
  const later = await usage(service.pid);
  print(
    `idle, with heartbeats and checks: ${(((later.cpuSeconds - idle.cpuSeconds) / 25) * 100).toFixed(1)} % of a core`,
  );

  let serial = 0;
  /** Sends a notification and waits until `count` streams have received it. @returns the delay of each event in ms */
  async function send(body: object, count: number): Promise<number[]> {
    arrivals = [];
    awaited = `"Title ${String(++serial)}."`;
    const start = performance.now();
    const answer = await fetch(`${service.url}/api/notifications/send`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${sender?.token ?? ''}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({
        ...body,
        title: `Title ${String(serial)}.`,
        message: 'School ends at noon today. Buses leave at 12:15.',
      }),
    });
    if (!answer.ok) throw new Error(`The notification was not sent: ${await answer.text()}`);
    await answer.arrayBuffer();
    for (const end = performance.now() + 60_000; arrivals.length < count; await pause(5)) {
      if (performance.now() > end)
        throw new Error(`${String(arrivals.length)} of ${String(count)} streams received it.`);
    }
    return arrivals.map((time) => time - start);
  }

  async function measure(open: number): Promise<void> {
    const single: number[] = [];
    for (let n = 0; n < 300; n++)
      single.push(...(await send({ user_ids: [users[Math.floor(Math.random() * open)]?.user_id] }, 1)));
    print(`${String(open)} streams, from a send to one user to its event: ${figures(single.slice(50))}`);
    const everybody: number[] = [];
    const user_ids = users.slice(0, open).map(({ user_id }) => user_id);
    for (let n = 0; n < 10; n++) everybody.push(...(await send({ user_ids }, open)));
    print(`${String(open)} streams, from a send to all of them to each event: ${figures(everybody.slice(2 * open))}`);
  }
  if (maxStreams > fewStreams) await measure(maxStreams);
  for (const close of streams.splice(fewStreams)) close();
  await pause(2_000);
  await measure(fewStreams);
  for (const close of streams) close();
  print(`school ${String(tenantId)}, ${String(serial)} sends`);
}

try {
  await run();
} finally {
  for (const cleanup of cleanups.reverse()) await cleanup();
}
