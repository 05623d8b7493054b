import { basename, join } from 'node:path';
import { Logger, migrate as migrateShared } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { Logger as QueueLogger, runMigrations as migrateQueue } from 'graphile-worker';
import pg from 'pg';
import { roleSettings } from '../../domain/role-settings.ts';
import { type Rehearsal, rehearseShared, rehearseTenant, type SharedRehearsal } from './dry-run.ts';
import { findTenant, type NamedTenant } from '../find-tenant.ts';
import { fingerprint, install, sqlFile, sqlFiles } from './install.ts';
import { retryLockConflicts } from '../lock-conflicts.ts';
import { lockMigration } from './migration-lock.ts';
import { withOptions, withOwner } from '../pool/pool.ts';
import {
  comparePublished,
  hasTablesHere,
  publish,
  readTenantMigrations,
  startOver,
  type TenantMigration,
} from './tenant-migrations.ts';

const migrationsFolder = join(import.meta.dirname, '../../../migrations');
const quiet = new Logger(() => () => undefined);

/** The number of schools to migrate at the same time, unless the caller says otherwise. */
const defaultParallel = 2;

/** The outcome of migrating one school. */
export interface TenantResult {
  tenant: string;
  subdomain: string;
  /** The number of migrations applied; in a dry run, to apply. */
  applied: number;
  milliseconds: number;
  error?: string;
  /** What a dry run observed. */
  rehearsal?: Rehearsal;
}

/** A school that a run left behind deliberately. */
export interface SkippedTenant {
  tenant: string;
  subdomain: string;
  reason: string;
}

export interface MigrateOptions {
  /** The address of the database, for its owner. */
  ownerUrl: string;
  /** The data folder, if the database is the embedded one; for advice in errors. */
  dataDir?: string | undefined;
  /** Migrate only this school, by id or subdomain, even if it is skipped. Shared migrations run in any case. */
  tenant?: string | undefined;
  /** Run every migration and roll it back. */
  dryRun?: boolean | undefined;
  /** In a dry run, the number of schools to try; all by default. */
  sample?: number | undefined;
  /** The number of schools to migrate at the same time; 2 by default. A dry run takes one after the other. */
  parallel?: number | undefined;
  /** The number of schools to migrate first. If one of them fails, the run stops. */
  canary?: number | undefined;
  /** Keep the installed functions if the new ones would stop a school that failed and that is in service now. */
  holdFunctions?: boolean | undefined;
  /** The versions of tenant migrations whose edited text replaces the earlier one. */
  replace?: readonly number[] | undefined;
  /** Schools to leave at their version, by id or subdomain, and why. */
  skip?: { schools: readonly string[]; reason: string } | undefined;
  /** Schools that are no longer left behind, by id or subdomain. */
  unskip?: readonly string[] | undefined;
  /** The folder of the tenant migrations; migrations/tenant by default. */
  tenantMigrations?: string | undefined;
  /** Called after each school. */
  onTenant?: ((result: TenantResult, done: number, total: number) => void) | undefined;
  /** Called after each step, with a line to print. */
  onStep?: ((line: string) => void) | undefined;
  /** Called with a line to print when another process is migrating the database; onStep by default. */
  onWait?: ((line: string) => void) | undefined;
}

/** What a run did with the functions. */
export type FunctionsResult =
  | 'installed'
  | 'up to date'
  /** A school failed that the new functions cannot serve. */
  | 'held'
  /** Schools that were not selected must be migrated first. */
  | 'waiting'
  | 'not tried';

/** The outcome of a migration. `tenants` includes the failed schools. */
export interface MigrateResult {
  tenants: TenantResult[];
  failed: TenantResult[];
  skipped: SkippedTenant[];
  /** Whether the run stopped because a canary failed. */
  isStopped: boolean;
  functions: FunctionsResult;
  /** The shared migrations of a dry run. */
  shared?: SharedRehearsal;
}

/** Runs `work` with a pool of one connection, which graphile-worker requires. */
async function withPool(ownerUrl: string, work: (pool: pg.Pool) => Promise<void>): Promise<void> {
  const pool = new pg.Pool({ connectionString: ownerUrl, max: 1, application_name: 'school_owner' });
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  try {
    await work(pool);
  } finally {
    await pool.end();
  }
}

/** Whether a table exists. */
export const tableExists = async (client: pg.Client, table: string) =>
  (await client.query<{ exists: boolean }>('select to_regclass($1) is not null as exists', [table])).rows[0]?.exists ??
  false;

/** The names of the shared migrations: those in this version of the code, and those that the database has had. */
async function sharedMigrations(client: pg.Client): Promise<{ available: string[]; applied: string[] }> {
  const available = (await sqlFiles('migrations/committed')).map(({ name }) => basename(name));
  if (!(await tableExists(client, 'graphile_migrate.migrations'))) return { available, applied: [] };
  const { rows } = await client.query<{ filename: string }>(
    'select filename from graphile_migrate.migrations order by filename',
  );
  return { available, applied: rows.map(({ filename }) => filename) };
}

/** The names whose number is not the number of any of `others`: a migration may be renamed, not renumbered. */
function without(names: string[], others: string[]): string[] {
  const numbers = new Set(others.map((name) => parseInt(name)));
  return names.filter((name) => !numbers.has(parseInt(name)));
}

/** The shared migrations still to apply. graphile-migrate's own `status` requires a shadow database. */
export async function pendingSharedMigrations(client: pg.Client): Promise<string[]> {
  const { available, applied } = await sharedMigrations(client);
  return without(available, applied);
}

/**
 * Whether the installed functions are those of this version, or serve it. They are those of this version while a later
 * one is still migrating the schools, and serve it afterwards.
 */
export async function isServed(client: pg.Client): Promise<boolean> {
  const { rows: functions } = await client.query<{ exists: boolean }>(
    "select to_regprocedure('core.served_fingerprints()') is not null as exists",
  );
  const { rows } = await client.query<{ fingerprints: string[] }>(
    `select array[fingerprint]${functions[0]?.exists ? ' || core.served_fingerprints()' : ''} as fingerprints
     from platform.installation`,
  );
  return rows[0]?.fingerprints.includes(await fingerprint()) ?? false;
}

/**
 * @throws if the database has had migrations that this version of the code does not have, unless its functions serve
 *   this version
 */
export async function refuseNewer(
  client: pg.Client,
  files: TenantMigration[],
  dataDir: string | undefined,
): Promise<void> {
  const { available, applied } = await sharedMigrations(client);
  const tenant = (await tableExists(client, 'platform.tenant_migration'))
    ? (
        await client.query<{ name: string }>(
          'select name from platform.tenant_migration where version <> all ($1) order by version',
          [files.map((file) => file.version)],
        )
      ).rows
    : [];
  const unknown = [
    ...without(applied, available).map((name) => `committed/${name}`),
    ...tenant.map(({ name }) => `tenant/${name}.sql`),
  ];
  if (unknown.length === 0 || (await isServed(client))) return;
  throw new Error(
    `The database has migrations that this version does not have: ${unknown.join(', ')}. ` +
      `Run the version that applied them or a later one, or ${startOver(dataDir)}.`,
  );
}

/** @throws if the database is newer than this version of the code */
export const checkVersion = (ownerUrl: string, dataDir: string | undefined): Promise<void> =>
  withOwner(ownerUrl, async (client) => refuseNewer(client, await readTenantMigrations(), dataDir));

/**
 * A pool of the owner for work at every school. A backend keeps the catalog of each school that it has migrated, a
 * megabyte or two, and looks through it at every change: so a connection serves 100 schools, then the next one follows.
 */
function schoolsPool(ownerUrl: string, size: number): pg.Pool {
  const pool = new pg.Pool({
    // New requests of a school get 503 while its migration waits for a lock.
    connectionString: withOptions(ownerUrl, '-c lock_timeout=500ms -c jit=off'),
    max: size,
    maxUses: 100,
    application_name: 'school_owner',
  });
  pool.on('error', () => undefined);
  return pool;
}

/** Selects the schools below version $1. */
const outdatedTenantsSql = `from platform.tenant t where t.schema_version < $1 and ${hasTablesHere}`;

interface OutdatedTenant extends NamedTenant {
  schema_version: number;
  skip_reason: string | null;
}

/** The schools to migrate, and those that are skipped. */
async function selectTenants(
  client: pg.Client,
  latest: number,
  tenant: string | undefined,
): Promise<{ selected: OutdatedTenant[]; skipped: OutdatedTenant[] }> {
  const reason = (await tableExists(client, 'platform.delayed_migration'))
    ? '(select d.skip_reason from platform.delayed_migration d where d.tenant_id = t.id)'
    : 'null::text';
  const { rows } = await client.query<OutdatedTenant>(
    `select id, subdomain, schema_version, ${reason} as skip_reason
     ${outdatedTenantsSql} and ($2::bigint is null or id = $2) order by id`,
    [latest, tenant === undefined ? null : (await findTenant(client, tenant)).id],
  );
  const isSkipped = (row: OutdatedTenant) => tenant === undefined && row.skip_reason !== null;
  return { selected: rows.filter((row) => !isSkipped(row)), skipped: rows.filter(isSkipped) };
}

/** `count` of the rows at equal distances, so that a sample has old and new schools. */
const spread = <T>(rows: T[], count: number): T[] =>
  count >= rows.length
    ? rows
    : Array.from({ length: count }, (_, n) => rows[Math.floor((n * rows.length) / count)] as T);

/** Runs `work` for each school, `parallel` at a time. An error is the result of its school. */
async function forEachTenant(
  rows: OutdatedTenant[],
  parallel: number,
  versions: number[],
  work: (row: OutdatedTenant, result: TenantResult) => Promise<void>,
  onResult: (result: TenantResult) => void,
): Promise<void> {
  const queue = rows.values();
  const takeNext = async () => {
    for (const row of queue) {
      const start = performance.now();
      const result: TenantResult = {
        tenant: row.id,
        subdomain: row.subdomain,
        applied: versions.filter((version) => version > row.schema_version).length,
        milliseconds: 0,
      };
      try {
        await work(row, result);
      } catch (error) {
        result.applied = 0;
        result.error = describeError(error);
      }
      result.milliseconds = result.rehearsal?.milliseconds ?? Math.round(performance.now() - start);
      onResult(result);
    }
  };
  await Promise.all(Array.from({ length: parallel }, takeNext));
}

/** The message of an error, with the detail and the hint that Postgres adds. */
function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { detail, hint } = error as { detail?: string; hint?: string };
  return [error.message, detail, hint].filter(Boolean).join(' ');
}

/**
 * Stores why a school is behind; core.tenant_migrate deletes it at the next success. Only the message: the detail of a
 * violated constraint has the values of a row, which may be personal data.
 */
async function recordFailure(pool: pg.Pool, tenant: string, thrown: unknown): Promise<void> {
  const error = Error.isError(thrown) ? thrown.message : String(thrown);
  await pool.query(
    `insert into platform.delayed_migration (tenant_id, version, error, failed_at) values ($1, $2, $3, now())
     on conflict (tenant_id) do update set
       version = excluded.version, error = excluded.error, failed_at = excluded.failed_at`,
    [tenant, /^tenant migration (\d{4})-/.exec(error)?.[1] ?? null, error],
  );
}

/**
 * Migrates the outdated schools, each in its own transaction. The failure of one school does not affect the others,
 * unless it is one of the canaries, which are migrated first.
 */
async function migrateTenants(
  selected: OutdatedTenant[],
  { ownerUrl, parallel = defaultParallel, canary = 0, onTenant }: MigrateOptions,
  versions: number[],
): Promise<{ tenants: TenantResult[]; isStopped: boolean }> {
  const pool = schoolsPool(ownerUrl, parallel);
  const tenants: TenantResult[] = [];
  const run = (rows: OutdatedTenant[]) =>
    forEachTenant(
      rows,
      parallel,
      versions,
      async ({ id }, result) => {
        const answer = await retryLockConflicts(() =>
          pool.query<{ applied: number }>('select core.tenant_migrate($1) as applied', [id]),
        ).catch(async (error: unknown) => {
          await recordFailure(pool, id, error);
          throw error;
        });
        result.applied = answer.rows[0]?.applied ?? 0;
      },
      (result) => {
        tenants.push(result);
        onTenant?.(result, tenants.length, selected.length);
      },
    );
  try {
    const canaries = spread(selected, canary);
    await run(canaries);
    const isStopped = tenants.some(({ error }) => error);
    if (!isStopped) await run(selected.filter((row) => !canaries.includes(row)));
    return { tenants, isStopped };
  } finally {
    await pool.end();
  }
}

/**
 * Leaves schools at their version, or no longer. Changes all of them or none.
 * @throws if a school does not exist, or one to skip is up to date
 */
async function changeSkips(client: pg.Client, { skip, unskip = [] }: MigrateOptions, latest: number): Promise<void> {
  await client.query('begin');
  try {
    for (const school of skip?.schools ?? []) {
      const { id, subdomain } = await findTenant(client, school);
      const { rowCount } = await client.query(
        `insert into platform.delayed_migration (tenant_id, skip_reason, skipped_at)
         select id, $3, now() ${outdatedTenantsSql} and id = $2
         on conflict (tenant_id) do update set skip_reason = excluded.skip_reason, skipped_at = excluded.skipped_at`,
        [latest, id, skip?.reason],
      );
      if (!rowCount) throw new Error(`School ${id} (${subdomain}) is up to date, so there is nothing to skip.`);
    }
    for (const school of unskip) {
      const { id, subdomain } = await findTenant(client, school);
      if (skip?.schools.some((other) => other === id || other === subdomain))
        throw new Error(`School ${id} (${subdomain}) is both in --skip and in --unskip.`);
      await client.query('delete from platform.delayed_migration where tenant_id = $1 and failed_at is null', [id]);
      await client.query(
        'update platform.delayed_migration set skip_reason = null, skipped_at = null where tenant_id = $1',
        [id],
      );
    }
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}

/** @throws if the roles have no privileges, after a restore of a dump in a server that did not have the roles yet */
async function requirePrivileges(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ are_lost: boolean }>(
    `select exists (select from pg_namespace
       where nspname = 'core' and not has_schema_privilege('school_api', oid, 'usage')) as are_lost`,
  );
  if (!rows[0]?.are_lost) return;
  throw new Error(
    'The roles of the service have no privileges in this database, because they did not exist when its dump was restored. ' +
      'Now they exist: drop the database, create it again and restore the dump again. See docs/backup.md, "pg_dump".',
  );
}

/** Applies the shared migrations and those of graphile-worker, and creates the database roles. */
async function migrateSharedSchemas(client: pg.Client, ownerUrl: string): Promise<void> {
  await client.query("select set_config('school.role_settings', $1, false)", [JSON.stringify(roleSettings)]);
  await client.query((await sqlFile('db/roles.sql')).text);
  await requirePrivileges(client);
  await client.query((await sqlFile('db/search.sql')).text);
  // Requests queue behind a migration that waits for a lock, for example of pg_dump. It therefore waits briefly, then
  // lets them pass and tries again. Each migration is one transaction.
  await retryLockConflicts(async () => {
    try {
      await migrateShared({
        connectionString: withOptions(ownerUrl, '-c lock_timeout=500ms -c jit=off'),
        migrationsFolder,
        logger: quiet,
        manageGraphileMigrateSchema: true,
      });
    } finally {
      // Otherwise its pool stays idle for 200 ms, and ends this process if the server stops in that time.
      clearAllPools();
    }
  });
  await withPool(ownerUrl, (pgPool) => migrateQueue({ pgPool, logger: new QueueLogger(() => () => undefined) }));
  await client.query((await sqlFile('db/core/tenant.sql')).text);
}

/** Installs the functions, and gives the roles of each school the default grants of new permissions. */
async function installFunctions(
  client: pg.Client,
  { ownerUrl, parallel = defaultParallel }: MigrateOptions,
): Promise<'installed' | 'up to date'> {
  const isNew = await install(client);
  // Even if the functions are not new: a school that failed when they were installed may have caught up in this run.
  const { rows } = await client.query<{ id: string }>(
    `select id from platform.tenant
     where schema_version > 0 and schema_version >= core.required_schema_version()
       and seeded_permission_id < (select max(id) from core.permission)`,
  );
  const pool = schoolsPool(ownerUrl, parallel);
  try {
    await Promise.all(rows.map(({ id }) => retryLockConflicts(() => pool.query('select core.tenant_seed($1)', [id]))));
  } finally {
    await pool.end();
  }
  return isNew ? 'installed' : 'up to date';
}

/** The failed schools that the installed functions serve and that the new ones could not. */
async function servedOnlyNow(client: pg.Client, failed: TenantResult[]): Promise<NamedTenant[]> {
  if (failed.length === 0) return [];
  const { rows: installed } = await client.query<{ exists: boolean }>(
    "select to_regprocedure('core.required_schema_version()') is not null as exists",
  );
  if (!installed[0]?.exists) return [];
  const { rows } = await client.query<NamedTenant>(
    `select id, subdomain from platform.tenant
     where id = any ($1) and status = 'active'
       and schema_version >= core.required_schema_version()
       and schema_version < (select max(version) from platform.tenant_migration where is_required)
     order by id`,
    [failed.map(({ tenant }) => tenant)],
  );
  return rows;
}

const schoolCount = (count: number) => `${String(count)} ${count === 1 ? 'school' : 'schools'}`;

/** Installs the functions, unless schools that are in service would stop. Reports the reason as a step. */
async function finishFunctions(
  client: pg.Client,
  options: MigrateOptions,
  { failed, isStopped, notSelected }: { failed: TenantResult[]; isStopped: boolean; notSelected: number },
): Promise<FunctionsResult> {
  const { onStep = () => undefined } = options;
  if (isStopped) {
    onStep('functions: not installed, a canary failed; no other school was changed');
    return 'held';
  }
  // The new functions require every school to be at the latest version.
  if (options.tenant && notSelected > 0) {
    onStep(`functions: not installed, ${schoolCount(notSelected)} must be migrated first`);
    return 'waiting';
  }
  const served = options.holdFunctions ? await servedOnlyNow(client, failed) : [];
  if (served[0]) {
    const names = served.slice(0, 5).map(({ id, subdomain }) => `${id} (${subdomain})`);
    onStep(
      `functions: not installed, so that ${schoolCount(served.length)} that failed can still be used: ` +
        `${names.join(', ')}${served.length > names.length ? ', …' : ''}. Repair the migration and add --replace, or ` +
        `stop ${served.length === 1 ? 'the school' : 'these schools'} with --skip ${served[0].subdomain} --reason "…".`,
    );
    return 'held';
  }
  const functions = await installFunctions(client, options);
  onStep(`functions: ${functions}`);
  return functions;
}

/** Describes the outcome of a dry run of the shared migrations in one line. */
function describeShared({ pending, untried, reason, rehearsal, error }: SharedRehearsal): string {
  if (pending.length === 0) return 'up to date';
  const parts = [`would apply ${pending.join(', ')}`];
  if (rehearsal) parts.push(`in ${String(rehearsal.milliseconds)} ms${describeRehearsal(rehearsal)}`);
  if (error) parts.push(`FAILED: ${error}`);
  if (untried.length > 0)
    parts.push(`(not tried${untried.length === pending.length ? '' : `: ${untried.join(', ')}`}: ${reason ?? ''})`);
  return parts.join(' ');
}

/** What a rehearsal locked and wrote, as `; AccessExclusiveLock on student; rewrites student`. */
export function describeRehearsal({ locks, rewrites, indexes, rows_written }: Rehearsal): string {
  const byMode = Map.groupBy(locks, ({ mode }) => mode);
  const parts = [...byMode].map(([mode, held]) => `${mode} on ${held.map(({ table }) => table).join(', ')}`);
  if (rewrites.length > 0) parts.push(`rewrites ${rewrites.join(', ')}`);
  if (indexes.length > 0) parts.push(`builds ${indexes.join(', ')}`);
  if (rows_written > 0) parts.push(`rows written: ${String(rows_written)}`);
  return parts.map((part) => `; ${part}`).join('');
}

/** Runs every pending migration and rolls it back. */
async function dryRun(
  client: pg.Client,
  options: MigrateOptions,
  files: TenantMigration[],
  onStep: (line: string) => void,
): Promise<MigrateResult> {
  const isEmpty = !(await tableExists(client, 'platform.tenant_migration'));
  const shared = await rehearseShared(options.ownerUrl, await pendingSharedMigrations(client), isEmpty);
  onStep(`shared: ${describeShared(shared)}`);
  const result: MigrateResult = {
    tenants: [],
    failed: [],
    skipped: [],
    isStopped: false,
    functions: 'not tried',
    shared,
  };
  if (isEmpty) return result;
  const publication = await comparePublished(client, files, options);
  const versions = files.map((file) => file.version);
  const { selected, skipped } = await selectTenants(client, Math.max(0, ...versions), options.tenant);
  const rows = spread(selected, options.sample ?? selected.length);
  // One at a time: each transaction inserts the same rows of platform.tenant_migration.
  const pool = schoolsPool(options.ownerUrl, 1);
  try {
    await forEachTenant(
      rows,
      1,
      versions,
      async ({ id }, tenant) => {
        const connection = await pool.connect();
        try {
          tenant.rehearsal = await rehearseTenant(connection, id, publication);
        } finally {
          connection.release();
        }
      },
      (tenant) => {
        result.tenants.push(tenant);
        options.onTenant?.(tenant, result.tenants.length, rows.length);
      },
    );
  } finally {
    await pool.end();
  }
  result.failed = result.tenants.filter(({ error }) => error);
  result.skipped = skipped.map(asSkipped);
  onStep('functions: not tried');
  return result;
}

const asSkipped = ({ id, subdomain, skip_reason }: OutdatedTenant): SkippedTenant => ({
  tenant: id,
  subdomain,
  reason: skip_reason ?? '',
});

/**
 * Brings a database to this version: roles and shared migrations, the job queue, every school, then the functions (the
 * schemas core, api and analytics). Schools are migrated before the functions so that they stay in service: each school
 * answers 503 only during its own migration. A tenant migration must therefore work with the functions of the previous
 * version. Can be repeated at any time; it continues where an earlier run stopped.
 */
export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const { ownerUrl, onStep = () => undefined } = options;
  return withOwner(ownerUrl, async (client) => {
    const { rows } = await client.query<{ version: number }>(
      "select current_setting('server_version_num')::integer / 10000 as version",
    );
    if ((rows[0]?.version ?? 0) < 15) throw new Error('The service requires Postgres 15 or later.');
    await lockMigration(client, ownerUrl, options.onWait ?? onStep);
    const files = await readTenantMigrations(options.tenantMigrations);
    await refuseNewer(client, files, options.dataDir);
    if (options.dryRun) return dryRun(client, options, files, onStep);

    await migrateSharedSchemas(client, ownerUrl);
    onStep('shared: up to date');
    const versions = files.map((file) => file.version);
    const latest = Math.max(0, ...versions);
    const publication = await comparePublished(client, files, options);
    await publish(client, publication);
    for (const { name } of publication.replaced) onStep(`replaced: ${name}`);
    for (const { name, version } of files)
      if (options.replace?.includes(version) && !publication.replaced.some((file) => file.version === version))
        onStep(`not replaced: ${name}, its file has not changed`);
    await changeSkips(client, options, latest);
    const { selected, skipped } = await selectTenants(client, latest, options.tenant);
    const { tenants, isStopped } = await migrateTenants(selected, options, versions);
    const failed = tenants.filter((result) => result.error);
    for (const { id, subdomain, skip_reason } of skipped)
      onStep(`skipped: school ${id} (${subdomain}): ${skip_reason ?? ''}`);
    const { selected: behind } = await selectTenants(client, latest, undefined);
    const notSelected = behind.filter(({ id }) => !failed.some(({ tenant }) => tenant === id)).length;
    const functions = await finishFunctions(client, options, { failed, isStopped, notSelected });
    return { tenants, failed, skipped: skipped.map(asSkipped), isStopped, functions };
  });
}
