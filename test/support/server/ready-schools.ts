import { readdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { type EmbeddedServer, removeCluster } from '../../../src/database/embedded.ts';
import { withOwner } from '../../../src/database/pool.ts';

const memoryFolder = '/dev/shm';
const minFreeBytes = 6e9;

/**
 * The folder for the Postgres cluster of a run: in memory if there is enough, since a school has 400 files that are
 * copied and removed for each test file. Also stops and removes the clusters of runs that were killed. Undefined means
 * the default folder.
 */
export async function scratchFolder(): Promise<string | undefined> {
  const names = await readdir(memoryFolder).catch(() => []);
  for (const name of names) {
    const pid = Number(/^school-scratch-(\d+)-/.exec(name)?.[1]);
    if (!pid || isAlive(pid)) continue;
    await removeCluster(join(memoryFolder, name));
    await rm(join(memoryFolder, name), { recursive: true, force: true });
  }
  const { bavail, bsize } = await statfs(memoryFolder).catch(() => ({ bavail: 0, bsize: 0 }));
  return bavail * bsize > minFreeBytes && process.availableMemory() > minFreeBytes ? memoryFolder : undefined;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/**
 * Creates the databases `template_ready` and `template_many_ready`: clones of `template_school` that also contain the
 * tables of their first schools, created by the tenant migrations and renamed to ready_1, ready_2… When the API adds
 * the school with that id, a trigger renames the schema to tenant_<id>, and provisioning continues from its version
 * with newer migrations, roles and settings. Schools that the owner adds by SQL, and schools with higher ids, are
 * created from the first migration on.
 */
export async function makeReadySchools(server: EmbeddedServer, few: number, many: number): Promise<void> {
  const url = server.url('template_ready');
  await clone(server, 'template_school', 'template_ready');
  await makeSchools(url, 1, few);
  await withOwner(url, async (owner) => {
    const { rows } = await owner.query<{ version: number }>(
      'select max(version) as version from platform.tenant_migration',
    );
    await owner.query(`
      create function public.take_ready_school() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
      begin
        if to_regnamespace('ready_' || new.id) is not null then
          execute format('alter schema ready_%1$s rename to tenant_%1$s', new.id);
          new.schema_version := ${String(rows[0]?.version)};
        end if;
        return new;
      end $$;
      create trigger take_ready_school before insert on platform.tenant
        for each row when (current_setting('application_name') = 'school_api') execute function public.take_ready_school()`);
  });
  await clone(server, 'template_ready', 'template_many_ready');
  await makeSchools(server.url('template_many_ready'), few + 1, many);
}

const clone = (server: EmbeddedServer, from: string, to: string) =>
  withOwner(server.url('postgres'), (owner) => owner.query(`create database ${to} template ${from}`));

/** Creates the tables of the schools from one id to another, several at a time. */
async function makeSchools(url: string, from: number, to: number): Promise<void> {
  const ids = Array.from({ length: to - from + 1 }, (_, n) => from + n);
  const next = () => ids.shift();
  await Promise.all(
    [1, 2].map(() =>
      withOwner(url, async (owner) => {
        for (let id = next(); id !== undefined; id = next()) {
          await owner.query(
            "insert into platform.tenant (id, name, subdomain, contact_email, plan_id) values ($1, 'Ready', 'ready-' || $1::bigint, 'ready@school.example', 3)",
            [id],
          );
          await owner.query('select core.tenant_migrate($1)', [id]);
          await owner.query(`alter schema tenant_${id} rename to ready_${id}`);
        }
      }),
    ),
  );
  await withOwner(url, (owner) => owner.query('delete from platform.tenant'));
}
