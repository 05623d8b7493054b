import pg from 'pg';
import { findTenant, type NamedTenant } from '../find-tenant.ts';
import { isLockConflict, retryLockConflicts } from '../lock-conflicts.ts';
import { withOptions } from '../pool/pool.ts';
import type { Rehearsal } from './dry-run.ts';
import { hasTablesHere } from './tenant-migrations.ts';
import { tableExists } from './versions.ts';

/** The number of schools to migrate at the same time, unless the caller says otherwise. */
export const defaultParallel = 2;

/** The outcome of migrating one school. */
export interface TenantResult {
  tenant: string;
  subdomain: string;
  /** The number of migrations applied; in a dry run, to apply. */
  applied: number;
  milliseconds: number;
  error?: string;
  /** Whether it failed because another transaction held its tables. */
  isLocked?: boolean;
  /** What a dry run observed. */
  rehearsal?: Rehearsal;
}

/** A school that a run left behind deliberately. */
export interface SkippedTenant {
  tenant: string;
  subdomain: string;
  reason: string;
}

export interface SchoolOptions {
  /** The address of the database, for its owner. */
  ownerUrl: string;
  /** The number of schools to migrate at the same time; 2 by default. A dry run takes one after the other. */
  parallel?: number | undefined;
  /** The number of schools to migrate first. If one of them fails, the run stops. */
  canary?: number | undefined;
  /** Schools to leave at their version, by id or subdomain, and why. */
  skip?: { schools: readonly string[]; reason: string } | undefined;
  /** Schools that are no longer left behind, by id or subdomain. */
  unskip?: readonly string[] | undefined;
  /** Called after each school. */
  onTenant?: ((result: TenantResult, done: number, total: number) => void) | undefined;
}

/**
 * A pool of the owner for work at every school. A backend keeps the catalog of each school that it has migrated, a
 * megabyte or two, and looks through it at every change: so a connection serves 100 schools, then the next one follows.
 */
export function schoolsPool(ownerUrl: string, size: number): pg.Pool {
  const pool = new pg.Pool({
    // New requests of a school get 503 while its migration waits for a lock.
    connectionString: withOptions(ownerUrl, '-c lock_timeout=500ms -c jit=off'),
    max: size,
    maxUses: 100,
    application_name: 'school_owner',
  });
  pool.on('error', () => undefined);
  return pool;
}

/** Selects the schools below version $1. */
const outdatedTenantsSql = `from platform.tenant t where t.schema_version < $1 and ${hasTablesHere}`;

export interface OutdatedTenant extends NamedTenant {
  schema_version: number;
  skip_reason: string | null;
}

/** The schools to migrate, and those that are skipped. */
export async function selectTenants(
  client: pg.Client,
  latest: number,
  tenant: string | undefined,
): Promise<{ selected: OutdatedTenant[]; skipped: OutdatedTenant[] }> {
  const reason = (await tableExists(client, 'platform.delayed_migration'))
    ? '(select d.skip_reason from platform.delayed_migration d where d.tenant_id = t.id)'
    : 'null::text';
  const { rows } = await client.query<OutdatedTenant>(
    `select id, subdomain, schema_version, ${reason} as skip_reason
     ${outdatedTenantsSql} and ($2::bigint is null or id = $2) order by id`,
    [latest, tenant === undefined ? null : (await findTenant(client, tenant)).id],
  );
  const isSkipped = (row: OutdatedTenant) => tenant === undefined && row.skip_reason !== null;
  return { selected: rows.filter((row) => !isSkipped(row)), skipped: rows.filter(isSkipped) };
}

/** `count` of the rows at equal distances, so that a sample has old and new schools. */
export const spread = <T>(rows: T[], count: number): T[] =>
  count >= rows.length
    ? rows
    : Array.from({ length: count }, (_, n) => rows[Math.floor((n * rows.length) / count)] as T);

/** Runs `work` for each school, `parallel` at a time. An error is the result of its school. */
export async function forEachTenant(
  rows: OutdatedTenant[],
  parallel: number,
  versions: number[],
  work: (row: OutdatedTenant, result: TenantResult) => Promise<void>,
  onResult: (result: TenantResult) => void,
): Promise<void> {
  const queue = rows.values();
  const takeNext = async () => {
    for (const row of queue) {
      const start = performance.now();
      const result: TenantResult = {
        tenant: row.id,
        subdomain: row.subdomain,
        applied: versions.filter((version) => version > row.schema_version).length,
        milliseconds: 0,
      };
      try {
        await work(row, result);
      } catch (error) {
        result.applied = 0;
        result.error = describeError(error);
        if (isLockConflict(error)) result.isLocked = true;
      }
      result.milliseconds = result.rehearsal?.milliseconds ?? Math.round(performance.now() - start);
      onResult(result);
    }
  };
  await Promise.all(Array.from({ length: parallel }, takeNext));
}

/** Whether a code is that of a violated constraint. */
const isViolation = (code = '') => code.startsWith('23');
/** The codes of unique constraints and foreign keys, whose detail has the key. That of others has a whole row. */
const violatedKey = /^2350[35]$/;

/** A school that violates a constraint. The message names the rows. */
class ViolationError extends Error {}

/** The message of an error, with the detail and the hint that Postgres adds, but without all values of a row. */
function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof ViolationError) return error.message;
  const { code, detail, hint } = error as { code?: string; detail?: string; hint?: string };
  const hasRow = isViolation(code) && !violatedKey.test(code ?? '');
  return [error.message, hasRow ? undefined : detail, hint].filter(Boolean).join(' ');
}

/**
 * The error of a migration, with the rows that violate a constraint instead of the detail of Postgres, which may have
 * all values of one row.
 */
async function explainViolation(pool: pg.Pool, tenant: string, error: unknown): Promise<unknown> {
  if (!(error instanceof pg.DatabaseError) || !isViolation(error.code)) return error;
  const key = violatedKey.test(error.code ?? '') ? error.detail : undefined;
  const client = await pool.connect();
  try {
    await client.query('begin');
    const { rows } = await client.query<{ lines: string | null }>(
      'select core.explain_violation($1, $2, $3, $4) as lines',
      [tenant, error.table ?? '', error.constraint ?? '', error.column ?? ''],
    );
    return new ViolationError([error.message, rows[0]?.lines ?? key].filter(Boolean).join('\n'), { cause: error });
  } catch {
    // For example, the constraint needs a table that the migration creates.
    return new ViolationError([error.message, key].filter(Boolean).join('\n'), { cause: error });
  } finally {
    await client.query('rollback').catch(() => undefined);
    client.release();
  }
}

/**
 * Stores why a school is behind; core.tenant_migrate deletes it at the next success. Not the detail of Postgres, which may
 * have all values of a row.
 */
async function recordFailure(pool: pg.Pool, tenant: string, thrown: unknown): Promise<void> {
  const error = Error.isError(thrown) ? thrown.message : String(thrown);
  await pool.query(
    `insert into platform.delayed_migration (tenant_id, version, error, failed_at) values ($1, $2, $3, now())
     on conflict (tenant_id) do update set
       version = excluded.version, error = excluded.error, failed_at = excluded.failed_at`,
    [tenant, /^tenant migration (\d{4})-/.exec(error)?.[1] ?? null, error],
  );
}

/**
 * Migrates the outdated schools, each in its own transaction. The failure of one school does not affect the others,
 * unless it is one of the canaries, which are migrated first.
 */
export async function migrateTenants(
  selected: OutdatedTenant[],
  { ownerUrl, parallel = defaultParallel, canary = 0, onTenant }: SchoolOptions,
  versions: number[],
): Promise<{ tenants: TenantResult[]; isStopped: boolean }> {
  const pool = schoolsPool(ownerUrl, parallel);
  const tenants: TenantResult[] = [];
  const run = (rows: OutdatedTenant[]) =>
    forEachTenant(
      rows,
      parallel,
      versions,
      async ({ id }, result) => {
        const answer = await retryLockConflicts(() =>
          pool.query<{ applied: number }>('select core.tenant_migrate($1) as applied', [id]),
        ).catch(async (thrown: unknown) => {
          const error = await explainViolation(pool, id, thrown);
          await recordFailure(pool, id, error);
          throw error;
        });
        result.applied = answer.rows[0]?.applied ?? 0;
      },
      (result) => {
        tenants.push(result);
        onTenant?.(result, tenants.length, selected.length);
      },
    );
  try {
    const canaries = spread(selected, canary);
    await run(canaries);
    const isStopped = tenants.some(({ error }) => error);
    if (!isStopped) await run(selected.filter((row) => !canaries.includes(row)));
    return { tenants, isStopped };
  } finally {
    await pool.end();
  }
}

/**
 * Leaves schools at their version, or no longer. Changes all of them or none.
 * @throws if a school does not exist, or one to skip is up to date
 */
export async function changeSkips(
  client: pg.Client,
  { skip, unskip = [] }: SchoolOptions,
  latest: number,
): Promise<void> {
  await client.query('begin');
  try {
    for (const school of skip?.schools ?? []) {
      const { id, subdomain } = await findTenant(client, school);
      const { rowCount } = await client.query(
        `insert into platform.delayed_migration (tenant_id, skip_reason, skipped_at)
         select id, $3, now() ${outdatedTenantsSql} and id = $2
         on conflict (tenant_id) do update set skip_reason = excluded.skip_reason, skipped_at = excluded.skipped_at`,
        [latest, id, skip?.reason],
      );
      if (!rowCount) throw new Error(`School ${id} (${subdomain}) is up to date, so there is nothing to skip.`);
    }
    for (const school of unskip) {
      const { id, subdomain } = await findTenant(client, school);
      if (skip?.schools.some((other) => other === id || other === subdomain))
        throw new Error(`School ${id} (${subdomain}) is both in --skip and in --unskip.`);
      await client.query('delete from platform.delayed_migration where tenant_id = $1 and failed_at is null', [id]);
      await client.query(
        'update platform.delayed_migration set skip_reason = null, skipped_at = null where tenant_id = $1',
        [id],
      );
    }
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}

export const asSkipped = ({ id, subdomain, skip_reason }: OutdatedTenant): SkippedTenant => ({
  tenant: id,
  subdomain,
  reason: skip_reason ?? '',
});
