import type pg from 'pg';
import { asReplica, inTransaction } from '../../database/transaction.ts';
import { requireCopies } from '../nodes/copies.ts';
import { isCopying, requireReplicationLimits } from '../replication/limits.ts';
import { waitForTables } from '../replication/subscriptions.ts';
import { endSubscription, isBegun, publish, subscribeToSchool } from './replication.ts';
import { hasSchema, type Move, schemaOf } from './school.ts';
import { dropSchema, lockSchool, requireClosed, schoolTables, writeTenant } from './tables.ts';

/** How many tables of a school the target has copied. */
export interface CopyProgress {
  copied: number;
  total: number;
}

export interface CopyOptions {
  onStep: (step: 'prepared' | 'copied') => void | Promise<void>;
  onProgress: (tables: CopyProgress) => void;
  /** How long a move may wait without a table that was copied, or is being copied. */
  stallTimeoutMs: number;
}

/** @throws if the servers have different releases, or the school is not at the current schema version */
async function checkVersions({ source, target, school }: Move): Promise<void> {
  const release = async (client: pg.Client) =>
    (
      await client.query<{ fingerprint: string; version: number }>(
        `select fingerprint, (select max(version) from platform.tenant_migration) as version
         from platform.installation`,
      )
    ).rows[0];
  const [from, to] = [await release(source), await release(target)];
  if (from?.fingerprint !== to?.fingerprint || to === undefined)
    throw new Error('The two servers have different releases. Migrate both first: school migrate up');
  const { rows } = await source.query<{ schema_version: number; status: string }>(
    'select schema_version, status from platform.tenant where id = $1',
    [school],
  );
  if (rows[0]?.status === 'deleted') throw new Error('A deleted school cannot be moved.');
  if (rows[0]?.schema_version !== to.version)
    throw new Error('The school does not have the current schema version. Migrate it first: school migrate up');
}

/** @throws if a table has no key, by which the target finds changed rows */
async function requireKeys({ source, school }: Move): Promise<void> {
  const { rows } = await source.query<{ name: string }>(
    `select c.relname as name from pg_class c
     where c.relnamespace = $1::regnamespace and c.relkind = 'r'
       and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)`,
    [schemaOf(school)],
  );
  if (rows.length > 0) throw new Error(`These tables have no primary key: ${rows.map(({ name }) => name).join(', ')}`);
}

/**
 * Drops the tables that an earlier attempt of the move has created.
 * @throws if the target has other tables of the school, whose rows may be newer than those of the source
 */
async function dropEarlierCopy({ target, to, school }: Move): Promise<void> {
  const schema = schemaOf(school);
  const { rows } = await target.query<{ is_copy: boolean }>(
    `select core.move_version($2) is not null
       and not exists (select from platform.tenant where id = $1 and (node_id is null or schema_version > 0)) as is_copy`,
    [school, schema],
  );
  if (!rows[0]?.is_copy && (await hasSchema(target, schema)))
    throw new Error(
      `${to.name} has a schema ${schema} that no move has created. Nothing was changed. Find out what it contains, ` +
        `then rename or drop it: alter schema ${schema} rename to …`,
    );
  await dropSchema(target, schema);
}

/** Creates the empty tables of a school on the target, at the current version. */
async function createTables(move: Move): Promise<void> {
  const { target, school } = move;
  await dropEarlierCopy(move);
  await asReplica(target, () => writeTenant(move));
  await inTransaction(target, async () => {
    await target.query('select core.tenant_migrate($1)', [school]);
    await target.query('update platform.tenant set schema_version = 0 where id = $1', [school]);
    // dropEarlierCopy and lockSchool read it: the row of the school has 0.
    await target.query('select core.move_note($1, $2, (select max(version) from platform.tenant_migration))', [
      schemaOf(school),
      school,
    ]);
  });
  await asReplica(target, async () => {
    // Migrations insert rows too.
    for (const name of await schoolTables(target, school))
      await target.query(`delete from ${schemaOf(school)}.${target.escapeIdentifier(name)}`);
  });
}

/** Creates the publication, and the empty tables on the target. @throws if the target has the school open */
async function prepare(move: Move): Promise<void> {
  await requireClosed(move);
  await publish(move, []);
  // Without its slot it is that of a move that was given up with --lost, before its server came back.
  await endSubscription(move);
  await createTables(move);
}

/** No table was copied for some time. */
class StallError extends Error {
  readonly missing: number;

  constructor(missing: number) {
    super(`${String(missing)} tables are missing.`);
    this.missing = missing;
  }
}

/** Waits until all tables are copied. @throws StallError if none was copied for `stallTimeoutMs` */
async function waitWithoutStall({ target, name }: Move, { stallTimeoutMs, onProgress }: CopyOptions): Promise<void> {
  let last: number | undefined;
  let changedAt = performance.now();
  await waitForTables(target, name, {
    timeoutMs: Infinity,
    onProgress: (tables) => {
      onProgress(tables);
      const { copied, total } = tables;
      if (copied !== last) changedAt = performance.now();
      last = copied;
      if (copied < total && performance.now() - changedAt > stallTimeoutMs) throw new StallError(total - copied);
    },
  });
}

/**
 * Waits until the target has copied all tables. A large one may take any time.
 * @throws if none was copied for `stallTimeoutMs`, and none is being copied then
 */
async function waitForRows(move: Move, options: CopyOptions): Promise<void> {
  const { target, from, to, name } = move;
  for (;;)
    try {
      await waitWithoutStall(move, options);
      return;
    } catch (error) {
      if (!(error instanceof StallError)) throw error;
      if (await isCopying(target, name)) continue;
      const { rows } = await target.query<{ workers: string }>(
        "select current_setting('max_logical_replication_workers') as workers",
      );
      throw new Error(
        `${to.name} has copied no table of the school for ${String(options.stallTimeoutMs / 1000)} s, and ` +
          `${String(error.missing)} are missing. Its log has the cause. If it is "out of ` +
          `logical replication worker slots", raise max_logical_replication_workers there, which is ` +
          `${rows[0]?.workers ?? 'unknown'}, and restart the server; if no slot is free, max_replication_slots on ` +
          `${from.name}. Then repeat the move.`,
        { cause: error },
      );
    }
}

async function analyze({ target, school }: Move): Promise<void> {
  for (const name of await schoolTables(target, school))
    await target.query(`analyze ${schemaOf(school)}.${target.escapeIdentifier(name)}`);
}

/** @throws if the home does not copy all tables of the nodes between which a school moves */
export async function requireCopiesOfNodes(home: pg.Client, { from, to }: Move): Promise<void> {
  for (const { id } of [from, to]) if (id !== null) await requireCopies(home, id);
}

/**
 * Lets the target copy the rows of a school, which stays in service, and all later changes; or continues that.
 * @throws if the servers do not allow it, or no table is copied for `stallTimeoutMs`
 */
export async function copySchool(home: pg.Client, move: Move, options: CopyOptions): Promise<void> {
  const { source, target, from, to, name } = move;
  await checkVersions(move);
  await requireCopiesOfNodes(home, move);
  await requireReplicationLimits(source, target, { name, from: from.name, to: to.name });
  await requireKeys(move);
  if (!(await isBegun(move))) await prepare(move);
  await lockSchool(move);
  await options.onStep('prepared');
  await subscribeToSchool(move);
  await waitForRows(move, options);
  await analyze(move);
  await options.onStep('copied');
}
