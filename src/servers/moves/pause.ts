import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { asReplica } from '../../database/transaction.ts';
import { withCopiesLock } from '../nodes/copies.ts';
import { homeSubscription } from '../replication/names.ts';
import { waitForSubscribers } from '../replication/wait.ts';
import { requireCopiesOfNodes } from './copy.ts';
import { type Move, schemaOf } from './school.ts';
import { lockSchool, schoolTables, type SharedTable, sharedTables, writeTenant } from './tables.ts';

/** How long the requests of a school that are running may keep a move waiting. New ones are refused meanwhile. */
const lockTimeoutMs = 1_000;
/** How long the target may take for the last changes while the school is paused. */
const catchUpTimeoutMs = 2_000;
/** How long a lock on the target may keep a school paused. */
const targetLockTimeoutMs = 5_000;
/** How long the target may take for each statement while the school is paused. */
const targetTimeoutMs = 10_000;
/** How often the school is paused again after it could not be moved in time. */
const maxAttempts = 30;

/** How many rows outside the schema are copied with one statement. */
const rowsAtATime = 5_000;

/** An attempt to pause the school failed for a reason that may be gone in a second. */
class RetryError extends Error {}

/** Waits until the target, and the home if it copies from this server, have all changes up to now. */
async function catchUp({ source, from, name }: Move): Promise<void> {
  // Only these: another server that hangs does not keep the school from moving.
  const subscriptions = [name, ...(from.id === null ? [] : [homeSubscription(from.id)])];
  if (!(await waitForSubscribers(source, catchUpTimeoutMs, subscriptions)))
    throw new RetryError(`Replication from ${from.name} did not catch up within ${String(catchUpTimeoutMs / 1000)} s.`);
}

/** @throws if a table has not the same number of rows on both servers */
async function compareCounts({ source, target, school }: Move): Promise<void> {
  const text = (await schoolTables(source, school))
    .map((name) => `select '${name}' as name, count(*) as rows from ${schemaOf(school)}.${name}`)
    .join(' union all ');
  const counts = async (client: pg.Client) =>
    new Map((await client.query<{ name: string; rows: string }>(text)).rows.map(({ name, rows }) => [name, rows]));
  const [here, there] = await Promise.all([counts(source), counts(target)]);
  const wrong = [...here].filter(([name, rows]) => there.get(name) !== rows).map(([name]) => name);
  if (wrong.length > 0) throw new Error(`The copies of these tables are not complete: ${wrong.join(', ')}`);
}

async function copySequences({ source, target, school }: Move): Promise<void> {
  const { rows: sequences } = await source.query<{ name: string }>(
    "select relname as name from core.relations_in($1) where relkind = 'S'",
    [schemaOf(school)],
  );
  const { rows: positions } = await source.query<{ name: string; last_value: string; is_called: boolean }>(
    sequences
      .map(({ name }) => `select '${name}' as name, last_value, is_called from ${schemaOf(school)}.${name}`)
      .join(' union all '),
  );
  await target.query(
    `select setval(format('%I.%I', $1::text, name)::regclass, last_value, is_called)
     from json_to_recordset($2) s (name text, last_value bigint, is_called boolean)`,
    [schemaOf(school), JSON.stringify(positions)],
  );
}

/** Copies the rows of a table in batches, because all audit entries of a large school may be too long for one text. */
async function copyRows({ source, target }: Move, { name, condition }: SharedTable): Promise<void> {
  await source.query(
    `declare moved_row no scroll cursor for select row_to_json(t)::text as row from ${name} t where ${condition}`,
  );
  for (;;) {
    const { rows } = await source.query<{ row: string }>(`fetch ${String(rowsAtATime)} from moved_row`);
    if (rows.length === 0) break;
    await target.query(`insert into ${name} select * from json_populate_recordset(null::${name}, $1)`, [
      `[${rows.map(({ row }) => row).join()}]`,
    ]);
  }
  await source.query('close moved_row');
}

/** Copies the rows outside the schema, instead of those that an earlier attempt has copied. */
async function copySharedRows(move: Move): Promise<void> {
  const { source, target, school } = move;
  const tables = await sharedTables(source, school);
  for (const { name, condition } of tables.toReversed()) await target.query(`delete from ${name} where ${condition}`);
  await writeTenant(move);
  for (const table of tables) await copyRows(move, table);
}

/** Runs `work` until its end or that of a connection. @throws what ended the connection */
async function whileConnected(client: pg.Client, work: () => Promise<void>): Promise<void> {
  const { promise: ended, reject } = Promise.withResolvers<never>();
  client.once('error', reject);
  try {
    await Promise.race([work(), ended]);
  } finally {
    client.off('error', reject);
  }
}

/** What `pauseOnce` does in its transaction on the source, after which the target has all of the school. */
async function finishCopies(move: Move): Promise<void> {
  const { source, target, from, to, school } = move;
  await target.query(`set lock_timeout = ${String(targetLockTimeoutMs)}`);
  await lockSchool(move);
  const { rows } = await source.query<{ running: number }>('select running from core.move_jobs_hold($1)', [school]);
  if (rows[0]?.running) throw new RetryError('A job of the school is still running; see: school jobs list.');
  await catchUp(move);
  await compareCounts(move);
  // What logical replication does not copy.
  await asReplica(target, async () => {
    await copySequences(move);
    await copySharedRows(move);
  });
  // While the school is paused, waiting is better than leaving it so.
  await target.query('reset lock_timeout');
  await source.query('select core.move_close($1, $2)', [school, from.id ?? to.id]);
}

/** The error of a failed attempt, in the words of the reader. */
function explain(error: unknown, { from, to }: Move): unknown {
  const { code } = error as { code?: string };
  // lock_not_available
  if (code === '55P03')
    return new RetryError('Another connection has locked the school: a request, an export or a change by an operator.');
  // idle_in_transaction_session_timeout
  if (code === '25P03')
    return new Error(
      `The server ${to.name} did not answer while the school was closed. It is open again on ${from.name}. Repeat ` +
        'the move later.',
      { cause: error },
    );
  return error;
}

/**
 * Pauses a school on the source after the target has all of it. New requests wait while this connection holds the lock;
 * after the commit, `schema_version` 0 keeps them out until the school is opened on the target. If the target hangs
 * meanwhile, the source ends the connection, and so opens the school.
 */
async function pauseOnce(move: Move): Promise<void> {
  const { source, school } = move;
  await source.query(`set lock_timeout = ${String(lockTimeoutMs)}`);
  try {
    await source.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school]);
    await source.query('begin');
    await source.query(`set local idle_in_transaction_session_timeout = ${String(targetTimeoutMs)}`);
    await whileConnected(source, async () => {
      await finishCopies(move);
      await source.query('commit');
    });
  } catch (error) {
    await source.query('rollback').catch(() => undefined);
    await source.query('select pg_advisory_unlock(core.tenant_lock_key($1))', [school]).catch(() => undefined);
    throw explain(error, move);
  }
}

/**
 * Pauses a school on the source, and repeats that while something is in the way.
 * @param onPaused  called while the tables stay that the home copies from the nodes
 * @returns when the last attempt began, by `performance.now()`
 */
export async function pauseSchool(home: pg.Client, move: Move, onPaused: () => void | Promise<void>): Promise<number> {
  const nodeIds = [move.from, move.to].flatMap(({ id }) => id ?? []);
  return withCopiesLock(home, nodeIds, 'shared', async () => {
    for (let attempt = 1; ; attempt++)
      try {
        // A release that was installed meanwhile may have added some.
        await requireCopiesOfNodes(home, move);
        const startedAt = performance.now();
        await pauseOnce(move);
        await onPaused();
        return startedAt;
      } catch (error) {
        if (!(error instanceof RetryError) || attempt === maxAttempts) throw error;
        await sleep(1_000);
      }
  });
}
