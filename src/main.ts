import './process/thread-pool-size.ts';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { passwords } from './domain/passwords.ts';
import { checkReachable, databaseName, foundNotice, placeOf } from './process/own-database.ts';
import { type Config, ConfigError, readConfig } from './process/config.ts';
import { demo, loadDemo } from './process/demo.ts';
import { claim, ensureDatabase, startEmbedded } from './database/embedded.ts';
import { checkVersion, migrate } from './database/migrate.ts';
import { createOperator } from './database/operator.ts';
import { withOwner } from './database/pool.ts';
import { type Part, startService } from './process/service.ts';

const print = (text = '') => process.stdout.write(`${text}\n`);

/** What to undo, last first, when the service stops. */
const cleanups: (() => Promise<void>)[] = [];

/** Waits for `work`, which is undone when the service stops, also when it has not finished by then. */
function undoable<T>(work: Promise<T>, undo: (result: T) => Promise<void>): Promise<T> {
  cleanups.push(() => work.then(undo, () => undefined));
  return work;
}

/** Undoes everything, also when a part of it fails, and what comes meanwhile. @throws the first failure */
async function stop(): Promise<void> {
  const failures: unknown[] = [];
  for (let cleanup = cleanups.pop(); cleanup; cleanup = cleanups.pop())
    await cleanup().catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

/** The database: DATABASE_URL, or a server of our own; and where its data lie. */
async function openDatabase(config: Config): Promise<{ ownerUrl: string; place: string }> {
  if (config.DATABASE_URL) {
    await checkReachable(config.DATABASE_URL);
    return { ownerUrl: config.DATABASE_URL, place: placeOf(config.DATABASE_URL) };
  }
  await undoable(claim(config.DATA_DIR), (release) => release());
  const server = await undoable(startEmbedded(config.DATA_DIR), (embedded) => embedded.stop());
  const notice = foundNotice(server);
  if (notice) print(notice);
  await ensureDatabase(server, databaseName);
  return { ownerUrl: server.url(databaseName), place: server.cluster };
}

/** Migrates, makes the first operator, loads the demo. @returns whether the demo school is there */
async function prepare(config: Config, ownerUrl: string): Promise<boolean> {
  if (config.migrateOnStart) {
    const { failed } = await migrate({ ownerUrl });
    for (const { tenant, error } of failed)
      print(`School ${tenant} could not be migrated and answers 503: ${error ?? ''}`);
  } else {
    await checkVersion(ownerUrl);
  }
  const { PLATFORM_ADMIN_EMAIL, PLATFORM_ADMIN_PASSWORD } = config;
  const hashing = passwords();
  return withOwner(ownerUrl, async (client) => {
    if (PLATFORM_ADMIN_EMAIL && PLATFORM_ADMIN_PASSWORD) {
      const passwordHash = await hashing.hash(PLATFORM_ADMIN_PASSWORD);
      await createOperator(client, {
        email: PLATFORM_ADMIN_EMAIL,
        passwordHash,
        firstName: 'Platform',
        lastName: 'Admin',
        role: 'admin',
        tenantIds: null,
      });
    }
    if (config.isProduction) return false;
    if (config.DEMO !== false) await loadDemo(client, hashing);
    const { rowCount } = await client.query('select from platform.tenant where subdomain = $1', [demo.subdomain]);
    return rowCount === 1;
  });
}

function banner(
  config: Config,
  url: string,
  metricsUrl: string | undefined,
  place: string,
  hasDemo: boolean,
  seconds: string,
): void {
  const { port } = new URL(url);
  print();
  print(`School management service, ready in ${seconds} s`);
  if (config.PORT === undefined && port !== '3000') print(`Port 3000 is taken, so ${port}.`);
  print(`  API       ${url}/api`);
  print(`  Docs      ${url}/api/docs/`);
  print(`  Console   ${url}/console/`);
  print(`  Health    ${url}/api/health/ready`);
  if (metricsUrl) print(`  Metrics   ${metricsUrl}`);
  print(`  Data      ${place}`);
  if (!config.SMTP_URL) print(`  E-mail    ${join(config.DATA_DIR, 'outbox')} (.eml files; set SMTP_URL to send)`);
  if (hasDemo) {
    print();
    print(`Demo school "${demo.subdomain}", password ${demo.password}`);
    print(`  Admin     ${demo.admin}`);
    print(`  Teacher   ${demo.teacher}`);
    print(`  Student   ${demo.student}`);
    print(`  Operator  ${demo.operator} (in the console; is_platform: true for the API)`);
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
  const { ownerUrl, place } = await openDatabase(config);
  const hasDemo = await prepare(config, ownerUrl);
  const service = await undoable(startService(config, ownerUrl, parts), (running) => running.close());
  if (service.url)
    banner(config, service.url, service.metricsUrl, place, hasDemo, ((performance.now() - begin) / 1000).toFixed(1));
  else print(`Worker ready.${service.metricsUrl ? ` Metrics at ${service.metricsUrl} .` : ''} Stop with Ctrl-C.`);
}

const { only } = new Command('school-management-service')
  .description('Starts the service; see .env.example for its settings.')
  .addOption(new Option('--only <part>', 'run one part alone').choices(['api', 'worker']))
  .parse()
  .opts<{ only?: Part }>();

// Whoever reads our output may be gone before us, as in `npm start | tee`: that is no reason to leave Postgres running.
process.stdout.on('error', () => undefined);

let isStopping = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // A terminal sends Ctrl-C to npm and to us, and npm passes it on: the second one is no wish to hurry.
    if (isStopping) return;
    isStopping = true;
    print(process.stdout.isTTY ? '\nStopping ...' : 'Stopping ...');
    stop().then(
      () => {
        print('Stopped.');
        process.exit(0);
      },
      (error: unknown) => {
        process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
        process.exit(1);
      },
    );
  });
}

start(only ? [only] : ['api', 'worker']).catch(async (error: unknown) => {
  // It was stopped half-way, and the database is going away under it.
  if (isStopping) return;
  const lines =
    error instanceof ConfigError ? error.problems : [error instanceof Error ? error.message : String(error)];
  process.stderr.write(`${lines.join('\n')}\n`);
  await stop().catch(() => undefined);
  process.exit(1);
});
