import './threads.ts';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { passwords } from './api/passwords.ts';
import { databaseName } from './cli/database.ts';
import { type Config, ConfigError, readConfig } from './config.ts';
import { demo, loadDemo } from './database/demo.ts';
import { claim, ensureDatabase, startEmbedded } from './database/embedded.ts';
import { migrate } from './database/migrate.ts';
import { createOperator } from './database/operator.ts';
import { withOwner } from './database/pool.ts';
import { type Part, startService } from './service.ts';

const print = (text = '') => process.stdout.write(`${text}\n`);

/** What to undo, last first, when the service stops. */
const cleanups: (() => Promise<void>)[] = [];

async function stop(): Promise<void> {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
}

/** The database: DATABASE_URL, or a server of our own. */
async function openDatabase(config: Config): Promise<string> {
  if (config.DATABASE_URL) return config.DATABASE_URL;
  cleanups.push(await claim(config.DATA_DIR));
  const server = await startEmbedded(config.DATA_DIR);
  cleanups.push(() => server.stop());
  await ensureDatabase(server, databaseName);
  return server.url(databaseName);
}

/** Migrates, makes the first operator, loads the demo. @returns whether the demo school is there */
async function prepare(config: Config, ownerUrl: string): Promise<boolean> {
  if (config.migrateOnStart) {
    const { failed } = await migrate({ ownerUrl });
    for (const { tenant, error } of failed) print(`School ${tenant} could not be migrated and answers 503: ${error ?? ''}`);
  }
  const { PLATFORM_ADMIN_EMAIL, PLATFORM_ADMIN_PASSWORD } = config;
  const hashing = await passwords();
  return withOwner(ownerUrl, async (client) => {
    if (PLATFORM_ADMIN_EMAIL && PLATFORM_ADMIN_PASSWORD) {
      const passwordHash = await hashing.hash(PLATFORM_ADMIN_PASSWORD);
      await createOperator(client, { email: PLATFORM_ADMIN_EMAIL, passwordHash, firstName: 'Platform', lastName: 'Admin', role: 'admin', tenantIds: null });
    }
    if (config.isProduction) return false;
    if (config.DEMO !== false) await loadDemo(client, hashing);
    const { rowCount } = await client.query('select from platform.tenant where subdomain = $1', [demo.subdomain]);
    return rowCount === 1;
  });
}

function banner(config: Config, url: string, hasDemo: boolean, seconds: string): void {
  print();
  print(`School management service, ready in ${seconds} s`);
  print(`  API       ${url}/api`);
  print(`  Docs      ${url}/api/docs/`);
  print(`  Health    ${url}/api/health/ready`);
  if (!config.SMTP_URL) print(`  E-mail    ${join(config.DATA_DIR, 'outbox')} (.eml files; set SMTP_URL to send)`);
  if (hasDemo) {
    print();
    print(`Demo school "${demo.subdomain}", password ${demo.password}`);
    print(`  Admin     ${demo.admin}`);
    print(`  Teacher   ${demo.teacher}`);
    print(`  Operator  ${demo.operator} (is_platform: true)`);
    print();
    print('Try it:');
    print(`  TOKEN=$(curl -s ${url}/api/auth/login -H 'Content-Type: application/json' \\`);
    print(`    -d '{"subdomain":"${demo.subdomain}","email":"${demo.admin}","password":"${demo.password}"}' \\`);
    print(`    | sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')`);
    print(`  curl -s "${url}/api/students?search=garcia&pageSize=3" -H "Authorization: Bearer $TOKEN"`);
  }
  print();
  print('Stop with Ctrl-C.');
}

async function start(parts: readonly Part[]): Promise<void> {
  const begin = performance.now();
  const config = readConfig(process.env);
  const ownerUrl = await openDatabase(config);
  const hasDemo = await prepare(config, ownerUrl);
  const service = await startService(config, ownerUrl, parts);
  cleanups.push(() => service.close());
  if (service.url) banner(config, service.url, hasDemo, ((performance.now() - begin) / 1000).toFixed(1));
  else print('Worker ready. Stop with Ctrl-C.');
}

const { only } = new Command('school-management-service')
  .description('Starts the service; see .env.example for its settings.')
  .addOption(new Option('--only <part>', 'run one part alone').choices(['api', 'worker']))
  .parse()
  .opts<{ only?: Part }>();

let isStopping = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // A terminal sends Ctrl-C to npm and to us, and npm passes it on: the second one is no wish to hurry.
    if (isStopping) return;
    isStopping = true;
    stop().then(
      () => process.exit(0),
      (error: unknown) => {
        process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
        process.exit(1);
      },
    );
  });
}

start(only ? [only] : ['api', 'worker']).catch(async (error: unknown) => {
  const lines = error instanceof ConfigError ? error.problems : [error instanceof Error ? error.message : String(error)];
  process.stderr.write(`${lines.join('\n')}\n`);
  await stop().catch(() => undefined);
  process.exit(1);
});
