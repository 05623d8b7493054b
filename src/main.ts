import './process/environment-file.ts';
import './process/thread-pool-size.ts';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { passwords } from './domain/passwords.ts';
import { announce, print } from './process/announce.ts';
import {
  checkMigrated,
  checkReachable,
  databaseName,
  olderDataNotice,
  describeDatabase,
} from './process/database-access.ts';
import { type Config, ConfigError, readConfig } from './process/config.ts';
import { demo, type DemoLogin, findDemoLogins, loadDemo } from './process/demo.ts';
import { lockDataDir, ensureDatabase, startEmbedded } from './database/embedded.ts';
import { migrate } from './database/migrate/migrate.ts';
import type { TenantResult } from './database/migrate/schools.ts';
import { checkVersion, isServed } from './database/migrate/versions.ts';
import { migrateServers } from './servers/migrate-servers.ts';
import { createOperator } from './database/operator.ts';
import { withOwner } from './database/pool/pool.ts';
import { reasonOf } from './domain/reason.ts';
import { serversOfCommand } from './servers/servers.ts';
import { type Part, startService } from './process/service.ts';

/** Runs in reverse order when the service stops. */
const cleanups: (() => Promise<void>)[] = [];

/** Awaits a resource and closes it when the service stops, even if it is still opening at that moment. */
function closeOnStop<T>(opening: Promise<T>, close: (resource: T) => Promise<void>): Promise<T> {
  cleanups.push(() => opening.then(close, () => undefined));
  return opening;
}

/** Runs every cleanup, including those added meanwhile, even when one fails. @throws the first failure */
async function stop(): Promise<void> {
  const failures: unknown[] = [];
  for (let cleanup = cleanups.pop(); cleanup; cleanup = cleanups.pop())
    await cleanup().catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

/** For the second of two processes that would both start the embedded server. */
const splitAdvice =
  'An embedded Postgres serves only the process that starts it. Set DATABASE_URL in all processes that run with --only.';

/**
 * Opens the database at DATABASE_URL, or starts the embedded server. `location` is for the banner.
 * @param isSplit  whether the process runs only one part, so that another process probably runs the other one
 */
async function openDatabase(config: Config, isSplit: boolean): Promise<{ ownerUrl: string; location: string }> {
  if (config.DATABASE_URL) {
    await checkReachable(config.DATABASE_URL);
    return { ownerUrl: config.DATABASE_URL, location: describeDatabase(config.DATABASE_URL) };
  }
  const lock = lockDataDir(config.DATA_DIR, isSplit ? splitAdvice : undefined);
  await closeOnStop(lock, (release) => release());
  const server = await closeOnStop(startEmbedded(config.DATA_DIR), (embedded) => embedded.stop());
  const notice = olderDataNotice(server, config.DATA_DIR);
  if (notice) announce(notice);
  await ensureDatabase(server, databaseName);
  return { ownerUrl: server.url(databaseName), location: server.cluster };
}

/**
 * Migrates the database, after its nodes if it is a home.
 * @returns the schools that failed
 * @throws if the home needs a migration that it cannot get, because a node was not migrated
 */
async function migrateAll(ownerUrl: string, dataDir: string | undefined): Promise<TenantResult[]> {
  const servers = await serversOfCommand(ownerUrl);
  const migrateOne = ({ url }: { url: string }) => migrate({ ownerUrl: url, dataDir, onWait: announce });
  if (servers.length === 1) return (await migrateOne(servers[0])).failed;
  const { ofNodes, ofHome, behind } = await migrateServers(servers, migrateOne, { say: announce });
  if (!ofHome) {
    await checkVersion(ownerUrl, dataDir);
    if (!(await withOwner(ownerUrl, isServed)))
      throw new Error(
        `The home was not migrated, because its nodes come first, and these were not migrated: ${behind.join(', ')}. ` +
          'Start again when they answer, or migrate only the home: npm run migrate -- --here',
      );
  }
  const results = [...ofNodes.flatMap(({ result }) => result ?? []), ...(ofHome ? [ofHome] : [])];
  if (results.some(({ functions }) => functions === 'installed'))
    announce('Update each forwarder: school forwarder create');
  return results.flatMap(({ failed }) => failed);
}

/** Migrates, creates the first operator, loads the demo. @returns the logins of the demo school that work */
async function prepare(config: Config, ownerUrl: string): Promise<DemoLogin[]> {
  const dataDir = config.DATABASE_URL ? undefined : config.DATA_DIR;
  if (config.migrateOnStart) {
    const failed = await migrateAll(ownerUrl, dataDir);
    for (const { tenant, error } of failed)
      announce(`School ${tenant} could not be migrated. Its requests get 503. Cause: ${error ?? ''}`);
  } else {
    await checkVersion(ownerUrl, dataDir);
    await checkMigrated(ownerUrl);
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
    if (config.isProduction) return [];
    if (config.DEMO !== false) await loadDemo(client, hashing);
    return findDemoLogins(client, hashing);
  });
}

/** Where emails go without SMTP_URL. */
const outboxOf = (config: Config) => join(config.DATA_DIR, 'outbox');

interface StartSummary {
  ready: string;
  url: string;
  metricsUrl: string | undefined;
  location: string;
  demoLogins: DemoLogin[];
}

function printBanner(config: Config, { ready, url, metricsUrl, location, demoLogins }: StartSummary): void {
  print();
  print(ready);
  print(`  API       ${url}/api`);
  print(`  Docs      ${url}/api/docs/`);
  print(`  Console   ${url}/console/`);
  print(`  Health    ${url}/api/health/ready`);
  if (metricsUrl) print(`  Metrics   ${metricsUrl}`);
  print(`  Data      ${location}`);
  if (!config.SMTP_URL) print(`  Email     ${outboxOf(config)} (.eml files; set SMTP_URL to send)`);
  if (demoLogins.length > 0) {
    print();
    print(`Demo school "${demo.subdomain}", password ${demo.password}`);
    if (demoLogins.includes('admin')) print(`  Admin     ${demo.admin}`);
    if (demoLogins.includes('teacher')) print(`  Teacher   ${demo.teacher}`);
    if (demoLogins.includes('student')) print(`  Student   ${demo.student}`);
    if (demoLogins.includes('guardian')) print(`  Guardian  ${demo.guardian}`);
    if (demoLogins.includes('operator'))
      print(`  Operator  ${demo.operator} (in the console; is_platform: true for the API)`);
  }
  if (demoLogins.includes('admin')) {
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
  const startedAt = performance.now();
  const config = readConfig(process.env);
  const { ownerUrl, location } = await openDatabase(config, parts.length === 1);
  const demoLogins = await prepare(config, ownerUrl);
  const { url, metricsUrl } = await closeOnStop(startService(config, ownerUrl, parts), (running) => running.close());
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  const ready = `${url ? 'School management service' : 'Worker'} ready in ${seconds} s`;
  if (url && config.PORT === undefined && new URL(url).port !== '3000')
    announce(`Port 3000 is in use. Using port ${new URL(url).port} instead.`);
  const facts = {
    api: url && `${url}/api`,
    metrics: metricsUrl,
    data: location,
    outbox: config.SMTP_URL ? undefined : outboxOf(config),
    demo: demoLogins.length > 0 ? { ...demo, logins: demoLogins } : undefined,
  };
  announce(ready, facts, () => {
    if (url) printBanner(config, { ready, url, metricsUrl, location, demoLogins });
    else print(`${ready}.${metricsUrl ? ` Metrics at ${metricsUrl} .` : ''} Stop with Ctrl-C.`);
  });
}

const { only } = new Command('school-management-service')
  .description('Start the service. Settings are listed in .env.example.')
  .addOption(
    new Option('--only <part>', 'run only this part; several processes need DATABASE_URL').choices(['api', 'worker']),
  )
  .parse()
  .opts<{ only?: Part }>();

// The reader of a pipe (`npm start | tee`) may exit first. Unhandled, the error would kill this process and leave
// Postgres running.
process.stdout.on('error', () => undefined);

let isStopping = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // On Ctrl-C the terminal signals npm and this process, and npm forwards its signal: ignore the second one.
    if (isStopping) return;
    isStopping = true;
    announce('Stopping ...', {}, () => print('\nStopping ...'));
    stop().then(
      () => {
        announce('Stopped.');
        process.exit(0);
      },
      (error: unknown) => {
        process.stderr.write(`${reasonOf(error)}\n`);
        process.exit(1);
      },
    );
  });
}

start(only ? [only] : ['api', 'worker']).catch(async (error: unknown) => {
  // Stopped during the start: the error comes from the database that is shutting down.
  if (isStopping) return;
  const lines = error instanceof ConfigError ? error.problems : [reasonOf(error)];
  process.stderr.write(`${lines.join('\n')}\n`);
  await stop().catch(() => undefined);
  process.exit(1);
});
