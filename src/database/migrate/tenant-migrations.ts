import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import type pg from 'pg';
import { resetCommand } from '../embedded.ts';
import { sqlFiles } from './install.ts';
import { retryLockConflicts } from '../lock-conflicts.ts';

/** The folder of the tenant migrations of this version of the service. */
export const tenantFolder = 'migrations/tenant';

/** A tenant migration of this version of the service. */
export interface TenantMigration {
  version: number;
  name: string;
  body: string;
  checksum: string;
  /** Whether the functions need it; see `optionalMark`. */
  isRequired: boolean;
}

/** The comment of a migration without which the new functions work too. It must give the reason. */
const optionalMark = /^-- @optional\b:?\s*(.*)$/m;

/** `0017` for 17. */
export const fileNumber = (version: number): string => String(version).padStart(4, '0');

/** The tenant migration in a file. `0001-foundation.sql` is version 1. */
function tenantMigration(file: string, body: string): TenantMigration {
  const base = basename(file);
  const version = Number(/^\d{4}(?=-[a-z0-9-]+\.sql$)/.exec(base)?.[0]);
  if (!version) throw new Error(`${file}: the name of a tenant migration must have the form NNNN-topic.sql.`);
  const optional = optionalMark.exec(body);
  if (optional && (optional[1]?.split(' ').length ?? 0) < 3)
    throw new Error(`${file}: the comment @optional must say why the functions work without this migration.`);
  return {
    version,
    name: base.replace(/\.sql$/, ''),
    body,
    checksum: createHash('sha256').update(body).digest('hex'),
    isRequired: !optional,
  };
}

/**
 * The tenant migrations in a folder, in the order of their numbers.
 * @throws if two have the same number
 */
export async function readTenantMigrations(folder = tenantFolder): Promise<TenantMigration[]> {
  const files = (await sqlFiles(folder)).map(({ name, text }) => tenantMigration(name, text));
  const twin = files.find(({ version }, index) => files[index + 1]?.version === version);
  if (twin) throw new Error(`Two tenant migrations have the number ${fileNumber(twin.version)}. Rename one of them.`);
  return files;
}

/** The advice to start over. @param dataDir  the data folder, if the database is the embedded one */
export const startOver = (dataDir: string | undefined): string =>
  `start over with an empty database${dataDir === undefined ? '' : ` (${resetCommand(dataDir)})`}`;

/**
 * An SQL condition: the school `t` has tables in this database. Purged schools have none, and those of a node have them
 * there. It reads node_id from the row as JSON, because the database of an earlier release lacks the column.
 */
export const hasTablesHere =
  "not (t.status = 'deleted' and t.schema_version = 0) and to_jsonb(t) ->> 'node_id' is null";

/** What `publish` changes in platform.tenant_migration. */
export interface Publication {
  added: TenantMigration[];
  replaced: TenantMigration[];
}

/**
 * Compares the files with the migrations that the database has had.
 * @param replace  the versions whose text may differ
 * @throws if another file has changed since it was copied
 */
export async function comparePublished(
  client: pg.Client,
  files: TenantMigration[],
  { replace = [], dataDir }: { replace?: readonly number[] | undefined; dataDir?: string | undefined },
): Promise<Publication> {
  const unknown = replace.find((version) => !files.some((file) => file.version === version));
  if (unknown !== undefined) throw new Error(`There is no tenant migration ${fileNumber(unknown)} to replace.`);
  const { rows } = await client.query<{ version: number; checksum: string }>(
    'select version, checksum from platform.tenant_migration',
  );
  const known = new Map(rows.map(({ version, checksum }) => [version, checksum]));
  const publication: Publication = { added: [], replaced: [] };
  for (const file of files) {
    const checksum = known.get(file.version);
    if (checksum === undefined) publication.added.push(file);
    else if (checksum !== file.checksum) {
      if (!replace.includes(file.version))
        throw new Error(
          `The tenant migration ${file.name}.sql has changed since it was applied. ` +
            'Restore the file and write a new migration. If schools could not apply it, replace it for them with ' +
            `\`school migrate up --replace ${fileNumber(file.version)}\`. Or ${startOver(dataDir)}.`,
        );
      publication.replaced.push(file);
    }
  }
  for (const { version, name } of publication.replaced) {
    const { rows: counts } = await client.query<{ passed: string; waiting: string }>(
      `select count(*) filter (where t.schema_version >= $1) as passed,
              count(*) filter (where t.schema_version < $1) as waiting
       from platform.tenant t where ${hasTablesHere}`,
      [version],
    );
    if (counts[0]?.waiting === '0' && counts[0].passed !== '0')
      throw new Error(
        `Every school has applied ${name}.sql, so it cannot be replaced. Restore the file and write a new migration.`,
      );
  }
  return publication;
}

const insertSql = 'insert into platform.tenant_migration (version, name, body, checksum) values ($1, $2, $3, $4)';
const updateSql = 'update platform.tenant_migration set name = $2, body = $3, checksum = $4 where version = $1';
const values = ({ version, name, body, checksum }: TenantMigration) => [version, name, body, checksum];

/**
 * Writes the texts of migrations, in the transaction of the caller. It uses only columns that every version of the
 * database has, so that a dry run can call it before the shared migrations.
 */
export async function writeTexts(client: pg.ClientBase, { added, replaced }: Publication): Promise<void> {
  for (const file of added) await client.query(insertSql, values(file));
  for (const file of replaced) await client.query(updateSql, values(file));
}

/**
 * Marks all ready schools as outdated, so that the worker creates them again. Call it when the text of a published
 * migration changes; a dry run must not, because the table may be missing then.
 */
export async function outdateReadySchools(client: pg.ClientBase): Promise<void> {
  await client.query('update platform.ready_school set schema_version = 0');
}

/** Copies the tenant migrations into the database, where core.tenant_migrate reads them. */
export async function publish(client: pg.Client, publication: Publication): Promise<void> {
  const { added, replaced } = publication;
  if (added.length + replaced.length === 0) return;
  await retryLockConflicts(() => publishOnce(client, publication));
}

async function publishOnce(client: pg.Client, publication: Publication): Promise<void> {
  const { added, replaced } = publication;
  await client.query('begin');
  try {
    // A school that is being created reads this table, and is not yet among the schools to migrate. With the lock, it
    // has either been committed or will get the new migrations. Requests do not read the table.
    await client.query("set local lock_timeout = '500ms'");
    await client.query('lock table platform.tenant_migration in access exclusive mode');
    for (const { version, checksum } of replaced)
      await client.query(
        `with replaced as (
           insert into platform.replaced_migration (version, body, checksum, replacement_checksum)
           select version, body, checksum, $2 from platform.tenant_migration where version = $1
           returning id
         )
         insert into platform.replaced_migration_tenant (replaced_migration_id, tenant_id)
         select replaced.id, t.id
         from replaced
         cross join platform.tenant t
         where t.schema_version >= $1
           -- Not the schools that have a text from before an earlier replacement.
           and not exists (
             select
             from platform.replaced_migration_tenant s
             join platform.replaced_migration m on m.id = s.replaced_migration_id
             where s.tenant_id = t.id and m.version = $1
           )`,
        [version, checksum],
      );
    await writeTexts(client, publication);
    if (replaced.length > 0) await outdateReadySchools(client);
    for (const { version, isRequired } of [...added, ...replaced])
      await client.query('update platform.tenant_migration set is_required = $2 where version = $1', [
        version,
        isRequired,
      ]);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}
