import { watch } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { sqlFile } from './install.ts';
import { migrate } from './migrate.ts';
import { withOwner } from '../pool/pool.ts';
import { outdateReadySchools, readTenantMigrations, tenantFolder, writeTexts } from './tenant-migrations.ts';
import { tableExists } from './versions.ts';

const root = join(import.meta.dirname, '../../..');
/** Editors write a file in several steps; the files are read when there was no change for this long. */
const quietMs = 100;

/** The setting of a database that allows `migrate watch`, besides the embedded database. */
const environmentSetting = 'school.environment';

/** @throws unless the database is marked as a development database */
export const requireDevelopment = (ownerUrl: string): Promise<void> =>
  withOwner(ownerUrl, async (client) => {
    const { rows } = await client.query<{ name: string; environment: string | null }>(
      'select current_database() as name, current_setting($1, true) as environment',
      [environmentSetting],
    );
    if (rows[0]?.environment === 'development') return;
    throw new Error(
      'migrate watch runs unfinished migrations, so it needs a development database. If this is one, mark it: ' +
        `alter database ${client.escapeIdentifier(rows[0]?.name ?? '')} set ${environmentSetting} = 'development'`,
    );
  });

/** Runs the newest tenant migration again in every school, if its file has changed. @returns its name if so */
const repeatNewest = (ownerUrl: string, folder: string): Promise<string | undefined> =>
  withOwner(ownerUrl, async (client) => {
    const newest = (await readTenantMigrations(folder)).at(-1);
    if (!newest || !(await tableExists(client, 'platform.ready_school'))) return undefined;
    const { rowCount } = await client.query(
      'select from platform.tenant_migration where version = $1 and checksum <> $2',
      [newest.version, newest.checksum],
    );
    if (!rowCount) return undefined;
    await client.query('begin');
    try {
      await writeTexts(client, { added: [], replaced: [newest] });
      await outdateReadySchools(client);
      await client.query('update platform.tenant_migration set is_required = $2 where version = $1', [
        newest.version,
        newest.isRequired,
      ]);
      const { rows } = await client.query<{ id: string }>(
        'update platform.tenant set schema_version = $1 - 1 where schema_version = $1 returning id',
        [newest.version],
      );
      for (const { id } of rows) await client.query('select core.tenant_migrate($1)', [id]);
      await client.query('commit');
    } catch (error) {
      await client.query('rollback');
      throw error;
    }
    return newest.name;
  });

/** Runs migrations/current.sql in a transaction, if it has a statement. */
async function runCurrent(ownerUrl: string): Promise<string | undefined> {
  const { text } = await sqlFile('migrations/current.sql');
  if (text.replace(/^--.*$/gm, '').trim() === '') return undefined;
  await withOwner(ownerUrl, async (client) => {
    await client.query('begin');
    await client.query(text);
    await client.query('commit');
  });
  return text;
}

export interface WatchOptions {
  ownerUrl: string;
  /** The folder of the tenant migrations; migrations/tenant by default. */
  tenantMigrations?: string | undefined;
  onStep: (line: string) => void;
  /** Ends the watch. */
  signal: AbortSignal;
}

/**
 * Applies migrations/current.sql, the newest tenant migration and db/ to a development database, now and after each
 * change of these files. An error is reported and changes nothing; the next change tries again.
 */
export async function watchMigrations({ ownerUrl, tenantMigrations, onStep, signal }: WatchOptions): Promise<void> {
  const folder = tenantMigrations ?? tenantFolder;
  let lastCurrent: string | undefined;
  const apply = async () => {
    const start = performance.now();
    try {
      const repeated = await repeatNewest(ownerUrl, folder);
      if (repeated) onStep(`tenant: ${repeated} applied again`);
      const { text } = await sqlFile('migrations/current.sql');
      // A database that was never migrated has no table that current.sql could change.
      const isMigrated = await withOwner(ownerUrl, (client) => tableExists(client, 'platform.installation'));
      const run = () =>
        migrate({
          ownerUrl,
          tenantMigrations,
          onStep,
          onTenant: ({ subdomain, error }) => {
            if (error) onStep(`school ${subdomain}: FAILED: ${error}`);
          },
        });
      if (!isMigrated) await run();
      if (text !== lastCurrent) {
        if (await runCurrent(ownerUrl)) onStep('shared: current.sql applied');
        lastCurrent = text;
      }
      await run();
      onStep(`watching, applied in ${String(Math.round(performance.now() - start))} ms`);
    } catch (error) {
      onStep(`FAILED: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  let lastChange = 0;
  let isChanged = true;
  const follow = async (path: string) => {
    try {
      for await (const { filename } of watch(path, { recursive: true, signal })) {
        if (filename && !filename.endsWith('.sql')) continue;
        lastChange = performance.now();
        isChanged = true;
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
  const folders = [join(root, 'migrations'), join(root, 'db'), ...(tenantMigrations ? [tenantMigrations] : [])];
  const applyChanges = async () => {
    while (!signal.aborted) {
      if (isChanged && performance.now() - lastChange >= quietMs) {
        isChanged = false;
        await apply();
      }
      await sleep(quietMs, undefined, { signal }).catch(() => undefined);
    }
  };
  await Promise.all([applyChanges(), ...folders.map(follow)]);
}
