import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { Logger, migrate as migrateShared } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { Logger as QueueLogger, runMigrations as migrateQueue } from 'graphile-worker';
import pg from 'pg';
import { install, sqlFile, sqlFiles } from './install.ts';
import { withOwner } from './pool.ts';

const migrationsFolder = join(import.meta.dirname, '../../migrations');
const tenantFolder = 'migrations/tenant';
const quiet = new Logger(() => () => undefined);
/** Serialises whoever migrates one database. */
const migratorLock = 7310;

/** What became of one school. */
export interface TenantResult {
  tenant: string;
  subdomain: string;
  /** Migrations applied. */
  applied: number;
  milliseconds: number;
  error?: string;
}

export interface MigrateOptions {
  /** The owner of the database. */
  ownerUrl: string;
  /** Only this school, by id or subdomain; shared migrations run all the same. */
  tenant?: string;
  /** Change nothing; say what would be done. */
  dryRun?: boolean;
  /** Schools at a time. */
  parallel?: number;
  /** The folder of the tenant migrations; the project's own by default. */
  tenantMigrations?: string;
  /** Told once per school, as they finish. */
  onTenant?: (result: TenantResult, done: number, total: number) => void;
  /** Told once per step. */
  onStep?: (line: string) => void;
}

/** The answer of a migration: every school that was looked at, the failed ones among them. */
export interface MigrateResult {
  tenants: TenantResult[];
  failed: TenantResult[];
}

/** The queue's own migrations want a pool. */
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

/** The shared migrations that this version has, and those that the database has seen. */
async function sharedMigrations(client: pg.Client): Promise<{ here: string[]; seen: string[] }> {
  const here = (await sqlFiles('migrations/committed')).map(({ name }) => name.split('/').at(-1) ?? name);
  if (!(await tableExists(client, 'graphile_migrate.migrations'))) return { here, seen: [] };
  const { rows } = await client.query<{ filename: string }>(
    'select filename from graphile_migrate.migrations order by filename',
  );
  return { here, seen: rows.map(({ filename }) => filename) };
}

/** Those of `names` whose number none of `others` has. */
function without(names: string[], others: string[]): string[] {
  const numbers = new Set(others.map((name) => parseInt(name)));
  return names.filter((name) => !numbers.has(parseInt(name)));
}

/** The shared migrations that this database has not seen; graphile-migrate's own `status` wants a shadow database. */
async function remainingShared(client: pg.Client): Promise<string[]> {
  const { here, seen } = await sharedMigrations(client);
  return without(here, seen);
}

/** A tenant migration of this version of the service. */
interface TenantMigration {
  version: number;
  name: string;
  body: string;
  checksum: string;
}

/** The tenant migrations in a folder: `0001-people.sql` is version 1. */
async function readTenantMigrations(folder: string): Promise<TenantMigration[]> {
  return (await sqlFiles(folder)).map(({ name, text }) => {
    const base = name.split('/').at(-1) ?? name;
    const version = Number(/^\d{4}(?=-[a-z0-9-]+\.sql$)/.exec(base)?.[0]);
    if (!version) throw new Error(`${name}: a tenant migration is called NNNN-what-it-does.sql`);
    return {
      version,
      name: base.replace(/\.sql$/, ''),
      body: text,
      checksum: createHash('sha256').update(text).digest('hex'),
    };
  });
}

const beginAnew = 'begin anew with an empty database (the embedded one: npm run school -- database reset)';

/** @throws when the database has seen migrations that this version does not know */
async function refuseNewer(client: pg.Client, files: TenantMigration[]): Promise<void> {
  const { here, seen } = await sharedMigrations(client);
  const tenant = (await tableExists(client, 'platform.tenant_migration'))
    ? (
        await client.query<{ name: string }>(
          'select name from platform.tenant_migration where version <> all ($1) order by version',
          [files.map((file) => file.version)],
        )
      ).rows
    : [];
  const unknown = [
    ...without(seen, here).map((name) => `committed/${name}`),
    ...tenant.map(({ name }) => `tenant/${name}.sql`),
  ];
  if (unknown.length === 0) return;
  throw new Error(
    `The database is newer than this code, which does not have ${unknown.join(', ')}. Start the version that made it or a later one, or ${beginAnew}.`,
  );
}

/** @throws when the database is newer than this code */
export const checkVersion = (ownerUrl: string): Promise<void> =>
  withOwner(ownerUrl, async (client) => refuseNewer(client, await readTenantMigrations(tenantFolder)));

/** Publishes the tenant migrations of this version in the database. @throws when a released one was edited */
async function publishTenantMigrations(client: pg.Client, files: TenantMigration[], dryRun: boolean): Promise<void> {
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
        `The tenant migration ${file.name}.sql was edited after its release: it is already applied and changed since. Restore the file and write a new migration, or ${beginAnew}.`,
      );
    if (!checksum && !dryRun) {
      await client.query(
        'insert into platform.tenant_migration (version, name, body, checksum) values ($1, $2, $3, $4)',
        [file.version, file.name, file.body, file.checksum],
      );
    }
  }
}

/** Schools below version $1; a purged one has no schema that could be behind. */
const behindSql = "from platform.tenant where schema_version < $1 and not (status = 'deleted' and schema_version = 0)";

/**
 * Tries again while a request of the school holds a lock. Each try waits half a second at most, since new requests of the
 * school answer 503 while somebody waits.
 */
async function patiently<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt === 20 || !(error instanceof pg.DatabaseError) || error.code !== '55P03') throw error;
      await new Promise((done) => setTimeout(done, 500));
    }
  }
}

/** Migrates the schools that are behind, some at a time, each in its own transaction; a failure stays with its school. */
async function migrateTenants(options: MigrateOptions, versions: number[], latest: number): Promise<TenantResult[]> {
  const { ownerUrl, tenant, dryRun = false, parallel = 2, onTenant } = options;
  const pool = new pg.Pool({
    connectionString: ownerUrl,
    max: parallel,
    application_name: 'school_owner',
    options: '-c lock_timeout=500ms',
  });
  pool.on('error', () => undefined);
  try {
    const { rows } = await pool.query<{ id: string; subdomain: string; schema_version: number }>(
      `select id, subdomain, schema_version ${behindSql} and ($2::text is null or id::text = $2 or subdomain = $2) order by id`,
      [latest, tenant ?? null],
    );
    if (tenant && rows.length === 0) {
      const { rowCount } = await pool.query('select from platform.tenant where id::text = $1 or subdomain = $1', [
        tenant,
      ]);
      if (!rowCount) throw new Error(`There is no school with the id or subdomain ${tenant}.`);
    }
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
            const answer = await patiently(() =>
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

/**
 * Brings a database to this version: roles and shared migrations, the queue, every school, then the schemas core and api.
 * Schools come before the functions, so that they stay in service meanwhile (each answers 503 only while it is its turn);
 * a tenant migration must therefore work with the functions of the version before. May be run again at any time, and
 * continues where it stopped.
 */
export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const { ownerUrl, dryRun = false, onStep = () => undefined } = options;
  return withOwner(ownerUrl, async (client) => {
    const { rows } = await client.query<{ version: number }>(
      "select current_setting('server_version_num')::integer / 10000 as version",
    );
    if ((rows[0]?.version ?? 0) < 15) throw new Error('This needs Postgres 15 or later.');
    await client.query('select pg_advisory_lock($1)', [migratorLock]);
    const files = await readTenantMigrations(options.tenantMigrations ?? tenantFolder);
    await refuseNewer(client, files);
    if (dryRun) {
      const remaining = await remainingShared(client);
      onStep(`shared: ${remaining.length === 0 ? 'up to date' : `would apply ${remaining.join(', ')}`}`);
      if (!(await tableExists(client, 'platform.tenant_migration'))) return { tenants: [], failed: [] };
    } else {
      await client.query((await sqlFile('db/roles.sql')).text);
      await client.query((await sqlFile('db/search.sql')).text);
      await migrateShared({
        connectionString: ownerUrl,
        migrationsFolder,
        logger: quiet,
        manageGraphileMigrateSchema: true,
      });
      // Else its pool idles for 200 ms and, when the server goes away meanwhile, ends this process.
      clearAllPools();
      await withPool(ownerUrl, (pgPool) => migrateQueue({ pgPool, logger: new QueueLogger(() => () => undefined) }));
      await client.query((await sqlFile('db/core/tenant.sql')).text);
      onStep('shared: up to date');
    }
    const versions = files.map((file) => file.version);
    const latest = Math.max(0, ...versions);
    await publishTenantMigrations(client, files, dryRun);
    const tenants = await migrateTenants(options, versions, latest);
    const failed = tenants.filter((result) => result.error);
    // The functions of this version need every school to be at its version: with --tenant the others may not be there yet.
    const { rows: behind } = await client.query<{ count: number }>(`select count(*)::integer as count ${behindSql}`, [
      latest,
    ]);
    const others = (behind[0]?.count ?? 0) - failed.length;
    if (!dryRun && options.tenant && others > 0) {
      onStep(`functions: left as they are, ${String(others)} schools are still to be migrated`);
    } else if (!dryRun) {
      const isNew = await install(client);
      // Also a school that failed when these functions were installed, and is here only now.
      const unseeded = await client.query<{ id: string }>(
        'select id from platform.tenant where schema_version = $1 and seeded_permission_id < (select max(id) from core.permission)',
        [latest],
      );
      for (const { id } of unseeded.rows) await client.query('select core.tenant_seed($1)', [id]);
      onStep(isNew ? 'functions: installed' : 'functions: up to date');
    }
    return { tenants, failed };
  });
}
