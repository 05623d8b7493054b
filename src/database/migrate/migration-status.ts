import type pg from 'pg';
import { fingerprint } from './install.ts';
import { pendingSharedMigrations, refuseNewer, tableExists } from './versions.ts';
import { hasTablesHere, readTenantMigrations } from './tenant-migrations.ts';

/** A school whose migration failed, or that is left at its version. */
export interface DelayedTenant {
  tenant_id: string;
  subdomain: string;
  schema_version: number;
  /** Whether the installed functions serve the school. */
  is_served: boolean;
  failed_version: number | null;
  error: string | null;
  failed_at: string | null;
  skip_reason: string | null;
  skipped_at: string | null;
}

/** A migration whose text was replaced after schools had applied the earlier one. */
export interface ReplacedMigration {
  version: number;
  name: string;
  checksum: string;
  replacement_checksum: string;
  replaced_at: string;
  /** The number of schools that have the earlier text, and the ids of the first ten. */
  schools: number;
  examples: number[];
}

/** The state of a database compared with this version of the service. */
export interface MigrationStatus {
  shared: { pending: string[] };
  functions: { is_current: boolean; installed_at: string | null; required_schema_version: number };
  /** The tenant migrations that at least one school lacks. */
  pending: string[];
  latest_version: number;
  /** The number of schools at each schema version, the newest first. */
  schools: { schema_version: number; schools: number }[];
  /** Schools that neither failed nor are skipped, and wait for the next run. */
  waiting: number;
  failed: number;
  skipped: number;
  delayed: DelayedTenant[];
  replaced: ReplacedMigration[];
}

/** @throws if the database is newer than this version, or was never migrated */
export async function readMigrationStatus(
  client: pg.Client,
  folder: string | undefined,
  dataDir: string | undefined,
): Promise<MigrationStatus> {
  const files = await readTenantMigrations(folder);
  await refuseNewer(client, files, dataDir);
  if (!(await tableExists(client, 'platform.installation')))
    throw new Error('The database was never migrated. Run `school migrate up`.');
  const latest = Math.max(0, ...files.map(({ version }) => version));
  const { rows: installed } = await client.query<{
    fingerprint: string;
    installed_at: Date;
    tenant_version: number;
    required: number;
  }>(
    `select fingerprint, installed_at, tenant_version, core.required_schema_version() as required
     from platform.installation`,
  );
  const { rows: schools } = await client.query<{ schema_version: number; schools: number }>(
    `select schema_version, count(*)::integer as schools from platform.tenant t where ${hasTablesHere}
     group by schema_version order by schema_version desc`,
  );
  // Before its first migration with this version, a database lacks these tables.
  const hasDelays = await tableExists(client, 'platform.delayed_migration');
  const { rows: delayed } = hasDelays
    ? await client.query<DelayedTenant>(
        `select t.id as tenant_id, t.subdomain, t.schema_version,
           t.schema_version >= core.required_schema_version() as is_served,
           d.version as failed_version, d.error, d.failed_at, d.skip_reason, d.skipped_at
         from platform.delayed_migration d
         join platform.tenant t on t.id = d.tenant_id
         where t.schema_version < $1 and ${hasTablesHere}
         order by t.id`,
        [latest],
      )
    : { rows: [] };
  const { rows: replaced } = hasDelays
    ? await client.query<ReplacedMigration>(
        `select m.version, m.name, r.checksum, r.replacement_checksum, r.created_at as replaced_at,
           count(s.tenant_id)::integer as schools,
           coalesce((array_agg(s.tenant_id::double precision order by s.tenant_id) filter (where s.tenant_id is not null))[:10],
             '{}') as examples
         from platform.replaced_migration r
         join platform.tenant_migration m using (version)
         left join platform.replaced_migration_tenant s on s.replaced_migration_id = r.id
         group by r.id, m.version
         order by r.id`,
      )
    : { rows: [] };
  const behind = schools.filter(({ schema_version }) => schema_version < latest);
  const oldest = Math.min(latest, ...behind.map(({ schema_version }) => schema_version));
  const skipped = delayed.filter(({ skipped_at }) => skipped_at !== null).length;
  return {
    shared: { pending: await pendingSharedMigrations(client) },
    functions: {
      is_current: installed[0]?.fingerprint === (await fingerprint()) && installed[0].tenant_version === latest,
      installed_at: installed[0]?.installed_at.toISOString() ?? null,
      required_schema_version: installed[0]?.required ?? 0,
    },
    pending: files.filter(({ version }) => version > oldest).map(({ name }) => name),
    latest_version: latest,
    schools,
    waiting: behind.reduce((sum, row) => sum + row.schools, 0) - delayed.length,
    failed: delayed.length - skipped,
    skipped,
    delayed,
    replaced,
  };
}
