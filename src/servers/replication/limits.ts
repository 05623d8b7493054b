import type pg from 'pg';
import { ownSubscription } from './subscriptions.ts';

/** A setting of a server that is too low for a move. */
interface Limit {
  name: string;
  value: number;
  needed: number;
}

/**
 * What the target of a move needs, besides what it has: a worker for the changes, and at least one for tables. All
 * settings are those of the server, which all its databases share. A subscription whose worker has just failed needs it
 * again soon, so that subscriptions count, and not the workers that run. Those of tables end by themselves.
 */
const targetSql = `
  select s.name, s.setting::integer as value, l.needed::integer
  from (select count(*) as subscriptions from pg_subscription where subenabled and oid not in (select oid ${ownSubscription})) a
  cross join (
    select count(*) as origins from pg_replication_origin_status
    where external_id is null
      or (external_id !~ '^pg_[0-9]+_[0-9]+$' and external_id not in (select 'pg_' || oid from (select oid ${ownSubscription}) o))
  ) b
  cross join lateral (values
    ('max_logical_replication_workers', subscriptions + 2),
    -- The launcher of the workers is one of them.
    ('max_worker_processes', subscriptions + 3),
    ('max_sync_workers_per_subscription', 1),
    (case when current_setting('server_version_num')::integer < 180000 then 'max_replication_slots'
       else 'max_active_replication_origins' end, origins + 2)) l (name, needed)
  join pg_settings s using (name)
  where s.setting::integer < l.needed
  order by s.name`;

/** What the source of a move needs: a slot and a sender for the changes, and at least one of each for tables. */
const sourceSql = `
  select s.name, s.setting::integer as value, l.needed::integer
  from (values
    ('max_replication_slots', (
      select count(*) + 2 from pg_replication_slots
      where slot_name <> $1 and not (active and slot_name ~ '^pg_[0-9]+_sync_'))),
    ('max_wal_senders', (
      select count(*) + 2 from pg_stat_replication
      where application_name <> $1 and application_name !~ '^pg_[0-9]+_sync_'))) l (name, needed)
  join pg_settings s using (name)
  where s.setting::integer < l.needed
  order by s.name`;

/**
 * Requires what Postgres does not report to the subscriber: without a free worker or slot, it writes a line to its log
 * and waits, without end.
 * @param name  the subscription of the move; what it has already is not counted
 * @throws if a setting of a server is too low for the move
 */
export async function requireReplicationLimits(
  source: pg.ClientBase,
  target: pg.ClientBase,
  { name, from, to }: { name: string; from: string; to: string },
): Promise<void> {
  for (const [server, client, text] of [
    [to, target, targetSql],
    [from, source, sourceSql],
  ] as const) {
    const { rows } = await client.query<Limit>(text, [name]);
    if (rows.length === 0) continue;
    const limits = rows.map(
      (limit) => `${limit.name} is ${String(limit.value)}, and ${String(limit.needed)} is needed`,
    );
    throw new Error(
      `The settings of the server ${server} leave no room for the move: ${limits.join('; ')}. Raise this there, and ` +
        'restart the server. docs/scaling.md, "Requirements", has the numbers.',
    );
  }
}

/**
 * Whether a worker copies a table for a subscription now, or all are copied but for the last changes. Those are applied
 * by the worker of the subscription itself, which may be behind.
 */
export const isCopying = async (target: pg.ClientBase, name: string): Promise<boolean> =>
  (
    await target.query(
      `select from pg_stat_subscription a
       where a.subid in (select oid ${ownSubscription}) and a.pid is not null
         and (a.relid is not null or not exists (
           select from pg_subscription_rel r where r.srsubid = a.subid and r.srsubstate not in ('s', 'r')))`,
      [name],
    )
  ).rows.length > 0;
