import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { classify } from '../database/errors.ts';
import {
  dropSlot,
  hasSlot,
  hasSubscription,
  readNodes,
  requireCopies,
  subscribe,
  subscriptionOf as copiesOf,
  unsubscribe,
  waitForTables,
  withSharedSubscriptionLock,
} from './nodes.ts';
import { answerTimeoutMs, requireAnswer, withOwner, withOwnerInTime } from '../database/pool/pool.ts';
import { isCopying, requireReplicationLimits } from './replication-limits.ts';
import { homeName, reasonOf } from './servers.ts';

/** A server that can hold a school. `id` is null for the home. */
interface Server {
  id: number | null;
  name: string;
  url: string;
}

/** What `moveSchool` has just finished. After each step a stopped move can be continued. */
export type MoveStep = 'prepared' | 'copied' | 'closed' | 'switched' | 'opened' | 'cleaned';

interface MoveOptions {
  /** The home, as the nodes reach it. */
  homeUrl: string;
  school: number;
  /** The name of a node, or `home`. */
  to: string;
  onStep?: (step: MoveStep) => void | Promise<void>;
  /** Called while rows are copied. */
  onProgress?: (tables: Tables) => void;
  /** How long a move may wait without a table that was copied, or is being copied. */
  stallTimeoutMs?: number;
}

interface Tables {
  copied: number;
  total: number;
}

/** How long the requests of a school that are running may keep a move waiting. New ones are refused meanwhile. */
const lockTimeoutMs = 1_000;
/** How long the target may take for the last changes while the school is closed. */
const catchUpTimeoutMs = 2_000;
/** How long a lock on the target may keep a school closed. */
const targetLockTimeoutMs = 5_000;
/** How long the target may take for each statement while the school is closed. */
const targetTimeoutMs = 10_000;
/** How often the school is closed again after it could not be moved in time. */
const maxAttempts = 30;
/** How long the target may take until it begins to copy the next table. */
const defaultStallTimeoutMs = 60_000;
/** How long the routers may take to learn the new server. */
const directoryTimeoutMs = 2_000;

/** How many rows outside the schema are copied with one statement. */
const rowsAtATime = 5_000;

/**
 * The subscription of the target, also the name of its slot and of the publication on the source. It names the target,
 * so that no other server takes its changes.
 */
const subscriptionOf = (school: number, to: Server) => `school_move_${String(school)}_${String(to.id ?? homeName)}`;
const schemaOf = (school: number) => `tenant_${String(school)}`;
/** The tables at the earlier server, until the move is confirmed. */
const retainedSchemaOf = (school: number) => `moved_tenant_${String(school)}`;

/** The command that moves a school, without the server. */
const commandOf = (subdomain: string) => `school tenant move ${subdomain}`;

/** Whether a server could not be reached. */
const isUnreachable = (error: unknown) => classify(error).apiError?.error === 'unavailable';

const answers = (server: Server) =>
  requireAnswer(server.url).then(
    () => true,
    (error: unknown) => {
      if (isUnreachable(error)) return false;
      throw error;
    },
  );

const hasSchema = async (client: pg.ClientBase, name: string) =>
  (await client.query<{ exists: boolean }>('select to_regnamespace($1) is not null as exists', [name])).rows[0]
    ?.exists === true;

/** Runs `work` unless another command works on the moves of the school. */
async function withMoveLock<T>(home: pg.ClientBase, school: number, work: () => Promise<T>): Promise<T> {
  await enableKeepalive(home);
  const { rows } = await home.query<{ is_locked: boolean }>(
    "select pg_try_advisory_lock(core.lock_key('move', $1)) as is_locked",
    [school],
  );
  if (!rows[0]?.is_locked) throw new Error('Another command is moving this school. Wait until it has ended.');
  try {
    return await work();
  } finally {
    await home.query("select pg_advisory_unlock(core.lock_key('move', $1))", [school]).catch(() => undefined);
  }
}

/** The locks of a connection whose machine has lost power would last for two hours. */
async function enableKeepalive(client: pg.ClientBase): Promise<void> {
  await client.query('set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3');
}

async function readServers(home: pg.ClientBase, homeUrl: string): Promise<Server[]> {
  const nodes = await readNodes(home);
  return [{ id: null, name: homeName, url: homeUrl }, ...nodes.filter(({ status }) => status !== 'joining')];
}

const hasRetained = (server: Server, school: number) =>
  withOwnerInTime(server.url, answerTimeoutMs, (client) => hasSchema(client, retainedSchemaOf(school)));

/**
 * The server that still has the tables of a school that was moved away from it; `current` if that is one. A server that
 * does not answer does not keep the schools of the others from moving: its tables are found when it is back.
 * @param options.target  the server to which the school moves
 * @throws if a server of `required` does not answer, or if several have kept the tables and `current` has not
 */
async function findRetained(
  servers: Server[],
  school: number,
  {
    current,
    required,
    subdomain,
    target,
  }: { current: Server; required: Server[]; subdomain: string; target?: Server | undefined },
): Promise<{ retained: Server | undefined; unreachable: Server[] }> {
  const unreachable: Server[] = [];
  const found = await Promise.all(
    servers.map((server) =>
      hasRetained(server, school).catch((error: unknown) => {
        if (!isUnreachable(error)) throw error;
        unreachable.push(server);
        if (!required.includes(server)) return false;
        const advice =
          server === target && server.id !== null
            ? ` Repeat the command when it is back. If it is lost, give up the move: ${commandOf(subdomain)} ` +
              `${server.name} --cancel --lost`
            : '';
        throw new Error(`The server ${server.name} does not answer: ${reasonOf(error)}.${advice}`, { cause: error });
      }),
    ),
  );
  const retaining = servers.filter((_, n) => found[n]);
  if (retaining.length > 1 && !retaining.includes(current))
    throw new Error(
      `Several servers have kept tables of this school: ${retaining.map(({ name }) => name).join(', ')}. Find out which ` +
        'are older, and delete them there: ' +
        retaining.map(({ name }) => `${commandOf(subdomain)} ${name} --confirm`).join(' or '),
    );
  return { retained: retaining.includes(current) ? current : retaining[0], unreachable };
}

/** The subdomain and the server of a school in the directory. @throws if there is no such school */
async function findSchool(
  home: pg.ClientBase,
  servers: Server[],
  school: number,
): Promise<{ subdomain: string; current: Server }> {
  const { rows } = await home.query<{ subdomain: string; node_id: number | null }>(
    'select subdomain, node_id::integer as node_id from platform.tenant where id = $1',
    [school],
  );
  const current = rows[0] && servers.find(({ id }) => id === rows[0]?.node_id);
  if (!current) throw new Error(`There is no school ${String(school)}, or its node has not joined.`);
  return { subdomain: rows[0]?.subdomain ?? '', current };
}

/** @throws if the servers have different releases, or the school is not at the current schema version */
async function checkVersions(source: pg.Client, target: pg.Client, school: number): Promise<number> {
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
  return to.version;
}

/** The tables of a school outside its schema, those that others refer to first. */
const sharedTables = async (client: pg.Client, school: number) =>
  (
    await client.query<{ name: string; condition: string; is_copied_home: boolean }>(
      'select name, condition, is_copied_home from core.shared_tables($1)',
      [school],
    )
  ).rows;

/** Deletes the rows of a school outside its schema. At home, those stay that nodes copy there. */
async function deleteSharedRows(client: pg.Client, { id }: Server, school: number): Promise<void> {
  const tables = await sharedTables(client, school);
  for (const { name, condition, is_copied_home: isCopiedHome } of tables.toReversed())
    if (id !== null || !isCopiedHome) await client.query(`delete from ${name} where ${condition}`);
  if (id !== null) await client.query('delete from platform.tenant where id = $1', [school]);
}

/** Runs `work` in a transaction without triggers and checks of foreign keys, as replication does. */
async function asReplica<T>(client: pg.Client, work: () => Promise<T>): Promise<T> {
  await client.query('begin');
  try {
    await client.query('set local session_replication_role = replica');
    const result = await work();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}

async function dropSchema(client: pg.Client, schema: string): Promise<void> {
  for (;;) {
    const { rows } = await client.query<{ has_more: boolean }>('select core.drop_tables($1) as has_more', [schema]);
    if (rows[0]?.has_more !== true) return;
  }
}

/** Writes the row of a school on the target, closed: with node_id, no request, job or migration enters it. */
async function writeTenant(source: pg.Client, target: pg.Client, from: Server, to: Server, school: number) {
  const { rows } = await source.query<{ row: string }>(
    'select to_json(t)::text as row from platform.tenant t where id = $1',
    [school],
  );
  await target.query('delete from platform.tenant where id = $1', [school]);
  await target.query(
    `insert into platform.tenant
     select * from jsonb_populate_record(null::platform.tenant,
       $1::jsonb || jsonb_build_object('schema_version', 0, 'node_id', $2::bigint))`,
    [rows[0]?.row, to.id ?? from.id],
  );
}

/** Creates the empty tables of a school on the target, at the current version. */
async function prepareTarget(source: pg.Client, target: pg.Client, from: Server, to: Server, school: number) {
  await dropSchema(target, schemaOf(school));
  await asReplica(target, () => writeTenant(source, target, from, to, school));
  await target.query('begin');
  await target.query('select core.tenant_migrate($1)', [school]);
  await target.query('update platform.tenant set schema_version = 0 where id = $1', [school]);
  // Migrations insert rows too.
  await target.query('set local session_replication_role = replica');
  const { rows } = await target.query<{ name: string }>('select name from core.archive_tables($1)', [school]);
  for (const { name } of rows) await target.query(`delete from ${schemaOf(school)}.${target.escapeIdentifier(name)}`);
  // requireSchool reads it: the row of the school has 0.
  await target.query('select core.move_note_version($1, (select max(version) from platform.tenant_migration))', [
    schemaOf(school),
  ]);
  await target.query('commit');
}

/**
 * Locks the row of a school on the source, so that changes by operators wait, until the transaction ends.
 * @throws if the source no longer has the school, or has migrated it since its tables were created on the target
 */
async function requireSchool(source: pg.Client, target: pg.Client, school: number): Promise<void> {
  const { rows } = await source.query<{ version: number }>(
    `select schema_version as version from platform.tenant
     where id = $1 and node_id is null and schema_version > 0
     for no key update`,
    [school],
  );
  if (!rows[0]) throw new Error('The school is no longer on the server from which it moves.');
  const { rows: copies } = await target.query<{ version: number | null }>('select core.move_version($1) as version', [
    schemaOf(school),
  ]);
  if (copies[0]?.version !== rows[0].version)
    throw new Error('The school was migrated after the move began. Give up the move with --cancel, and begin again.');
}

const hasPublication = async (client: pg.Client, name: string) =>
  (await client.query('select from pg_publication where pubname = $1', [name])).rowCount === 1;

/** Whether a publication contains all tables of a school, so that rows may have been copied. */
const publishesSchool = async (client: pg.Client, name: string) =>
  (
    await client.query(
      'select from pg_publication p join pg_publication_namespace n on n.pnpubid = p.oid where p.pubname = $1',
      [name],
    )
  ).rowCount === 1;

/** Whether a move was stopped after it had begun to copy rows, and can go on. */
const isBegun = async (source: pg.Client, target: pg.Client, name: string) =>
  (await hasSubscription(target, name)) && (await hasSlot(source, name)) && (await publishesSchool(source, name));

/** @throws if a table has no key, by which the target finds changed rows */
async function requireKeys(source: pg.Client, school: number): Promise<void> {
  const { rows } = await source.query<{ name: string }>(
    `select c.relname as name from pg_class c
     where c.relnamespace = $1::regnamespace and c.relkind = 'r'
       and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)`,
    [schemaOf(school)],
  );
  if (rows.length > 0) throw new Error(`These tables have no primary key: ${rows.map(({ name }) => name).join(', ')}`);
}

/**
 * Creates a publication with these tables, also instead of an earlier one. It is there from the beginning of a move to
 * its end, and its name says to which server.
 */
async function publish(source: pg.Client, target: pg.Client, name: string, tables: string[]): Promise<void> {
  const { rows: control } = await target.query<{ system: string }>(
    'select system_identifier::text as system from pg_control_system()',
  );
  // dropTableSlots reads the comment. One text with all statements is one transaction.
  await source.query(
    `drop publication if exists ${name};
     create publication ${name} ${tables.length > 0 ? `for table ${tables.join()}` : ''};
     comment on publication ${name} is ${source.escapeLiteral(control[0]?.system ?? '')}`,
  );
}

/** The tables of a school without rows, with the schema. */
async function emptyTables(source: pg.Client, school: number): Promise<string[]> {
  const { rows: tables } = await source.query<{ name: string }>(
    "select format('%I.%I', $1::text, relname) as name from core.relations_in($1) where relkind = 'r'",
    [schemaOf(school)],
  );
  const { rows } = await source.query<{ name: string }>(
    tables
      .map(({ name }) => `select ${source.escapeLiteral(name)} as name where not exists (select from ${name})`)
      .join(' union all '),
  );
  return rows.map(({ name }) => name);
}

/**
 * Subscribes to the tables of a school, most of which are empty in a new one. Postgres starts two processes for each
 * table that it copies, so the empty ones are subscribed to first, without a copy.
 */
async function subscribeToSchool(
  source: pg.Client,
  target: pg.Client,
  from: Server,
  name: string,
  school: number,
): Promise<void> {
  if (await isBegun(source, target, name)) {
    // Only the address can have changed.
    await subscribe(target, name, from.url, name, 'copy_data = true');
  } else {
    for (;;) {
      const empty = await emptyTables(source, school);
      await publish(source, target, name, empty);
      await subscribe(target, name, from.url, name, 'copy_data = false, enabled = false');
      // A row that was written before the slot was created would be missing. All later changes will arrive.
      const stillEmpty = new Set(await emptyTables(source, school));
      if (empty.every((table) => stillEmpty.has(table))) break;
      await endSubscription(source, target, name);
    }
    await source.query(`alter publication ${name} set tables in schema ${schemaOf(school)}`);
  }
  await target.query(`alter subscription ${name} enable`);
  await target.query(`alter subscription ${name} refresh publication with (copy_data = true)`);
}

/**
 * Ends what moves to nodes that were removed have left on the source.
 * @throws if a move of the school to another server than `to` has begun
 */
async function requireOnlyMove(
  source: pg.Client,
  servers: Server[],
  to: Server,
  school: number,
  subdomain: string,
): Promise<void> {
  const { rows } = await source.query<{ name: string }>(
    `select pubname as name from pg_publication where pubname like 'school\\_move\\_' || $1 || '\\_%' and pubname <> $2`,
    [String(school), subscriptionOf(school, to)],
  );
  for (const { name } of rows) {
    const other = servers.find((server) => subscriptionOf(school, server) === name);
    if (other)
      throw new Error(
        `A move of the school to ${other.name} has begun. Continue it, or give it up: ${commandOf(subdomain)} ` +
          `${other.name} --cancel`,
      );
    await endPublication(source, name, true);
  }
}

/** No table was copied for some time. */
class StallError extends Error {}

/**
 * Waits until all tables are copied. A large one may take any time.
 * @throws if none was copied for `stallTimeoutMs`, and none is being copied then
 */
async function waitForCopies(
  target: pg.Client,
  from: Server,
  to: Server,
  name: string,
  { stallTimeoutMs, onProgress }: Required<Pick<MoveOptions, 'stallTimeoutMs' | 'onProgress'>>,
): Promise<void> {
  for (;;) {
    let last: Tables | undefined;
    let changedAt = performance.now();
    try {
      await waitForTables(target, name, {
        timeoutMs: Infinity,
        onProgress: (tables) => {
          onProgress(tables);
          if (tables.copied !== last?.copied) changedAt = performance.now();
          last = tables;
          if (tables.copied < tables.total && performance.now() - changedAt > stallTimeoutMs) throw new StallError();
        },
      });
      return;
    } catch (error) {
      if (!(error instanceof StallError)) throw error;
      if (await isCopying(target, name)) continue;
      const { rows } = await target.query<{ workers: string }>(
        "select current_setting('max_logical_replication_workers') as workers",
      );
      throw new Error(
        `${to.name} has copied no table of the school for ${String(stallTimeoutMs / 1000)} s, and ` +
          `${String((last?.total ?? 0) - (last?.copied ?? 0))} are missing. Its log has the cause. If it is "out of ` +
          `logical replication worker slots", raise max_logical_replication_workers there, which is ` +
          `${rows[0]?.workers ?? 'unknown'}, and restart the server; if no slot is free, max_replication_slots on ` +
          `${from.name}. Then repeat the move.`,
        { cause: error },
      );
    }
  }
}

async function analyze(target: pg.Client, school: number): Promise<void> {
  const { rows } = await target.query<{ name: string }>('select name from core.archive_tables($1)', [school]);
  for (const { name } of rows) await target.query(`analyze ${schemaOf(school)}.${target.escapeIdentifier(name)}`);
}

/** Waits until the target, and the home if it copies from this server, have all changes up to now. */
async function catchUp(source: pg.Client, from: Server, to: Server, school: number): Promise<void> {
  const { rows } = await source.query<{ position: string }>('select pg_current_wal_lsn()::text as position');
  for (const end = Date.now() + catchUpTimeoutMs; ;) {
    const { rows: states } = await source.query<{ is_done: boolean }>(
      // Only these: another server that hangs does not keep the school from moving.
      `select not exists (
         select name from unnest($2::text[]) name
         except
         select application_name from pg_stat_replication where state = 'streaming' and replay_lsn >= $1) as is_done`,
      [rows[0]?.position, [subscriptionOf(school, to), ...(from.id === null ? [] : [copiesOf(from.id)])]],
    );
    if (states[0]?.is_done) return;
    if (Date.now() > end)
      throw new RetryError(
        `Replication from ${from.name} did not catch up within ${String(catchUpTimeoutMs / 1000)} s.`,
      );
    await pause(20);
  }
}

/** @throws if a table has not the same number of rows on both servers */
async function compareCounts(source: pg.Client, target: pg.Client, school: number): Promise<void> {
  const { rows: tables } = await source.query<{ name: string }>('select name from core.archive_tables($1)', [school]);
  const text = tables
    .map(({ name }) => `select '${name}' as name, count(*) as rows from ${schemaOf(school)}.${name}`)
    .join(' union all ');
  const counts = async (client: pg.Client) =>
    new Map((await client.query<{ name: string; rows: string }>(text)).rows.map(({ name, rows }) => [name, rows]));
  const [here, there] = await Promise.all([counts(source), counts(target)]);
  const wrong = [...here].filter(([name, rows]) => there.get(name) !== rows).map(([name]) => name);
  if (wrong.length > 0) throw new Error(`The copies of these tables are not complete: ${wrong.join(', ')}`);
}

/** Copies what logical replication does not: sequences, and the rows outside the schema. */
async function copySequencesAndSharedRows(
  source: pg.Client,
  target: pg.Client,
  from: Server,
  to: Server,
  school: number,
) {
  const { rows: sequences } = await source.query<{ name: string }>(
    "select relname as name from core.relations_in($1) where relkind = 'S'",
    [schemaOf(school)],
  );
  const { rows: positions } = await source.query<{ name: string; last_value: string; is_called: boolean }>(
    sequences
      .map(({ name }) => `select '${name}' as name, last_value, is_called from ${schemaOf(school)}.${name}`)
      .join(' union all '),
  );
  await asReplica(target, async () => {
    await target.query(
      `select setval(format('%I.%I', $1::text, name)::regclass, last_value, is_called)
       from json_to_recordset($2) s (name text, last_value bigint, is_called boolean)`,
      [schemaOf(school), JSON.stringify(positions)],
    );
    const tables = await sharedTables(source, school);
    for (const { name, condition } of tables.toReversed()) await target.query(`delete from ${name} where ${condition}`);
    await writeTenant(source, target, from, to, school);
    for (const table of tables) await copyRows(source, target, table);
  });
}

/** Copies the rows of a table in batches, because all audit entries of a large school may be too long for one text. */
async function copyRows(
  source: pg.Client,
  target: pg.Client,
  { name, condition }: { name: string; condition: string },
) {
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

/** An attempt to close the school failed for a reason that may be gone in a second. */
class RetryError extends Error {}

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

/**
 * Closes a school on the source after the target has all of it. New requests fail while this connection holds the lock;
 * after the commit, `schema_version` 0 keeps them out until `openSchool`. If the target hangs meanwhile, the source ends
 * the connection, and so opens the school.
 */
async function closeSchool(
  source: pg.Client,
  target: pg.Client,
  from: Server,
  to: Server,
  school: number,
): Promise<void> {
  await source.query(`set lock_timeout = ${String(lockTimeoutMs)}`);
  try {
    await source.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school]);
    await source.query('begin');
    await source.query(`set local idle_in_transaction_session_timeout = ${String(targetTimeoutMs)}`);
    await whileConnected(source, async () => {
      await target.query(`set lock_timeout = ${String(targetLockTimeoutMs)}`);
      await requireSchool(source, target, school);
      const { rows } = await source.query<{ running: number }>('select running from core.move_jobs_hold($1)', [school]);
      if (rows[0]?.running) throw new RetryError('A job of the school is still running; see: school jobs list.');
      await catchUp(source, from, to, school);
      await compareCounts(source, target, school);
      await copySequencesAndSharedRows(source, target, from, to, school);
      // While the school is closed, waiting is better than leaving it so.
      await target.query('reset lock_timeout');
      await source.query('select core.move_close($1, $2)', [school, from.id ?? to.id]);
      await source.query('commit');
    });
  } catch (error) {
    await source.query('rollback').catch(() => undefined);
    await source.query('select pg_advisory_unlock(core.tenant_lock_key($1))', [school]).catch(() => undefined);
    const { code } = error as { code?: string };
    // lock_not_available
    if (code === '55P03')
      throw new RetryError(
        'Another connection has locked the school: a request, an export or a change by an operator.',
      );
    // idle_in_transaction_session_timeout
    if (code === '25P03')
      throw new Error(
        `The server ${to.name} did not answer while the school was closed. It is open again on ${from.name}. Repeat ` +
          'the move later.',
        { cause: error },
      );
    throw error;
  }
}

/** Repeats `attempt` while something is in the way. @returns its result */
async function retryClose<T>(attempt: () => Promise<T>): Promise<T> {
  for (let count = 1; ; count++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof RetryError) || count === maxAttempts) throw error;
      await pause(1_000);
    }
  }
}

/** Ends a subscription, also when a stopped command has left only a part of it. */
async function endSubscription(source: pg.Client, target: pg.Client, name: string): Promise<void> {
  // Without its slot, which may be gone already.
  await unsubscribe(target, name);
  await dropSlot(source, name);
}

/** Ends the replication of a school, also when a stopped command had only created a part of it. */
async function endReplication(source: pg.Client, target: pg.Client, name: string): Promise<void> {
  await unsubscribe(target, name);
  await endPublication(source, name);
}

/** @param isLost  whether the target is lost, so that it does not drop its other slots */
async function endPublication(source: pg.Client, name: string, isLost = false): Promise<void> {
  // A slot without its subscription would keep the WAL of the source forever.
  await dropSlot(source, name);
  if (isLost) await dropTableSlots(source, name);
  await source.query(`drop publication if exists ${name}`);
}

/** Drops the slots with which the target of a publication was copying tables, also those of other schools. */
async function dropTableSlots(source: pg.Client, publication: string): Promise<void> {
  const { rows } = await source.query<{ name: string }>(
    `select s.slot_name as name
     from pg_replication_slots s
     join pg_publication p on p.pubname = $1
     where s.database = current_database()
       and s.slot_name ~ ('^pg_[0-9]+_sync_[0-9]+_' || obj_description(p.oid, 'pg_publication') || '$')`,
    [publication],
  );
  for (const { name } of rows) await dropSlot(source, name);
}

/** Waits until the routers know the new server, but not longer than one that is not connected may take. */
async function waitForDirectory(home: pg.Client): Promise<void> {
  const { rows } = await home.query<{ position: string }>('select pg_current_wal_lsn()::text as position');
  for (const end = Date.now() + directoryTimeoutMs; Date.now() < end;) {
    const { rows: states } = await home.query<{ is_copied: boolean }>('select core.is_copied($1)', [rows[0]?.position]);
    if (states[0]?.is_copied) return;
    await pause(10);
  }
}

/** Opens a school on the target, with the jobs that wait on the source. At home this also changes the directory. */
async function openSchool(source: pg.Client, target: pg.Client, school: number): Promise<void> {
  const { rows } = await source.query<{ jobs: string; version: number }>(
    'select core.move_jobs_read($1)::text as jobs, core.move_version($2) as version',
    [school, retainedSchemaOf(school)],
  );
  await target.query('begin');
  const { rowCount } = await target.query(
    'update platform.tenant set schema_version = $2, node_id = null where id = $1 and node_id is not null',
    [school, rows[0]?.version],
  );
  if (rowCount === 1) await target.query('select core.move_jobs_add($1)', [rows[0]?.jobs]);
  else if (!(await isOpenOn(target, school))) throw new Error('The row of the school is missing on the target.');
  await target.query('commit');
}

/** Whether a server has the school open, instead of a copy of its row. */
const isOpenOn = async (client: pg.Client, school: number) =>
  (await client.query('select from platform.tenant where id = $1 and node_id is null and schema_version > 0', [school]))
    .rowCount === 1;

/** @throws unless a move that has closed the school has copied it to this server, and was not partly undone */
async function requireCopyOf(
  source: pg.Client,
  target: pg.Client,
  to: Server,
  school: number,
  subdomain: string,
): Promise<void> {
  const name = subscriptionOf(school, to);
  const isCopied =
    (await isOpenOn(target, school)) || ((await hasPublication(source, name)) && (await hasSubscription(target, name)));
  if (!isCopied || !(await hasSchema(target, schemaOf(school))))
    throw new Error(
      `The school is closed, and ${to.name} has no copy of it. Open it where it was: ${commandOf(subdomain)} ` +
        `${to.name} --cancel`,
    );
}

/**
 * Moves a school to another server, or continues a move that stopped. The school is in service while its rows are
 * copied, and closed for a moment at the end. The earlier server keeps its tables until `confirmMove`.
 * @returns how long the school was closed, in milliseconds; undefined if an earlier run had closed it
 * @throws if there is no such school or server, an earlier move is not confirmed, or the servers differ
 */
export async function moveSchool(
  home: pg.Client,
  {
    homeUrl,
    school,
    to: targetName,
    onStep = () => undefined,
    onProgress = () => undefined,
    stallTimeoutMs = defaultStallTimeoutMs,
  }: MoveOptions,
): Promise<number | undefined> {
  return withMoveLock(home, school, async () => {
    const servers = await readServers(home, homeUrl);
    const to = servers.find(({ name }) => name === targetName);
    if (!to) throw new Error(`There is no node ${targetName}, or it is still joining.`);
    const { current, subdomain } = await findSchool(home, servers, school);
    const { retained } = await findRetained(servers, school, {
      current,
      required: [current, to],
      subdomain,
      target: to,
    });
    const from = current === to ? retained : current;
    if (!from) throw new Error(`The school is on ${targetName} already.`);
    if (retained && retained !== from)
      throw new Error(`An earlier move of the school is not confirmed. Run: ${commandOf(subdomain)} --confirm`);
    const isClosed = retained === from;
    const nodeIds = [from, to].flatMap(({ id }) => id ?? []);

    return withOwner(from.url, (source) =>
      withOwner(to.url, async (target) => {
        await Promise.all([source, target].map(enableKeepalive));
        let closedAt: number | undefined;
        const name = subscriptionOf(school, to);
        await requireOnlyMove(source, servers, to, school, subdomain);
        if (isClosed) await requireCopyOf(source, target, to, school, subdomain);
        else {
          await checkVersions(source, target, school);
          for (const id of nodeIds) await requireCopies(home, id);
          await requireReplicationLimits(source, target, { name, from: from.name, to: to.name });
          await requireKeys(source, school);
          if (!(await isBegun(source, target, name))) {
            await publish(source, target, name, []);
            // Without its slot it is that of a move that was given up with --lost, before its server came back.
            await endSubscription(source, target, name);
            await prepareTarget(source, target, from, to, school);
          }
          await requireSchool(source, target, school);
          await onStep('prepared');
          await subscribeToSchool(source, target, from, name, school);
          await waitForCopies(target, from, to, name, { stallTimeoutMs, onProgress });
          await analyze(target, school);
          await onStep('copied');
          closedAt = await withSharedSubscriptionLock(home, nodeIds, async () => {
            const start = await retryClose(async () => {
              // A release that was installed meanwhile may have added some.
              for (const id of nodeIds) await requireCopies(home, id);
              const attemptedAt = performance.now();
              await closeSchool(source, target, from, to, school);
              return attemptedAt;
            });
            await onStep('closed');
            return start;
          });
        }
        // Until it is open there, its requests wait on the target as they do on the source.
        await target.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school]);
        if (to.id !== null) {
          await home.query('update platform.tenant set node_id = $2 where id = $1 and node_id is distinct from $2', [
            school,
            to.id,
          ]);
          await waitForDirectory(home);
          await onStep('switched');
        }
        await openSchool(source, target, school);
        if (to.id === null) {
          await waitForDirectory(home);
          await onStep('switched');
        }
        for (const client of [source, target]) await client.query('select pg_advisory_unlock_all()');
        const closedMs = closedAt === undefined ? undefined : performance.now() - closedAt;
        await onStep('opened');
        await endReplication(source, target, name);
        await onStep('cleaned');
        return closedMs;
      }),
    );
  });
}

/**
 * Deletes what the earlier server of a moved school has kept.
 * @param options.from  the name of this server; needed if several have kept tables
 * @throws if it has nothing, or the move is not finished
 */
export async function confirmMove(
  home: pg.Client,
  { homeUrl, school, from: sourceName }: Pick<MoveOptions, 'homeUrl' | 'school'> & { from?: string },
): Promise<void> {
  return withMoveLock(home, school, async () => {
    const servers = await readServers(home, homeUrl);
    const { current, subdomain } = await findSchool(home, servers, school);
    const named = servers.filter(({ name }) => name === sourceName);
    const { retained, unreachable } = await findRetained(sourceName === undefined ? servers : named, school, {
      current,
      required: [current, ...named],
      subdomain,
    });
    if (!retained && sourceName !== undefined) throw new Error(`${sourceName} has kept no tables of this school.`);
    if (!retained && unreachable.length > 0)
      throw new Error(
        `No server that answers has kept tables of this school. These do not answer: ` +
          `${unreachable.map(({ name }) => name).join(', ')}. Repeat the command when they are back.`,
      );
    if (!retained) throw new Error('No move of this school has to be confirmed.');
    const isOpen = await withOwner(
      current.url,
      async (client) => (await isOpenOn(client, school)) && (await hasSchema(client, schemaOf(school))),
    );
    if (retained === current)
      throw new Error(
        `The move is not finished. Repeat it, with the server to which the school moves: ${commandOf(subdomain)}`,
      );
    if (!isOpen) throw new Error(`The move is not finished. Repeat it: ${commandOf(subdomain)} ${current.name}`);
    await withOwner(retained.url, async (source) => {
      await withOwner(current.url, (target) => endReplication(source, target, subscriptionOf(school, current)));
      await asReplica(source, async () => {
        await source.query(
          `delete from graphile_worker._private_jobs
         where core.job_school(payload) = $1 and locked_by = 'school move'`,
          [school],
        );
        await deleteSharedRows(source, retained, school);
      });
      await dropSchema(source, retainedSchemaOf(school));
    });
  });
}

/** Deletes the copies of a school on the server that it does not move to. */
async function deleteCopies(target: pg.Client, to: Server, school: number): Promise<void> {
  await asReplica(target, () => deleteSharedRows(target, to, school));
  await dropSchema(target, schemaOf(school));
}

/** Opens a school again on the server that has closed it. */
async function reopen(home: pg.Client, source: pg.Client, { id }: Server, school: number): Promise<void> {
  if (id !== null) {
    await home.query('update platform.tenant set node_id = $2 where id = $1', [school, id]);
    await waitForDirectory(home);
  }
  await source.query('select core.move_reopen($1)', [school]);
  if (id === null) await waitForDirectory(home);
}

/**
 * Gives up a move, and deletes the copies: before the school is opened on the target. If the target is lost, with
 * `isLost`, also later: then the school has what it had when it was closed.
 * @throws if it is too late, or the target is lost but answers
 */
export async function cancelMove(
  home: pg.Client,
  {
    homeUrl,
    school,
    to: targetName,
    isLost = false,
  }: Pick<MoveOptions, 'homeUrl' | 'school' | 'to'> & { isLost?: boolean },
): Promise<void> {
  return withMoveLock(home, school, async () => {
    const servers = await readServers(home, homeUrl);
    const { current, subdomain } = await findSchool(home, servers, school);
    const to = servers.find(({ name }) => name === targetName);
    if (!to) throw new Error(`There is no node ${targetName}, or it is still joining.`);
    if (isLost && (to.id === null || (await answers(to))))
      throw new Error(`The server ${targetName} answers. Leave out --lost.`);
    const { retained } = await findRetained(servers, school, {
      current,
      required: isLost ? [current].filter((server) => server !== to) : [current, to],
      subdomain,
      target: to,
    });
    if (retained === to || (!retained && current === to))
      throw new Error(
        isLost
          ? 'No other server has kept the tables of this school. Restore the node from a backup.'
          : `The school is open on ${current.name}. Confirm the move, then move it back.`,
      );
    const from = retained ?? current;
    if (current !== to && current !== from)
      throw new Error(`The school is open on ${current.name}, which is not ${to.name}.`);
    const name = subscriptionOf(school, to);
    await withOwner(from.url, async (source) => {
      await requireOnlyMove(source, servers, to, school, subdomain);
      if (isLost) {
        if (retained) await reopen(home, source, retained, school);
        await endPublication(source, name, true);
        return;
      }
      await withOwner(to.url, async (target) => {
        await enableKeepalive(target);
        // Nobody opens the school here from now on: a command that is lost may still be at work in the server.
        await target.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school]);
        if (await isOpenOn(target, school))
          throw new Error(
            current === to
              ? `The school is open on ${to.name}. Confirm the move, then move it back.`
              : `The school is open on ${to.name} too, but the directory names ${current.name}. Remove the node ${to.name}.`,
          );
        await unsubscribe(target, name);
        if (retained) await reopen(home, source, retained, school);
        await deleteCopies(target, to, school);
        // Last, because until then it keeps other moves of the school from beginning.
        await endPublication(source, name);
      });
    });
  });
}

interface PlannedMove {
  school: number;
  subdomain: string;
  from: string;
  to: string;
}

interface Plan {
  moves: PlannedMove[];
  counts: { name: string; before: number; after: number }[];
  /** The nodes that do not answer. No school moves from or to them. */
  unreachable: string[];
  /** How many schools stay on drained nodes that answer, because no active node answers. */
  stranded: number;
}

/**
 * The moves after which the active nodes have the same number of schools, give or take one, and those that are being
 * drained have none.
 * @param includesHome  whether the home takes part like an active node
 */
export async function planMoves(home: pg.Client, includesHome: boolean): Promise<Plan> {
  const { rows } = await home.query<{ id: number; subdomain: string; node: string }>(
    `select t.id::double precision as id, t.subdomain, coalesce(n.name, $1) as node
     from platform.tenant t
     left join platform.node n on n.id = t.node_id
     where t.status <> 'deleted'
     order by t.id`,
    [homeName],
  );
  const nodes = await Promise.all(
    (await readNodes(home))
      .filter(({ status }) => status !== 'joining')
      .map(async (node) => ({ ...node, isReachable: await answers(node) })),
  );
  const servers = [
    ...(includesHome ? [{ name: homeName, isDrained: false, isReachable: true }] : []),
    ...nodes.map(({ name, status, isReachable }) => ({ name, isDrained: status === 'draining', isReachable })),
  ].map((server) => ({ ...server, schools: rows.filter(({ node }) => node === server.name) }));
  const before = new Map(servers.map(({ name, schools }) => [name, schools.length]));
  const reachable = servers.filter(({ isReachable }) => isReachable);
  const moves: PlannedMove[] = [];
  for (;;) {
    const active = reachable.filter(({ isDrained }) => !isDrained).sort((a, b) => a.schools.length - b.schools.length);
    const [to] = active;
    const from = reachable.find(({ isDrained, schools }) => isDrained && schools.length > 0) ?? active.at(-1);
    if (!to || !from || (!from.isDrained && from.schools.length - to.schools.length <= 1)) break;
    const school = from.schools.pop();
    if (!school) break;
    to.schools.push(school);
    moves.push({ school: school.id, subdomain: school.subdomain, from: from.name, to: to.name });
  }
  return {
    moves,
    counts: servers.map(({ name, schools }) => ({ name, before: before.get(name) ?? 0, after: schools.length })),
    unreachable: nodes.filter(({ isReachable }) => !isReachable).map(({ name }) => name),
    stranded: reachable.filter(({ isDrained }) => isDrained).reduce((sum, { schools }) => sum + schools.length, 0),
  };
}
