import { spawn } from 'node:child_process';
import { createECDH, generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import webPush from 'web-push';
import { Command } from 'commander';
import { ensureDatabase, startEmbedded } from '../src/database/embedded.ts';
import { migrate } from '../src/database/migrate/migrate.ts';
import { end } from './child.ts';
import { count } from './run.ts';

// `npm run bench:push -- [users]`: sends one message to `users` users with one phone each, then with one browser each.
// Measures the time from core.send_message until the last result is recorded. The worker is a separate process; this
// process runs a push service on loopback that accepts everything.

const [users] = new Command('bench:push')
  .description('Sends one message to users with one phone each, then with one browser each.')
  .argument('[users]', 'number of users', count, 10_000)
  .parse().processedArgs as [number];
const print = (text: string) => process.stdout.write(`${text}\n`);
const folder = await mkdtemp(join(tmpdir(), 'school-bench-push-'));

let received = 0;
const service = createServer((req, res) => {
  req.resume().on('end', () => {
    const isToken = req.url === '/token';
    if (!isToken) received++;
    const body = isToken ? '{"access_token":"a","token_type":"Bearer","expires_in":3600}' : '{}';
    res.writeHead(req.url?.startsWith('/push/') ? 201 : 200, { 'Content-Type': 'application/json' }).end(body);
  });
});
await new Promise<void>((done) => void service.listen(0, '127.0.0.1', done));
const url = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
const vapid = webPush.generateVAPIDKeys();
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });

const server = await startEmbedded(folder);
try {
  await ensureDatabase(server, 'school');
  const ownerUrl = server.url('school');
  await migrate({ ownerUrl });
  const owner = new pg.Client({ connectionString: ownerUrl });
  await owner.connect();
  const worker = spawn(process.execPath, [join(import.meta.dirname, '../src/main.ts'), '--only', 'worker'], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: {
      PATH: process.env['PATH'],
      DATABASE_URL: ownerUrl,
      DATA_DIR: folder,
      DEMO: 'false',
      MIGRATE_ON_START: 'false',
      LOG_LEVEL: 'warn',
      VAPID_PUBLIC_KEY: vapid.publicKey,
      VAPID_PRIVATE_KEY: vapid.privateKey,
      VAPID_SUBJECT: 'mailto:bench@example.org',
      WEB_PUSH_HOSTS: url,
      FCM_URL: url,
      FCM_CREDENTIALS: JSON.stringify({
        project_id: 'bench',
        client_email: 'bench@example.org',
        token_uri: `${url}/token`,
        private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      }),
    },
  });
  try {
    await owner.query(`
      update platform.notification_setting set push_per_user_per_day = null;
      insert into platform.tenant (name, subdomain, contact_email, plan_id) values ('Bench', 'bench', 'bench@example.org', 3);
      select core.tenant_provision(max(id), '{}') from platform.tenant`);
    const { rows: tenants } = await owner.query<{ id: string }>('select max(id) as id from platform.tenant');
    const tenant = tenants[0]?.id ?? '';
    await owner.query(
      `insert into tenant_${tenant}.user_account (email, first_name, last_name) select 'user' || n || '@bench.example', 'Uma', 'User' from generate_series(1, ${users}) n`,
    );
    const browser = () => {
      const p256dh = createECDH('prime256v1').generateKeys('base64url');
      return JSON.stringify({
        endpoint: `${url}/push/${randomBytes(8).toString('hex')}`,
        keys: { p256dh, auth: randomBytes(16).toString('base64url') },
      });
    };
    for (const platform of ['android', 'web']) {
      const tokens = Array.from({ length: users }, (_, n) => (platform === 'web' ? browser() : `token-${n}`));
      await owner.query(`delete from tenant_${tenant}.device`);
      await owner.query(
        `insert into tenant_${tenant}.device (user_id, token, platform)
         select u.id, t.token, $2 from (select id, row_number() over (order by id) as n from tenant_${tenant}.user_account) u
         join unnest($1::text[]) with ordinality t (token, n) using (n)`,
        [tokens, platform],
      );
      await owner.query('analyze');
      received = 0;
      const begin = performance.now();
      await owner.query('begin');
      await owner.query("select set_config('app.tenant_id', $1, true), set_config('app.scope', 'all', true)", [tenant]);
      await owner.query(
        `select core.send_message('bench', '{"push": {"title": "Sports day", "message": "Bring shoes, {{first_name}}."}}',
           (select jsonb_agg(jsonb_build_object('user_id', id)) from tenant_${tenant}.user_account))`,
      );
      await owner.query('commit');
      const enqueued = performance.now();
      for (;;) {
        const { rows } = await owner.query<{ pending: boolean }>(
          `select exists (select from platform.outbox)
             or exists (select from tenant_${tenant}.notification_delivery where status = 'pending') as pending`,
        );
        if (!rows[0]?.pending) break;
        await new Promise((done) => setTimeout(done, 50));
      }
      const seconds = (performance.now() - enqueued) / 1000;
      const { rows } = await owner.query<{ status: string; n: string }>(
        `select status, count(*) as n from tenant_${tenant}.notification_delivery group by status`,
      );
      print(
        `${platform}: ${received} pushes, enqueued in ${Math.round(enqueued - begin)} ms, delivered in ${seconds.toFixed(1)} s: ` +
          `${Math.round(received / seconds)} pushes/s, ${(users / 100 / seconds).toFixed(1)} jobs/s (${rows.map(({ status, n }) => `${n} ${status}`).join(', ')})`,
      );
      await owner.query(`truncate tenant_${tenant}.notification_delivery`);
    }
  } finally {
    await end(worker);
    await owner.end();
  }
} finally {
  await server.stop();
  service.close();
  service.closeAllConnections();
  await rm(folder, { recursive: true, force: true });
}
