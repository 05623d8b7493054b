import { createECDH, generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { pino } from 'pino';
import webPush from 'web-push';
import { ConfigError, readConfig } from '../../src/process/config.ts';
import { rolePool } from '../../src/database/pool/pool.ts';
import { http, isPublic } from '../../workers/http.ts';
import { push } from '../../workers/push.ts';
import { webhooks } from '../../workers/webhooks.ts';
import { deliver } from '../../workers/tasks/deliver.ts';
import { testDatabase } from '../support/server/database.ts';
import { provision } from '../support/database/tenants.ts';
import { testRetention } from '../support/server/worker.ts';

const problems = (env: Record<string, string>): string[] => {
  try {
    readConfig(env);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
};

describe('the push settings', () => {
  const keys = createECDH('prime256v1');
  keys.generateKeys();
  const vapid = {
    VAPID_PUBLIC_KEY: keys.getPublicKey('base64url'),
    VAPID_PRIVATE_KEY: keys.getPrivateKey('base64url'),
    VAPID_SUBJECT: 'mailto:a@b.example',
  };
  const other = createECDH('prime256v1').generateKeys('base64url');
  const pem = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ type: 'pkcs8', format: 'pem' });
  const account = { project_id: 'p', client_email: 'a@p.iam.example', private_key: pem };
  const production = {
    NODE_ENV: 'production',
    DATABASE_URL: 'postgres://x',
    JWT_SECRETS: 'x'.repeat(32),
    PUBLIC_URL: 'https://x.example',
  };

  test('are optional but must be complete; token_uri defaults to Google', () => {
    expect(problems({})).toEqual([]);
    expect(problems(vapid)).toEqual([]);
    expect(readConfig({ FCM_CREDENTIALS: JSON.stringify(account) }).FCM_CREDENTIALS?.token_uri).toBe(
      'https://oauth2.googleapis.com/token',
    );
    expect(readConfig({ WEB_PUSH_HOSTS: 'Push.example, *.Push.example,http://10.0.0.1:81' }).WEB_PUSH_HOSTS).toEqual([
      'push.example',
      '*.push.example',
      'http://10.0.0.1:81',
    ]);
  });

  test.each<[string, Record<string, string>]>([
    ['VAPID_PUBLIC_KEY, VAPID_PRIVATE_KEY and VAPID_SUBJECT must be set together', { ...vapid, VAPID_SUBJECT: '' }],
    ['VAPID_PUBLIC_KEY does not match', { ...vapid, VAPID_PUBLIC_KEY: other }],
    ['VAPID_PRIVATE_KEY must be', { ...vapid, VAPID_PRIVATE_KEY: 'AAAA' }],
    ['VAPID_SUBJECT must start', { ...vapid, VAPID_SUBJECT: 'a@b.example' }],
    ['FCM_CREDENTIALS must be the JSON', { FCM_CREDENTIALS: '/etc/fcm.json' }],
    ['FCM_CREDENTIALS must be the JSON', { FCM_CREDENTIALS: JSON.stringify({ ...account, private_key: 'x' }) }],
    ['FCM_CREDENTIALS must be the JSON', { FCM_CREDENTIALS: JSON.stringify({ ...account, project_id: '../x' }) }],
    ['WEB_PUSH_HOSTS must be comma-separated hosts', { WEB_PUSH_HOSTS: '*' }],
    ['WEB_PUSH_HOSTS must be comma-separated hosts', { WEB_PUSH_HOSTS: '127.0.0.1' }],
    ['WEB_PUSH_HOSTS must be comma-separated hosts', { WEB_PUSH_HOSTS: 'https://push.example/path' }],
    ['WEB_PUSH_HOSTS must not contain http://', { ...production, WEB_PUSH_HOSTS: 'http://push.example' }],
  ])('that are invalid are named, without their values: %s', (expected, env) => {
    const [first, ...more] = problems(env);
    expect([first?.startsWith(expected), more]).toEqual([true, []]);
    expect(first).not.toContain('PRIVATE KEY-');
  });
});

describe('the network of the worker', () => {
  test.each([
    ...[
      '0.0.0.0',
      '10.1.2.3',
      '100.64.0.1',
      '127.0.0.1',
      '169.254.169.254',
      '172.16.0.1',
      '172.31.255.255',
      '192.168.1.1',
      '224.0.0.1',
      '255.255.255.255',
    ],
    ...[
      '::',
      '::1',
      '::ffff:127.0.0.1',
      '::ffff:8.8.8.8',
      'fe80::1',
      'fc00::1',
      'fd12::1',
      '64:ff9b::7f00:1',
      '2002:7f00:1::',
      '2001:db8::1',
      'ff02::1',
      'localhost',
      '',
    ],
  ])('%s is not public', (address) => expect(isPublic(address)).toBe(false));

  test.each(['8.8.8.8', '172.32.0.1', '2a00:1450:4001::1', '2607:f8b0::1'])('%s is public', (address) =>
    expect(isPublic(address)).toBe(true),
  );

  test('is unreachable for endpoints of users, by IP address or by host name', async () => {
    let reached = 0;
    const server = createServer((_req, res) => {
      reached++;
      res.end();
    });
    await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done));
    const { port } = server.address() as AddressInfo;
    const client = http(10_000);
    const post = (url: string, isForeign: boolean) =>
      client.post({ url, headers: {}, body: '', isForeign }).then(({ status }) => status, String);
    try {
      for (const url of [
        `https://localhost:${port}/`,
        `https://127.0.0.1:${port}/`,
        `https://[::1]:${port}/`,
        `http://localhost:${port}/`,
      ]) {
        expect(await post(url, true)).toMatch(/EPRIVATE/);
      }
      expect(reached).toBe(0);
      expect(await post(`http://127.0.0.1:${port}/`, false)).toBe(200);
    } finally {
      client.close();
      server.close();
      server.closeAllConnections();
    }
  });

  test('is unreachable for web push, even if an allowed host resolves to it', async () => {
    const { publicKey, privateKey } = webPush.generateVAPIDKeys();
    const env = {
      VAPID_PUBLIC_KEY: publicKey,
      VAPID_PRIVATE_KEY: privateKey,
      VAPID_SUBJECT: 'mailto:a@b.example',
      WEB_PUSH_HOSTS: 'localhost',
    };
    const devices = push(readConfig(env), 10_000);
    const keys = { p256dh: createECDH('prime256v1').generateKeys('base64url'), auth: 'A'.repeat(22) };
    const token = JSON.stringify({ endpoint: 'https://localhost/push', keys });
    const outcome = await devices.send({ id: '1-1', platform: 'web', token, title: 'T', message: 'M', data: {} });
    devices.close();
    expect(outcome).toEqual({ status: 'retry', reason: 'web_EPRIVATE', isServiceDown: true });
  });
});

test('without settings push messages are dropped with a reason and one warning in the log, and emails are sent', async () => {
  const database = await testDatabase(3);
  const pool = rolePool('school_worker', database.url, undefined, 4);
  const lines: string[] = [];
  const sent: string[] = [];
  try {
    const { id, schema } = await provision(database);
    await database.query(
      `with u as (insert into ${schema}.user_account (email, first_name, last_name) values ('a@test.example', 'A', 'B') returning id),
         d as (insert into ${schema}.device (user_id, token, platform) select id, platform, platform from u, unnest('{android,ios,web}'::text[]) platform returning *)
       insert into ${schema}.notification_delivery (user_id, channel, device_id, address, recipient_name, title, message)
         select user_id, 'push', id, null, 'A', 'T', 'M' from d union all select id, 'email', null, 'a@test.example', 'A', 'T', 'M' from u`,
    );
    for (let time = 0; time < 2; time++) {
      await database.query(`update ${schema}.notification_delivery set status = 'pending' where channel = 'push'`);
      await deliver(
        { tenant_id: id, from_id: 1, to_id: 4 },
        {
          pool,
          sessionPool: pool,
          ownerUrl: '',
          push: push(readConfig({}), 10_000),
          analytics: { run: () => Promise.reject(new Error('this task runs no query')) },
          webhooks: webhooks(readConfig({})),
          sendEmail: ({ to }) => {
            sent.push(to.address);
            return Promise.resolve();
          },
          logger: pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) }),
          links: { publicUrl: '', passwordPageUrl: undefined, appUrl: undefined, baseDomain: undefined },
          retention: testRetention,
          stopping: new AbortController().signal,
        },
        { id: '0' },
      );
    }
    const rows = await database.query(
      `select channel, status, reason from ${schema}.notification_delivery order by id`,
    );
    expect(rows).toEqual([
      ...Array.from({ length: 3 }, () => ({ channel: 'push', status: 'dropped', reason: 'push_not_configured' })),
      { channel: 'email', status: 'sent', reason: null },
    ]);
    expect(sent).toEqual(['a@test.example']);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain('FCM_CREDENTIALS');
  } finally {
    await pool.end();
    await database.drop();
  }
});
