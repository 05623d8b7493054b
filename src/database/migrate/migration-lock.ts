import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { withOptions } from '../pool/pool.ts';

/** The advisory lock that lets one process at a time migrate a database; db/core/tenant.sql lists all lock keys. */
const migrationLockKey = 7310;

const retryMs = 200;
/** A shorter wait is not reported. */
const reportAfterMs = 3_000;

const pooler =
  'DATABASE_URL leads through a connection pooler (such as PgBouncer), which cannot be used for migrations and ' +
  'workers. Set DATABASE_URL to the address of Postgres itself, and API_DATABASE_URL to the pooler ' +
  '(docs/operations/running.md, Connections).';

/**
 * Refuses a pooler before a lock is taken: in transaction mode, the lock would stay with a connection of the pooler, and
 * the next migration would wait for it forever.
 * @throws if a connection loses or refuses a startup option
 */
async function refusePooler(ownerUrl: string): Promise<void> {
  const client = new pg.Client({
    connectionString: withOptions(ownerUrl, '-c school.is_direct=yes'),
    application_name: 'school_owner',
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query<{ is_direct: string | null }>(
      "select current_setting('school.is_direct', true) as is_direct",
    );
    if (rows[0]?.is_direct !== 'yes') throw new Error(pooler);
  } catch (error) {
    if (error instanceof Error && error.message.includes('unsupported startup parameter'))
      throw new Error(pooler, { cause: error });
    throw error;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** Describes the connection that holds the lock; it may be of a process that no longer exists. */
async function describeHolder(client: pg.Client): Promise<{ holder: string; pid: number | undefined }> {
  const { rows } = await client.query<{ holder: string; pid: number }>(
    `select a.pid, format('process %s (%s, %s since %s)', a.pid, coalesce(nullif(a.application_name, ''), 'without a name'),
       a.state, to_char(a.state_change at time zone 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')) as holder
     from pg_locks l
     join pg_stat_activity a using (pid)
     where l.locktype = 'advisory' and l.granted and l.classid = 0 and l.objid = $1 and l.objsubid = 1
       and l.database = (select oid from pg_database where datname = current_database())`,
    [migrationLockKey],
  );
  return rows[0] ?? { holder: 'a process that is ending', pid: undefined };
}

/**
 * Takes the lock of the migration until the connection ends.
 * @param onWait  called once with a line to print, when another process holds the lock for some seconds
 * @throws if the address leads through a connection pooler
 */
export async function lockMigration(
  client: pg.Client,
  ownerUrl: string,
  onWait: (line: string) => void,
): Promise<void> {
  await refusePooler(ownerUrl);
  const start = performance.now();
  let isReported = false;
  for (;;) {
    const { rows } = await client.query<{ is_locked: boolean }>('select pg_try_advisory_lock($1) as is_locked', [
      migrationLockKey,
    ]);
    if (rows[0]?.is_locked) return;
    if (!isReported && performance.now() - start > reportAfterMs) {
      isReported = true;
      const { holder, pid } = await describeHolder(client);
      onWait(
        `Waiting for another migration of this database: ${holder} of Postgres holds its lock.` +
          (pid === undefined
            ? ''
            : ` If no migration is running, end it: select pg_terminate_backend(${String(pid)});`),
      );
    }
    await delay(retryMs);
  }
}
