import type pg from 'pg';
import { tableExists } from './versions.ts';

/** Schools whose rows are counted: a dump without rows has none of any school. */
const sampleSize = 20;

const advice =
  'Its dump was made without them, with --schema-only or --enable-row-security. Restore a dump of a superuser or of a ' +
  'role with BYPASSRLS, see docs/backup.md, "pg_dump". Nothing was changed.';

const named = (names: readonly string[]) =>
  `${names.slice(0, 5).join(', ')}${names.length > 5 ? `, … (${String(names.length)})` : ''}`;

/** The schemas of schools that platform.tenant does not know. */
async function unknownSchemas(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select nspname as name from pg_namespace
     where nspname ~ '^tenant_[0-9]+$' and not exists (select from platform.tenant where 'tenant_' || id = nspname)
     order by oid`,
  );
  if (rows.length === 0 || !(await tableExists(client, 'platform.ready_school'))) return rows.map(({ name }) => name);
  const { rows: ready } = await client.query<{ name: string }>(
    "select 'tenant_' || id as name from platform.ready_school",
  );
  return rows.map(({ name }) => name).filter((name) => !ready.some((school) => school.name === name));
}

/** Whether the tables of a school have the rows that its migrations have added. */
async function hasRows(client: pg.Client, id: string): Promise<boolean> {
  const table = `tenant_${id}.state_transition`;
  if (!(await tableExists(client, table))) return false;
  await client.query('begin read only');
  try {
    // Row security is forced for the owner too.
    await client.query("select set_config('app.tenant_id', $1, true), set_config('app.scope', 'all', true)", [id]);
    return (await client.query(`select from ${table} limit 1`)).rows.length > 0;
  } finally {
    await client.query('rollback');
  }
}

/**
 * Refuses a database that was restored without its rows, which looks like one whose schools are empty.
 * @param warn  called with a line about some schools, if others have their rows
 * @throws if the shared tables, or all schools that are tried, have lost their rows
 */
export async function refuseLostRows(client: pg.Client, warn: (line: string) => void): Promise<void> {
  if (!(await tableExists(client, 'platform.tenant')) || !(await tableExists(client, 'graphile_migrate.migrations')))
    return;
  const { rows: migrations } = await client.query('select from graphile_migrate.migrations limit 1');
  if (migrations.length === 0) throw new Error(`The shared tables exist, but have lost their rows. ${advice}`);
  const { rows: schools } = await client.query<{ id: string; subdomain: string }>(
    `select id, subdomain from platform.tenant t
     where schema_version > 0 and status <> 'deleted' and to_jsonb(t) ->> 'node_id' is null
     order by random() limit $1`,
    [sampleSize],
  );
  const unknown = await unknownSchemas(client);
  if (unknown.length > 0) {
    const { rows: any } = await client.query('select from platform.tenant limit 1');
    if (any.length === 0)
      throw new Error(`platform.tenant has no rows, but there are schemas of schools: ${named(unknown)}. ${advice}`);
    warn(`warning: no school has the schemas ${named(unknown)}`);
  }
  const lost: string[] = [];
  for (const { id, subdomain } of schools) if (!(await hasRows(client, id))) lost.push(`${id} (${subdomain})`);
  if (lost.length === 0) return;
  if (lost.length === schools.length)
    throw new Error(`The tables of the schools have lost their rows: ${named(lost)}. ${advice}`);
  warn(`warning: the tables of these schools are missing or have lost their rows: ${named(lost)}. See docs/backup.md`);
}
