import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type pg from 'pg';
import { errors } from '../../domain/errors.ts';
import { retryLockConflicts } from '../lock-conflicts.ts';

const root = join(import.meta.dirname, '../../..');

/** One SQL file of the project. */
export interface SqlFile {
  name: string;
  text: string;
}

/** The SQL files of a folder, sorted by name. A relative path starts at the root of the project. */
export async function sqlFiles(folder: string): Promise<SqlFile[]> {
  const names = (await readdir(resolve(root, folder))).filter((name) => name.endsWith('.sql')).sort();
  return Promise.all(names.map((name) => sqlFile(`${folder}/${name}`)));
}

/** One SQL file. A relative path starts at the root of the project. */
export async function sqlFile(name: string): Promise<SqlFile> {
  return { name, text: await readFile(resolve(root, name), 'utf8') };
}

/**
 * The files in the order of installation. The registry is first, since the others call it; checks and grants are last.
 */
async function installedFiles(): Promise<SqlFile[]> {
  const core = await sqlFiles('db/core');
  const isRegistry = (file: SqlFile) => file.name.endsWith('/registry.sql');
  return [
    ...core.filter(isRegistry),
    ...core.filter((file) => !isRegistry(file)),
    ...(await sqlFiles('db/seed')),
    ...(await sqlFiles('db/api')),
    ...(await sqlFiles('db/jobs')),
    ...(await sqlFiles('db/analytics')),
    await sqlFile('db/finish.sql'),
    await sqlFile('db/grants.sql'),
  ];
}

const digest = (files: SqlFile[]) =>
  createHash('sha256')
    .update(JSON.stringify([files, errors]))
    .digest('hex');

/** Identifies the version of `core`, `api` and `analytics` that this code needs. */
export const fingerprint = async (): Promise<string> => digest(await installedFiles());

/** The error registry as rows of SQL values. */
const errorRows = (client: pg.Client) =>
  Object.entries(errors)
    .map(
      ([name, { sqlstate, status }]) =>
        `(${client.escapeLiteral(name)}, ${client.escapeLiteral(sqlstate)}, ${String(status)})`,
    )
    .join(', ');

/**
 * Replaces the schemas `core`, `api` and `analytics` in one transaction, unless this version is installed already.
 * Requests during the installation can get a 503.
 * @returns whether anything was installed
 */
export const install = (client: pg.Client): Promise<boolean> => retryLockConflicts(() => installOnce(client));

async function installOnce(client: pg.Client): Promise<boolean> {
  const files = await installedFiles();
  const version = digest(files);
  const { rows } = await client.query<{ fingerprint: string; tenant_version: number; latest: number }>(
    `select i.fingerprint, i.tenant_version, m.latest
     from (select coalesce(max(version), 0) as latest from platform.tenant_migration) m
     left join platform.installation i on true`,
  );
  const latest = rows[0]?.latest ?? 0;
  if (rows[0]?.fingerprint === version && rows[0].tenant_version === latest) return false;
  await client.query('begin');
  try {
    // Every request reads this table first. With the lock, no request is in progress. The timeout keeps one long
    // request from delaying all others; `install` then tries again.
    await client.query("set local lock_timeout = '2s'");
    await client.query(
      `do $$ begin
         if to_regclass('core.operation') is not null then
           lock table core.operation in access exclusive mode;
         end if;
       end $$`,
    );
    await client.query('set local check_function_bodies = off');
    // For core.remember_release: what is there and was not changed by the installation may have been changed by others.
    await client.query(
      `do $$ begin
         if exists (select from pg_attribute where attrelid = to_regclass('core.release_object') and attname = 'restored')
         then
           create temp table before_installation on commit drop as
             select kind, name, s.oid, r.digest, r.restored, r.remedy
             from (select * from core.shared_objects() where remedy is not null) s
             full join (select * from core.release_object where remedy is not null or kind = 'migrations') r
               using (kind, name);
         end if;
       end $$`,
    );
    await client.query(
      'drop schema if exists analytics cascade; drop schema if exists api cascade; drop schema if exists core cascade',
    );
    for (const file of files) {
      await client.query(file.text).catch((error: unknown) => {
        throw new Error(`${file.name}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
      });
      if (file.name.endsWith('/registry.sql'))
        await client.query(`insert into core.error (name, sqlstate, status) values ${errorRows(client)}`);
    }
    await client.query(
      `insert into platform.installation (fingerprint, tenant_version) values ($1, $2)
       on conflict (id) do update set
         fingerprint = excluded.fingerprint, tenant_version = excluded.tenant_version, installed_at = default`,
      [version, latest],
    );
    await client.query('commit');
    return true;
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}
