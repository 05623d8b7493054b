import type pg from 'pg';
import type { Queries } from '../server/database.ts';

/** A school that exists only in the database, without a service or sessions. */
export interface BareTenant {
  id: number;
  /** The schema of its tables. */
  schema: string;
}

const { Client, DatabaseError } = shared.pg;

let serial = 0;

/** Adds the row of a school without a schema, as it is before its first migration. */
export async function register(database: Pick<Queries, 'query'>): Promise<BareTenant> {
  const subdomain = `bare-${++serial}`;
  const [row] = await database.query<{ id: string }>(
    'insert into platform.tenant (name, subdomain, contact_email, plan_id) values ($1, $1, $2, 3) returning id',
    [subdomain, `admin@${subdomain}.example`],
  );
  const id = Number(row?.id);
  return { id, schema: `tenant_${id}` };
}

/** Creates a school with its schema and roles, from the tables of a template school if the database has one (see template-schools.ts). */
export async function provision(database: Pick<Queries, 'query'>): Promise<BareTenant> {
  const tenant = await register(database);
  await database.query(`
    update platform.tenant t set schema_version = r.version
    from (select max(version) as version from platform.tenant_migration) r
    where t.id = ${tenant.id} and to_regnamespace('template_${tenant.id}') is not null`);
  await database.query(`do $$ begin
    if to_regnamespace('template_${tenant.id}') is not null then alter schema template_${tenant.id} rename to ${tenant.schema}; end if; end $$`);
  await database.query(`select core.tenant_provision($1, '{}')`, [tenant.id]);
  return tenant;
}

/** The outcome of a statement: the number of rows, or the SQLSTATE of its error. */
export type Outcome = number | string;

/** A transaction that runs as a database role of the service. */
export interface RoleSession {
  /** Runs a statement and returns its rows. */
  rows: <R extends pg.QueryResultRow>(text: string, values?: unknown[]) => Promise<R[]>;
  /** Runs a statement, rolls it back and returns its outcome. */
  attempt: (text: string, values?: unknown[]) => Promise<Outcome>;
}

/**
 * Runs `work` in a transaction with these settings and this role, and rolls it back. The connection is new, so no other
 * setting has a value.
 */
export async function withRole<T>(
  url: string,
  role: string,
  settings: Record<string, string>,
  work: (acting: RoleSession) => Promise<T>,
): Promise<T> {
  const client = new Client({ connectionString: url, application_name: 'test' });
  await client.connect();
  try {
    await client.query('begin');
    for (const [name, value] of Object.entries(settings))
      await client.query('select set_config($1, $2, true)', [name, value]);
    await client.query(`set local role ${client.escapeIdentifier(role)}`);
    return await work({
      rows: async <R extends pg.QueryResultRow>(text: string, values?: unknown[]) =>
        (await client.query<R>(text, values)).rows,
      async attempt(text, values) {
        await client.query('savepoint attempt');
        try {
          return (await client.query(text, values)).rowCount ?? 0;
        } catch (error) {
          if (error instanceof DatabaseError && error.code) return error.code;
          throw error;
        } finally {
          await client.query('rollback to attempt');
        }
      },
    });
  } finally {
    await client.query('rollback').catch(() => undefined);
    await client.end();
  }
}

/** A table of a tenant schema. */
export interface TenantTable {
  name: string;
  /** Columns without a default that must not be null. */
  required: { name: string; type: string }[];
  /** A column that a request may update; null if there is none. */
  changeable: string | null;
  /** The privileges of a school's role by the `@grants` comment. Default: select, insert, update, delete. */
  verbs: string[];
  columns: string[];
}

/** Every table of a tenant schema, from the system catalog. */
export async function tenantTables(database: Pick<Queries, 'query'>, schema: string): Promise<TenantTable[]> {
  return database.query<TenantTable & pg.QueryResultRow>(
    `select c.relname as name,
       (select coalesce(json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, null)) order by a.attnum), '[]') from pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attnotnull and not a.atthasdef and a.attidentity = '') as required,
       (select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          and has_column_privilege('school_tenant', c.oid, a.attnum, 'update') order by a.attnum limit 1) as changeable,
       string_to_array(replace(coalesce(substring(obj_description(c.oid, 'pg_class') from '@grants ([a-z, ]+)'), 'select,insert,update,delete'), ' ', ''), ',') as verbs,
       (select array_agg(a.attname::text order by a.attnum) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns
     from pg_class c where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p') order by c.relname`,
    [schema],
  );
}

/**
 * Drops the constraints and unique indexes of a school and disables its triggers, but keeps its policies. Each table then
 * accepts a minimal row.
 */
export async function dropConstraintsAndTriggers(database: Pick<Queries, 'query'>, schema: string): Promise<void> {
  const rules = await database.query<{ statement: string }>(
    `select format('alter table %s drop constraint if exists %I cascade', conrelid::regclass, conname) as statement
       from pg_constraint where conrelid <> 0 and connamespace = $1::regnamespace and contype in ('c', 'f', 'x', 'u', 'p')
     union all
     select format('drop index if exists %s', indexrelid::regclass) from pg_index i join pg_class c on c.oid = i.indexrelid
       where c.relnamespace = $1::regnamespace and i.indisunique
     union all
     select format('alter table %s disable trigger user', oid::regclass) from pg_class where relnamespace = $1::regnamespace and relkind in ('r', 'p')`,
    [schema],
  );
  for (const { statement } of rules) await database.query(statement);
}

const samples: Record<string, string> = {
  bigint: '1',
  integer: '1',
  smallint: '1',
  numeric: '1',
  'double precision': '1',
  text: 'x',
  'character varying': 'x',
  boolean: 'false',
  date: '2026-01-01',
  'time without time zone': '08:00',
  'timestamp with time zone': '2026-01-01T00:00:00Z',
  json: '{}',
  jsonb: '{}',
  bytea: '\\x00',
  uuid: '00000000-0000-0000-0000-000000000001',
  daterange: '[2026-01-01,2026-02-01)',
};

/**
 * An insert of a row with values for the required columns.
 * @param given  values of columns, which override the samples
 */
export function minimalInsert(schema: string, table: TenantTable, given: Record<string, string> = {}): string {
  const values: Record<string, string> = {};
  for (const { name, type } of table.required) {
    const value = type.endsWith('[]') ? '{}' : samples[type];
    if (value === undefined)
      throw new Error(`${table.name}.${name}: add a sample value to test/support/database/tenants.ts for type ${type}`);
    values[name] = value;
  }
  Object.assign(values, given);
  const names = Object.keys(values);
  if (names.length === 0) return `insert into ${schema}.${table.name} default values`;
  return `insert into ${schema}.${table.name} (${names.map((name) => `"${name}"`).join(', ')}) values (${names.map((name) => `'${values[name] ?? ''}'`).join(', ')})`;
}
