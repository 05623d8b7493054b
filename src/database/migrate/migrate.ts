import { join } from 'node:path';
import { Logger, migrate as migrateShared } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { Logger as QueueLogger, runMigrations as migrateQueue } from 'graphile-worker';
import pg from 'pg';
import { roleSettings } from '../../domain/role-settings.ts';
import type { NamedTenant } from '../find-tenant.ts';
import { retryLockConflicts } from '../lock-conflicts.ts';
import { withOptions, withOwner } from '../pool/pool.ts';
import { pendingFunctions, type Rehearsal, rehearseShared, rehearseTenant, type SharedRehearsal } from './dry-run.ts';
import { install, sqlFile } from './install.ts';
import { lockMigration } from './migration-lock.ts';
import { refuseLostRows } from './lost-rows.ts';
import { requireRights } from './missing-rights.ts';
import {
  asSkipped,
  changeSkips,
  defaultParallel,
  forEachTenant,
  migrateTenants,
  type SchoolOptions,
  schoolsPool,
  selectTenants,
  type SkippedTenant,
  spread,
  type TenantResult,
} from './schools.ts';
import { comparePublished, publish, readTenantMigrations, type TenantMigration } from './tenant-migrations.ts';
import { pendingSharedMigrations, refuseNewer, tableExists } from './versions.ts';

const migrationsFolder = join(import.meta.dirname, '../../../migrations');
/** The files of `core` that are installed before the schools are migrated, and then again with the others. */
const earlyFiles = ['db/core/tenant.sql', 'db/core/school-sql.sql', 'db/core/violations.sql'];
const quiet = new Logger(() => () => undefined);

export interface MigrateOptions extends SchoolOptions {
  /** The data folder, if the database is the embedded one; for advice in errors. */
  dataDir?: string | undefined;
  /** Migrate only this school, by id or subdomain, even if it is skipped. Shared migrations run in any case. */
  tenant?: string | undefined;
  /** Run every migration and roll it back. */
  dryRun?: boolean | undefined;
  /** In a dry run, the number of schools to try; all by default. */
  sample?: number | undefined;
  /** Keep the installed functions if the new ones would stop a school that failed and that is in service now. */
  holdFunctions?: boolean | undefined;
  /** The versions of tenant migrations whose edited text replaces the earlier one. */
  replace?: readonly number[] | undefined;
  /** The folder of the tenant migrations; migrations/tenant by default. */
  tenantMigrations?: string | undefined;
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

/** @throws if the roles have no privileges, after a restore of a dump in a server that did not have the roles yet */
async function requirePrivileges(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ are_lost: boolean }>(
    `select exists (select from pg_namespace
       where nspname = 'core' and not has_schema_privilege('school_api', oid, 'usage')
         -- Otherwise the first installation failed, and is repeated.
         and to_regclass('core.operation') is not null) as are_lost`,
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
  for (const name of earlyFiles) await client.query((await sqlFile(name)).text);
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
    const advice = failed.every(({ isLocked }) => isLocked)
      ? 'Another transaction held its tables: end it (docs/operations/runbook.md, "A stuck migration"), then repeat this.'
      : 'Repair the migration and add --replace, or ' +
        `stop ${served.length === 1 ? 'the school' : 'these schools'} with --skip ${served[0].subdomain} --reason "…".`;
    onStep(
      `functions: not installed, so that ${schoolCount(served.length)} that failed can still be used: ` +
        `${names.join(', ')}${served.length > names.length ? ', …' : ''}. ${advice}`,
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
  const missing = {
    publication: await comparePublished(client, files, options),
    functions: await pendingFunctions(shared.pending),
  };
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
          tenant.rehearsal = await rehearseTenant(connection, id, missing);
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
    await requireRights(client);
    await refuseLostRows(client, onStep);
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
