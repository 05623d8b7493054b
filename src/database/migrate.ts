import { createHash } from 'node:crypto';
import { basename, join } from 'node:path';
import { Logger, migrate as migrateShared } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { Logger as QueueLogger, runMigrations as migrateQueue } from 'graphile-worker';
import pg from 'pg';
import { roleSettings } from '../domain/role-settings.ts';
import { resetCommand } from './embedded.ts';
import { findTenant, type NamedTenant } from './find-tenant.ts';
import { install, sqlFile, sqlFiles } from './install.ts';
import { retryLockConflicts } from './lock-conflicts.ts';
import { withOwner } from './pool.ts';

const migrationsFolder = join(import.meta.dirname, '../../migrations');
const tenantFolder = 'migrations/tenant';
const quiet = new Logger(() => () => undefined);
/** The advisory lock that lets one process at a time migrate a database; db/core/tenant.sql lists all lock keys. */
const migrationLockKey = 7310;

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
}

export interface MigrateOptions {
  /** The address of the database, for its owner. */
  ownerUrl: string;
  /** The data folder, if the database is the embedded one; for advice in errors. */
  dataDir?: string | undefined;
  /** Migrate only this school, by id or subdomain. Shared migrations run in any case. */
  tenant?: string;
  /** Change nothing, only report what a run would do. */
  dryRun?: boolean;
  /** The number of schools to migrate at the same time; 2 by default. */
  parallel?: number;
  /** The folder of the tenant migrations; migrations/tenant by default. */
  tenantMigrations?: string;
  /** Called after each school. */
  onTenant?: (result: TenantResult, done: number, total: number) => void;
  /** Called after each step, with a line to print. */
  onStep?: (line: string) => void;
}

/** The outcome of a migration. `tenants` includes the failed schools. */
export interface MigrateResult {
  tenants: TenantResult[];
  failed: TenantResult[];
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

const tableExists = async (client: pg.Client, table: string) =>
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
async function pendingSharedMigrations(client: pg.Client): Promise<string[]> {
  const { available, applied } = await sharedMigrations(client);
  return without(available, applied);
}

/** A tenant migration of this version of the service. */
interface TenantMigration {
  version: number;
  name: string;
  body: string;
  checksum: string;
}

/** The tenant migrations in a folder. `0001-foundation.sql` is version 1. */
async function readTenantMigrations(folder: string): Promise<TenantMigration[]> {
  return (await sqlFiles(folder)).map(({ name, text }) => {
    const base = basename(name);
    const version = Number(/^\d{4}(?=-[a-z0-9-]+\.sql$)/.exec(base)?.[0]);
    if (!version) throw new Error(`${name}: the name of a tenant migration must have the form NNNN-topic.sql.`);
    return {
      version,
      name: base.replace(/\.sql$/, ''),
      body: text,
      checksum: createHash('sha256').update(text).digest('hex'),
    };
  });
}

/** The advice to start over. @param dataDir  the data folder, if the database is the embedded one */
const startOver = (dataDir: string | undefined) =>
  `start over with an empty database${dataDir === undefined ? '' : ` (${resetCommand(dataDir)})`}`;

/** @throws if the database has had migrations that this version of the code does not have */
async function refuseNewer(client: pg.Client, files: TenantMigration[], dataDir: string | undefined): Promise<void> {
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
  if (unknown.length === 0) return;
  throw new Error(
    `The database has migrations that this version does not have: ${unknown.join(', ')}. ` +
      `Run the version that applied them or a later one, or ${startOver(dataDir)}.`,
  );
}

/** @throws if the database is newer than this version of the code */
export const checkVersion = (ownerUrl: string, dataDir: string | undefined): Promise<void> =>
  withOwner(ownerUrl, async (client) => refuseNewer(client, await readTenantMigrations(tenantFolder), dataDir));

/**
 * Copies the tenant migrations into the database, where core.tenant_migrate reads them.
 * @throws if a file has changed since it was copied
 */
async function publishTenantMigrations(
  client: pg.Client,
  files: TenantMigration[],
  { dryRun = false, dataDir }: MigrateOptions,
): Promise<void> {
  const known = new Map(
    (
      await client.query<{ version: number; checksum: string }>(
        'select version, checksum from platform.tenant_migration',
      )
    ).rows.map((row) => [row.version, row.checksum]),
  );
  for (const file of files) {
    const checksum = known.get(file.version);
    if (checksum && checksum !== file.checksum)
      throw new Error(
        `The tenant migration ${file.name}.sql has changed since it was applied. ` +
          `Restore the file and write a new migration, or ${startOver(dataDir)}.`,
      );
    if (!checksum && !dryRun) {
      await client.query(
        'insert into platform.tenant_migration (version, name, body, checksum) values ($1, $2, $3, $4)',
        [file.version, file.name, file.body, file.checksum],
      );
    }
  }
}

/**
 * A pool of the owner for work at every school. A backend keeps the catalog of each school that it has migrated, a
 * megabyte or two, and looks through it at every change: so a connection serves 100 schools, then the next one follows.
 */
function schoolsPool(ownerUrl: string, size: number): pg.Pool {
  const pool = new pg.Pool({
    connectionString: ownerUrl,
    max: size,
    maxUses: 100,
    application_name: 'school_owner',
    // New requests of a school get 503 while its migration waits for a lock.
    options: '-c lock_timeout=500ms',
  });
  pool.on('error', () => undefined);
  return pool;
}

/** Selects the schools below version $1, except purged schools, which have no schema. */
const outdatedTenantsSql =
  "from platform.tenant where schema_version < $1 and not (status = 'deleted' and schema_version = 0)";

/** Migrates the outdated schools, each in its own transaction. The failure of one school does not affect the others. */
async function migrateTenants(
  client: pg.Client,
  options: MigrateOptions,
  versions: number[],
  latest: number,
): Promise<TenantResult[]> {
  const { ownerUrl, tenant, dryRun = false, parallel = defaultParallel, onTenant } = options;
  const pool = schoolsPool(ownerUrl, parallel);
  try {
    const { rows } = await client.query<NamedTenant & { schema_version: number }>(
      `select id, subdomain, schema_version ${outdatedTenantsSql} and ($2::bigint is null or id = $2) order by id`,
      [latest, tenant === undefined ? null : (await findTenant(client, tenant)).id],
    );
    const results: TenantResult[] = [];
    const queue = rows.values();
    const work = async () => {
      for (const { id, subdomain, schema_version } of queue) {
        const start = performance.now();
        const result: TenantResult = {
          tenant: id,
          subdomain,
          applied: versions.filter((version) => version > schema_version).length,
          milliseconds: 0,
        };
        if (!dryRun) {
          try {
            const answer = await retryLockConflicts(() =>
              pool.query<{ applied: number }>('select core.tenant_migrate($1) as applied', [id]),
            );
            result.applied = answer.rows[0]?.applied ?? 0;
          } catch (error) {
            result.applied = 0;
            result.error = error instanceof Error ? error.message : String(error);
          }
        }
        result.milliseconds = Math.round(performance.now() - start);
        results.push(result);
        onTenant?.(result, results.length, rows.length);
      }
    };
    await Promise.all(Array.from({ length: parallel }, work));
    return results;
  } finally {
    await pool.end();
  }
}

/** Applies the shared migrations and those of graphile-worker, and creates the database roles. */
async function migrateSharedSchemas(client: pg.Client, ownerUrl: string): Promise<void> {
  await client.query("select set_config('school.role_settings', $1, false)", [JSON.stringify(roleSettings)]);
  await client.query((await sqlFile('db/roles.sql')).text);
  await client.query((await sqlFile('db/search.sql')).text);
  // Requests queue behind a migration that waits for a lock, for example of pg_dump. It therefore waits briefly, then
  // lets them pass and tries again. Each migration is one transaction.
  const options = `options=${encodeURIComponent('-c lock_timeout=500ms')}`;
  await retryLockConflicts(async () => {
    try {
      await migrateShared({
        connectionString: `${ownerUrl}${ownerUrl.includes('?') ? '&' : '?'}${options}`,
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
  latest: number,
): Promise<{ isNew: boolean }> {
  const isNew = await install(client);
  // Even if the functions are not new: a school that failed when they were installed may have caught up in this run.
  const { rows } = await client.query<{ id: string }>(
    `select id from platform.tenant
     where schema_version = $1 and seeded_permission_id < (select max(id) from core.permission)`,
    [latest],
  );
  const pool = schoolsPool(ownerUrl, parallel);
  try {
    await Promise.all(rows.map(({ id }) => retryLockConflicts(() => pool.query('select core.tenant_seed($1)', [id]))));
  } finally {
    await pool.end();
  }
  return { isNew };
}

/**
 * Brings a database to this version: roles and shared migrations, the job queue, every school, then the functions (the
 * schemas core, api and analytics). Schools are migrated before the functions so that they stay in service: each school
 * answers 503 only during its own migration. A tenant migration must therefore work with the functions of the previous
 * version. Can be repeated at any time; it continues where an earlier run stopped.
 */
export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const { ownerUrl, dryRun = false, onStep = () => undefined } = options;
  return withOwner(ownerUrl, async (client) => {
    const { rows } = await client.query<{ version: number }>(
      "select current_setting('server_version_num')::integer / 10000 as version",
    );
    if ((rows[0]?.version ?? 0) < 15) throw new Error('The service requires Postgres 15 or later.');
    await client.query('select pg_advisory_lock($1)', [migrationLockKey]);
    const files = await readTenantMigrations(options.tenantMigrations ?? tenantFolder);
    await refuseNewer(client, files, options.dataDir);
    if (dryRun) {
      const pending = await pendingSharedMigrations(client);
      onStep(`shared: ${pending.length === 0 ? 'up to date' : `would apply ${pending.join(', ')}`}`);
      if (!(await tableExists(client, 'platform.tenant_migration'))) return { tenants: [], failed: [] };
    } else {
      await migrateSharedSchemas(client, ownerUrl);
      onStep('shared: up to date');
    }
    const versions = files.map((file) => file.version);
    const latest = Math.max(0, ...versions);
    await publishTenantMigrations(client, files, options);
    const tenants = await migrateTenants(client, options, versions, latest);
    const failed = tenants.filter((result) => result.error);
    if (dryRun) return { tenants, failed };

    // The new functions require every school to be at the latest version. Failed schools do not delay them: they answer
    // 503 until they are migrated. But schools that this run did not select do.
    const outdated = await client.query<{ count: number }>(`select count(*)::integer as count ${outdatedTenantsSql}`, [
      latest,
    ]);
    const notSelected = (outdated.rows[0]?.count ?? 0) - failed.length;
    if (options.tenant && notSelected > 0) {
      const schools = `${String(notSelected)} ${notSelected === 1 ? 'school' : 'schools'}`;
      onStep(`functions: not installed, ${schools} must be migrated first`);
    } else {
      const { isNew } = await installFunctions(client, options, latest);
      onStep(isNew ? 'functions: installed' : 'functions: up to date');
    }
    return { tenants, failed };
  });
}
