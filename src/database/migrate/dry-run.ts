import type pg from 'pg';
import { sqlFile } from './install.ts';
import { retryLockConflicts } from '../lock-conflicts.ts';
import { withOwner } from '../pool/pool.ts';
import { inspectMigration, newHistory } from './migration-rules.ts';
import { type Publication, writeTexts } from './tenant-migrations.ts';

/** The strongest lock on a table that a transaction held. */
export interface HeldLock {
  table: string;
  /** For example `AccessExclusiveLock`, which no other statement on the table can share. */
  mode: string;
}

/** What a migration did before it was rolled back. */
export interface Rehearsal {
  milliseconds: number;
  /** Locks that writes or reads of others have to wait for, on tables that existed before. */
  locks: HeldLock[];
  /** The tables that were written again as a whole. */
  rewrites: string[];
  /** Indexes that were built on tables that existed before. */
  indexes: string[];
  /** The number of rows of existing tables that were inserted, updated or deleted. */
  rows_written: number;
}

/** The locks that conflict with reading or writing rows, the strongest last. */
const blockingModes = [
  'ShareUpdateExclusiveLock',
  'ShareLock',
  'ShareRowExclusiveLock',
  'ExclusiveLock',
  'AccessExclusiveLock',
];

/** The row of a query that always returns one. */
function onlyRow<T extends pg.QueryResultRow>({ rows: [row] }: pg.QueryResult<T>): T {
  if (row === undefined) throw new Error('The query returned no row.');
  return row;
}

interface Before {
  tables: string[];
  files: string[];
  indexes: string[];
  rows: string;
}

const rowsWritten =
  'pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)';

/**
 * Runs `work` in a transaction, observes it, and rolls it back.
 * @param relations  an SQL expression that returns the rows of pg_class to observe
 */
async function rehearse(client: pg.ClientBase, relations: string, work: () => Promise<unknown>): Promise<Rehearsal> {
  const before = await client.query<Before>(
    `with relation as materialized (select * from ${relations} c where c.relkind in ('r', 'p', 'm'))
     select
       coalesce(array_agg(oid::text order by oid), '{}') as tables,
       coalesce(array_agg(coalesce(pg_relation_filenode(oid), 0)::text order by oid), '{}') as files,
       (select coalesce(array_agg(i.indexrelid::text), '{}') from pg_index i join relation r on r.oid = i.indrelid)
         as indexes,
       coalesce(sum(${rowsWritten}), 0) as rows
     from relation`,
  );
  const { tables, files, indexes, rows } = onlyRow(before);
  const start = performance.now();
  await work();
  // Otherwise deferred constraints are never checked, because the transaction does not commit.
  await client.query('set constraints all immediate');
  const milliseconds = Math.round(performance.now() - start);
  const after = await client.query<Omit<Rehearsal, 'milliseconds'>>(
    `with known as materialized (
       select k.oid, k.file, c.relname
       from unnest($1::oid[], $2::oid[]) k (oid, file)
       left join pg_class c on c.oid = k.oid
     )
     select
       (
         select coalesce(
           json_agg(json_build_object('table', relname, 'mode', ($4::text[])[place]) order by relname), '[]')
         from (
           select c.relname, max(array_position($4::text[], l.mode)) as place
           from pg_locks l
           -- A dropped table is no longer in pg_class.
           join known c on c.oid = l.relation
           where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.mode = any ($4) and c.relname is not null
           group by c.relname
         ) held
       ) as locks,
       (
         select coalesce(json_agg(relname order by relname), '[]')
         from known
         where file <> 0 and pg_relation_filenode(oid) is distinct from file and relname is not null
       ) as rewrites,
       (
         select coalesce(json_agg(c.relname order by c.relname), '[]')
         from pg_index i
         join known k on k.oid = i.indrelid
         join pg_class c on c.oid = i.indexrelid
         where i.indexrelid <> all ($3::oid[])
       ) as indexes,
       (select coalesce(sum(${rowsWritten}), 0)::integer - $5::integer from known) as rows_written`,
    [tables, files, indexes, blockingModes, rows],
  );
  return { milliseconds, ...onlyRow(after) };
}

/** Runs `work` in a transaction that is rolled back. */
async function rolledBack<T>(client: pg.ClientBase, work: () => Promise<T>): Promise<T> {
  await client.query('begin');
  try {
    return await work();
  } finally {
    await client.query('rollback');
  }
}

/** What the database does not have yet when the dry run of a school begins. */
export interface Missing {
  publication: Publication;
  /** The functions that pending shared migrations create. */
  functions: string[];
}

/**
 * The statements with which pending shared migrations create functions, which tenant migrations may call. What else these
 * migrations do would lock tables of all schools while a school is tried.
 */
export async function pendingFunctions(pending: string[]): Promise<string[]> {
  const history = newHistory();
  const functions: string[] = [];
  for (const name of pending)
    functions.push(
      ...(await inspectMigration((await sqlFile(`migrations/committed/${name}`)).text, history)).functions,
    );
  return functions.map((statement) => statement.replace(/^create\s+(or\s+replace\s+)?/i, 'create or replace '));
}

/**
 * Migrates a school and rolls it back. The school answers 503 meanwhile, as in a real run.
 * @throws the error of the migration
 */
export const rehearseTenant = (
  client: pg.ClientBase,
  id: string,
  { publication, functions }: Missing,
): Promise<Rehearsal> =>
  retryLockConflicts(() =>
    rolledBack(client, async () => {
      // Their bodies may name tables that the same migrations create.
      await client.query('set local check_function_bodies = off');
      for (const statement of functions) await client.query(statement);
      await writeTexts(client, publication);
      return rehearse(client, `core.relations_in('tenant_${id}')`, () =>
        client.query('select core.tenant_migrate($1)', [id]),
      );
    }),
  );

/** The outcome of the pending shared migrations in a dry run. */
export interface SharedRehearsal {
  pending: string[];
  /** The pending migrations that were not tried. */
  untried: string[];
  /** Why they were not tried. */
  reason?: string;
  rehearsal?: Rehearsal;
  error?: string;
}

/**
 * Runs the pending shared migrations in one transaction and rolls it back. Not tried: migrations that cannot run in a
 * transaction, those after them, and all of them if the database is empty, because then they need the roles first.
 * @param pending  their file names, in order
 */
export async function rehearseShared(ownerUrl: string, pending: string[], isEmpty: boolean): Promise<SharedRehearsal> {
  if (pending.length === 0) return { pending, untried: [] };
  if (isEmpty) return { pending, untried: pending, reason: 'the database is empty' };
  const files = await Promise.all(pending.map((name) => sqlFile(`migrations/committed/${name}`)));
  const end = files.findIndex(({ text }) => /^--! no-transaction\b/m.test(text));
  const tried = end < 0 ? files : files.slice(0, end);
  const outcome: SharedRehearsal = {
    pending,
    untried: pending.slice(tried.length),
    ...(end < 0 ? {} : { reason: 'a migration without a transaction cannot be rolled back' }),
  };
  if (tried.length === 0) return outcome;
  try {
    outcome.rehearsal = await withOwner(ownerUrl, async (client) => {
      await client.query("set lock_timeout = '500ms'");
      return retryLockConflicts(() =>
        rolledBack(client, () =>
          rehearse(
            client,
            "(select * from pg_class where relnamespace in (to_regnamespace('platform'), to_regnamespace('mart')))",
            async () => {
              for (const { text } of tried) await client.query(text);
            },
          ),
        ),
      );
    });
  } catch (error) {
    outcome.error = error instanceof Error ? error.message : String(error);
  }
  return outcome;
}
