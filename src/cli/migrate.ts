import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { sqlFiles } from '../database/migrate/install.ts';
import { type Effect, type Finding, inspectMigration, newHistory, rules } from '../database/migrate/migration-rules.ts';
import { requireRights } from '../database/migrate/missing-rights.ts';
import { type MigrationStatus, readMigrationStatus } from '../database/migrate/migration-status.ts';
import { findTenant } from '../database/find-tenant.ts';
import { describeRehearsal, migrate, type MigrateResult } from '../database/migrate/migrate.ts';
import type { TenantResult } from '../database/migrate/schools.ts';
import { migrateServers } from '../servers/migrate-servers.ts';
import { withOwner } from '../database/pool/pool.ts';
import { fileNumber, tenantFolder } from '../database/migrate/tenant-migrations.ts';
import { requireDevelopment, watchMigrations } from '../database/migrate/watch-migrations.ts';
import type { Config } from '../process/config.ts';
import { formatMinute, withDatabase, withExistingDatabase } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { counted, type Format, indented, print } from './output.ts';
import { type OfServer, onEachServer, type Server, serverOfSchool, serversOfCommand } from '../servers/servers.ts';

const printJson = (value: unknown) => print(JSON.stringify(value));
const embeddedDataDir = (config: Config) => (config.DATABASE_URL ? undefined : config.DATA_DIR);

/** Prints a line about waiting for another migration, even if the results are JSON. */
const reportWait = (json: boolean) => (json ? (line: string) => void process.stderr.write(`${line}\n`) : print);

interface MigrateFormat extends Format {
  tenantMigrations?: string;
}

export interface UpOptions extends MigrateFormat {
  tenant?: string;
  dryRun?: boolean;
  sample?: number;
  jobs?: number;
  parallel?: number;
  canary?: number;
  replace?: number[];
  skip?: string[] | undefined;
  unskip?: string[] | undefined;
  reason?: string;
  acceptFailures?: boolean;
  /** Only the database of the command, not its nodes. */
  here?: boolean;
}

/** The line of one school. */
function describeTenant({ applied, milliseconds, error, rehearsal }: TenantResult, isDryRun: boolean): string {
  if (error) return `FAILED: ${indented(error, 2)}`;
  return isDryRun
    ? `would apply ${String(applied)} in ${String(milliseconds)} ms${rehearsal ? describeRehearsal(rehearsal) : ''}`
    : `${String(applied)} applied in ${String(milliseconds)} ms`;
}

/** The last line of a dry run: the slowest school. */
function slowest(tenants: TenantResult[]): string {
  const [first] = tenants.toSorted((a, b) => b.milliseconds - a.milliseconds);
  return first ? `; slowest: school ${first.tenant} (${first.subdomain}), ${String(first.milliseconds)} ms` : '';
}

/** @throws for options that contradict each other */
function checkUpOptions({ dryRun = false, skip, unskip, canary, reason, sample, tenant }: UpOptions): void {
  if (sample !== undefined && !dryRun) throw new Error('--sample needs --dry-run.');
  if (dryRun && (skip ?? unskip ?? canary) !== undefined)
    throw new Error('--dry-run changes nothing, so it takes no --skip, --unskip or --canary.');
  if (tenant !== undefined && (skip ?? unskip) !== undefined)
    throw new Error('--tenant migrates one school, even if it is skipped, so it takes no --skip or --unskip.');
  if (skip && !reason?.trim()) throw new Error('--skip needs --reason "…", which `school migrate status` shows.');
  if (reason && !skip) throw new Error('--reason needs --skip.');
}

/** Migrates one server, and prints one line per school. `prefix` precedes each line. */
async function migrateServer(config: Config, url: string, options: UpOptions, prefix: string): Promise<MigrateResult> {
  const { json = false, dryRun = false, skip, reason } = options;
  const say = json ? () => undefined : (line: string) => print(`${prefix}${line}`);
  const result = await migrate({
    ...options,
    ownerUrl: url,
    dataDir: embeddedDataDir(config),
    parallel: options.jobs ?? options.parallel,
    holdFunctions: !options.acceptFailures,
    skip: skip && reason ? { schools: skip, reason: reason.trim() } : undefined,
    onStep: say,
    onWait: reportWait(json),
    onTenant: (tenant, done, total) =>
      say(
        `[${String(done)}/${String(total)}] school ${tenant.tenant} (${tenant.subdomain}): ` +
          describeTenant(tenant, dryRun),
      ),
  });
  // Refresh the analytics facts now instead of at the next scheduled run.
  if (result.tenants.length > result.failed.length && !dryRun)
    await withOwner(url, (client) =>
      client.query("select graphile_worker.add_job('analytics', job_key => 'analytics')"),
    );
  return result;
}

/** Each server with those of the schools that are on it. Schools without a server are those of the home. */
async function schoolsByServer(ownerUrl: string, schools: readonly string[]): Promise<Map<string, string[]>> {
  const byServer = new Map<string, string[]>();
  for (const school of schools) {
    const { id } = await withOwner(ownerUrl, (client) => findTenant(client, school));
    const { name } = await serverOfSchool(ownerUrl, id);
    byServer.set(name, [...(byServer.get(name) ?? []), school]);
  }
  return byServer;
}

/** The options for one server: schools on other servers are left out. */
async function optionsByServer(ownerUrl: string, options: UpOptions): Promise<(server: string) => UpOptions> {
  const [skip, unskip] = await Promise.all(
    [options.skip ?? [], options.unskip ?? []].map((schools) => schoolsByServer(ownerUrl, schools)),
  );
  return (server) => ({ ...options, skip: skip?.get(server), unskip: unskip?.get(server) });
}

/** Migrates all servers, and prints one line per school. */
async function migrateAll(config: Config, servers: [Server, ...Server[]], options: UpOptions) {
  const say = options.json ? () => undefined : print;
  const optionsOf = await optionsByServer(servers[0].url, options);
  const migrated = await migrateServers(
    servers,
    ({ name, url }) => migrateServer(config, url, optionsOf(name), `${name}: `),
    { dryRun: options.dryRun, say },
  );
  if (!migrated.ofHome)
    say(
      `home: not migrated, because it comes after its nodes: ${migrated.behind.join(', ')}. Repeat the command when ` +
        'they are repaired, or migrate only the home: school migrate up --here',
    );
  else if (!options.dryRun) say('Update each forwarder: school forwarder create');
  return migrated;
}

/** The results of all servers as one. */
const combine = (results: MigrateResult[]) => ({
  tenants: results.flatMap(({ tenants }) => tenants),
  failed: results.flatMap(({ failed }) => failed),
  skipped: results.flatMap(({ skipped }) => skipped),
  isStopped: results.some(({ isStopped }) => isStopped),
});

/** `school migrate up`: prints one line per school. @returns the exit code */
export async function migrateUp(config: Config, options: UpOptions): Promise<number> {
  const { json = false, dryRun = false, tenant, here } = options;
  checkUpOptions(options);
  const say = json ? () => undefined : print;
  const start = performance.now();
  return (dryRun ? withExistingDatabase : withDatabase)(config, async (ownerUrl) => {
    // The list of servers is in a table that the role may not be allowed to read.
    await withOwner(ownerUrl, requireRights);
    const all = await serversOfCommand(ownerUrl);
    const server =
      tenant === undefined || all.length === 1
        ? undefined
        : await serverOfSchool(ownerUrl, (await withOwner(ownerUrl, (client) => findTenant(client, tenant))).id);
    const isOne = here === true || all.length === 1 || server !== undefined;
    const { ofNodes, ofHome, notCopied } = isOne
      ? { ofNodes: [], ofHome: await migrateServer(config, server?.url ?? ownerUrl, options, ''), notCopied: [] }
      : await migrateAll(config, all, options);
    const done = [...ofNodes.flatMap(({ result }) => result ?? []), ...(ofHome ? [ofHome] : [])];
    const { tenants, failed, skipped, isStopped } = combine(done);
    const seconds = (performance.now() - start) / 1000;
    if (json)
      printJson({
        ...(ofHome ?? { tenants: [], failed: [], skipped: [], isStopped, functions: 'not tried' }),
        ...(isOne
          ? {}
          : { nodes: ofNodes.map(({ server: { name }, error, result }) => ({ name, ...(result ?? { error }) })) }),
        seconds: Number(seconds.toFixed(1)),
      });
    say(
      `${counted(tenants.length - failed.length, 'school')} ${dryRun ? 'to migrate' : 'migrated'}, ` +
        `${String(failed.length)} failed${skipped.length > 0 ? `, ${String(skipped.length)} skipped` : ''}, ` +
        `${seconds.toFixed(1)} s${dryRun ? `${slowest(tenants)}; nothing was changed` : ''}`,
    );
    if (isStopped) return exitCodes.stopped;
    const hasFailed =
      failed.length > 0 ||
      notCopied.length > 0 ||
      ofNodes.some(({ error }) => error !== undefined) ||
      done.some(({ shared }) => shared?.error);
    return hasFailed ? exitCodes.failed : exitCodes.done;
  });
}

/** The exit code of a status: 1 if a school failed, 2 if something is to be applied. */
const statusExitCode = ({ failed, shared, pending, functions }: MigrationStatus): number =>
  failed > 0
    ? exitCodes.failed
    : shared.pending.length + pending.length > 0 || !functions.is_current
      ? exitCodes.attention
      : exitCodes.done;

function printStatus(status: MigrationStatus): void {
  const { shared, functions, delayed, replaced } = status;
  print(`shared:    ${shared.pending.length === 0 ? 'up to date' : `to apply: ${shared.pending.join(', ')}`}`);
  print(
    `functions: ${functions.is_current ? 'up to date' : 'of another version'}, serve schools from version ` +
      fileNumber(functions.required_schema_version),
  );
  print(
    `schools:   ${
      status.schools
        .map(({ schema_version, schools: count }) => `${String(count)} at ${fileNumber(schema_version)}`)
        .join(', ') || 'none'
    }; latest ${fileNumber(status.latest_version)}`,
  );
  if (status.pending.length > 0) print(`pending:   ${status.pending.join(', ')}`);
  for (const school of delayed) {
    const { tenant_id, subdomain, schema_version, failed_version, error, failed_at, skip_reason, skipped_at } = school;
    const since = (time: string | null) => formatMinute(new Date(time ?? 0));
    print(
      `  school ${tenant_id} (${subdomain}): at ${fileNumber(schema_version)}, ` +
        (school.is_served ? 'in service' : 'answers 503'),
    );
    if (error) {
      const at = failed_version === null ? '' : ` at ${fileNumber(failed_version)}`;
      print(`    failed${at} on ${since(failed_at)}: ${indented(error, 6)}`);
    }
    if (skip_reason) print(`    skipped on ${since(skipped_at)}: ${skip_reason}`);
  }
  for (const { name, checksum, replacement_checksum, replaced_at, schools: count, examples } of replaced) {
    const ids = examples.length > 0 ? ` (${examples.join(', ')}${count > examples.length ? ', …' : ''})` : '';
    print(
      `  ${name}: ${checksum.slice(0, 8)} replaced by ${replacement_checksum.slice(0, 8)} on ` +
        `${formatMinute(new Date(replaced_at))}; ${counted(count, 'school')}${ids} applied the earlier text`,
    );
  }
  print(`${String(status.waiting)} waiting, ${String(status.failed)} failed, ${String(status.skipped)} skipped`);
}

/** Prints the results of the database and its nodes. @throws if there is none of the database itself */
function printEachServer<Result extends object>(
  results: OfServer<Result>[],
  json: boolean | undefined,
  printResult: (result: Result) => void,
): void {
  const [home, ...nodes] = results;
  if (home?.error !== undefined) throw new Error(home.error);
  if (json)
    printJson({
      ...home?.result,
      ...(nodes.length > 0
        ? { nodes: nodes.map(({ server: { name }, error, result }) => ({ name, ...(result ?? { error }) })) }
        : {}),
    });
  else
    for (const { server, error, result } of results) {
      if (nodes.length > 0) print(`== ${server.name} ==`);
      if (result) printResult(result);
      else print(`Does not answer: ${error}`);
    }
}

/**
 * `school migrate status` of the database and its nodes.
 * @returns the exit code: 1 if a school failed or a node does not answer, 2 if something is to be applied
 */
export async function migrateStatus(config: Config, { json, tenantMigrations }: MigrateFormat): Promise<number> {
  return withExistingDatabase(config, async (ownerUrl) => {
    const results = await onEachServer(await serversOfCommand(ownerUrl), ({ url }) =>
      withOwner(url, (client) => readMigrationStatus(client, tenantMigrations, embeddedDataDir(config))),
    );
    printEachServer(results, json, printStatus);
    const codes = results.map(({ result }) => (result ? statusExitCode(result) : exitCodes.failed));
    return codes.find((code) => code === exitCodes.failed) ?? Math.max(...codes);
  });
}

/** A pending migration of a plan. */
interface PlannedMigration {
  file: string;
  effects: Effect[];
  findings: Finding[];
}

/** Inspects the files of a folder that are in `pending`. */
async function inspectPending(folder: string, pending: string[]): Promise<PlannedMigration[]> {
  const history = newHistory();
  const planned: PlannedMigration[] = [];
  for (const { name, text } of await sqlFiles(folder)) {
    const { effects, findings } = await inspectMigration(text, history);
    const file = basename(name);
    if (pending.includes(file)) planned.push({ file, effects, findings });
  }
  return planned;
}

/** What is to be applied on one server, and the outcome of a dry run there. */
interface Plan {
  migrations: PlannedMigration[];
  dry_run: MigrateResult;
}

type PlanOptions = MigrateFormat & { sample: number };

/** The plan of one server. */
async function planOf(config: Config, url: string, { json = false, tenantMigrations, sample }: PlanOptions) {
  const dataDir = embeddedDataDir(config);
  const status = await withOwner(url, (client) => readMigrationStatus(client, tenantMigrations, dataDir));
  const migrations = [
    ...(await inspectPending('migrations/committed', status.shared.pending)),
    ...(await inspectPending(
      tenantMigrations ?? tenantFolder,
      status.pending.map((name) => `${name}.sql`),
    )),
  ];
  const dry_run = await migrate({
    ownerUrl: url,
    dataDir,
    tenantMigrations,
    dryRun: true,
    sample,
    onWait: reportWait(json),
  });
  return { migrations, dry_run } satisfies Plan;
}

function printPlan({ migrations, dry_run }: Plan): void {
  if (migrations.length === 0) print('Nothing to apply.');
  for (const { file, effects, findings } of migrations) {
    print(file);
    for (const { line, statement, table, lock, work } of effects)
      print(`  line ${String(line)}: ${table}: ${lock}, ${work}: ${statement}`);
    if (effects.length === 0) print('  only creates what did not exist');
    for (const { line, rule, message } of findings) print(`  warning: line ${String(line)} ${message}. ${rules[rule]}`);
  }
  const { rehearsal, error } = dry_run.shared ?? {};
  if (rehearsal) print(`dry run, shared: ${String(rehearsal.milliseconds)} ms${describeRehearsal(rehearsal)}`);
  if (error) print(`dry run, shared: FAILED: ${error}`);
  for (const tenant of dry_run.tenants)
    print(`dry run, school ${tenant.tenant} (${tenant.subdomain}): ${describeTenant(tenant, true)}`);
}

/**
 * `school migrate plan`: what each pending migration will lock and rewrite, from its text and from a dry run, on the
 * database and its nodes.
 * @returns the exit code: 1 if a migration failed in the dry run, or a node does not answer
 */
export async function migratePlan(config: Config, options: PlanOptions): Promise<number> {
  return withExistingDatabase(config, async (ownerUrl) => {
    const plans = await onEachServer(await serversOfCommand(ownerUrl), ({ url }) => planOf(config, url, options));
    printEachServer(plans, options.json, printPlan);
    const isFailed = plans.some(
      ({ result }) => !result || result.dry_run.failed.length > 0 || result.dry_run.shared?.error !== undefined,
    );
    return isFailed ? exitCodes.failed : exitCodes.done;
  });
}

const template = (topic: string) => `-- ${topic}: what changes, and why.

-- One transaction per school; requests of the school get 503 meanwhile, so keep it short. It must work with the
-- functions of the previous release: add now, remove in the next release. Write \`-- @optional: <why>\` if the new
-- functions also work without it. \`school migrate plan\` shows what it locks, \`npm run check:sql\` what it breaks.
-- \`school migrate watch\` runs this file again at each save, so let it begin by removing what it creates:
-- \`drop table if exists …\`. Delete these lines and those removals at the end.
`;

/** `school migrate new`: writes the next tenant migration from a template. */
export async function migrateNew(
  topic: string,
  { json, tenantMigrations = tenantFolder }: MigrateFormat,
): Promise<number> {
  if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(topic))
    throw new Error('The name may have lower-case letters, digits and hyphens, for example student-lockers.');
  const names = (await sqlFiles(tenantMigrations)).map(({ name }) => basename(name));
  const version = Math.max(0, ...names.map((name) => parseInt(name))) + 1;
  const folder =
    tenantMigrations === tenantFolder ? join(import.meta.dirname, '../..', tenantFolder) : tenantMigrations;
  const file = join(folder, `${fileNumber(version)}-${topic}.sql`);
  await writeFile(file, template(topic), { flag: 'wx' });
  if (json) printJson({ file, version });
  else print(file);
  return exitCodes.done;
}

/** `school migrate watch`: applies unfinished migrations to a development database until it is interrupted. */
export async function migrateWatch(config: Config, { json, tenantMigrations }: MigrateFormat): Promise<number> {
  if (config.isProduction) throw new Error('migrate watch runs unfinished migrations. It refuses NODE_ENV=production.');
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  return withDatabase(config, async (ownerUrl) => {
    if (config.DATABASE_URL) await requireDevelopment(ownerUrl);
    await watchMigrations({
      ownerUrl,
      tenantMigrations,
      signal: stop.signal,
      onStep: json ? (step) => printJson({ step }) : print,
    });
    return exitCodes.done;
  });
}
