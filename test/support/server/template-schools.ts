import type pg from 'pg';
import type { EmbeddedServer } from '../../../src/database/embedded.ts';
import { withOwner } from '../../../src/database/pool/pool.ts';
import { templateOf, withoutSchedule } from './database.ts';

/**
 * Creates one database for each of these counts: a clone of `template_school` that also contains the tables of its
 * first schools, created by the tenant migrations and renamed to template_1, template_2… When the API adds the school
 * with that id, a trigger renames the schema to tenant_<id>, and provisioning continues from its version with newer
 * migrations, roles and settings. Schools that the owner adds by SQL, and schools with higher ids, are created from the
 * first migration on.
 * @param counts  in ascending order
 */
export async function makeTemplateSchools(server: EmbeddedServer, counts: readonly number[]): Promise<void> {
  let created = 0;
  for (const count of counts) {
    const name = templateOf(count);
    await withOwner(server.url('postgres'), (owner) =>
      owner.query(`create database ${name} template ${templateOf(created)} strategy file_copy`),
    );
    await makeSchools(server.url(name), created + 1, count);
    if (created === 0) await withOwner(server.url(name), takeTemplateSchools);
    created = count;
  }
}

async function takeTemplateSchools(owner: pg.Client): Promise<void> {
  await owner.query(withoutSchedule);
  const { rows } = await owner.query<{ version: number }>(
    'select max(version) as version from platform.tenant_migration',
  );
  await owner.query(`
    create function public.take_template_school() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
    begin
      if new.schema_version = 0 and to_regnamespace('template_' || new.id) is not null then
        execute format('alter schema template_%1$s rename to tenant_%1$s', new.id);
        new.schema_version := ${String(rows[0]?.version)};
      end if;
      return new;
    end $$;
    create trigger take_template_school before insert on platform.tenant
      for each row when (current_setting('application_name') like 'school_api%') execute function public.take_template_school()`);
}

/** Creates the tables of the schools from one id to another, several at a time. */
async function makeSchools(url: string, from: number, to: number): Promise<void> {
  const ids = Array.from({ length: to - from + 1 }, (_, n) => from + n);
  const next = () => ids.shift();
  await Promise.all(
    [1, 2].map(() =>
      withOwner(url, async (owner) => {
        for (let id = next(); id !== undefined; id = next()) {
          await owner.query('select core.schema_migrate($1, 0)', [id]);
          await owner.query(`alter schema tenant_${id} rename to template_${id}`);
        }
      }),
    ),
  );
}
