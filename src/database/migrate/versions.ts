import { basename } from 'node:path';
import type pg from 'pg';
import { withOwner } from '../pool/pool.ts';
import { fingerprint, sqlFiles } from './install.ts';
import { readTenantMigrations, startOver, type TenantMigration } from './tenant-migrations.ts';

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
