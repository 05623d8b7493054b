import type pg from 'pg';
import { ownSubscription } from './subscriptions.ts';

/** What a subscription does: only `copying` is good. */
export type CopyState =
  | 'copying'
  | 'no subscription'
  | 'disabled'
  /** The publisher was restored, or has dropped it because it took too much WAL. */
  | 'no slot'
  /** Another database has the connection of this subscription: a copy of the subscriber. */
  | 'taken by another database'
  | 'stopped';

/**
 * Looks at a subscription from both sides. Its process alone does not show that it copies: it is started again and again
 * while another database uses its slot.
 */
export async function copyState(subscriber: pg.ClientBase, publisher: pg.ClientBase, name: string): Promise<CopyState> {
  const { rows } = await subscriber.query<{ is_enabled: boolean; is_connected: boolean }>(
    `select s.subenabled as is_enabled,
       coalesce(bool_or(a.pid is not null and a.received_lsn is not null), false) as is_connected
     from (select oid, subenabled ${ownSubscription}) s
     left join pg_stat_subscription a on a.subid = s.oid and a.relid is null
     group by s.subenabled`,
    [name],
  );
  const [subscription] = rows;
  if (!subscription) return 'no subscription';
  const { rows: slots } = await publisher.query<{ is_active: boolean }>(
    "select active as is_active from pg_replication_slots where slot_name = $1 and wal_status is distinct from 'lost'",
    [name],
  );
  const [slot] = slots;
  if (!slot) return 'no slot';
  if (!subscription.is_enabled) return slot.is_active ? 'taken by another database' : 'disabled';
  if (subscription.is_connected) return 'copying';
  return slot.is_active ? 'taken by another database' : 'stopped';
}
